"""Images of one's own: a folder a class, in the same order on every machine."""

import os
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from anedl.data.dataset import Dataset, FileImages, LabelledImages
from anedl.errors import DataError

IMAGE_SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp")


def load_folder(root: Path) -> Dataset:
    """Read `root/<class>/**/*.jpg` (png, webp …) as train, or `root/train` and `root/test`.

    Classes are the folder names in sorted order, those of train and test together, so a class may
    occur in test alone (an outlier never seen in training). Where there is no test folder, the
    test part is empty.
    """
    folders = class_folders(root)
    names = set(folders)
    if {"train", "test"} <= names or names == {"train"}:
        train_folders = class_folders(root / "train")
        test_folders = class_folders(root / "test") if "test" in names else {}
    else:
        train_folders, test_folders = folders, {}
    classes = tuple(sorted({*train_folders, *test_folders}))
    return Dataset(
        name=root.resolve().name,
        class_names=classes,
        train=labelled_files(classes, list_classes(train_folders)),
        test=labelled_files(classes, list_classes(test_folders)),
    )


def class_folders(root: Path) -> dict[str, Path]:
    """The class folders directly below `root`, by name in sorted order, without hidden ones."""
    try:
        entries = list(root.iterdir())
    except FileNotFoundError as error:
        raise DataError(f"{root}: no such folder; name the folder of your images") from error
    except NotADirectoryError as error:
        raise DataError(f"{root}: not a folder; name the folder of your images") from error
    except PermissionError as error:
        raise DataError(f"{root}: may not be read; change its permissions") from error
    folders = {_text(entry.name): entry for entry in entries if _is_visible_folder(entry)}
    if not folders:
        loose = sum(is_image_name(entry.name) for entry in entries)
        found = f"{loose} images lie directly in it" if loose else "it holds no folders"
        raise DataError(
            f"{root}: no class folders ({found}); put the images of each class into a folder of "
            "its own, named after the class"
        )
    return dict(sorted(folders.items()))


def list_classes(folders: Mapping[str, Path]) -> dict[str, list[Path]]:
    """The images of each class folder; a class without any is an error."""
    listed = {name: list_images(folder) for name, folder in folders.items()}
    for name, paths in listed.items():
        if not paths:
            raise DataError(
                f"{folders[name]}: the class folder holds no images "
                f"({', '.join(IMAGE_SUFFIXES)}); add some or remove the folder"
            )
    return listed


def list_images(folder: Path) -> list[Path]:
    """Every image below `folder`, sorted by relative path; links to folders are not followed."""

    def refuse(error: OSError) -> None:
        raise DataError(f"{error.filename}: may not be read; change its permissions") from error

    found = []
    for parent, inner, files in os.walk(folder, onerror=refuse):
        inner[:] = [name for name in inner if not name.startswith(".")]
        found += [Path(parent, name) for name in files if is_image_name(name)]
    return sort_by_path(found, folder)


def sort_by_path(paths: Iterable[Path], root: Path) -> list[Path]:
    """Sort by POSIX path relative to `root`, whatever order or Unicode form the disk returns."""
    return sorted(paths, key=lambda path: _text(path.relative_to(root).as_posix()))


def is_image_name(name: str) -> bool:
    """Whether a file name ends like an image's and is not hidden."""
    return not name.startswith(".") and name.lower().endswith(IMAGE_SUFFIXES)


def labelled_files(classes: Sequence[str], listed: Mapping[str, Sequence[Path]]) -> LabelledImages:
    """Images class by class, in the order of `classes`, each labelled with its class's index."""
    groups = [listed.get(name, ()) for name in classes]
    paths = tuple(path for group in groups for path in group)
    labels = np.repeat(np.arange(len(classes)), [len(group) for group in groups])
    return LabelledImages(FileImages(paths), labels.astype(np.int64))


def _is_visible_folder(entry: Path) -> bool:
    return entry.is_dir() and not entry.name.startswith((".", "__MACOSX"))


def _text(name: str) -> str:
    """One Unicode form for names: some disks store é as one character, some as two."""
    return unicodedata.normalize("NFC", name)
