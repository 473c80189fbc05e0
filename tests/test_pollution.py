"""The outlier share: counting against enumeration, coverage by simulation, and what must fail."""

from itertools import combinations
from math import comb

import numpy as np
import pytest
from scipy import stats

from anedl.errors import AnedlError
from anedl.pollution import at_most, estimate_outlier_share


@pytest.mark.parametrize(("held_out", "hidden"), [(1, 3), (3, 2), (3, 4), (4, 4)])
def test_counting_by_enumeration(held_out, hidden):
    """All ways to place the held-out inliers among all inliers, best first."""
    places = list(combinations(range(held_out + hidden), held_out))
    for rank in range(1, held_out + 1):
        # Before the rank-th held-out one at place q there are q − (rank − 1) hidden ones.
        beaten_by = [place[rank - 1] - (rank - 1) for place in places]
        for count in range(-1, hidden + 2):
            expected = sum(beaten <= count for beaten in beaten_by) / comb(
                held_out + hidden, held_out
            )
            assert at_most(count, rank, held_out, hidden) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("held_out", "hidden", "rank"), [(60, 500, 30), (20, 50_000, 19)])
def test_counting_is_beta_binomial(held_out, hidden, rank):
    other = stats.betabinom(hidden, rank, held_out + 1 - rank)
    for count in (hidden // 10, hidden // 2, hidden - 5):
        assert at_most(count, rank, held_out, hidden) == pytest.approx(
            other.cdf(count), rel=1e-6, abs=1e-12
        )


@pytest.mark.parametrize("allowed", [0.0, 0.1, 0.25])
@pytest.mark.parametrize("above", range(9))
def test_the_high_end_by_enumeration(above, allowed):
    """Five inliers and eight pile images, `above` of them over the median: try every number."""
    inliers = np.arange(5.0)
    pile = np.where(np.arange(8) < above, 9.0, -9.0)

    def chance(hidden, least):
        places = list(combinations(range(5 + hidden), 5))
        return np.mean([place[2] - 2 >= least for place in places])

    possible = [h for h in range(9) if chance(h, above - int(allowed * (8 - h))) > 0.05]
    # The low end takes precedence where too few images are found for both to be possible.
    estimate = estimate_outlier_share(inliers, pile, 0.9, allowed)
    assert estimate.high == max(1 - min(possible, default=8) / 8, estimate.low)


def test_the_low_end_by_enumeration():
    """One inlier has one rank: h of them are possible while 1/(h + 1) exceeds the risk."""
    none = estimate_outlier_share(np.zeros(1), np.full(100, -1.0), level=0.88)
    assert none.low == 1 - 15 / 100
    # With one image above, 2/(h + 1) must; a tie counts as above.
    for score in (0.0, 1.0):
        pile = np.full(100, -1.0)
        pile[0] = score
        assert estimate_outlier_share(np.zeros(1), pile, level=0.88).low == 1 - 32 / 100


def coverage(inliers, pile, share, separation, repeats=120):
    """Shares of simulated piles whose low end, and whose high end, holds; and the mean ends."""
    generator = np.random.default_rng([inliers, pile, round(100 * share)])
    outliers = round(share * pile)
    ends = []
    for _ in range(repeats):
        calibration = generator.normal(size=inliers)
        scores = generator.normal(size=pile)
        scores[:outliers] -= separation
        estimate = estimate_outlier_share(calibration, scores)
        assert 0 <= estimate.low <= estimate.share <= estimate.high <= 1
        ends.append((estimate.low, estimate.high))
    low, high = np.array(ends).T
    truth = outliers / pile
    return (low <= truth + 1e-9).mean(), (high >= truth - 1e-9).mean(), low.mean(), high.mean()


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8, 1.0])
@pytest.mark.parametrize("inliers", [20, 100])
def test_both_ends_hold(inliers, share):
    """Outliers 2.5 deviations down: about 1 in 160 lies above the median inlier."""
    low_holds, high_holds, low, high = coverage(inliers, 200, share, 2.5)
    assert low_holds > 0.95 - 0.06
    assert high_holds > 0.95 - 0.06
    assert high - low < (0.55 if inliers == 20 else 0.45)


@pytest.mark.parametrize("separation", [-2.0, 0.0, 1.0])
def test_the_low_end_holds_whatever_the_outliers_look_like(separation):
    """Even if they score like inliers or better; the high end must fail there, as it says."""
    low_holds, high_holds, _, _ = coverage(60, 200, 0.5, separation)
    assert low_holds > 0.95 - 0.06
    if separation <= 0:
        assert high_holds < 0.5


def test_an_admitted_leak_mends_the_high_end():
    """One in six outliers above the median: 5 % is too small an allowance, 30 % is enough."""
    generator = np.random.default_rng(5)
    holds = {0.05: 0, 0.3: 0}
    for _ in range(60):
        calibration, pile = generator.normal(size=100), generator.normal(size=400)
        pile[:320] -= 0.97
        for allowed in holds:
            holds[allowed] += estimate_outlier_share(calibration, pile, 0.9, allowed).high >= 0.8
    assert holds[0.05] < 45 < 54 < holds[0.3]


