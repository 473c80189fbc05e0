"""Which images a ranking picks, against plain loops."""

import pytest
import torch

from anedl.methods.ranking import drawing_order, highest, highest_of_each


def best_first(ranking):
    turn = {position: place for place, position in enumerate(drawing_order(len(ranking)).tolist())}
    return sorted(range(len(ranking)), key=lambda i: (-ranking[i], turn[i]))


def test_highest_is_sorted():
    ranking = torch.tensor([2.0, 5.0, 2.5, 2.1, 7.0, 1.9])
    assert highest(ranking, 2).tolist() == [1, 4]
    assert highest(ranking, 3).tolist() == [1, 2, 4]
    assert highest(ranking, 5).tolist() == [0, 1, 2, 3, 4]
    torch.manual_seed(0)
    values = torch.randint(0, 50, (5000,)).float()
    assert highest(values, 1777).tolist() == sorted(best_first(values)[:1777])


def test_what_is_equal_is_not_picked_by_position():
    """Or a detector that says nothing would have the known classes of a sorted list."""
    alike = torch.zeros(30_000)
    first_half = torch.arange(30_000) < 15_000
    for picked in (highest(alike, 9000), highest_of_each(alike, alike.long(), 9000, 2000)):
        assert len(picked.unique()) == 9000
        assert first_half[picked].float().mean().item() == pytest.approx(0.5, abs=0.02)
    assert torch.equal(highest(alike, 9000), highest(alike, 9000))


@pytest.mark.parametrize("quota", [0, 1, 7, 20])
def test_each_class_gives_its_best_first(quota):
    torch.manual_seed(quota)
    ranking = torch.randint(0, 40, (900,)).float()  # with many ties
    classes = torch.randint(0, 6, (900,)) ** 2  # some numbers are no class of any image
    count = 150
    left = best_first(ranking)
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
