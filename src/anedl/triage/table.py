"""The verdict as a table: `triage.csv`, `triage.parquet` and, for the rules, `triage.json`.

One row an image of the pile. `class` and `probability` are the likeliest known class, whatever the
state; `duplicate_group`, `cluster`, `labelled_duplicate` and the uncertainties are empty where
there is none.

In the CSV, and only there, a text that a spreadsheet would take for a formula is shielded by an
apostrophe (`anedl.intake.cells`); numbers are left alone.

People may change the CSV by hand. `triage.json` holds its digest as it was written, so that such a
table is noticed, and kept where a new one takes its place.
"""

import csv
import importlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from itertools import chain, count
from pathlib import Path
from typing import Any

import numpy as np

from anedl.data.verify import file_digest
from anedl.errors import DataError
from anedl.files import replacing, write_json
from anedl.intake.cells import shielded, unshielded
from anedl.intake.csv_rows import CsvRow, is_utf8, not_utf8, read_csv
from anedl.intake.fitted import require_fitted
from anedl.intake.manifest import import_parquet
from anedl.triage.verdict import STATES, Evidence, Labelled, Rules, Triage

TEXT_COLUMNS = (
    "file", "state", "class", "second_class", "labelled_duplicate", "labelled_duplicate_class",
    "reason",
)  # fmt: skip
INTEGER_COLUMNS = ("duplicate_group", "cluster")
COLUMNS = (
    "file", "state", "class", "probability", "second_class", "second_probability", "inlier_score",
    "p_value", "epistemic", "aleatoric", "duplicate_group", "cluster", "labelled_duplicate",
    "labelled_duplicate_class", "reason",
)  # fmt: skip
NEVER_EMPTY = ("file", "state", "class", "probability", "inlier_score", "p_value")

Cell = str | float | int | None


def write_table(
    folder: Path, triage: Triage, say: Callable[[str], None] | None = None
) -> list[Path]:
    """Write all three files (the Parquet one where pyarrow is installed) and say which.

    A `triage.csv` that was changed by hand since it was written is kept under another name, and
    `say` is told so.
    """
    rows = list(table_rows(triage))
    paths = [folder / "triage.csv", folder / "triage.json"]
    digest = _write_csv(paths[0], rows, _written_digest(folder), say)
    write_json(
        paths[1],
        {
            "rules": asdict(triage.rules),
            "classes": list(triage.evidence.class_names),
            "counts": triage.counts(),
            "table": digest,
        },
    )
    if _write_parquet(folder / "triage.parquet", rows):
        paths.append(folder / "triage.parquet")
    return paths


def is_edited(folder: Path) -> bool:
    """Whether `triage.csv` is known to have been changed since it was written."""
    written, path = _written_digest(folder), folder / "triage.csv"
    return written is not None and path.is_file() and file_digest(path, "sha256") != written


def read_table(folder: Path) -> Triage:
    """Read a verdict back from `triage.csv`, states changed by hand included.

    Without `triage.json` the classes are those that occur, and the rules the usual ones.
    """
    return _restored(_read_csv(folder / "triage.csv"), folder)


def read_parquet(folder: Path) -> Triage:
    """Read a verdict back from `triage.parquet`."""
    return _restored(import_parquet().read_table(folder / "triage.parquet").to_pylist(), folder)


def table_rows(triage: Triage) -> Iterator[dict[str, Cell]]:
    """The cells of every image by column; None where there is nothing to say."""
    evidence = triage.evidence
    for i, name in enumerate(evidence.names):
        twin, second = evidence.twin[i], int(evidence.second[i])
        yield {
            "file": name,
            "state": triage.state[i],
            "class": evidence.class_of(i),
            "probability": float(evidence.probability[i]),
            "second_class": None if second < 0 else evidence.class_names[second],
            "second_probability": None if second < 0 else float(evidence.second_probability[i]),
            "inlier_score": float(evidence.score[i]),
            "p_value": float(evidence.p_value[i]),
            "epistemic": _known(float(evidence.epistemic[i])),
            "aleatoric": _known(float(evidence.aleatoric[i])),
            "duplicate_group": _member(int(evidence.duplicate_group[i])),
            "cluster": _member(int(triage.cluster[i])),
            "labelled_duplicate": None if twin is None else twin.name,
            "labelled_duplicate_class": None if twin is None else twin.class_name,
            "reason": triage.reason[i],
        }


def _known(value: float) -> float | None:
    return None if np.isnan(value) else value


def _member(number: int) -> int | None:
    return None if number < 0 else number


def _write_csv(
    path: Path,
    rows: Sequence[dict[str, Cell]],
    written: str | None,
    say: Callable[[str], None] | None,
) -> str:
    """Write the table and return its digest; `written` is that of the one before, if it is known.

    What takes the place of a table that was cut off before its digest was recorded is that table
    once more, and no edit.
    """
    with replacing(path) as temporary:
        with temporary.open("w", encoding="utf-8", newline="") as file:
            # Every text is quoted: whatever line breaks or separators a name holds, it is one cell.
            writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC, lineterminator="\n")
            writer.writerow(COLUMNS)
            for row in rows:
                writer.writerow(
                    shielded(cell) if isinstance(cell, str) else cell
                    for cell in (row[column] for column in COLUMNS)
                )
        digest = file_digest(temporary, "sha256")
        if path.is_file() and file_digest(path, "sha256") not in (written, digest):
            kept = _kept(path)
            if say is not None:
                changed = "was" if written is not None else "may have been"
                say(
                    f"{path} {changed} changed by hand; it is kept as {kept.name}, and a new table "
                    f"takes its place"
                )
    return digest


