"""The ledger for a terminal, as Markdown, and as one HTML file that needs no network."""

import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from textwrap import wrap
from typing import Literal

from anedl import __version__
from anedl.ledger.rows import ABOUT, COLUMNS, MISSING_COLUMNS, Row, missing_rows, sections
from anedl.ledger.table import Ledger
from anedl.report.canvas import missing_extra

Format = Literal["terminal", "markdown", "html"]
TITLE = "Our runs and the published numbers"
WIDTH = 100  # characters of a line of words in a terminal
WIDEST_NAME = 48
MISSING_TITLE = "Published, without a full-length run of ours"


def render(ledger: Ledger, form: Format, results: Path) -> str:
    """The whole ledger as text in one of the forms; `results` is the folder it was read from."""
    if form == "terminal":
        return render_terminal(ledger, results)
    return render_markdown(ledger, results) if form == "markdown" else render_html(ledger, results)


def nothing_yet(results: Path) -> str:
    """What to do where no run is recorded, or none is left to show."""
    return (
        f"No run to show from {results / 'runs'}. Record finished runs with "
        f"`anedl ledger --results {results} --add RUN …`, where RUN is a run folder such as "
        f"runs/digits/anedl-seed0 (`anedl train digits` makes one)."
    )


def render_terminal(ledger: Ledger, results: Path) -> str:
    """Columns of plain text; what is published but not run yet is only counted."""
    lines = []
    for section in sections(ledger):
        lines += [section.title, *wrap(section.remark, WIDTH), ""]
        rows = [line for block in section.blocks for row in block.rows for line in _folded(row)]
        widths = [max(map(len, column)) for column in zip(COLUMNS, *rows, strict=True)]
        for block in section.blocks:
            lines.append(block.setting)
            lines.append(_line(COLUMNS, widths))
            lines += [_line(line, widths) for row in block.rows for line in _folded(row)]
            lines.append("")
    if not ledger.tables:
        lines += [nothing_yet(results), ""]
    else:
        lines += [*wrap(ABOUT, WIDTH), ""]
    lines += [f"warning: {warning}" for warning in ledger.warnings]
    if ledger.missing:
        lines.append(
            f"{len(ledger.missing)} published numbers have no full-length run beside them yet; "
            f"--format markdown lists them."
        )
    # A name from a file must not move the cursor.
    plain = ("".join(c if c.isprintable() else "?" for c in line).rstrip() for line in lines)
    return "\n".join(plain).rstrip() + "\n"


def render_markdown(ledger: Ledger, results: Path) -> str:
    """Tables for a repository's pages."""
    parts = [f"# {TITLE}", _markdown(ABOUT)]
    if not ledger.tables:
        parts.append(_markdown(nothing_yet(results)))
    parts += [f"**Warning:** {_markdown(warning)}" for warning in ledger.warnings]
    for section in sections(ledger):
        parts += [f"## {_markdown(section.title)}", _markdown(section.remark)]
        for block in section.blocks:
            parts += [f"### {_markdown(block.setting)}", _markdown_table(COLUMNS, block.rows)]
        if section.notes:
            parts.append("\n".join(f"- {_markdown(note)}" for note in section.notes))
    if ledger.missing:
        table = _markdown_table(MISSING_COLUMNS, missing_rows(ledger))
        parts += [f"## {MISSING_TITLE}", table]
    return "\n\n".join(parts) + "\n"


def render_html(ledger: Ledger, results: Path) -> str:
    """One page, light or dark as its reader is; everything in it is escaped."""
    try:
        from jinja2 import Environment, StrictUndefined
    except ImportError as error:
        raise missing_extra("jinja2") from error
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    source = resources.files("anedl.ledger").joinpath("page.html.j2").read_text(encoding="utf-8")
    page: str = environment.from_string(source).render(
        title=TITLE,
        about=ABOUT,
        empty=None if ledger.tables else nothing_yet(results),
        warnings=ledger.warnings,
        sections=sections(ledger),
        columns=COLUMNS,
        missing_title=MISSING_TITLE,
        missing_columns=MISSING_COLUMNS,
        missing=missing_rows(ledger),
        version=__version__,
    )
    return page


def _folded(row: Row) -> list[tuple[str, ...]]:
    """The cells of a row; a long name goes on below, so that it leaves room for the numbers."""
    name, *others = row.cells
    first, *more = wrap(name, WIDEST_NAME, subsequent_indent="  ") or [""]
    return [(first, *others), *((part, *[""] * len(others)) for part in more)]


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True))


def _markdown_table(columns: Sequence[str], rows: Sequence[Row]) -> str:
    lines = [columns, ["---"] * len(columns), *(map(_markdown, row.cells) for row in rows)]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _markdown(text: str) -> str:
    """Text that Markdown shows as it is: one line, no tag, no cell border, no emphasis."""
    escaped = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return re.sub(r"([\\|*\[\]])", r"\\\1", escaped)
