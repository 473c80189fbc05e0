"""Rejecting by two scores: every block equally likely, against all choices of who is new."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anedl import blocks

# Few distinct values, so that ties are common.
TIED = st.lists(st.tuples(*[st.integers(-2, 2).map(float)] * 2), min_size=2, max_size=14)
DISTINCT = st.integers(2, 40).flatmap(
    lambda count: st.tuples(*[st.permutations(range(count)) for _ in range(2)])
)


def left_out(first, second):
    """The rank, p-value × n, of each of n inliers judged by the n − 1 others."""
    first, second = (np.asarray(scores, np.float64) for scores in (first, second))
    found = []
    for place in range(len(first)):
        others = np.arange(len(first)) != place
        limits = blocks.thresholds(first[others], second[others])
        (value,) = blocks.p_values(limits, first[[place]], second[[place]])
        found.append(value * len(first))
    return np.round(found, 9)


@settings(deadline=None)
@given(DISTINCT)
def test_every_block_holds_one_of_exchangeable_inliers(scores):
    """So a new one, which is any of them, is as likely to fall into one block as into another."""
    assert sorted(left_out(*scores)) == list(range(1, len(scores[0]) + 1))


@settings(deadline=None)
@given(TIED)
def test_ties_only_make_it_safer(pairs):
    ranks = left_out(*zip(*pairs, strict=True))
    for rank in range(1, len(pairs) + 1):
        assert (ranks <= rank).sum() <= rank


@settings(deadline=None)
@given(TIED, TIED)
def test_p_values_are_the_least_rank_that_rejects(calibration, new):
    limits = blocks.thresholds(*np.array(calibration).T)
    found = blocks.p_values(limits, *np.array(new).T)
    count = len(calibration)
    for (score, familiarity), value in zip(new, found, strict=True):
        rejecting = [
            rank
            for rank in range(1, count + 1)
            if score < limits[0][rank - 1] or familiarity < limits[1][rank - 1]
        ]
        assert value == min(rejecting, default=count + 1) / (count + 1)


@pytest.mark.parametrize(
    ("rank", "of_second"), [(1, 0), (2, 1), (11, 1), (12, 2), (50, 5), (52, 6)]
)
def test_one_in_ten_is_lost_to_the_second_score(rank, of_second):
    assert sum(blocks.by_second(k) for k in range(1, rank + 1)) == of_second


def test_an_inlier_that_is_low_in_both_is_lost_once():
    """The second score finds the next lowest of those that the first has left."""
    limits = blocks.thresholds(np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.0]))
    assert [limit.tolist() for limit in limits] == [[1.0, 1.0, 3.0], [-np.inf, 2.0, 2.0]]
