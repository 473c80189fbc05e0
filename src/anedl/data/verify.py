"""Checking the files of a data set: checksums where they are published, otherwise every image."""

import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from anedl.data import imagenet30, miniimagenet
from anedl.data.cifar import CIFAR10, CIFAR100, Cifar, Layout, layout_folder
from anedl.data.dataset import Dataset, Images, LabelledImages
from anedl.data.sources import SOURCES, data_root, load_dataset
from anedl.errors import DataError, unknown_name


@dataclass(frozen=True)
class Finding:
    """Something wrong with a data set: where, what, and what to do; what is empty is not said."""

    where: str
    problem: str
    remedy: str = ""

    def __str__(self) -> str:
        return ": ".join(filter(None, (self.where, self.problem))) + (
            f"; {self.remedy}" if self.remedy else ""
        )


def verify(name: str, root: Path | None = None) -> list[Finding]:
    """Check the data set called `name` below `root`; an empty list means that all is well.

    CIFAR files are held against their published checksums. Sets of image files are listed, their
    classes counted and every image decoded, which takes minutes for tens of thousands.
    """
    if name not in SOURCES:
        raise unknown_name("data set", name, SOURCES)
    if name in _CIFARS:
        return _verify_cifar(_CIFARS[name], data_root(root))
    try:
        dataset = load_dataset(name, root)
    except DataError as error:
        return [Finding("", str(error))]
    findings = []
    if name == "imagenet30":
        findings += _verify_counts(dataset, "train", imagenet30.TRAIN_PER_CLASS)
        findings += _verify_counts(dataset, "test", imagenet30.TEST_PER_CLASS)
    elif name == "miniimagenet":
        findings += _verify_counts(dataset, "train", miniimagenet.IMAGES_PER_CLASS)
    return findings + _verify_images(dataset.train.images) + _verify_images(dataset.test.images)


def check_files(folder: Path, checksums: Mapping[str, str], remedy: str) -> list[Finding]:
    """Hold files against checksums written `algorithm:hex`."""
    findings = []
    for name, expected in checksums.items():
        path = folder / name
        algorithm = expected.partition(":")[0]
        try:
            found = f"{algorithm}:{file_digest(path, algorithm)}"
        except FileNotFoundError:
            findings.append(Finding(str(path), "the file is missing", remedy))
        except OSError as error:
            findings.append(Finding(str(path), f"cannot be read ({error.strerror})", remedy))
        else:
            if found != expected:
                problem = f"wrong checksum, expected {expected}, got {found}"
                findings.append(Finding(str(path), problem, remedy))
    return findings


def file_digest(path: Path, algorithm: str) -> str:
    """The checksum of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(
            file, partial(hashlib.new, algorithm, usedforsecurity=False)
        ).hexdigest()


_CIFARS = {"cifar10": CIFAR10, "cifar100": CIFAR100}


def _verify_cifar(cifar: Cifar, root: Path) -> list[Finding]:
    found = [layout for layout in (cifar.binary, cifar.python) if _is_there(layout, root)]
    if not found:
        where = f"{cifar.binary.folder}/ nor {cifar.python.folder}/"
        return [Finding(str(root), f"neither {where} is here", cifar.remedy)]
    return [
        finding
        for layout in found
        for finding in check_files(
            layout_folder(layout, root), layout.checksums, _remedy(cifar, layout)
        )
    ]


def _is_there(layout: Layout, root: Path) -> bool:
    return layout_folder(layout, root).is_dir()


def _remedy(cifar: Cifar, layout: Layout) -> str:
    if layout is cifar.binary:
        return cifar.remedy
    return f"run `anedl data fetch {cifar.name} --layout python`, or delete the folder"


def _verify_counts(dataset: Dataset, part: str, due: int) -> list[Finding]:
    images: LabelledImages = getattr(dataset, part)
    counts = np.bincount(images.labels, minlength=len(dataset.class_names))
    return [
        Finding(f"{dataset.name} {part}", f"class {name} has {count} images, {due} are due")
        for name, count in zip(dataset.class_names, counts, strict=True)
        if count != due
    ]


def _verify_images(images: Images) -> list[Finding]:
    def problem(index: int) -> Finding | None:
        try:
            images[index]
        except DataError as error:
            return Finding("", str(error))
        return None

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as threads:
        return [finding for finding in threads.map(problem, range(len(images))) if finding]
