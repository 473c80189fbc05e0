"""In which order a person should look at the images: the most worth a look first.

An image for review comes before all others. Within its tier, an image is the more worth a look

- the more uncertain it is: a small margin between the two likeliest classes, a high epistemic
  uncertainty, a p-value near the level at which an image is called unknown. Each of the three is
  turned into its rank among all images, from 0 to 1, and their mean counts. A near-duplicate of a
  labelled image of another class is as uncertain as can be;
- the less it is like those before it: the images of a cluster (or, outside clusters, between the
  same two classes) take turns, and of near-duplicates one comes early and the rest last.
"""

import numpy as np
import numpy.typing as npt

from anedl.data.dataset import IntArray
from anedl.triage.verdict import Floats, Triage

TURNS = 0.5  # how much taking turns weighs beside uncertainty
FARTHEST = 1e-12  # p-values are at least 1 / (images + 1); this only keeps the logarithm finite


def uncertainty(triage: Triage) -> Floats:
    """How little the model knows about each image, (N,) from 0 to 1."""
    evidence = triage.evidence
    margin = evidence.probability - evidence.second_probability
    log_p = np.log(np.maximum(evidence.p_value, FARTHEST))
    from_level = np.abs(log_p - np.log(max(triage.rules.level, FARTHEST)))
    parts = [_rank(-margin), _rank(-from_level)]
    if not np.isnan(evidence.epistemic).any():
        parts.append(_rank(evidence.epistemic))
    uncertain = np.mean(parts, axis=0)
    for i, twin in enumerate(evidence.twin):
        if twin is not None and twin.class_name != evidence.class_of(i):
            uncertain[i] = 1.0
    return np.asarray(uncertain, np.float64)


def order_by_worth(triage: Triage) -> IntArray:
    """Positions of all images, (N,), the most worth a look first."""
    evidence = triage.evidence
    if not len(evidence):
        return np.zeros(0, np.int64)
    uncertain = uncertainty(triage)
    tier = np.where(np.array(triage.state) == "review", 0, 1)
    position = _position(tier, -uncertain)
    # The parts of the order, one after the other: for review, their near-duplicates, the others…
    repeated = evidence.duplicate_group >= 0
    group = _kind(tier, evidence.duplicate_group)
    part = 2 * tier
    part[repeated] += _turn(group[repeated], position[repeated]) > 0
    clustered = triage.cluster >= 0
    first, second = (np.where(clustered, -1, k) for k in (evidence.first, evidence.second))
    kind = _kind(part, triage.cluster, first, second)
    kinds = np.bincount(part[np.unique(kind, return_index=True)[1]], minlength=4)[part]
    size = np.bincount(part, minlength=4)[part]
    # Both terms run from 0 to about 1 within a part: the place by uncertainty, and how much of an
    # even share of the part the image's kind has had already.
    worth = TURNS * _turn(kind, position) * kinds / size
    for number in np.unique(part):
        worth[part == number] += _rank(-uncertain[part == number])
    order: IntArray = np.lexsort((position, worth, part))
    return order


def random_order(count: int) -> IntArray:
    """The same random order of so many images every time, (N,).

    The first images in it are a fair sample, whatever anyone decides about them.
    """
    return np.random.default_rng(count).permutation(count)


def _rank(values: Floats) -> Floats:
    """Rank from 0 to 1, equal values alike."""
    ordered = np.sort(values)
    both = np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right")
    ranks: Floats = both / (2 * max(len(values), 1))
    return ranks


def _position(tier: npt.NDArray[np.int64], key: Floats) -> IntArray:
    """Where each image stands when sorted by tier and key."""
    position = np.empty(len(key), np.int64)
    position[np.lexsort((key, tier))] = np.arange(len(key))
    return position


def _kind(*columns: IntArray) -> IntArray:
    """One number for each combination of values that occurs."""
    number = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        _, compact = np.unique(column, return_inverse=True)
        number = number * (int(compact.max(initial=0)) + 1) + compact
        _, number = np.unique(number, return_inverse=True)  # small again, whatever comes next
    return np.asarray(number, np.int64)


def _turn(number: IntArray, position: IntArray) -> IntArray:
    """How many of the same kind stand before each image."""
    if not len(number):
        return np.zeros(0, np.int64)
    order = np.lexsort((position, number))
    ordered = number[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    lengths = np.diff(np.r_[starts, len(ordered)])
    turn = np.empty(len(number), np.int64)
    turn[order] = np.arange(len(number)) - np.repeat(starts, lengths)
    return turn
