"""Conformal p-values against enumeration of all orders, simulation and definitions spelled out."""

from fractions import Fraction
from itertools import permutations, product
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from anedl.conformal import (
    benjamini_hochberg,
    chance_to_lose,
    clopper_pearson,
    compare,
    conditional_interval,
    cross_p_values,
    finest_level,
    p_values,
    percent,
    percent_upwards,
    shortfall,
    threshold,
)
from anedl.errors import AnedlError

# Few distinct values, so that ties are common.
SCORES = st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=12)
LEVELS = st.floats(0.001, 0.999)


@settings(deadline=None)
@given(SCORES, SCORES)
def test_p_values_are_the_definition(calibration, scores):
    expected = [
        (1 + sum(c <= score for c in calibration)) / (len(calibration) + 1) for score in scores
    ]
    assert p_values(np.array(calibration), np.array(scores)).tolist() == expected


@pytest.mark.parametrize("images", [1, 2, 3, 4, 5])
def test_coverage_is_exact_over_all_orders(images):
    """Each of the n + 1 inliers is the new one equally often: P(p ≤ k/(n + 1)) = k/(n + 1)."""
    orders = list(permutations(range(images + 1)))
    found = [p_values(np.array(order[1:]), np.array(order[:1]))[0] for order in orders]
    for k in range(images + 2):
        share = Fraction(sum(p <= k / (images + 1) for p in found), len(orders))
        assert share == Fraction(k, images + 1)


@pytest.mark.parametrize("images", [2, 3, 4])
def test_ties_only_make_it_safer(images):
    """Every multiset of tied scores in every order: the level is kept, never exceeded."""
    for values in product(range(3), repeat=images + 1):
        orders = list(permutations(values))
        found = [p_values(np.array(order[1:]), np.array(order[:1]))[0] for order in orders]
        for k in range(1, images + 2):
            share = Fraction(sum(p <= k / (images + 1) for p in found), len(orders))
            assert share <= Fraction(k, images + 1)


@settings(deadline=None)
@given(SCORES, SCORES, LEVELS | st.sampled_from([0.05, 0.1, 0.25, 0.5, 0.29, 0.07]))
def test_below_the_threshold_is_a_p_value_within_the_level(calibration, scores, level):
    limit = threshold(np.array(calibration), level)
    rejected = np.array(scores) < limit.value
    assert (rejected == (p_values(np.array(calibration), np.array(scores)) <= level)).all()
    assert 0 <= limit.certified <= level
    assert limit.certified + finest_level(len(calibration)) > level
    assert bool(limit.note) == (limit.value == -inf) == (limit.certified == 0)


@pytest.mark.parametrize("hundredths", range(1, 100))
def test_a_level_that_the_images_just_certify_is_certified(hundredths):
    """0.29 · 100 is 28.999… in floating point; it must still be rank 29."""
    limit = threshold(np.arange(99.0), hundredths / 100)
    assert limit.value == hundredths - 1
    assert limit.certified == hundredths / 100


def test_too_few_images_say_what_they_can():
    limit = threshold(np.arange(40.0), 0.01)
    assert limit.note == "40 held-out images cannot certify 1 %: the finest is 2.44 %"
    assert limit.value == -inf
    assert finest_level(40) == 1 / 41
    assert not threshold(np.arange(40.0), 0.0244).note, "what is named can be asked for"
    assert not threshold(np.arange(40.0), 1 / 41).note


@pytest.mark.parametrize(("images", "level"), [(19, 0.05), (60, 0.05), (200, 0.1)])
def test_rates_of_simulated_calibrations(images, level):
    """Marginal rate, and the 90 % interval of the rate given the calibration, by simulation."""
    generator = np.random.default_rng(0)
    draws = generator.random((4000, images))
    # Uniform scores: the threshold itself is the rate at which new inliers are rejected.
    rates = np.array([threshold(row, level).value for row in draws])
    certified = threshold(draws[0], level).certified
    error = rates.std() / np.sqrt(len(rates))
    assert abs(rates.mean() - certified) < 4 * error
    low, high = conditional_interval(images, level)
    assert (rates < low).mean() == pytest.approx(0.05, abs=0.014)
    assert (rates > high).mean() == pytest.approx(0.05, abs=0.014)
    assert low < certified < high


def test_the_chance_to_lose_is_that_of_simulated_calibrations():
    """Both kinds of images drawn alike: how many of the second lie below the first's threshold."""
    generator = np.random.default_rng(8)
    lost = np.array(
        [
            (generator.normal(size=30) < threshold(generator.normal(size=39), 0.1).value).sum()
            for _ in range(20_000)
        ]
    )
    for count in (1, 3, 6, 9):
        expected = chance_to_lose(count, 30, 39, 0.1)
        assert np.mean(lost >= count) == pytest.approx(expected, abs=0.012)
    assert chance_to_lose(0, 30, 39, 0.1) == 1.0
    assert (chance_to_lose(0, 30, 9, 0.05), chance_to_lose(1, 30, 9, 0.05)) == (1.0, 0.0)


def test_an_uncertified_level_rejects_nothing_for_sure():
    assert conditional_interval(10, 0.05) == (0.0, 0.0)


@pytest.mark.parametrize(("successes", "trials"), [(0, 10), (3, 10), (10, 10), (5, 200)])
def test_clopper_pearson_inverts_binomial_tails(successes, trials):
    low, high = clopper_pearson(successes, trials, 0.9)
    if successes:
        assert stats.binom.sf(successes - 1, trials, low) == pytest.approx(0.05)
    else:
        assert low == 0
    if successes < trials:
        assert stats.binom.cdf(successes, trials, high) == pytest.approx(0.05)
    else:
        assert high == 1


