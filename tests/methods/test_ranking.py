"""Which images a ranking picks, against plain loops."""

import pytest
import torch

from anedl.methods.ranking import highest, highest_of_each


def test_highest_is_sorted_and_breaks_ties_by_position():
    ranking = torch.tensor([2.0, 5.0, 2.0, 2.0, 7.0, 2.0])
    assert highest(ranking, 2).tolist() == [1, 4]
    assert highest(ranking, 3).tolist() == [0, 1, 4]
    assert highest(ranking, 5).tolist() == [0, 1, 2, 3, 4]
    assert highest(torch.zeros(10_000), 4000).tolist() == list(range(4000))
    torch.manual_seed(0)
    values = torch.randint(0, 50, (5000,)).float()
    expected = sorted(sorted(range(5000), key=lambda i: (-values[i], i))[:1777])
    assert highest(values, 1777).tolist() == expected


@pytest.mark.parametrize("quota", [0, 1, 7, 20])
def test_each_class_gives_its_best_first(quota):
    torch.manual_seed(quota)
    ranking = torch.randint(0, 40, (900,)).float()  # with many ties
    classes = torch.randint(0, 6, (900,)) ** 2  # some numbers are no class of any image
    count = 150
    left = sorted(range(900), key=lambda i: (-ranking[i], i))
    taken = []
    for label in classes.unique():
        taken += [i for i in left if classes[i] == label][:quota]
    left = [i for i in left if i not in set(taken)]
    expected = sorted((taken + left)[:count])
    assert highest_of_each(ranking, classes, count, quota).tolist() == expected


def test_a_class_that_ranks_low_is_not_left_out():
    ranking = torch.tensor([9.0, 8.0, 7.0, 6.0, 1.0, 0.5])
    classes = torch.tensor([0, 0, 0, 0, 1, 1])
    assert highest(ranking, 4).tolist() == [0, 1, 2, 3]
    assert highest_of_each(ranking, classes, 4, 0).tolist() == [0, 1, 2, 3]
    assert highest_of_each(ranking, classes, 4, 1).tolist() == [0, 1, 2, 4]
    # A class with fewer images than its quota gives all it has.
    assert highest_of_each(ranking, classes, 5, 3).tolist() == [0, 1, 2, 4, 5]
