"""The running results are counts of what was decided, and the interval holds what it says."""

import numpy as np
import pytest

from anedl.review.estimates import MINIMUM, OPEN, SKIPPED, UNKNOWN, effect
from anedl.review.queue import random_order

ACCEPT, REVIEW, STRANGE = 0, 1, 2


def test_counts_agreement_and_the_pile_as_it_is_now():
    state = np.array([ACCEPT, ACCEPT, REVIEW, REVIEW, STRANGE, STRANGE, STRANGE])
    guess = np.array([0, 1, 2, 0, 1, 1, 1])
    standing = np.array([0, UNKNOWN, 2, SKIPPED, UNKNOWN, 1, OPEN])
    found = effect(state, guess, standing, random_order(7), 3)
    assert (found.labelled, found.unknown, found.skipped) == (3, 2, 1)
    assert found.total == (2, 2, 3)
    assert found.settled == (2, 1, 2)
    assert found.done == (2, 2, 2)
    assert found.right == (1, 1, 1)
    assert found.sorted_pile == (3, 1, 3)


def test_an_image_of_a_class_made_since_is_an_outlier_that_the_model_could_not_know():
    state, guess = np.array([STRANGE, ACCEPT, REVIEW]), np.array([0, 1, 1])
    found = effect(state, guess, np.array([2, 2, 1]), random_order(3), known=2)
    assert (found.labelled, found.of_new_classes, found.unknown) == (3, 2, 0)
    assert found.right == (0, 1, 1)  # accept, review, unknown
    assert found.outliers.share == pytest.approx(2 / 3)


def test_nothing_is_said_before_the_sample_is_large_enough():
    state = np.repeat([ACCEPT, REVIEW, STRANGE], 100)
    order = random_order(300)
    standing = np.full(300, OPEN)
    assert effect(state, state, standing, order, 3).sample_needed == (MINIMUM,) * 3
    for number in (ACCEPT, REVIEW):
        standing[order[state[order] == number][:MINIMUM]] = 0
    standing[order[state[order] == STRANGE][1:40]] = UNKNOWN  # with a gap at the start
    found = effect(state, state, standing, order, 3)
    assert found.sample_needed == (0, 0, MINIMUM)
    assert found.outliers is None
    standing[order[state[order] == STRANGE][0]] = SKIPPED
    assert effect(state, state, standing, order, 3).outliers is not None


def test_a_pile_settled_to_the_end_is_known_exactly():
    state = np.repeat([ACCEPT, REVIEW, STRANGE], [50, 30, 20])
    standing = np.where(np.arange(100) % 4 == 0, UNKNOWN, 1)
    share = effect(state, state, standing, random_order(100), 3).outliers
    assert share.share == share.low == share.high == pytest.approx(0.25)


def test_decisions_outside_the_sample_are_counted_but_do_not_mislead():
    """Someone settles the 60 strangest accepted images first: the estimate must not follow them."""
    rng = np.random.default_rng(3)
    state = np.full(1000, ACCEPT)
    outlier = rng.uniform(size=1000) < 0.1
    standing = np.full(1000, OPEN)
    order = random_order(1000)
    worst = np.flatnonzero(outlier)[:60]
    standing[order[:100]] = np.where(outlier[order[:100]], UNKNOWN, 0)
    standing[worst] = UNKNOWN
    share = effect(state, state, standing, order, 3).outliers
    assert (standing == UNKNOWN).sum() / (standing != OPEN).sum() > 0.3
    assert 0.06 <= share.low <= share.share <= 0.15


@pytest.mark.parametrize("rates", [(0.02, 0.5, 0.95), (0.3, 0.3, 0.3), (0.0, 0.2, 1.0)])
def test_nine_of_ten_intervals_hold_the_truth(rates):
    rng = np.random.default_rng(0)
    state = np.repeat([ACCEPT, REVIEW, STRANGE], [500, 150, 350])
    held = 0
    for _ in range(200):
        outlier = rng.uniform(size=1000) < np.array(rates)[state]
        order = rng.permutation(1000)
        standing = np.full(1000, OPEN)
        for number in (ACCEPT, REVIEW, STRANGE):
            seen = order[state[order] == number][:25]
            standing[seen] = np.where(outlier[seen], UNKNOWN, 0)
        share = effect(state, state, standing, order, 3).outliers
        held += share.low <= outlier.mean() <= share.high
    assert held >= 0.85 * 200


def test_an_empty_pile_says_nothing():
    empty = np.zeros(0, np.int64)
    assert effect(empty, empty, empty, empty, 3).outliers is None
