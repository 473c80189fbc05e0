"""Lists of images: CSV or Parquet with columns `path` and `label`, or text with a path a line.

Paths are taken relative to the folder of the list. CSV has a header line (`csv_rows` says more). A
text list may separate its paths by NUL characters (`find -print0`) where names hold line breaks.
"""

import importlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from anedl.errors import DataError
from anedl.intake.csv_rows import column_name, is_utf8, not_utf8, read_csv, require_columns

PATH, LABEL = "path", "label"


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
    for row in read_csv(source, columns):
        path, label = row.cells[PATH], row.cells.get(LABEL, "").strip()
        # A name on the disk may be of any bytes; a class, or a file that is not there, may not.
        odd = [] if is_utf8(path) or os.path.lexists(source.parent / path) else [path]
        odd += [] if is_utf8(label) else [label]
        if odd:
            raise not_utf8(source, row.line, odd[0])
        yield Row(f"line {row.line}", path, label)


def _parquet_rows(source: Path, columns: Sequence[str]) -> Iterator[Row]:
    parquet = import_parquet()
    arrow = importlib.import_module("pyarrow")
    try:
        with parquet.ParquetFile(source) as file:
            written = file.schema_arrow.names
            names = [column_name(name) for name in written]
            require_columns(source, "the schema", names, columns)
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


def _text(value: object) -> str:
    if value is None:
        return ""
    return os.fsdecode(value) if isinstance(value, bytes) else str(value)
