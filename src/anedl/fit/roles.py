"""Who of the labelled images trains, validates, calibrates, and judges in which fold.

Images that people have decided about train and nothing else: people look at the doubtful ones
first, so these are no fair sample of anything.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anedl.conformal import askable, percent, percent_upwards
from anedl.data.dataset import IntArray
from anedl.errors import ConfigError, DataError
from anedl.fit.choices import (
    CALIBRATION_SHARES,
    FEWEST_A_CLASS,
    VALIDATION_SHARE,
    Choice,
    choose_folds,
    fewest_to_certify,
)
from anedl.intake.duplicates import shared_with
from anedl.intake.partition import Partition, deal_folds, partition

Deal = Callable[[float], tuple[Partition, IntArray, IntArray]]
"""From a share to roles of which that share calibrates, its fresh images and its decoys."""

MANY = 10_000  # fair labelled images, of which it does not matter how many are in a fold


@dataclass(frozen=True)
class Roles:
    """Positions of the images of each role.

    `partition` speaks of the labelled images by their place among themselves; its calibration part
    is `fresh` and `decoys` together. `fold` (N,) is −1 for images that are in no fold. `remarks`
    say what is to be expected of them.
    """

    partition: Partition
    labelled: IntArray
    validation: IntArray
    fresh: IntArray
    decoys: IntArray
    folds: Choice
    fold: IntArray
    remarks: tuple[str, ...] = ()


def deal_roles(
    labels: IntArray,
    groups: IntArray,
    classes: tuple[str, ...],
    decided: Collection[int],
    level: float,
    seed: int,
    folds: int | None = None,
) -> Roles:
    """Deal out the roles of N images with `labels` (N,), K for the pile, and duplicate `groups`.

    `decided` are positions that people have decided about, `folds` as many as were asked for.

    Raises:
        ConfigError: more folds than images.
        DataError: a class has too few images, or none is left to judge.
    """
    known = np.flatnonzero(labels < len(classes))
    # What looks like a decided image has as good as been trained on, so it judges nothing either.
    picked = np.array(sorted(decided), np.int64)
    only_train = np.isin(known, np.union1d(picked, shared_with(groups, picked, known)))
    own, alike = labels[known], groups[known]

    def deal(share: float) -> tuple[Partition, IntArray, IntArray]:
        roles = partition(
            own, alike, VALIDATION_SHARE, share, seed, FEWEST_A_CLASS, classes, only_train
        )
        return roles, *halves(known[roles.calibration], labels, groups, seed)

    fair = max(1, int((~only_train).sum()))
    roles, fresh, decoys = deal(calibration_share(fair, level))
    # Groups under several labels are in no fold.
    several = deal_folds(own, alike, 2, seed, only_train) if fair < MANY else own
    in_folds = int((several >= 0).sum())
    choice = choose_folds(in_folds, len(decoys), level, folds)
    assert isinstance(choice.value, int)
    needed = fewest_to_certify(level)
    finest = level
    if choice.value:
        finest = choice.value / (in_folds + choice.value)
    elif len(decoys) < needed:
        finest = 2 / (in_folds + 2) if folds is None else _finest_of_halves(deal, fair, len(decoys))
    # Where folds calibrate, or nothing can, no more than the least is held back from training.
    if choice.value or max(len(fresh), len(decoys)) < needed:
        roles, fresh, decoys = deal(CALIBRATION_SHARES[0])
    fold = np.full(len(labels), -1, np.int64)
    if not (len(roles.validation) and len(fresh) and len(decoys)):
        raise DataError(
            "no labelled images are left to validate and to calibrate with, for they are like "
            "images that were decided about; label others"
        )
    if choice.value:
        fold[known] = _folds(own, alike, choice, seed, only_train)
        roles, fresh = _without_decoys(roles, known, fresh, decoys, needed)
        decoys = decoys[:0]
    remarks: tuple[str, ...] = ()
    if finest > level + 1e-9:
        what = "nothing" if len(fresh) < needed else "nothing of the pile"
        # The most folds K of n images with K/(n + K) within the level.
        most = int(level * in_folds / (1 - level) + 1e-9)
        fewer = most if choice.value > most >= 2 else None
        remarks = (_too_fine(what, fair, level, askable(finest), fewer),)
    return Roles(
        roles, known[roles.labelled], known[roles.validation], fresh, decoys, choice, fold, remarks
    )


def _without_decoys(
    roles: Partition, known: IntArray, fresh: IntArray, decoys: IntArray, needed: int
) -> tuple[Partition, IntArray]:
    """Roles and fresh images where folds calibrate the pile, and nothing need lie hidden in it.

    Together with the fresh ones the decoys calibrate for new images, if that certifies the level
    that either half alone cannot; else they train.
    """
    if len(fresh) < needed <= len(fresh) + len(decoys):
        return roles, np.union1d(fresh, decoys)
    lent = np.flatnonzero(np.isin(known, decoys))
    labelled = np.union1d(roles.labelled, lent)
    return Partition(labelled, roles.validation, np.setdiff1d(roles.calibration, lent)), fresh


def calibration_share(labelled: int, level: float) -> float:
    """The share of labelled images that calibrate: enough for both thresholds, if there are enough.

    Each half must hold 1/level − 1 images to promise anything at that level.
    """
    both_halves = 2 * fewest_to_certify(level)
    least, most = CALIBRATION_SHARES
    return min(most, max(least, 1.1 * both_halves / labelled))


def _finest_of_halves(deal: Deal, fair: int, decoys: int) -> float:
    """The finest level that asking for it would make so many decoys, or fewer, certify."""
    levels = (askable(1 / (count + 1)) for count in range(decoys, 0, -1))
    reached = (
        level
        for level in levels
        if len(deal(calibration_share(fair, level))[2]) >= fewest_to_certify(level)
    )
    return next(reached, 0.5)


def _too_fine(
    what: str, labelled: int, level: float, finest: float, fewer_folds: int | None
) -> str:
    if fewer_folds is None:
        how, other = "", ""
    else:
        how, other = " in so many folds", f", take --folds {fewer_folds} or fewer"
    return (
        f"{what} will be rejected: {labelled:,} labelled images cannot certify {percent(level)}"
        f"{how}, and {percent_upwards(finest)} is the finest that they can; ask for that "
        f"(--target-inlier-loss {finest:g}){other} or label more"
    )


def halves(
    calibration: IntArray, labels: IntArray, groups: IntArray, seed: int
) -> tuple[IntArray, IntArray]:
    """Half of the calibration images stay fresh, half become decoys, class by class.

    Near-duplicates stay on one side.
    """
    generator = np.random.default_rng([seed, len(calibration)])
    order = calibration[generator.permutation(len(calibration))]
    order = order[np.argsort(labels[order], kind="stable")]
    sides: tuple[list[int], list[int]] = ([], [])
    taken: dict[int, int] = {}
    for position in order.tolist():
        group = int(groups[position])
        # Whichever side has fewer so far: of two or more units neither side stays empty.
        side = taken.get(group, int(len(sides[1]) < len(sides[0])))
        if group >= 0:
            taken[group] = side
        sides[side].append(position)
    fresh, decoys = (np.sort(np.array(side, np.int64)) for side in sides)
    return fresh, decoys


def _folds(
    labels: IntArray,
    groups: IntArray,
    choice: Choice,
    seed: int,
    only_train: npt.NDArray[np.bool_],
) -> IntArray:
    assert isinstance(choice.value, int)
    fold = deal_folds(labels, groups, choice.value, seed, only_train)
    if not np.bincount(fold[fold >= 0], minlength=choice.value).all():
        raise ConfigError(
            f"--folds {choice.value}: there are only {int((fold >= 0).sum())} different labelled "
            f"images to put into them"
        )
    return fold
