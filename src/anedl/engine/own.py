"""A user's own images as a problem: what `anedl fit` found, beside the run that trains on it.

The pile has no labels. Its images bear one more label than there are known classes, so that every
truth about them reads as "unknown" and none can be mistaken for knowledge.
"""

from pathlib import Path

import numpy as np

from anedl.data.dataset import Dataset, FileImages, Images, IntArray, LabelledImages
from anedl.data.protocol import Split
from anedl.data.settings import Setting
from anedl.data.split_file import read_split
from anedl.engine.problem import Problem
from anedl.errors import DataError
from anedl.intake.cache import ImageCache, open_cache

OWN = "own"
UNLABELLED = "(unlabelled)"


def make_problem(setting: Setting, images: Images, labels: IntArray, split: Split) -> Problem:
    """The problem of images with `labels` 0…K−1, or K for those of the pile."""
    names = (*split.known_names, UNLABELLED)
    no_test_part = LabelledImages(FileImages(()), labels[:0])
    dataset = Dataset(OWN, names, LabelledImages(images, labels), no_test_part)
    return Problem(setting, dataset, split)


def own_problem(setting: Setting, folder: Path) -> Problem:
    """The problem of the run in `folder`, or of the run that `folder` is part of."""
    split = read_split(folder / "split.json")
    cache = find_cache(folder)
    return make_problem(setting, cache.images, labels_of(cache, split.known_names), split)


def find_cache(folder: Path) -> ImageCache:
    """The decoded images of a run, or of the run above it."""
    for place in (folder, folder.parent):
        if (place / "cache").is_dir():
            return open_cache(place / "cache")
    raise DataError(
        f"{folder / 'cache'}: the decoded images of this run are gone; run `anedl fit` again with "
        f"the same folders"
    )


def labels_of(cache: ImageCache, names: tuple[str, ...]) -> IntArray:
    """(N,) known classes by their place in `names`, K where an image has no label."""
    numbers = {name: number for number, name in enumerate(names)}
    return np.array([numbers.get(item.label or "", len(names)) for item in cache.items], np.int64)
