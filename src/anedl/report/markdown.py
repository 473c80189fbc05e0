"""Tables as Markdown, whatever the cells hold."""

import re
from collections.abc import Iterable, Sequence


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are Markdown already: what comes from elsewhere goes by `markdown`."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def markdown(text: str) -> str:
    """Text that Markdown shows as it is: one line, no tag, no cell border, no emphasis."""
    escaped = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\|*\[\]])", r"\\\1", escaped)
