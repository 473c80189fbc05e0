"""A user's own images as a problem: what `anedl fit` found, beside the run that trains on it.

The pile has no labels. Its images bear one more label than there are known classes, so that every
truth about them reads as "unknown" and none can be mistaken for knowledge.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from anedl.data.dataset import Dataset, FileImages, Images, IntArray, LabelledImages
from anedl.data.protocol import Split
from anedl.data.settings import Setting
from anedl.data.split_file import read_split
from anedl.engine.problem import Problem
from anedl.errors import DataError
from anedl.intake.cache import ImageCache
from anedl.intake.decided import read_decided
from anedl.intake.fitted import command_to_decode, open_run_cache

OWN = "own"
UNLABELLED = "(unlabelled)"
MOST_SUMMED = 3  # concentrations in the score; half of 45 classes did worse in most trials


def classes_to_sum(classes: int) -> int:
    """M of Eq. 9 for a user's own classes: half of them, as in the paper, and at most three."""
    return min(MOST_SUMMED, (classes + 1) // 2)


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
    # Beside the decoded images lies what people have said of those of the pile.
    decided = read_decided(cache.folder.parent)
    labels = labels_of(cache, split.known_names, {} if decided is None else decided.classes)
    return make_problem(setting, cache.images, labels, split)


def find_cache(folder: Path) -> ImageCache:
    """The decoded images of a run, or of the run above it."""
    for place in (folder, folder.parent):
        if (place / "cache").is_dir():
            return open_run_cache(place)
    run = folder if (folder / "fit.json").exists() else folder.parent
    raise DataError(
        f"{run / 'cache'}: the decoded images of this run are gone; build them again: "
        f"{command_to_decode(run)}"
    )


def labels_of(
    cache: ImageCache, names: tuple[str, ...], decided: Mapping[str, str] | None = None
) -> IntArray:
    """(N,) known classes by their place in `names`, K where an image has no label.

    `decided` holds the classes that people gave to images of the pile, by name.
    """
    numbers = {name: number for number, name in enumerate(names)}
    labels = [
        (decided or {}).get(item.name, "") if item.label is None else item.label
        for item in cache.items
    ]
    return np.array([numbers.get(label, len(names)) for label in labels], np.int64)
