"""CSV files as spreadsheets save them.

Columns are separated by commas, semicolons or tabs, whichever the header line shows; upper and
lower case of their names are one. A byte-order mark may stand before them. The text is UTF-8: what
is not is kept, for a disk may hold such names, and `not_utf8` is what to say of it elsewhere.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from anedl.errors import DataError
from anedl.intake.names import shown

_SEPARATORS = (",", ";", "\t")


@dataclass(frozen=True)
class CsvRow:
    """The cells of the wanted columns; a row that is cut short has empty ones at its end."""

    line: int
    cells: dict[str, str]
    separator: str


def read_csv(source: Path, columns: Sequence[str]) -> Iterator[CsvRow]:
    """The rows that are not empty; the columns named must be there, others are ignored.

    Raises:
        DataError: it is not well-formed, or lacks a column; names the file and the line.
        OSError: it cannot be read.
    """
    usual = "\t" if source.suffix.lower() == ".tsv" else ","
    with source.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        first = file.readline()
        separator, spaced = _habits(first, usual, columns)
        file.seek(0)
        # Strict: a quote that is never closed would otherwise swallow the rest of the list.
        reader = csv.reader(file, delimiter=separator, skipinitialspace=spaced, strict=True)
        try:
            header = [column_name(name) for name in next(reader, [])]
            if not (is_utf8(first) or {*columns} <= {*header}):
                raise not_utf8(source, 1, first.strip())
            require_columns(source, "line 1", header, columns)
            at = {name: header.index(name) for name in columns}
            for cells in reader:
                if any(cells):
                    row = {n: cells[i] if i < len(cells) else "" for n, i in at.items()}
                    yield CsvRow(reader.line_num, row, separator)
        except csv.Error as error:
            raise DataError(
                f"{source}, line {reader.line_num}: not well-formed CSV ({error}); "
                "put cells with commas, quotes or line breaks in double quotes"
            ) from error


def is_utf8(text: str) -> bool:
    """Whether a text that was read was UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def not_utf8(source: Path, line: int, text: str) -> DataError:
    """What to say of a text that is not."""
    return DataError(
        f"{source}, line {line}: {shown(text)} is not UTF-8; save the file in UTF-8 (a spreadsheet "
        f"may call it CSV UTF-8)"
    )


def column_name(name: str) -> str:
    """The name of a column, however it is spelt."""
    return name.strip().lower()


def require_columns(source: Path, place: str, found: Sequence[str], wanted: Sequence[str]) -> None:
    """Refuse a table without the wanted columns, or with two of a name.

    Raises:
        DataError: names the first such column.
    """
    for name in wanted:
        if found.count(name) != 1:
            problem = "no column" if name not in found else "more than one column"
            needed = " and ".join(filter(None, (", ".join(wanted[:-1]), wanted[-1])))
            raise DataError(
                f"{source}, {place}: {problem} {name!r}; found {', '.join(found) or 'nothing'}, "
                f"needed {needed}"
            )


def _habits(header: str, usual: str, columns: Sequence[str]) -> tuple[str, bool]:
    """How a CSV file separates its cells, and whether a space follows, by its header line."""
    for separator in (usual, *_SEPARATORS):
        try:
            cells = next(csv.reader([header], delimiter=separator), [])
        except csv.Error:
            continue
        if {*columns} <= {column_name(cell) for cell in cells}:
            return separator, any(cell.startswith(" ") for cell in cells[1:])
    return usual, False
