"""Images turned by quarters."""

import numpy as np
import pytest
import torch

from anedl.turns import turned_each_way, turned_one_way


def images(count):
    return torch.randint(0, 256, (count, 2, 5, 5), dtype=torch.uint8)


def test_each_way():
    pixels = images(3)
    rotated, turns = turned_each_way(pixels)
    assert rotated.shape == (12, 2, 5, 5)
    assert turns.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]
    for row in range(12):
        expected = np.rot90(pixels[row % 3].numpy(), row // 3, (1, 2))
        np.testing.assert_array_equal(rotated[row].numpy(), expected)


@pytest.mark.parametrize(
    ("count", "wanted"), [(8, [0, 0, 1, 1, 2, 2, 3, 3]), (5, [0, 0, 1, 2, 3]), (2, [0, 1])]
)
def test_one_way(count, wanted):
    """As evenly as the number of images allows."""
    pixels = images(count)
    rotated, turns = turned_one_way(pixels)
    assert turns.tolist() == wanted
    assert turns.dtype == torch.int64
    for image, turned, turn in zip(pixels.numpy(), rotated.numpy(), wanted, strict=True):
        np.testing.assert_array_equal(turned, np.rot90(image, turn, (1, 2)))
