"""The accept threshold keeps its promise, and says when it cannot make one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from anedl.errors import ConfigError, DataError
from anedl.triage.confidence import choose_confidence, fewest_images, precision_bounds


@given(st.integers(1, 400), st.data(), st.floats(0.001, 0.4))
def test_the_bound_is_the_exact_binomial_one(accepted, data, risk):
    wrong = data.draw(st.integers(0, accepted))
    (bound,) = precision_bounds(np.array([accepted]), np.array([wrong]), risk)
    interval = binomtest(accepted - wrong, accepted).proportion_ci(1 - 2 * risk, method="exact")
    assert bound == pytest.approx(interval.low, abs=1e-9)


@pytest.mark.parametrize(("target", "count"), [(0.95, 59), (0.9, 29), (0.99, 299), (0.5, 5)])
def test_fewest_images(target, count):
    """The classic numbers: 59 for 95 % at 95 %."""
    assert fewest_images(target) == count
    assert target**count <= 0.05 < target ** (count - 1)


def test_all_right_accepts_everything():
    chosen = choose_confidence(np.linspace(0.3, 1, 100), np.ones(100, bool))
    assert chosen.certified
    assert chosen.threshold == pytest.approx(0.3)
    assert (chosen.accepted, chosen.wrong) == (100, 0)
    assert chosen.lower_bound >= 0.95


def test_errors_below_are_kept_out():
    """Right above 0.6, wrong half the time below: the threshold ends near 0.6."""
    rng = np.random.default_rng(0)
    probability = rng.uniform(0.2, 1, 2000)
    correct = (probability > 0.6) | (rng.uniform(size=2000) < 0.5)
    chosen = choose_confidence(probability, correct)
    assert chosen.certified
    assert 0.5 < chosen.threshold < 0.6
    reached = probability >= chosen.threshold
    assert chosen.accepted == reached.sum()
    assert chosen.wrong == (~correct[reached]).sum()


def test_equal_probabilities_are_accepted_together():
    chosen = choose_confidence(np.full(80, 0.9), np.ones(80, bool))
    assert chosen.certified
    assert (chosen.threshold, chosen.accepted) == (0.9, 80)
    spoilt = np.ones(80, bool)
    spoilt[-20:] = False
    assert not choose_confidence(np.full(80, 0.9), spoilt).certified


@pytest.mark.parametrize("count", [0, 1, 40, 58])
def test_too_few_images_say_so(count):
    chosen = choose_confidence(np.linspace(0.5, 0.99, count), np.ones(count, bool))
    assert not chosen.certified
    assert chosen.threshold == 0.95
    assert f"{count} validation images cannot certify" in chosen.sentence
    assert "59" in chosen.sentence
    assert chosen.lower_bound < 0.95


def test_without_a_certificate_no_wrong_image_is_accepted():
    probability = np.append(np.linspace(0.5, 1, 100), [0.985, 0.97])
    correct = np.append(np.ones(100, bool), [False, False])
    chosen = choose_confidence(probability, correct, target=0.99)
    assert not chosen.certified
    assert chosen.threshold > 0.985
    assert chosen.wrong == 0
    assert "too few" not in chosen.sentence
    certain_and_wrong = choose_confidence([1.0, 1.0], [False, True])
    assert certain_and_wrong.threshold == 1.0


def test_the_promise_holds_over_many_draws():
    """True precision at the chosen threshold, known here, misses the target at most 5 % of times.

    The hardest case: a curve whose precision crosses the target slowly.
    """
    rng = np.random.default_rng(1)
    missed = certified = 0
    grid = np.linspace(0, 1, 2001)
    right_given = 0.88 + 0.12 * grid
    for _ in range(400):
        probability = rng.uniform(size=300)
        correct = rng.uniform(size=300) < 0.88 + 0.12 * probability
        chosen = choose_confidence(probability, correct)
        if chosen.certified:
            certified += 1
            missed += right_given[grid >= chosen.threshold].mean() < 0.95
    assert certified > 20
    assert missed / 400 <= 0.05


def test_wrong_use_is_refused():
    with pytest.raises(ConfigError, match="between 0 and 1"):
        choose_confidence([0.5], [True], target=1.0)
    with pytest.raises(DataError, match="right or wrong"):
        choose_confidence([0.5, 0.6], [True])
