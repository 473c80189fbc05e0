"""How dirty is the pile? Its share of outliers, from inlier scores alone, with an interval.

The pile's scores are a mixture: inliers that score like held-out inliers, and outliers of which
nothing is known. Counting pile images above a score says how many inliers there can be; it never
says how many there must be, for outliers might score like inliers. So the two ends of the interval
differ in kind:

- The low end assumes only that held-out inliers and the pile's inliers are exchangeable. It holds
  whatever the outliers look like.
- The high end assumes in addition that few outliers look like good inliers: at most a stated part
  of them (5 % unless told otherwise) scores above the median held-out inlier. No method that sees
  scores alone can do without such an assumption.

Both ends are exact for finite sets: with n held-out inliers and h inliers in the pile, all ways to
arrange the n among the n + h are equally likely, so the number of pile inliers above the b-th best
held-out one follows from counting. Ties are counted against whichever end is being set.
"""

from dataclasses import asdict, dataclass
from math import ceil, floor
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from anedl.conformal import percent
from anedl.errors import AnedlError

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ShareEstimate:
    """The share of outliers in a pile of `pile` images, by `inliers` held-out inliers.

    The interval from `low` to `high` has the given `level`, half of the risk at either end; what
    each end assumes stands above. `share` is Storey's estimate at the median inlier: it comes out
    too small by twice the part of the pile that are outliers above the median.

    `doubtful` where more of the pile scores above the median inlier than chance allows: were all of
    it inliers, or with as many inliers as the low end leaves. Then the assumptions are wrong, and
    the interval with them.
    """

    share: float
    low: float
    high: float
    level: float
    inliers: int
    pile: int
    above_median: float
    doubtful: bool = False

    def describe(self) -> str:
        """The estimate and what it assumes, in a sentence each."""
        found = (
            f"about {percent(self.share)} of the {self.pile:,} images are of no known class "
            f"({percent(self.level)} interval {percent(self.low)} to {percent(self.high)}, from "
            f"{self.inliers} held-out inliers). The low end holds whatever the strangers look "
            f"like; the high end supposes that at most {percent(self.above_median)} of them score "
            f"above the median inlier."
        )
        if not self.doubtful:
            return found
        return (
            f"{found} Do not trust this: more of the pile scores above the median held-out inlier "
            f"than that allows, so strangers look like known images, or the labelled images are "
            f"no fair sample of it; it may hold any share of strangers."
        )

    def to_json(self) -> dict[str, Any]:
        """Turn into plain numbers, with the sentences beside them."""
        return {**asdict(self), "note": self.describe()}


def estimate_outlier_share(
    inlier_scores: Array, pile_scores: Array, level: float = 0.9, above_median: float = 0.05
) -> ShareEstimate:
    """Estimate which share of the pile is of no known class.

    Args:
        inlier_scores: (n,) scores of held-out inliers, higher for inliers; best of decoys that lay
            in the pile during training, for only those are exchangeable with the pile's inliers.
        pile_scores: (m,) scores of the pile without the decoys.
        level: of the interval.
        above_median: the part of the outliers that may score above the median inlier; the high end
            of the interval rests on it, nothing else does.
    """
    inliers, pile = _sorted(inlier_scores, "inlier"), _sorted(pile_scores, "pile")
    if not 0.0 < level < 1.0:
        raise AnedlError(f"the level of an interval must lie between 0 and 1, got {level}")
    if not 0.0 <= above_median <= 1.0:
        raise AnedlError(f"the part of outliers above the median is a share, got {above_median}")
    risk, size = (1.0 - level) / 2.0, len(pile)
    most = _most_inliers(inliers, pile, risk)
    least = _least_inliers(inliers, pile, risk, above_median)
    low, high = 1.0 - most / size, 1.0 - min(least, most) / size
    return ShareEstimate(
        share=float(np.clip(_storey(inliers, pile), low, high)),
        low=low,
        high=high,
        level=level,
        inliers=len(inliers),
        pile=size,
        above_median=above_median,
        doubtful=least > most or _too_many_above(inliers, pile, risk),
    )


