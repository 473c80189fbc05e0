"""Mini-ImageNet: 100 classes of ImageNet with 600 images each, in the order of their WordNet ids.

Expected below `root/miniimagenet` (or `root` itself when it carries that name), one of:
- `<wnid>/*`, all 100 class folders side by side;
- `train/<wnid>/*`, `val/<wnid>/*`, `test/<wnid>/*`, the 64, 16 and 20 classes of few-shot learning;
- `train.csv`, `val.csv`, `test.csv` with the columns `filename` and `label`, and `images/`.

The few-shot parts divide classes, not images, so they mean nothing here: all three are read as one
set of 60,000 images without a test part, and all three layouts give the same order (class, then
file name).
"""

import csv
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from anedl.data.dataset import Dataset
from anedl.data.folder import class_folders, labelled_files, list_images, sort_by_path
from anedl.errors import DataError

CLASSES = 100
IMAGES_PER_CLASS = 600
PARTS = ("train", "val", "test")

FOLDER = "miniimagenet"
REMEDY = "`anedl data fetch miniimagenet` says how to get it and how to lay it out"

_WNID = re.compile(r"n\d{8}")


def miniimagenet_folder(root: Path) -> Path:
    """Where the images lie: `root/miniimagenet`, or `root` when that is its name."""
    return root if root.name == FOLDER else root / FOLDER


def load_miniimagenet(root: Path) -> Dataset:
    """Mini-ImageNet as one part, classes named by their WordNet ids; `test` is empty."""
    folder = miniimagenet_folder(root)
    if not folder.is_dir():
        raise DataError(f"{folder}: no Mini-ImageNet here; {REMEDY}")
    if any((folder / f"{part}.csv").is_file() for part in PARTS):
        listed = _list_csv(folder)
    else:
        listed = _list_folders(folder)
    classes = tuple(sorted(listed))
    strange = [name for name in classes if not _WNID.fullmatch(name)]
    if strange:
        raise DataError(f"{folder}: class {strange[0]!r} is no WordNet id (n + 8 digits); {REMEDY}")
    if len(classes) != CLASSES:
        raise DataError(f"{folder}: {len(classes)} classes where {CLASSES} are due; {REMEDY}")
    empty = next((name for name in classes if not listed[name]), None)
    if empty is not None:
        raise DataError(f"{folder}: class {empty} holds no images; {REMEDY}")
    return Dataset(
        name="miniimagenet",
        class_names=classes,
        train=labelled_files(classes, listed),
        test=labelled_files(classes, {}),
    )


def _list_folders(folder: Path) -> dict[str, list[Path]]:
    folders = class_folders(folder)
    parts = [folders[part] for part in PARTS if part in folders]
    if not parts:
        return {name: list_images(path) for name, path in folders.items()}
    if len(parts) < len(PARTS):
        raise DataError(f"{folder}: train/, val/ and test/ belong together; {REMEDY}")
    listed: dict[str, list[Path]] = defaultdict(list)
    for part in parts:
        for name, path in class_folders(part).items():
            listed[name] += list_images(path)
    # A class that is cut across parts is put together again, in the order of its file names.
    return {name: sorted(paths, key=lambda path: path.name) for name, paths in listed.items()}


def _list_csv(folder: Path) -> dict[str, list[Path]]:
    images = folder / "images"
    if not images.is_dir():
        raise DataError(f"{images}: the folder of the images is missing; {REMEDY}")
    present = set(list_images(images))
    listed: dict[str, list[Path]] = defaultdict(list)
    for part in PARTS:
        for where, name, label in _read_table(folder / f"{part}.csv"):
            path = images / name
            if path not in present:
                raise DataError(f"{path}: named in {where}, but there is no such image; {REMEDY}")
            listed[label].append(path)
    return {name: sort_by_path(paths, images) for name, paths in listed.items()}


def _read_table(table: Path) -> Iterator[tuple[str, str, str]]:
    """Yield where it stands, the file name and the label of every row."""
    try:
        with table.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file, skipinitialspace=True)
            if not {"filename", "label"} <= set(rows.fieldnames or ()):
                raise DataError(f"{table}: needs the columns filename and label; {REMEDY}")
            for row in rows:
                yield f"{table.name}, line {rows.line_num}", row["filename"], row["label"] or ""
    except FileNotFoundError as error:
        raise DataError(f"{table}: the table is missing; {REMEDY}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{table}: not a UTF-8 table ({error}); {REMEDY}") from error