def _kept(path: Path) -> Path:
    """A copy of the table under a name that is not taken."""
    endings = chain([""], (f"-{number}" for number in count(2)))
    places = (path.with_name(f"triage.edited{ending}.csv") for ending in endings)
    place = next(place for place in places if not place.exists())
    with replacing(place) as temporary:
        shutil.copyfile(path, temporary)
    return place


def _written_digest(folder: Path) -> str | None:
    """The digest of `triage.csv` as it was written last, None where nothing is known of it."""
    try:
        written = json.loads((folder / "triage.json").read_text(encoding="utf-8"))["table"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return written if isinstance(written, str) else None


def _write_parquet(path: Path, rows: Sequence[dict[str, Cell]]) -> bool:
    try:
        pyarrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError:
        return False
    kinds = dict.fromkeys(COLUMNS, pyarrow.float64())
    kinds |= dict.fromkeys(TEXT_COLUMNS, pyarrow.string())
    kinds |= dict.fromkeys(INTEGER_COLUMNS, pyarrow.int64())
    table = pyarrow.table(
        {name: pyarrow.array([row[name] for row in rows], kind) for name, kind in kinds.items()}
    )
    with replacing(path) as temporary:
        parquet.write_table(table, temporary)
    return True


def _read_csv(path: Path) -> list[dict[str, Cell]]:
    if not path.is_file():
        require_fitted(path.parent)
        of_fit = (path.parent / "intake.json").is_file()
        remedy = "finish the run with `--resume`" if of_fit else "`anedl fit` makes one"
        raise DataError(f"{path}: there is no triage here; {remedy}")
    return [_cells(row, path) for row in read_csv(path, COLUMNS)]


def _cells(row: CsvRow, path: Path) -> dict[str, Cell]:
    cells: dict[str, Cell] = {}
    line = row.line
    for column, text in row.cells.items():
        if not is_utf8(text):
            raise not_utf8(path, line, text)
        if column in TEXT_COLUMNS:
            cells[column] = unshielded(text)
            continue
        try:
            cells[column] = _number(text, column, row.separator) if text else None
        except ValueError:
            raise DataError(
                f"{path}: line {line}, column {column}: {text!r} is not a number"
            ) from None
    if empty := next((column for column in NEVER_EMPTY if cells[column] in ("", None)), None):
        raise DataError(f"{path}: line {line}, column {empty}: is empty; fill it in")
    if cells["state"] not in STATES:
        raise DataError(
            f"{path}: line {line}, column state: {cells['state']!r} is none of {', '.join(STATES)}"
        )
    return cells


def _number(text: str, column: str, separator: str) -> float | int:
    # Where commas do not separate the columns, they may stand before the decimals.
    plain = text if separator == "," else text.replace(",", ".")
    return int(plain) if column in INTEGER_COLUMNS else float(plain)


def _restored(rows: list[dict[str, Any]], folder: Path) -> Triage:
    rules, classes = _rules(folder / "triage.json")
    seen = {row[column] for row in rows for column in ("class", "second_class") if row[column]}
    classes = [*classes, *sorted(seen - set(classes))]
    number = {name: i for i, name in enumerate(classes)} | {"": -1, None: -1}

    def floats(column: str) -> Any:
        return np.array([row[column] if row[column] is not None else np.nan for row in rows], float)

    def integers(column: str) -> Any:
        return np.array([-1 if row[column] is None else row[column] for row in rows], np.int64)

    evidence = Evidence(
        names=tuple(row["file"] for row in rows),
        class_names=tuple(classes),
        first=np.array([number[row["class"]] for row in rows], np.int64),
        probability=floats("probability"),
        second=np.array([number[row["second_class"]] for row in rows], np.int64),
        second_probability=np.nan_to_num(floats("second_probability")),
        score=floats("inlier_score"),
        p_value=floats("p_value"),
        epistemic=floats("epistemic"),
        aleatoric=floats("aleatoric"),
        duplicate_group=integers("duplicate_group"),
        twin=tuple(
            Labelled(row["labelled_duplicate"], row["labelled_duplicate_class"])
            if row["labelled_duplicate"]
            else None
            for row in rows
        ),
    )
    return Triage(
        evidence,
        rules,
        tuple(row["state"] for row in rows),
        tuple(row["reason"] for row in rows),
        integers("cluster"),
    )


def _rules(path: Path) -> tuple[Rules, list[str]]:
    if not path.is_file():
        return Rules(), []
    try:
        written = json.loads(path.read_text(encoding="utf-8"))
        return Rules(**written["rules"]), [str(name) for name in written["classes"]]
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path}: is not the rules of a triage ({error})") from error
