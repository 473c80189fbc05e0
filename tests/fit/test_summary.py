"""What a fit says of its own outcome."""

import numpy as np
import pytest

from anedl.fit.summary import seldom_found
from anedl.triage.verdict import Rules, gather, judge


def triage_with(counts, unknown=()):
    """As many images as `counts` says of each class, then some `unknown` ones of these classes."""
    first = np.array([k for k, n in enumerate(counts) for _ in range(n)] + list(unknown), int)
    size = len(first)
    probabilities = np.full((size, len(counts)), 0.01)
    probabilities[np.arange(size), first] = 1 - 0.01 * (len(counts) - 1)
    p_value = np.ones(size)
    p_value[sum(counts) :] = 0.001
    nothing = np.full(size, np.nan)
    evidence = gather(
        [f"{n}.png" for n in range(size)], probabilities, np.zeros(size), p_value, nothing,
        nothing, np.full(size, -1), [f"class{k}" for k in range(len(counts))],
    )  # fmt: skip
    return judge(evidence, Rules())


def test_a_class_that_is_hardly_found_is_named():
    # An even share is 40 images, a tenth of it 4.
    assert seldom_found(triage_with([76, 40, 4])) == []
    (said,) = seldom_found(triage_with([80, 40, 3]))
    assert "taken for 'class2';" in said


def test_images_that_are_called_unknown_do_not_count():
    (said,) = seldom_found(triage_with([40, 40, 0], unknown=[2] * 30))
    assert "'class2'" in said


@pytest.mark.parametrize(("found", "more"), [(5, False), (7, True)])
def test_many_names_do_not_fill_the_screen(found, more):
    (said,) = seldom_found(triage_with([400] * found + [0] * found))
    assert (f"and {found - 5} more" in said) == more


def test_a_pile_of_strangers_names_no_class():
    """Nothing is found of any class: that is told elsewhere."""
    assert seldom_found(triage_with([0, 0, 0], unknown=[0, 1, 2])) == []
