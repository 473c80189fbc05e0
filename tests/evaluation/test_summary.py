"""Means, deviations and intervals against hand-made numbers and a printed table of Student's t."""

from math import sqrt
from statistics import mean, stdev

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anedl.errors import AnedlError
from anedl.evaluation.summary import (
    MeanStd,
    format_difference,
    format_percent,
    mean_std,
    paired_difference,
)

# Two-sided critical values as statistical tables print them, to three decimals.
STUDENT_T = {
    (1, 0.95): 12.706,
    (2, 0.95): 4.303,
    (4, 0.95): 2.776,
    (4, 0.90): 2.132,
    (9, 0.99): 3.250,
}


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=10))
def test_mean_and_sample_deviation(values):
    result = mean_std(values)
    assert result.mean == pytest.approx(mean(values), abs=1e-12)
    assert result.std == pytest.approx(stdev(values), abs=1e-12)


def test_one_run_has_no_deviation():
    assert mean_std([0.5]) == MeanStd(0.5, None)
    assert mean_std([1.0, 2.0, 3.0]) == MeanStd(2.0, 1.0)


@pytest.mark.parametrize(("freedom", "level"), STUDENT_T)
def test_interval_matches_the_table(freedom, level):
    count = freedom + 1
    second = [0.1 * run for run in range(count)]
    first = [value + 0.01 * run**2 for run, value in enumerate(second)]
    result = paired_difference(first, second, level)
    squares = [0.01 * run**2 for run in range(count)]
    reach = STUDENT_T[freedom, level] * stdev(squares) / sqrt(count)
    assert result.mean == pytest.approx(mean(squares))
    assert result.std == pytest.approx(stdev(squares))
    assert result.low == pytest.approx(mean(squares) - reach, abs=1e-3 * reach)
    assert result.high == pytest.approx(mean(squares) + reach, abs=1e-3 * reach)
    assert result.level == level


def test_pairing_removes_what_the_seeds_share():
    """Seeds that differ widely but by the same amount in both methods leave a narrow interval."""
    first, second = [0.1, 0.5, 0.9], [0.08, 0.47, 0.88]
    result = paired_difference(first, second)
    assert result.std < 0.01 < mean_std(first).std
    opposite = paired_difference(second, first)
    assert (opposite.mean, opposite.low) == (
        pytest.approx(-result.mean),
        pytest.approx(-result.high),
    )


def test_one_pair_has_no_interval():
    result = paired_difference([0.5], [0.25])
    assert (result.mean, result.std, result.low, result.high) == (0.25, None, None, None)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([0.902, 0.903, 0.904], "90.3 ± 0.1"),
        ([0.903], "90.3"),
        ([-0.0001], "0.0"),
        ([1.0, 1.0], "100.0 ± 0.0"),
    ],
)
def test_format_percent(values, text):
    assert format_percent(values) == text


def test_format_digits():
    assert format_percent([0.12345, 0.12345], digits=2) == "12.35 ± 0.00"


def test_format_difference():
    # Mean −.01 and deviation .01: the t interval of three runs reaches 4.303 · .01 / √3 = .0248.
    assert format_difference(paired_difference([0.5, 0.5, 0.5], [0.5, 0.51, 0.52])) == (
        "-1.0 [-3.5, +1.5]"
    )
    assert format_difference(paired_difference([0.9], [0.9001])) == "+0.0"


def test_what_cannot_be_summarised_is_refused():
    with pytest.raises(AnedlError, match="at least one run"):
        mean_std([])
    with pytest.raises(AnedlError, match="no finite value"):
        mean_std([0.5, float("nan")])
    with pytest.raises(AnedlError, match="same seeds"):
        paired_difference([0.5, 0.6], [0.5])
    with pytest.raises(AnedlError, match="level"):
        paired_difference([0.5, 0.6], [0.5, 0.6], level=95)
