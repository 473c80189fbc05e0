"""Predictions as rows, written as they come: CSV, JSON lines or Parquet.

`class` and `probability` are the likeliest known class, whatever `unknown` says. A row with an
`error` has nothing else; what the model has no measure of is empty. Numbers have nine significant
digits, which hold a float32 exactly. In CSV, a text that a spreadsheet would take for a formula has
an apostrophe before it, as in `triage.csv`.
"""

import csv
import importlib
import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from math import isfinite
from pathlib import Path
from typing import IO, Any

import numpy as np

from anedl.errors import ConfigError
from anedl.export.predictor import BasePredictor, Predictions
from anedl.export.reading import EndOfChunk, Frame
from anedl.intake.cells import shielded
from anedl.intake.manifest import import_parquet

Cell = str | float | bool | None
Row = dict[str, Cell]

TEXT_COLUMNS = ("file", "class", "error")
COLUMNS = (
    "file", "class", "probability", "unknown", "inlier_score", "familiarity", "p_value",
    "epistemic", "aleatoric", "error",
)  # fmt: skip
ROW_GROUP = 8192
FORMATS = ("csv", "jsonl", "parquet")


def judged(frames: Iterable[Frame | EndOfChunk], predictor: BasePredictor) -> Iterator[list[Row]]:
    """A row for every frame, in order, a batch at a time; the end of a chunk ends a batch too."""
    batch = predictor.batch_size
    waiting: list[Frame] = []
    for frame in frames:
        if isinstance(frame, Frame):
            waiting.append(frame)
        if waiting and (isinstance(frame, EndOfChunk) or len(waiting) == batch):
            yield rows_of(waiting, predictor)
            waiting = []
    if waiting:
        yield rows_of(waiting, predictor)


def rows_of(frames: Sequence[Frame], predictor: BasePredictor) -> list[Row]:
    """Rows of these frames, judged together."""
    pixels = [frame.pixels for frame in frames if frame.pixels is not None]
    numbers = iter(range(len(pixels)))
    predictions = predictor.judge(np.stack(pixels)) if pixels else None
    rows = []
    for frame in frames:
        row: Row = dict.fromkeys(COLUMNS)
        row |= {"file": frame.name, "error": frame.error}
        if frame.pixels is not None and predictions is not None:
            row |= _cells(predictions, next(numbers), predictor.class_names)
        rows.append(row)
    return rows


def _cells(predictions: Predictions, i: int, class_names: Sequence[str]) -> Row:
    def number(column: Any) -> float | None:
        value = None if column is None else float(column[i])
        return value if value is not None and isfinite(value) else None

    unknown = predictions.unknown
    return {
        "class": class_names[int(predictions.class_index[i])],
        "probability": _short(number(predictions.probability)),
        "unknown": None if unknown is None else bool(unknown[i]),
        "inlier_score": _short(number(predictions.inlier_score)),
        "familiarity": _short(number(predictions.familiarity)),
        "p_value": number(predictions.p_value),  # in full, so that it compares with a level
        "epistemic": _short(number(predictions.epistemic)),
        "aleatoric": _short(number(predictions.aleatoric)),
    }


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.9g}")


class TableWriter(ABC):
    """Takes rows a few at a time, and hands text on at once."""

    @abstractmethod
    def write(self, rows: Sequence[Row]) -> None:
        """Add rows."""

    def close(self) -> None:
        """Finish the table."""
        return

    def abandon(self) -> None:
        """Leave the table as it is: whoever reads it must not take a part for the whole."""
        return


class CsvWriter(TableWriter):
    """A header line, then a line a row."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._writer = csv.writer(file, lineterminator="\n")
        self._writer.writerow(COLUMNS)

    def write(self, rows: Sequence[Row]) -> None:
        """Add rows, and hand them on at once."""
        self._writer.writerows([_csv_cell(row[name]) for name in COLUMNS] for row in rows)
        self._file.flush()


class JsonLinesWriter(TableWriter):
    """An object a line; what is empty is null."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    def write(self, rows: Sequence[Row]) -> None:
        """Add rows, and hand them on at once."""
        for row in rows:
            self._file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
        self._file.flush()


class Outlet:
    """A file that can only be written, in sequence, until it is shut: the rest is then dropped."""

    closed = False

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.shut = False

    def write(self, content: bytes) -> int:
        """Hand bytes on at once."""
        if not self.shut:
            self._file.write(content)
            self._file.flush()
        return len(content)

    def flush(self) -> None:
        """Do nothing: there is nothing kept back."""


class ParquetWriter(TableWriter):
    """Row groups of some thousand rows, so that no more is held in memory.

    The index comes last, so any file will do, a pipe as well; without it a table is unreadable.
    """

    def __init__(self, file: IO[bytes]) -> None:
        parquet = import_parquet()
        self._outlet = Outlet(file)
        self._arrow = importlib.import_module("pyarrow")
        types = {name: self._arrow.float64() for name in COLUMNS}
        types |= {name: self._arrow.string() for name in TEXT_COLUMNS}
        types["unknown"] = self._arrow.bool_()
        self._schema = self._arrow.schema([(name, types[name]) for name in COLUMNS])
        self._writer = parquet.ParquetWriter(self._outlet, self._schema)
        self._waiting: list[Row] = []

    def write(self, rows: Sequence[Row]) -> None:
        """Add rows; a full row group is written out."""
        self._waiting.extend(rows)
        while len(self._waiting) >= ROW_GROUP:
            self._write_group(self._waiting[:ROW_GROUP])
            del self._waiting[:ROW_GROUP]

    def close(self) -> None:
        """Write what is left, and the end of the file."""
        if self._waiting:
            self._write_group(self._waiting)
            self._waiting = []
        self._writer.close()

    def abandon(self) -> None:
        """Write no index, which pyarrow's writer would do when it is forgotten."""
        self._outlet.shut = True

    def _write_group(self, rows: list[Row]) -> None:
        self._writer.write_table(self._arrow.Table.from_pylist(rows, schema=self._schema))


def format_of(wanted: str | None, out: Path | None) -> str:
    """The format asked for, else the one that the file's name ends in, CSV where it has no ending.

    Raises:
        ConfigError: the name ends in that of another format.
    """
    if wanted is not None:
        return wanted
    suffix = "" if out is None else out.suffix.lower().removeprefix(".")
    suffix = {"": "csv", "ndjson": "jsonl", "pq": "parquet"}.get(suffix, suffix)
    if suffix not in FORMATS:
        raise ConfigError(
            f"--out {out}: tables are written as .csv, .jsonl (.ndjson) or .parquet (.pq), not as "
            f".{suffix}; end the name so, or say which it is by --format"
        )
    return suffix


def table_writer(form: str, file: IO[Any]) -> TableWriter:
    """The writer of a format into an open file: of bytes for Parquet, of text for the others."""
    if form == "parquet":
        return ParquetWriter(file)
    return CsvWriter(file) if form == "csv" else JsonLinesWriter(file)


def _csv_cell(value: Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return shielded(value) if isinstance(value, str) else repr(value)