def at_most(count: int, rank: int, held_out: int, hidden: int) -> float:
    """The chance that at most `count` of `hidden` inliers beat the `rank`-th best of `held_out`.

    All inliers are exchangeable and do not tie. Among the best count + rank of all of them must be
    `rank` held-out ones or more: the tail of a hypergeometric distribution.
    """
    if count < 0:
        return 0.0
    if count >= hidden:
        return 1.0
    drawn, total = count + rank, held_out + hidden
    among = np.arange(rank, min(held_out, drawn) + 1)
    among = among[held_out - among <= total - drawn]
    logarithms = (
        _log_choose(drawn, among)
        + _log_choose(total - drawn, held_out - among)
        - _log_choose(total, np.array([held_out]))
    )
    return min(1.0, float(np.exp(logarithms).sum()))


def _most_inliers(inliers: FloatArray, pile: FloatArray, risk: float) -> int:
    """An upper bound of the number of inliers in the pile, whatever the outliers are.

    At every held-out inlier there are at least as many pile images as pile inliers. Each of a few
    held-out ranks gives a bound, and each is given its part of the risk, so the least bound holds.
    """
    count, size = len(inliers), len(pile)
    ranks = _ranks(count)
    bound = size
    for rank in ranks:
        found = size - int(np.searchsorted(pile, inliers[count - rank], side="left"))
        # The larger the number of inliers, the smaller the chance that so few are found.
        low, high = 0, bound
        while low < high:
            middle = (low + high + 1) // 2
            if at_most(found, rank, count, middle) > risk / len(ranks):
                low = middle
            else:
                high = middle - 1
        bound = low
    return bound


def _least_inliers(inliers: FloatArray, pile: FloatArray, risk: float, above_median: float) -> int:
    """A lower bound of the number of inliers, if few outliers score above the median inlier."""
    count, size = len(inliers), len(pile)
    rank = _median_rank(count)
    found = size - int(np.searchsorted(pile, inliers[count - rank], side="right"))

    def possible(hidden: int) -> bool:
        strangers = floor(above_median * (size - hidden))
        return 1.0 - at_most(found - strangers - 1, rank, count, hidden) > risk

    if possible(0):
        return 0
    low, high = 0, size
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if possible(middle) else (middle, high)
    # Rounding the strangers down makes steps: somewhat fewer inliers may be possible again.
    reach = ceil(2 / above_median) if above_median else 0
    return min(hidden for hidden in range(max(0, high - reach), high + 1)
               if hidden == high or possible(hidden))  # fmt: skip


def _too_many_above(inliers: FloatArray, pile: FloatArray, risk: float) -> bool:
    """Whether so many above the median inlier have at most this chance were all of them inliers."""
    count, size = len(inliers), len(pile)
    rank = _median_rank(count)
    found = size - int(np.searchsorted(pile, inliers[count - rank], side="right"))
    return 1.0 - at_most(found - 1, rank, count, size) <= risk


def _storey(inliers: FloatArray, pile: FloatArray) -> float:
    """Storey's estimate at the median: as if no outlier scored above it."""
    rank = _median_rank(len(inliers))
    limit = inliers[len(inliers) - rank]
    sides = [int(np.searchsorted(pile, limit, side=side)) for side in ("left", "right")]
    above = 1.0 - sum(sides) / 2 / len(pile)
    return 1.0 - above * (len(inliers) + 1) / rank


def _median_rank(count: int) -> int:
    """The middle one, counted from the best."""
    return (count + 1) // 2


def _ranks(count: int) -> list[int]:
    """Ranks from the best at which bounds are taken: dense near the worst, where most is learnt.

    The worst but 0, 1, 3, 7, … and the better half by its quarters.
    """
    from_worst = [2**power - 1 for power in range(count.bit_length())]
    ranks = {count - below for below in from_worst if below <= count // 2}
    return sorted(ranks | {max(1, count // 2), max(1, count // 4)})


def _log_choose(total: int, chosen: npt.NDArray[np.int64]) -> FloatArray:
    logarithm: FloatArray = gammaln(total + 1) - gammaln(chosen + 1) - gammaln(total - chosen + 1)
    return logarithm


def _sorted(values: Array, what: str) -> FloatArray:
    scores = np.sort(np.asarray(values, dtype=np.float64), axis=None)
    if len(scores) == 0:
        raise AnedlError(f"there are no {what} scores: the outlier share needs some of each kind")
    if np.isnan(scores).any():
        raise AnedlError(f"{int(np.isnan(scores).sum())} {what} scores are not numbers")
    return scores
