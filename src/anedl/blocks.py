"""Two scores and one promise: rejecting by either of them, with p-values as exact as those of one.

Held-out inliers are set aside one after the other. Each time it is the one among those left that
has the lowest score, by the first score or by the second as a fixed plan says, and its score
becomes the threshold of that kind. So n inliers cut what can occur into n + 1 blocks, and a new
inlier that is exchangeable with them falls into each with the same probability: "statistically
equivalent blocks" (Tukey, Annals of Mathematical Statistics 1947). Rejecting what lies in the
first k blocks thus rejects k/(n + 1) of new inliers on average and, given the held-out ones, a
Beta(k, n + 1 − k) distributed share, as with a single score; ties make it less. A bound that added
up the two would waste every inlier that is low in both.
"""

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

# The second score guards against what is rare: of many inliers that may be lost it gets one in ten,
# of few the second. Not the first, which is all that a small calibration has.
EVERY, BEGINNING = 10, 2


def by_second(rank: int) -> bool:
    """Whether the plan sets the inlier of this rank (from 1) aside by the second score."""
    return rank % EVERY == BEGINNING


def thresholds(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The thresholds of both scores after 1 … n inliers were set aside, (n,) each, ascending.

    `first` and `second` (n,) are two scores of the same held-out inliers. A threshold that no
    inlier has set yet is −∞.
    """
    images = len(first)
    orders = [iter(np.argsort(scores, kind="stable")) for scores in (first, second)]
    left = np.ones(images, bool)
    limits = np.full((2, images + 1), -np.inf)
    for rank in range(1, images + 1):
        which = int(by_second(rank))
        lowest = next(place for place in orders[which] if left[place])
        left[lowest] = False
        limits[:, rank] = limits[:, rank - 1]
        limits[which, rank] = (first, second)[which][lowest]
    return limits[0, 1:], limits[1, 1:]


def p_values(
    limits: tuple[FloatArray, FloatArray], first: FloatArray, second: FloatArray
) -> FloatArray:
    """The p-value of "this is an inlier" of M images by both their scores, (M,).

    It is k/(n + 1) for the least k after which a score of the image lies below its threshold, and 1
    where none does.
    """
    images = len(limits[0])
    ranks = [
        1 + np.searchsorted(limit, scores, side="right")
        for limit, scores in zip(limits, (first, second), strict=True)
    ]
    values: FloatArray = np.minimum(*ranks) / (images + 1)
    return values