def flags_by_search(p, level):
    """Benjamini–Hochberg from its definition: try every k."""
    most = 0
    for k in range(1, len(p) + 1):
        if sum(value <= level * k / len(p) for value in p) >= k:
            most = k
    return [value <= level * most / len(p) for value in p]


@settings(deadline=None)
@given(st.lists(st.integers(1, 20).map(lambda k: k / 20), max_size=15), LEVELS)
def test_benjamini_hochberg_is_the_definition(p, level):
    assert benjamini_hochberg(np.array(p), level).tolist() == flags_by_search(p, level)


def test_false_flags_stay_below_the_level():
    """Shared calibration, 300 inliers and 100 outliers: mean false share ≤ level · 3/4."""
    generator = np.random.default_rng(1)
    shares, found = [], []
    for _ in range(1500):
        calibration = generator.normal(size=100)
        scores = np.concatenate([generator.normal(size=300), generator.normal(-3, size=100)])
        flags = benjamini_hochberg(p_values(calibration, scores), 0.2)
        shares.append(flags[:300].sum() / max(1, flags.sum()))
        found.append(flags[300:].mean())
    error = np.std(shares) / np.sqrt(len(shares))
    assert np.mean(shares) < 0.2 * 0.75 + 3 * error
    assert np.mean(found) > 0.5


@settings(deadline=None)
@given(
    st.lists(st.lists(st.integers(-3, 3).map(float), min_size=1, max_size=5), min_size=2,
             max_size=4),
    st.integers(0, 4),
    st.randoms(use_true_random=False),
)  # fmt: skip
def test_cross_p_values_are_the_weighted_mean(calibration, new, random):
    scores = [[float(random.randint(-3, 3)) for _ in range(new)] for _ in calibration]
    result = cross_p_values([np.array(c) for c in calibration], [np.array(s) for s in scores])
    images, folds = sum(map(len, calibration)), len(calibration)
    for position, value in enumerate(result.values):
        beaten = sum(
            c <= of_model[position]
            for fold, of_model in zip(calibration, scores, strict=True)
            for c in fold
        )
        assert value == (folds + beaten) / (images + folds)
        assert value >= result.finest


def test_cross_conformal_keeps_its_bound():
    """Models that learn the mean of what they saw and score by the distance from it."""
    generator = np.random.default_rng(2)
    values = []
    for _ in range(1500):
        data = generator.normal(size=(5, 4))
        new = generator.normal(size=1)
        centres = [np.delete(data, fold, axis=0).mean() for fold in range(5)]
        calibration = [-abs(fold - centre) for fold, centre in zip(data, centres, strict=True)]
        result = cross_p_values(calibration, [-abs(new - centre) for centre in centres])
        values.append(result.values[0])
    for level in (0.2, 0.3, 0.4):
        assert result.bound(level) == 2 * level
        assert np.mean(np.array(values) <= level) <= 2 * level
    assert "at most 60 %" in result.describe(0.3)
    assert "the finest level is 20 %" in result.describe(0.05)


def test_equal_sets_rarely_differ_and_the_interval_holds_zero():
    generator = np.random.default_rng(4)
    comparisons = [
        compare(generator.normal(size=60), generator.normal(size=80), 0.05) for _ in range(400)
    ]
    assert np.mean([c.differ for c in comparisons]) < 0.08
    assert np.mean([c.low <= 0 <= c.high for c in comparisons]) > 0.88


def test_that_no_difference_shows_is_said_only_where_one_would():
    generator = np.random.default_rng(0)
    told = {
        count: compare(generator.normal(size=count), generator.normal(size=count), 0.05)
        for count in (27, 2000)
    }
    assert not any(found.differ for found in told.values())
    assert told[27].high > 0.05 > told[2000].high > 0
    assert "27 fresh ones are too few to tell whether they differ" in told[27].describe()
    assert told[2000].describe().startswith("no difference shows between 2000 inliers")


def test_a_difference_below_the_threshold_alone_is_said():
    """Kolmogorov and Smirnov look at the whole; a quarter of 40 at the low end is not enough."""
    fresh = np.linspace(0.0, 1.0, 40)
    seen = fresh.copy()
    seen[:8] -= 1.0
    low = compare(fresh, seen, 0.05)
    assert not low.differ
    assert low.low > 0
    assert ", but more of them lie below the threshold" in low.describe()
    assert "leaves 0 out" in low.describe()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: p_values(np.array([]), np.ones(2)), "no calibration scores"),
        (lambda: p_values(np.ones(2), np.array([np.nan])), "not numbers"),
        (lambda: p_values(np.ones((2, 2)), np.ones(2)), "one-dimensional"),
        (lambda: threshold(np.ones(2), 0.0), "between 0 and 1"),
        (lambda: finest_level(0), "certify nothing"),
        (lambda: benjamini_hochberg(np.array([1.5]), 0.1), "0…1"),
        (lambda: cross_p_values([np.ones(2)], [np.ones(2)]), "two folds"),
        (lambda: cross_p_values([np.ones(2)] * 2, [np.ones(2), np.ones(3)]), "same new images"),
    ],
)
def test_errors_say_what_is_wrong(call, message):
    with pytest.raises(AnedlError, match=message):
        call()


def test_percent():
    assert [percent(v) for v in (0, 0.05, 1 / 41, 0.005, 0.123)] == [
        "0 %", "5 %", "2.4 %", "0.5 %", "12.3 %",
    ]  # fmt: skip


@pytest.mark.parametrize("images", [*range(2, 60), 99, 150, 999, 4321, 10**6])
def test_the_finest_level_that_is_named_can_be_asked_for(images):
    level = float(percent_upwards(finest_level(images)).removesuffix(" %")) / 100
    assert not shortfall(images, level)
    assert level < finest_level(images) * 1.1
