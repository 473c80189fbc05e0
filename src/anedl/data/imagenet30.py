"""ImageNet-30: thirty classes of ImageNet, from class folders or from lists of files.

Expected below `root/imagenet30` (or `root` itself when it carries that name):
- `train/<class>/*` and `test/<class>/*`, or
- `train.txt` and `test.txt`, a line an image: its path relative to that folder, a space, and its
  label 0…29 in the alphabetical order of the classes.
"""

from pathlib import Path

import numpy as np

from anedl.data.dataset import Dataset, FileImages, LabelledImages
from anedl.data.folder import class_folders, labelled_files, list_classes
from anedl.errors import DataError

IMAGENET30_CLASSES = tuple(
    """acorn airliner ambulance american_alligator banjo barn bikini digital_clock dragonfly
    dumbbell forklift goblet grand_piano hotdog hourglass manhole_cover mosque nail parking_meter
    pillow revolver rotary_dial_telephone schooner snowmobile soccer_ball stingray strawberry tank
    toaster volcano""".split()  # noqa: SIM905
)
TRAIN_PER_CLASS = 1300
TEST_PER_CLASS = 100

FOLDER = "imagenet30"
REMEDY = "`anedl data fetch imagenet30` says how to get it and how to lay it out"


def imagenet30_folder(root: Path) -> Path:
    """Where the images lie: `root/imagenet30`, or `root` when that is its name."""
    return root if root.name == FOLDER else root / FOLDER


def load_imagenet30(root: Path) -> Dataset:
    """ImageNet-30, 1,300 + 100 images a class, sorted by class, then by path."""
    folder = imagenet30_folder(root)
    if (folder / "train.txt").is_file() or (folder / "test.txt").is_file():
        train, test = _read_list(folder, "train.txt"), _read_list(folder, "test.txt")
    elif (folder / "train").is_dir() and (folder / "test").is_dir():
        train, test = _read_folders(folder / "train"), _read_folders(folder / "test")
    else:
        raise DataError(
            f"{folder}: no ImageNet-30 here (looked for train/ and test/, or train.txt and "
            f"test.txt); {REMEDY}"
        )
    return Dataset(name="imagenet30", class_names=IMAGENET30_CLASSES, train=train, test=test)


def _read_folders(part: Path) -> LabelledImages:
    folders = class_folders(part)
    missing = sorted(set(IMAGENET30_CLASSES) - set(folders))
    strange = sorted(set(folders) - set(IMAGENET30_CLASSES))
    if missing or strange:
        wrong = [
            f"{what} {', '.join(names[:5])}{' …' if len(names) > 5 else ''}"
            for what, names in (("missing", missing), ("not of the set:", strange))
            if names
        ]
        raise DataError(f"{part}: not the 30 class folders ({'; '.join(wrong)}); {REMEDY}")
    return labelled_files(IMAGENET30_CLASSES, list_classes(folders))


def _read_list(folder: Path, name: str) -> LabelledImages:
    """Read a file list; its lines are sorted by label, then path, so their order means nothing."""
    try:
        lines = (folder / name).read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError as error:
        raise DataError(f"{folder / name}: the file list is missing; {REMEDY}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{folder / name}: not a UTF-8 text file; {REMEDY}") from error
    entries = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            entries.append(_read_line(line, f"{folder / name}, line {number}"))
    if not entries:
        raise DataError(f"{folder / name}: the file list is empty; {REMEDY}")
    entries.sort()
    paths = tuple(folder / path for _, path in entries)
    gone = next((path for path in paths if not path.is_file()), None)
    if gone is not None:
        raise DataError(f"{gone}: listed in {name}, but there is no such file; {REMEDY}")
    return LabelledImages(FileImages(paths), np.array([label for label, _ in entries], np.int64))


def _read_line(line: str, where: str) -> tuple[int, str]:
    path, _, label = line.strip().rpartition(" ")
    classes = len(IMAGENET30_CLASSES)
    if not path or not label.isdecimal() or int(label) >= classes:
        raise DataError(
            f"{where}: {line.strip()!r} is not a path, a space and a label 0…{classes - 1}; "
            "correct the line"
        )
    parts = path.replace("\\", "/").strip().split("/")
    if parts[0] == "" or ".." in parts or ":" in parts[0]:
        raise DataError(f"{where}: {path!r} must be relative and stay inside the folder")
    named = [part for part in parts[:-1] if part in IMAGENET30_CLASSES]
    if named and IMAGENET30_CLASSES.index(named[-1]) != int(label):
        due = IMAGENET30_CLASSES.index(named[-1])
        raise DataError(
            f"{where}: label {label} for an image of {named[-1]}, which is {due} in alphabetical "
            "order; number the classes alphabetically"
        )
    return int(label), "/".join(parts)
