"""Lists of images: CSV or Parquet with columns `path` and `label`, or text with a path a line.

Paths are taken relative to the folder of the list. CSV is UTF-8 with a header line, its columns
separated by commas, semicolons or tabs, whichever the header shows; upper and lower case of their
names are one. A text list may separate its paths by NUL characters (`find -print0`) where names
hold line breaks.
"""

import csv
import importlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from anedl.errors import DataError

PATH, LABEL = "path", "label"
_SEPARATORS = (",", ";", "\t")


@dataclass(frozen=True)
class Row:
    """One line of a list; `place` says where it stands ("line 7", "row 7")."""

    place: str
    path: str
    label: str


def read_rows(source: Path, columns: Sequence[str]) -> Iterator[Row]:
    """The rows of a manifest or a text list; the columns named must be there, others are ignored.

    Raises:
        DataError: the list cannot be read, or lacks a column; names the file and the line.
    """
    try:
        with source.open("rb") as file:
            start = file.read(4)
        if start == b"PAR1":
            yield from _parquet_rows(source, columns)
        elif source.suffix.lower() in (".csv", ".tsv"):
            yield from _csv_rows(source, columns)
        elif LABEL in columns:
            raise DataError(
                f"{source}: neither a folder nor a manifest; name a folder of class folders, or a "
                f"CSV or Parquet file with columns {PATH} and {LABEL}"
            )
        else:
            yield from _text_rows(source)
    except OSError as error:
        raise DataError(f"{source}: cannot be read ({error.strerror or error})") from error


def import_parquet() -> ModuleType:
    """`pyarrow.parquet`, which only those who use Parquet need to have installed.

    Raises:
        DataError: it is not installed; says how to install it.
    """
    try:
        return importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise DataError(
            'Parquet files need pyarrow, which is not installed: pip install "anedl[fit]"'
        ) from error


def _csv_rows(source: Path, columns: Sequence[str]) -> Iterator[Row]:
    usual = "\t" if source.suffix.lower() == ".tsv" else ","
    with source.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        separator, spaced = _habits(file.readline(), usual, columns)
        file.seek(0)
        # Strict: a quote that is never closed would otherwise swallow the rest of the list.
        reader = csv.reader(file, delimiter=separator, skipinitialspace=spaced, strict=True)
        try:
            header = [_column(name) for name in next(reader, [])]
            _require_columns(source, "line 1", header, columns)
            at = {name: header.index(name) for name in columns}
            for cells in reader:
                if any(cells):
                    # A short line lacks its last cells.
                    row = {n: cells[i] if i < len(cells) else "" for n, i in at.items()}
                    yield Row(f"line {reader.line_num}", row[PATH], row.get(LABEL, "").strip())
        except csv.Error as error:
            raise DataError(
                f"{source}, line {reader.line_num}: not well-formed CSV ({error}); "
                "put cells with commas, quotes or line breaks in double quotes"
            ) from error


def _habits(header: str, usual: str, columns: Sequence[str]) -> tuple[str, bool]:
    """How a CSV file separates its cells, and whether a space follows, by its header line."""
    for separator in (usual, *_SEPARATORS):
        try:
            cells = next(csv.reader([header], delimiter=separator), [])
        except csv.Error:
            continue
        if {*columns} <= {_column(cell) for cell in cells}:
            return separator, any(cell.startswith(" ") for cell in cells[1:])
    return usual, False


def _column(name: str) -> str:
    """The name of a column, however it is spelt."""
    return name.strip().lower()


def _parquet_rows(source: Path, columns: Sequence[str]) -> Iterator[Row]:
    parquet = import_parquet()
    arrow = importlib.import_module("pyarrow")
    try:
        with parquet.ParquetFile(source) as file:
            written = file.schema_arrow.names
            names = [_column(name) for name in written]
            _require_columns(source, "the schema", names, columns)
            at = {name: written[names.index(name)] for name in columns}
            number = 0
            for batch in file.iter_batches(columns=list(at.values())):
                for row in batch.to_pylist():
                    number += 1
                    label = _text(row[at[LABEL]]).strip() if LABEL in at else ""
                    yield Row(f"row {number}", _text(row[at[PATH]]), label)
    except arrow.ArrowException as error:
        raise DataError(f"{source}: not a readable Parquet file ({error})") from error


def _text_rows(source: Path) -> Iterator[Row]:
    content = source.read_bytes().removeprefix(b"\xef\xbb\xbf")
    separated = b"\0" in content
    for number, line in enumerate(content.split(b"\0" if separated else b"\n"), start=1):
        path = os.fsdecode(line if separated else line.removesuffix(b"\r"))
        if path.strip():
            yield Row(f"entry {number}" if separated else f"line {number}", path, "")


def _require_columns(source: Path, place: str, found: Sequence[str], wanted: Sequence[str]) -> None:
    for name in wanted:
        if found.count(name) != 1:
            problem = "no column" if name not in found else "more than one column"
            raise DataError(
                f"{source}, {place}: {problem} {name!r}; found {', '.join(found) or 'nothing'}, "
                f"needed {' and '.join(wanted)}"
            )


def _text(value: object) -> str:
    if value is None:
        return ""
    return os.fsdecode(value) if isinstance(value, bytes) else str(value)
