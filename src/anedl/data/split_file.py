"""`split.json`: a split on disk, with its hash, readable by anyone and checked when read."""

import json
from pathlib import Path

import numpy as np

from anedl.data.dataset import IntArray
from anedl.data.protocol import INDEX_FIELDS, SPLIT_FORMAT, Split
from anedl.errors import DataError
from anedl.files import write_text


def write_split(split: Split, path: Path) -> None:
    """Write the split, one field a line; a reader never meets half of it."""
    record: dict[str, object] = {
        "format": SPLIT_FORMAT,
        "setting": split.setting,
        "fold": split.fold,
        "development": split.development,
        "sha256": split.digest,
        "counts": {name: len(getattr(split, name)) for name in INDEX_FIELDS},
        "known_classes": split.known_classes,
        "known_names": split.known_names,
        "test_part": split.test_part,
    }
    record |= {name: getattr(split, name).tolist() for name in INDEX_FIELDS}
    lines = [
        f'"{key}": {json.dumps(value, separators=(",", ":"))}' for key, value in record.items()
    ]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    write_text(path, text)


def read_split(path: Path) -> Split:
    """Read a split back and verify its hash.

    Raises:
        DataError: there is no such file, it is no split, or it was altered after it was written.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise DataError(f"{path}: there is no split here") from error
    except ValueError as error:
        raise DataError(f"{path}: not a split, it cannot be read as JSON ({error})") from error
    if not isinstance(record, dict) or "format" not in record:
        raise DataError(f"{path}: not a split, it states no format")
    if record["format"] != SPLIT_FORMAT:
        raise DataError(
            f"{path}: a split of format {record['format']!r}, this version reads {SPLIT_FORMAT}"
        )
    try:
        split = Split(
            setting=record["setting"],
            fold=record["fold"],
            development=record["development"],
            known_classes=tuple(record["known_classes"]),
            known_names=tuple(record["known_names"]),
            labelled=_indices(record["labelled"]),
            validation=_indices(record["validation"]),
            pool=_indices(record["pool"]),
            test=_indices(record["test"]),
            test_part=record["test_part"],
        )
        counts = {name: len(getattr(split, name)) for name in INDEX_FIELDS}
        stated, stated_counts = record["sha256"], record["counts"]
    except KeyError as error:
        raise DataError(f"{path}: the split lacks the field {error}; draw it again") from error
    except (TypeError, ValueError, OverflowError, DataError) as error:
        raise DataError(f"{path}: the split was altered or is damaged: {error}") from error
    if split.digest != stated or counts != stated_counts:
        raise DataError(
            f"{path}: the split was altered after it was written: its contents hash to "
            f"{split.digest}, the file states {stated}; restore the file or draw the split again"
        )
    return split


def _indices(values: object) -> IntArray:
    """A list of whole numbers as an array; a fraction must not be cut to one in silence."""
    if not isinstance(values, list) or any(type(value) is not int for value in values):
        raise TypeError("indices must be a list of whole numbers")
    return np.array(values, dtype=np.int64)
