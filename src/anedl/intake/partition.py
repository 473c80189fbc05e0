"""Who of the labelled images trains, who chooses the checkpoint and who sets the threshold.

Every class is divided alike. Near-duplicates stay together, or the judges would have seen what they
judge. A group whose images bear different labels trains: one of its labels may be wrong, and no
score should rest on it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anedl.data.dataset import IntArray
from anedl.errors import ConfigError, DataError


@dataclass(frozen=True)
class Partition:
    """Positions of the images of each role, sorted; together they are all images, each once."""

    labelled: IntArray
    validation: IntArray
    calibration: IntArray


def partition(
    labels: IntArray,
    groups: IntArray,
    validation_share: float,
    calibration_share: float,
    seed: int,
    minimum: int,
    class_names: Sequence[str] | None = None,
    only_train: npt.NDArray[np.bool_] | None = None,
) -> Partition:
    """Divide images with labels (N,) and duplicate groups (N,), −1 for an image alone.

    A class gives each role about its share of images, and every role with a share above zero at
    least one image; what is left, and at least one image of every class, is labelled. `minimum` is
    how many different images a class must have, near-duplicates counted once; one for every role
    are needed in any case. `class_names` name the classes; one without images is refused. Images
    marked in `only_train` (N,) are labelled, and so is every near-duplicate of one; the shares are
    of the others, and a class that consists of such images gives nothing to the other roles.

    Raises:
        ConfigError: shares that are negative or leave nothing to train on.
        DataError: a class has too few images; names the class, its count and the minimum.
    """
    shares = (validation_share, calibration_share)
    if min(shares) < 0 or sum(shares) >= 1:
        raise ConfigError(
            f"shares for validation ({validation_share:g}) and calibration "
            f"({calibration_share:g}) must not be negative and must leave some images to train on"
        )
    count = int(labels.max(initial=-1)) + 1
    names = class_names if class_names is not None else [str(label) for label in range(count)]
    units = _units(groups)
    by_class = [_pure_units(units, labels, label) for label in range(len(names))]
    wanted = max(minimum, 1 + sum(share > 0 for share in shares))
    _require(by_class, units, labels, names, wanted)

    kept = np.zeros(len(labels), bool) if only_train is None else np.isin(units, units[only_train])
    role = np.zeros(len(labels), np.int64)
    for label, pure in enumerate(by_class):
        pure = np.setdiff1d(pure, units[kept])
        generator = np.random.default_rng([seed, label])
        sizes = dict(zip(*np.unique(units[np.isin(units, pure)], return_counts=True), strict=True))
        total = int(((labels == label) & ~kept).sum())
        left = [int(unit) for unit in generator.permutation(pure)]
        for number, share in enumerate(shares, start=1):
            if share == 0 or not left:
                continue
            # One unit stays to train with, and one for each role that is still to come.
            spare = len(left) - 1 - sum(later > 0 for later in shares[number:])
            taken = _take(left, sizes, max(1, round(share * total)), spare)
            role[np.isin(units, list(taken))] = number
            left = [unit for unit in left if unit not in taken]
    return Partition(*(np.flatnonzero(role == number) for number in range(3)))


def deal_folds(
    labels: IntArray,
    groups: IntArray,
    folds: int,
    seed: int,
    only_train: npt.NDArray[np.bool_] | None = None,
) -> IntArray:
    """(N,) the fold of each image, 0 … `folds` − 1, and −1 for those that are in none.

    Every class is spread evenly. As in `partition`, near-duplicates stay together, and neither
    images that only train nor groups under several labels are in a fold.
    """
    units = _units(groups)
    kept = np.zeros(len(labels), bool) if only_train is None else np.isin(units, units[only_train])
    fold = np.full(len(labels), -1, np.int64)
    sizes = np.zeros(folds, np.int64)
    for label in range(int(labels.max(initial=-1)) + 1):
        pure = np.setdiff1d(_pure_units(units, labels, label), units[kept])
        of_class = np.zeros(folds, np.int64)
        for unit in np.random.default_rng([seed, label, folds]).permutation(pure):
            members = units == unit
            # The fold with the fewest of this class; of several, the smallest as yet.
            number = int(np.lexsort((sizes, of_class))[0])
            fold[members] = number
            of_class[number] += members.sum()
            sizes[number] += members.sum()
    return fold


def _units(groups: IntArray) -> IntArray:
    """(N,) what stays together: an image alone is a unit of its own."""
    alone = groups.max(initial=-1) + 1 + np.arange(len(groups))
    return np.where(groups >= 0, groups, alone).astype(np.int64)


def _pure_units(units: IntArray, labels: IntArray, label: int) -> IntArray:
    """The units with images of this class alone."""
    own = np.unique(units[labels == label])
    return own[~np.isin(own, units[labels != label])]


def _take(left: Sequence[int], sizes: dict[int, int], target: int, spare: int) -> set[int]:
    """Units in order while they fit into `target` images; the smallest one where none does."""
    taken: set[int] = set()
    room = target
    for unit in left:
        if len(taken) < spare and sizes[unit] <= room:
            taken.add(unit)
            room -= sizes[unit]
    return taken or {min(left, key=lambda unit: sizes[unit])}


def _require(
    by_class: Sequence[IntArray],
    units: IntArray,
    labels: IntArray,
    names: Sequence[str],
    minimum: int,
) -> None:
    """Refuse classes with fewer different images than the minimum, all of them at once."""
    short = []
    for label, pure in enumerate(by_class):
        files = int((labels == label).sum())
        if len(pure) < minimum:
            several = len(np.unique(units[labels == label])) > len(pure)
            once = "once, and not at all under several labels" if several else "once"
            alike = f" (in {files} files; near-duplicates count {once})" * (files > len(pure))
            short.append(f"{names[label]!r} has {len(pure)}{alike}")
    if short:
        raise DataError(too_few(short, minimum))


def too_few(short: Sequence[str], minimum: int) -> str:
    """What to say of classes, each with how many images it has."""
    return (
        f"too few images: class {'; class '.join(short)}; every class needs at least {minimum} "
        f"different images, so label more or leave the class out"
    )
