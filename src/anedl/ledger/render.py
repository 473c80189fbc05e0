"""The ledger for a terminal, as Markdown, and as one HTML file that needs no network."""

from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from textwrap import shorten, wrap
from typing import Literal

from anedl import __version__
from anedl.ledger.rows import ABOUT, COLUMNS, MISSING_COLUMNS, Row, missing_rows, sections
from anedl.ledger.table import Ledger
from anedl.report.canvas import missing_extra
from anedl.report.markdown import markdown, markdown_table

Format = Literal["terminal", "markdown", "html"]
TITLE = "Our runs and the published numbers"
WIDTH = 100  # characters of a line of words in a terminal
WIDEST_NAME = 48
LONGEST_WHAT = 24
MISSING_TITLE = "Published, without a full-length run of ours"
MOST_MISSING = 20  # lines of a terminal for what we do not have


def render(ledger: Ledger, form: Format, results: Path, left_out: str = "") -> str:
    """The ledger as text in one of the forms.

    `results` is the folder it was read from, `left_out` a sentence about runs that are there and
    not to be shown.
    """
    empty = "" if ledger.tables else nothing_to_show(results, left_out)
    if form == "terminal":
        text = render_terminal(ledger, empty)
        return f"{text}\n{left_out}\n" if left_out and ledger.tables else text
    return render_markdown(ledger, empty) if form == "markdown" else render_html(ledger, empty)


def nothing_to_show(results: Path, left_out: str) -> str:
    """What to do where no run is recorded, or none is left to show."""
    if left_out:
        return f"No run to show from {results / 'runs'}. {left_out}"
    return (
        f"No run to show from {results / 'runs'}. Record finished runs with "
        f"`anedl ledger --results {results} --add RUN …`, where RUN is a run folder such as "
        f"runs/digits/anedl-plus-seed0 (`anedl train digits` makes one)."
    )


def render_terminal(ledger: Ledger, empty: str) -> str:
    """Columns of plain text; `empty` is said where there are none."""
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
    lines += [empty, ""] if empty else [*wrap(ABOUT, WIDTH), ""]
    lines += [f"warning: {warning}" for warning in ledger.warnings]
    if len(ledger.missing) > MOST_MISSING:
        lines += wrap(
            f"{MISSING_TITLE}: {len(ledger.missing)} entries. --setting or --method with a name "
            f"lists those of one, --format markdown lists all.",
            WIDTH,
        )
    elif ledger.missing:
        # Without the source and with few words of what it is, so that a line fits a screen.
        rows = [
            (setting, method, shorten(what, LONGEST_WHAT, placeholder=" …"), *figures)
            for setting, method, what, *figures, _ in (row.cells for row in missing_rows(ledger))
        ]
        columns = MISSING_COLUMNS[:-1]
        widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
        lines += [MISSING_TITLE, "", *(_line(row, widths) for row in (columns, *rows)), ""]
        lines.append("--format markdown and --format html state the sources.")
    # A name from a file must not move the cursor.
    plain = ("".join(c if c.isprintable() else "?" for c in line).rstrip() for line in lines)
    return "\n".join(plain).rstrip() + "\n"


def render_markdown(ledger: Ledger, empty: str) -> str:
    """Tables for a repository's pages; `empty` is said where there are none."""
    parts = [f"# {TITLE}", markdown(ABOUT)]
    if empty:
        parts.append(markdown(empty))
    parts += [f"**Warning:** {markdown(warning)}" for warning in ledger.warnings]
    for section in sections(ledger):
        parts += [f"## {markdown(section.title)}", markdown(section.remark)]
        for block in section.blocks:
            parts += [f"### {markdown(block.setting)}", markdown_table(COLUMNS, _cells(block.rows))]
        if section.notes:
            parts.append("\n".join(f"- {markdown(note)}" for note in section.notes))
    if ledger.missing:
        table = markdown_table(MISSING_COLUMNS, _cells(missing_rows(ledger)))
        parts += [f"## {MISSING_TITLE}", table]
    return "\n\n".join(parts) + "\n"


def render_html(ledger: Ledger, empty: str) -> str:
    """One page, light or dark as its reader is; everything in it is escaped.

    `empty` is said where there are no tables.
    """
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
        empty=empty,
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


def _cells(rows: Sequence[Row]) -> list[list[str]]:
    return [[markdown(cell) for cell in row.cells] for row in rows]
