"""Two models on the same images: against exact binomial counts and sums over all outcomes."""

import numpy as np
import pytest
from scipy.stats import binom, multinomial, norm

from anedl.errors import DataError
from anedl.fit.comparison import COVERAGE, compare, paired_interval


def wrong(images, *positions):
    flags = np.zeros(images, bool)
    flags[list(positions)] = True
    return flags


def test_errors_and_their_difference():
    found = compare(wrong(10, 0, 1, 2), wrong(10, 2, 3))
    assert (found.images, found.error_without, found.error_with) == (10, 0.3, 0.2)
    assert found.difference == pytest.approx(-0.1)


@pytest.mark.parametrize(("worse", "better", "images"), [(1, 5, 20), (8, 0, 30), (4, 4, 50)])
def test_the_interval_holds_that_of_the_exact_binomial_test(worse, better, images):
    without = wrong(images, *range(better))
    with_pile = wrong(images, *range(better, better + worse))
    found = compare(without, with_pile)
    differ, tail = worse + better, (1 - COVERAGE) / 2
    # An end of that interval is the share at which what was seen, or more, has this probability.
    share = (np.array([found.low, found.high]) * images / differ + 1) / 2
    if worse and 0 < share[0] < 1:
        assert binom.sf(worse - 1, differ, share[0]) <= tail + 1e-9
    if better and 0 < share[1] < 1:
        assert binom.cdf(worse, differ, share[1]) <= tail + 1e-9
    assert found.low <= found.difference <= found.high


@pytest.mark.parametrize("only_with", [0.0, 0.01, 0.05, 0.2])
@pytest.mark.parametrize("only_without", [0.0, 0.03, 0.1])
@pytest.mark.parametrize("images", [20, 87, 300])
def test_the_interval_covers_the_true_change(only_with, only_without, images):
    """Summed over every outcome: two models that err alone on these shares of new images."""
    worse, better = np.meshgrid(np.arange(images + 1), np.arange(images + 1), indexing="ij")
    shares = [only_with, only_without, 1 - only_with - only_without]
    outcomes = np.stack([worse, better, images - worse - better], -1).reshape(-1, 3)
    outcomes = outcomes[outcomes[:, 2] >= 0]
    chance = multinomial.pmf(outcomes, images, shares)
    likely = chance > 1e-6
    covered = 0.0
    for (more, less, _), weight in zip(outcomes[likely], chance[likely], strict=True):
        low, high = paired_interval(int(more), int(less), images)
        covered += weight * (low - 1e-9 <= only_with - only_without <= high + 1e-9)
    assert covered >= COVERAGE - 0.025


def test_models_that_agree_show_no_difference_but_may_have_one():
    found = compare(wrong(87, 1), wrong(87, 1))
    assert (found.difference, found.hurt) == (0, False)
    assert found.describe().startswith("no difference shows")
    # By hand: with no disagreement Tango's interval ends at z²/(n + z²).
    assert found.high == pytest.approx(norm.isf(0.05) ** 2 / (87 + norm.isf(0.05) ** 2))
    assert found.low == pytest.approx(-found.high)


def test_harm_is_told_and_help_is_told():
    worse = compare(wrong(40), wrong(40, *range(10)))
    assert worse.hurt
    assert worse.describe().startswith("WARNING, the pile hurt")
    assert worse.describe().endswith(
        "use the model in `supervised/` instead. It is not calibrated: `anedl calibrate "
        "RUN/supervised KNOWN/ -o FOLDER` sets a certified threshold by known images that this fit "
        "has not had"
    )
    assert worse.to_json()["hurt"] is True
    better = compare(wrong(40, *range(10)), wrong(40))
    assert not better.hurt
    assert better.describe().startswith("yes")


def test_chance_alone_is_rarely_called_harm():
    """Two equally good models: `hurt` must come up in at most 5 % of draws."""
    rng = np.random.default_rng(0)
    draws = [compare(rng.random(60) < 0.2, rng.random(60) < 0.2).hurt for _ in range(2000)]
    assert np.mean(draws) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 2000)


def test_no_images_are_refused():
    with pytest.raises(DataError, match="no held-out images"):
        compare([], [])
