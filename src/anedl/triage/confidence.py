"""From which probability on a class is accepted, so that what is accepted is right often enough."""

from dataclasses import dataclass
from math import ceil, log

import numpy as np
import numpy.typing as npt

from anedl.data.dataset import IntArray
from anedl.errors import ConfigError, DataError
from anedl.triage.verdict import Floats, percent

STARTS = (0.25, 0.5, 0.75)  # shares of the validation images from which the search sets out


@dataclass(frozen=True)
class Confidence:
    """A threshold for accepting, and what the validation images say of it.

    `accepted` validation images reach `threshold`, `wrong` of them are wrong; `lower_bound` is the
    precision that is assured for it. `certified` says whether that is the target.
    """

    threshold: float
    certified: bool
    accepted: int
    wrong: int
    lower_bound: float
    sentence: str


def choose_confidence(
    probability: npt.ArrayLike,
    correct: npt.ArrayLike,
    target: float = 0.95,
    assurance: float = 0.95,
) -> Confidence:
    """Choose the lowest threshold at which accepted images are right with the target precision.

    `probability` (N,) is that of the likeliest class of every validation image, `correct` (N,)
    whether it is the true one. The search sets out from a few shares of the most probable images,
    fixed before any label is looked at, and lowers the threshold one image at a time for as long
    as the one-sided exact binomial bound (Clopper and Pearson 1934) stays at or above the target.
    Each set-out gets an equal part of the allowed risk, and stopping at the first failure costs
    none, so with probability `assurance` the promise holds for the threshold that is found. It is
    a promise about images of the known classes, like the validation images; an outlier that the
    p-value does not catch may be accepted on top.

    Where no threshold can be certified, the sentence says so, and the strictest meaningful one is
    returned: at least the target, and above every validation image that is wrong.
    """
    if not (0 < target < 1 and 0 < assurance < 1):
        raise ConfigError(
            f"a target precision ({target}) and an assurance ({assurance}) lie between 0 and 1"
        )
    values, right = np.asarray(probability, dtype=np.float64), np.asarray(correct, dtype=bool)
    if values.ndim != 1 or values.shape != right.shape:
        raise DataError(
            f"each validation image has one probability and is right or wrong, got "
            f"{values.shape} and {right.shape}"
        )
    order = np.argsort(-values, kind="stable")
    values, right = values[order], right[order]
    starts = _starts(len(values), target, assurance)
    # Images of equal probability are accepted together, so only the last of them can be a cut.
    is_cut = np.append(values[1:] < values[:-1], True)[: len(values)]
    accepted = np.flatnonzero(is_cut) + 1
    wrong = np.cumsum(~right)[accepted - 1]
    bounds = precision_bounds(accepted, wrong, (1 - assurance) / max(1, len(starts)))
    found = -1
    for start in starts:
        at = int(np.searchsorted(accepted, start))
        failures = np.flatnonzero(bounds[at:] < target)
        passed = int(failures[0]) if len(failures) else len(bounds) - at
        if passed:
            found = max(found, at + passed - 1)
    if found < 0:
        return _strictest(values, right, target, assurance)
    threshold, count, errors = (
        float(values[accepted[found] - 1]),
        int(accepted[found]),
        int(wrong[found]),
    )
    return Confidence(
        threshold,
        True,
        count,
        errors,
        float(bounds[found]),
        f"accepted from {percent(threshold)} on: of the {count:,} validation images that reach it "
        f"{errors:,} are wrong, so of known classes at least {percent(target)} are right "
        f"({percent(assurance)} sure)",
    )


def precision_bounds(accepted: IntArray, wrong: IntArray, risk: float) -> Floats:
    """Lower bounds on the precision behind `accepted` images with `wrong` ones, at this risk.

    The exact one of Clopper and Pearson: the precision at which seeing so few errors or fewer has
    probability `risk`; 0 where none is right.
    """
    from scipy.special import betaincinv

    right = np.asarray(accepted, dtype=np.float64) - wrong
    bounds = betaincinv(np.maximum(right, 1), np.asarray(wrong) + 1.0, risk)
    return np.where(right > 0, bounds, 0.0)


def fewest_images(target: float, assurance: float = 0.95) -> int:
    """How many images, all of them right, it takes to certify the target precision."""
    return ceil(log(1 - assurance) / log(target) - 1e-9)


def _starts(count: int, target: float, assurance: float) -> list[int]:
    """Numbers of images to set out from; they may depend on anything but who is right."""
    fewest = fewest_images(target, assurance)
    shared = fewest_images(target, 1 - (1 - assurance) / len(STARTS))
    if starts := [ceil(share * count) for share in STARTS if share * count >= shared]:
        return starts
    return [fewest] if count >= fewest else []


def _strictest(
    values: Floats, right: npt.NDArray[np.bool_], target: float, assurance: float
) -> Confidence:
    above_wrong = np.nextafter(values[~right].max(), 2) if not right.all() else 0.0
    threshold = min(1.0, max(target, float(above_wrong)))
    reached = values >= threshold
    count, errors = int(reached.sum()), int((reached & ~right).sum())
    fewest = fewest_images(target, assurance)
    if len(values) < fewest:
        why = (
            f"{len(values):,} validation images cannot certify that {percent(target)} of the "
            f"accepted are right: it takes {fewest:,}, all of them right"
        )
    else:
        why = (
            f"too many of the {len(values):,} validation images are wrong to certify that "
            f"{percent(target)} of the accepted are right"
        )
    return Confidence(
        threshold,
        False,
        count,
        errors,
        float(precision_bounds(np.array([count]), np.array([errors]), 1 - assurance)[0]),
        f"{why}; accepted from {percent(threshold)} on, which is a choice and no promise",
    )
