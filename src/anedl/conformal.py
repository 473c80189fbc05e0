"""Rejection with a meaning: split-conformal p-values from held-out inliers.

A score is higher the more an image looks like an inlier, as everywhere. The p-value of an image
tests "this is an inlier"; rejecting where it is at most a level rejects at most that share of the
true inliers. The promise is marginal: it averages over the draw of the calibration images as well,
and rests on one assumption alone, that the new inliers and the calibration images are exchangeable.
`conditional_interval` says what one draw may do. `anedl.calibration` joins these functions into
what a run needs.

Nothing is promised about outliers: how many of them are caught is the model's merit.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, log10, sqrt
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from anedl.errors import AnedlError

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]


class Interval(NamedTuple):
    """The two ends of an interval."""

    low: float
    high: float


@dataclass(frozen=True)
class Threshold:
    """Images with a score below `value` are rejected; those at it or above are accepted.

    Those with a familiarity below `familiarity` are rejected as well. At most `certified` of
    exchangeable inliers are rejected, never more than was `asked` for. Where `images` are too few
    for the level, nothing is rejected: `value` is −∞, `certified` is 0 and `note` says so;
    otherwise `note` is empty.
    """

    value: float
    asked: float
    certified: float
    images: int
    note: str = ""
    familiarity: float = -inf


@dataclass(frozen=True, eq=False)
class CrossPValues:
    """Cross-conformal p-values, (M,), from `images` inliers in `folds` folds."""

    values: FloatArray
    images: int
    folds: int

    @property
    def finest(self) -> float:
        """The smallest p-value that can occur."""
        return self.folds / (self.images + self.folds)

    def bound(self, level: float) -> float:
        """The share of inliers with a p-value at most `level` that is never exceeded."""
        return min(1.0, 2.0 * level)

    def describe(self, level: float) -> str:
        """What a rejection at this level promises, in a sentence."""
        if level < self.finest:
            return (
                f"{self.images} images in {self.folds} folds cannot reject anything at "
                f"{percent(level)}: the finest level is {percent_upwards(self.finest)}"
            )
        return (
            f"cross-conformal, {self.images} images in {self.folds} folds: rejecting at "
            f"{percent(level)} is sure to reject at most {percent(self.bound(level))} of true "
            f"inliers on average, twice the level"
        )


@dataclass(frozen=True)
class Comparison:
    """Do inliers that training has seen in the pile score like fresh ones?

    `p_value` is that of the two-sample Kolmogorov–Smirnov test. `difference` is the share of seen
    inliers below the threshold of the fresh ones, less the share of fresh inliers there; its 90 %
    interval is `low` to `high`.
    """

    fresh: int
    seen: int
    level: float
    p_value: float
    difference: float
    low: float
    high: float

    @property
    def differ(self) -> bool:
        """Whether the two differ by more than chance explains (test at 5 %)."""
        return self.p_value < 0.05

    @property
    def can_tell(self) -> bool:
        """Whether the interval keeps within the level: more would double what is rejected."""
        return -self.level <= self.low and self.high <= self.level

    def describe(self) -> str:
        """The finding in one sentence."""
        change = (
            f"a threshold set on fresh images would change how many of them are rejected by "
            f"{100 * self.difference:+z.1f} points (90 % interval {100 * self.low:+z.1f} to "
            f"{100 * self.high:+z.1f})"
        )
        if self.differ:
            return (
                f"inliers that training has seen in the pile score differently from fresh ones "
                f"(p = {self.p_value:.2g}): {change}; images of the pile are therefore judged by "
                f"the {self.seen} inliers hidden among them"
            )
        if self.low > 0 or self.high < 0:
            side = "more" if self.low > 0 else "fewer"
            return (
                f"as a whole {self.seen} inliers that training has seen in the pile score like "
                f"{self.fresh} fresh ones (p = {self.p_value:.2g}), but {side} of them lie below "
                f"the threshold: {change}, which leaves 0 out"
            )
        if not self.can_tell:
            return (
                f"{self.seen} inliers that training has seen in the pile and {self.fresh} fresh "
                f"ones are too few to tell whether they differ (p = {self.p_value:.2g}): {change}"
            )
        return (
            f"no difference shows between {self.seen} inliers that training has seen in the pile "
            f"and {self.fresh} fresh ones (p = {self.p_value:.2g}): {change}"
        )


def p_values(calibration: Array, scores: Array) -> FloatArray:
    """The p-value of "this is an inlier" for each score, (M,): (1 + #{calibration ≤ s}) / (n + 1).

    `calibration` (n,) are scores of held-out inliers. Ties count as if the calibration image were
    the stranger one, so a p-value can only come out too large.
    """
    ordered = np.sort(checked_scores(calibration, "calibration"))
    below = np.searchsorted(ordered, checked_scores(scores, "image", empty=True), side="right")
    values: FloatArray = (1.0 + below.astype(np.float64)) / (len(ordered) + 1)
    return values


def finest_level(images: int) -> float:
    """The smallest level that this many held-out inliers can certify, 1/(n + 1)."""
    return 1.0 / (_count(images) + 1.0)


def shortfall(images: int, level: float) -> str:
    """Why so many held-out inliers cannot certify a level; empty where they can."""
    if rank_of(_count(images), level):
        return ""
    return (
        f"{images} held-out images cannot certify {percent(level)}: "
        f"the finest is {percent_upwards(finest_level(images))}"
    )


def threshold(calibration: Array, level: float) -> Threshold:
    """The threshold below which at most `level` of the true inliers are rejected.

    It is the k-th smallest calibration score, k = ⌊level · (n + 1)⌋, and rejects exactly the images
    with a p-value of at most `level`.
    """
    ordered = np.sort(checked_scores(calibration, "calibration"))
    images = len(ordered)
    if note := shortfall(images, level):
        return Threshold(-inf, level, 0.0, images, note)
    rank = rank_of(images, level)
    return Threshold(float(ordered[rank - 1]), level, rank / (images + 1), images)


def conditional_interval(images: int, level: float, coverage: float = 0.9) -> Interval:
    """Where the true rejection rate of one calibrated threshold lies, in `coverage` of the draws.

    Given the calibration images the rate is Beta(k, n + 1 − k) with k = ⌊level · (n + 1)⌋ when
    scores do not tie; with ties it is smaller still. The interval has equal tails and is exact.
    """
    check_share(coverage, "the coverage of an interval")
    rank = rank_of(_count(images), level)
    if rank == 0:
        return Interval(0.0, 0.0)
    return _beta_interval(rank, images + 1 - rank, coverage)


def chance_to_lose(lost: int, judged: int, images: int, level: float) -> float:
    """The chance that so many inliers, or more, of those `judged` are rejected at a level.

    Were they exchangeable with the `images` n that calibrate, of which k = ⌊level · (n + 1)⌋ set
    the thresholds, the number that is rejected would be Beta-binomial(judged, k, n + 1 − k), by one
    score or by two: of a Beta(k, n + 1 − k) distributed rate each inlier makes one draw.
    """
    from scipy.stats import betabinom

    rank = rank_of(_count(images), level)
    if rank == 0:
        return float(lost == 0)
    return float(betabinom.sf(lost - 1, judged, rank, images + 1 - rank))


def benjamini_hochberg(p: Array, level: float) -> BoolArray:
    """Flag images as unknown so that at most `level` of the flags are expected to be inliers.

    Benjamini and Hochberg (1995): with the p-values in ascending order, flag the first k for the
    largest k with p_(k) ≤ level · k/M. P-values that share one calibration set are not independent,
    but they are positively dependent in the sense that the procedure needs (PRDS): Bates, Candès,
    Lei, Romano and Sesia, "Testing for outliers with conformal p-values", Annals of Statistics
    2023. With n calibration images no p-value is below 1/(n + 1), so it takes at least
    M / (level · (n + 1)) strange images of M before any is flagged. That dependence is proven for
    p-values of one score, as images of the pile have; those of two scores lack it.
    """
    values = checked_scores(p, "p-value", empty=True)
    if ((values < 0) | (values > 1)).any():
        raise AnedlError("p-values lie in 0…1: give what `p_values` returns")
    check_share(level, "the level")
    ordered = np.sort(values)
    passing = np.flatnonzero(ordered <= level * np.arange(1, len(ordered) + 1) / len(ordered))
    return values <= (ordered[passing[-1]] if len(passing) else -1.0)


def askable(level: float) -> float:
    """The least level of three digits that is not below this one, which is positive."""
    digits = 2 - floor(log10(level))
    scale: float = 10**digits
    return ceil(level * scale - 1e-9) / scale


def false_alarms_promise(level: float, inliers: int, judged: int) -> str:
    """What calling images unknown by Benjamini–Hochberg promises, and what it takes to call any."""
    fewest = ceil(judged / (level * (inliers + 1)) - 1e-9)
    return (
        f"Benjamini–Hochberg at {percent(level)}: of those called unknown at most {percent(level)} "
        f"are expected to be of a known class; with {inliers} held-out inliers none is called so "
        f"unless {fewest:,} or more of the {judged:,} images are"
    )


def cross_p_values(calibration: Sequence[Array], scores: Sequence[Array]) -> CrossPValues:
    """P-values for sets too small to hold images out: K models, each judging its own held-out fold.

    `calibration[k]` (n_k,) are the scores of fold k by the model that has not seen it, and
    `scores[k]` (M,) those of the new images by the same model. The result is the mean of the K
    p-values, fold k weighted by n_k + 1: (K + Σ_k #{calibration[k] ≤ scores[k]}) / (n + K). Each of
    the K is a p-value, but they depend on each other, and of their mean it is only certain that it
    is at most `level` for at most 2 · `level` of the inliers (Vovk and Wang, Biometrika 2020); in
    practice the rate is mostly near the level.
    """
    folds = len(calibration)
    if folds < 2 or len(scores) != folds:
        raise AnedlError(
            f"cross-conformal p-values need two folds or more and the new images' scores by the "
            f"model of each: got {folds} folds and scores by {len(scores)} models"
        )
    if len({len(of_model) for of_model in scores}) > 1:
        raise AnedlError("each model of a cross-conformal fold must score the same new images")
    sizes = np.array([len(fold) for fold in calibration])
    of_folds = np.array([p_values(c, s) for c, s in zip(calibration, scores, strict=True)])
    images = int(sizes.sum())
    # The weights make a sum of counts, so that a p-value equal to a level compares as equal.
    counts = np.rint(of_folds * (sizes + 1)[:, None]).sum(0)
    return CrossPValues(counts / (images + folds), images, folds)


def compare(fresh: Array, seen: Array, level: float) -> Comparison:
    """Compare scores of fresh inliers (n,) with those of inliers hidden in the pile (m,).

    The difference of rejection rates is taken at the threshold of the fresh ones, at the finest
    level they can certify where `level` is finer than that. Its interval joins the Beta interval of
    the fresh rate with the Clopper–Pearson interval of the seen one, as Newcombe joins two Wilson
    intervals; both parts are exact, the joint is slightly conservative.
    """
    from scipy.stats import ks_2samp

    fresh, seen = checked_scores(fresh, "fresh inlier"), checked_scores(seen, "seen inlier")
    check_share(level, "the level")
    used = max(level, finest_level(len(fresh)))
    limit = threshold(fresh, used)
    below = int((seen < limit.value).sum())
    rate = below / len(seen)
    of_seen = clopper_pearson(below, len(seen), 0.9)
    of_fresh = conditional_interval(len(fresh), used, 0.9)
    difference = rate - limit.certified
    down = sqrt((rate - of_seen.low) ** 2 + (of_fresh.high - limit.certified) ** 2)
    up = sqrt((of_seen.high - rate) ** 2 + (limit.certified - of_fresh.low) ** 2)
    # The exact distribution costs more the larger the sets, and differs less.
    large = max(len(fresh), len(seen)) > 1000
    test = ks_2samp(fresh, seen, method="asymp" if large else "exact")
    return Comparison(
        fresh=len(fresh),
        seen=len(seen),
        level=used,
        p_value=float(test.pvalue),
        difference=difference,
        low=difference - down,
        high=difference + up,
    )


def clopper_pearson(successes: int, trials: int, coverage: float) -> Interval:
    """The exact interval of a binomial share, conservative, with equal tails."""
    if not 0 <= successes <= trials or trials == 0:
        raise AnedlError(f"{successes} of {trials} is no share of a number of trials")
    low = _beta_interval(successes, trials - successes + 1, coverage).low if successes else 0.0
    failures = trials - successes
    high = _beta_interval(successes + 1, failures, coverage).high if failures else 1.0
    return Interval(low, high)


def percent(share: float) -> str:
    """Write a share as "5 %" or "2.4 %"; below 1 % with two significant digits."""
    value = 100 * share
    rounded = f"{value:.1f}" if value >= 1 else f"{value:.2g}"
    return f"{rounded.removesuffix('.0')} %"


def percent_upwards(level: float) -> str:
    """The same of a positive level, rounded up: whoever asks for what is written gets it."""
    return f"{100 * askable(level):.3g} %"


def rank_of(images: int, level: float) -> int:
    """The largest k with k/(n + 1) ≤ level, compared as p-values are."""
    check_share(level, "the level")
    rank = int(level * (images + 1)) + 1  # rounding may have put the product on either side
    while rank / (images + 1) > level:
        rank -= 1
    return rank


def _beta_interval(a: float, b: float, coverage: float) -> Interval:
    tail = (1.0 - coverage) / 2.0
    return Interval(float(betaincinv(a, b, tail)), float(betaincinv(a, b, 1.0 - tail)))


def checked_scores(values: Array, what: str, empty: bool = False) -> FloatArray:
    """Scores (N,) in float64, refused where they are not a row of numbers, or none at all."""
    scores = np.asarray(values, dtype=np.float64)
    if scores.ndim != 1:
        raise AnedlError(f"{what} scores must be one-dimensional, got shape {scores.shape}")
    if len(scores) == 0 and not empty:
        raise AnedlError(f"there are no {what} scores: hold some inliers out for them")
    if np.isnan(scores).any():
        raise AnedlError(f"{int(np.isnan(scores).sum())} {what} scores are not numbers")
    return scores


def _count(images: int) -> int:
    if images < 1:
        raise AnedlError(f"{images} held-out images can certify nothing: hold some inliers out")
    return images


def check_share(value: float, what: str) -> None:
    """Refuse what is not a share between 0 and 1."""
    if not 0.0 < value < 1.0:
        raise AnedlError(f"{what} must lie between 0 and 1, got {value}")
