"""The endless shuffles that decide who is drawn when."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anedl.data.order import endless_shuffle


def test_every_entry_comes_once_in_each_pass():
    size, passes = 17, 5
    sequence = endless_shuffle(size, 0, size * passes, (3, 1))
    for number in range(passes):
        assert sorted(sequence[number * size : (number + 1) * size]) == list(range(size))


@given(
    size=st.integers(1, 40),
    start=st.integers(0, 500),
    count=st.integers(1, 130),
    cut=st.integers(0, 130),
)
def test_any_stretch_is_a_piece_of_the_same_sequence(size, start, count, cut):
    """A stretch is the same however it is asked for: whole, in two, or out of a longer one."""
    whole = endless_shuffle(size, 0, start + count, (7,))
    stretch = endless_shuffle(size, start, count, (7,))
    assert stretch.shape == (count,)
    assert stretch.dtype == np.int64
    np.testing.assert_array_equal(stretch, whole[start:])
    cut = min(max(cut, 1), count)
    np.testing.assert_array_equal(stretch[:cut], endless_shuffle(size, start, cut, (7,)))


def test_passes_keys_and_seeds_are_shuffled_differently():
    size = 50
    passes = endless_shuffle(size, 0, 3 * size, (0, 0)).reshape(3, size)
    others = [endless_shuffle(size, 0, size, key) for key in ((0, 1), (1, 0), (2**40, 0))]
    rows = {tuple(row) for row in [*passes, *others]}
    assert len(rows) == 6


def test_the_global_generator_is_neither_used_nor_moved():
    np.random.seed(0)  # noqa: NPY002 - the state that must not matter
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    first = endless_shuffle(30, 5, 60, (1,))
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    np.testing.assert_array_equal(first, endless_shuffle(30, 5, 60, (1,)))


def test_all_places_of_a_pass_are_equally_likely():
    size, passes = 5, 4000
    table = endless_shuffle(size, 0, size * passes, (11,)).reshape(passes, size)
    for place in range(size):
        shares = np.bincount(table[:, place], minlength=size) / passes
        assert np.abs(shares - 1 / size).max() < 0.03  # five deviations of √(0.16/4000)


def test_nothing_to_shuffle_is_an_error():
    with pytest.raises(ValueError, match="nothing"):
        endless_shuffle(0, 0, 4, (1,))