def test_more_of_both_narrows_the_interval():
    def width(inliers, pile):
        _, _, low, high = coverage(inliers, pile, 0.3, 3.0, repeats=20)
        return high - low

    assert width(200, 2000) < width(60, 500) < width(20, 200)


def test_clear_cases():
    """Far outliers, quantiles for samples: the share is nearly the truth."""
    inliers = stats.norm.ppf((np.arange(200) + 0.5) / 200)
    pile = np.concatenate([stats.norm.ppf((np.arange(350) + 0.5) / 350), np.full(150, -9.0)])
    estimate = estimate_outlier_share(inliers, pile)
    assert estimate.share == pytest.approx(0.3, abs=0.01)
    assert 0.22 < estimate.low < 0.3 < estimate.high < 0.45
    alone = estimate_outlier_share(inliers, np.full(500, -9.0))
    assert alone.share == alone.high == 1.0
    assert alone.low > 0.98


def test_ties_that_say_nothing_give_an_interval_that_says_nothing():
    estimate = estimate_outlier_share(np.ones(60), np.ones(500))
    assert (estimate.low, estimate.high) == (0.0, 1.0)


@pytest.mark.parametrize("share", [0.0, 0.4, 0.8])
def test_coarse_scores_keep_both_ends(share):
    """Scores rounded to halves tie often; no end may give way."""
    generator = np.random.default_rng(6)
    outliers = round(200 * share)
    held = []
    for _ in range(100):
        pile = generator.normal(size=200)
        pile[:outliers] -= 3
        estimate = estimate_outlier_share(
            np.round(2 * generator.normal(size=60)) / 2, np.round(2 * pile) / 2
        )
        held.append((estimate.low <= share + 1e-9, estimate.high >= share - 1e-9))
    assert (np.mean(held, axis=0) > 0.89).all()


def test_a_large_pile_and_one_inlier():
    generator = np.random.default_rng(7)
    pile = generator.normal(size=50_000)
    pile[:20_000] -= 3
    estimate = estimate_outlier_share(generator.normal(size=300), pile)
    assert estimate.low < 0.4 < estimate.high
    assert estimate.high - estimate.low < 0.25
    single = estimate_outlier_share(np.zeros(1), pile)
    assert single.high - single.low > 0.7


def test_description_says_what_each_end_assumes():
    estimate = estimate_outlier_share(np.arange(60.0), np.arange(-500.0, 500.0))
    text = estimate.to_json()["note"]
    assert "of the 1,000 images are of no known class (90 % interval" in text
    assert "The low end holds whatever the strangers look like" in text
    assert "at most 5 % of them score above the median inlier" in text
    assert estimate.to_json()["share"] == estimate.share


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: estimate_outlier_share(np.array([]), np.ones(3)), "no inlier scores"),
        (lambda: estimate_outlier_share(np.ones(3), np.array([])), "no pile scores"),
        (lambda: estimate_outlier_share(np.ones(3), np.array([np.nan])), "not numbers"),
        (lambda: estimate_outlier_share(np.ones(3), np.ones(3), level=1.0), "between 0 and 1"),
        (lambda: estimate_outlier_share(np.ones(3), np.ones(3), above_median=2.0), "is a share"),
    ],
)
def test_errors_say_what_is_wrong(call, message):
    with pytest.raises(AnedlError, match=message):
        call()


def test_a_pile_that_scores_above_its_own_inliers_is_doubted():
    """Strangers that look better than known images: 0 % to 0 % must not stand alone."""
    rng = np.random.default_rng(5)
    pile = np.concatenate([rng.normal(0, 1, 1000), rng.normal(2, 1, 1000)])
    found = estimate_outlier_share(rng.normal(0, 1, 25), pile)
    assert (found.low, found.high) == (0, 0)
    assert found.doubtful
    assert "Do not trust this" in found.describe()
    assert found.to_json()["doubtful"] is True


def test_ends_that_cross_are_doubted():
    """Strangers like middling inliers: as few inliers as the low end leaves cannot score so."""
    decoys = np.concatenate([np.full(5, 10.0), np.arange(15) / 15])
    pile = np.concatenate([np.linspace(0.5, 0.99, 150), np.linspace(-5, -1, 140)])
    found = estimate_outlier_share(decoys, pile)
    assert found.low == found.high > 0.9
    assert found.doubtful
    # Without the good ones nothing contradicts the low end.
    assert not estimate_outlier_share(decoys, pile[150:]).doubtful


def test_a_clean_pile_is_doubted_as_rarely_as_the_risk_allows():
    rng = np.random.default_rng(6)
    draws = [estimate_outlier_share(rng.random(39), rng.random(300)).doubtful for _ in range(1500)]
    # The exact chance lies just below 5 %, the risk of either end.
    assert 0.03 < np.mean(draws) < 0.05 + 3 * np.sqrt(0.05 * 0.95 / 1500)


def test_a_dirty_pile_that_scores_low_is_not_doubted():
    rng = np.random.default_rng(7)
    pile = np.concatenate([rng.normal(0, 1, 500), rng.normal(-4, 1, 500)])
    found = estimate_outlier_share(rng.normal(0, 1, 39), pile)
    assert not found.doubtful
    assert "trust" not in found.describe()
