from fractions import Fraction
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits as original

from anedl.data.digits import load_digits


def test_digits_are_the_bundled_ones_stretched_to_bytes():
    dataset = load_digits(Path("nowhere"))
    pixels = dataset.train.images.pixels
    assert pixels.shape == (1797, 8, 8, 1)
    assert pixels.dtype == np.uint8
    # Python rounds a fraction exactly, halves to even.
    table = np.array([round(Fraction(level * 255, 16)) for level in range(17)])
    assert table[[0, 8, 16]].tolist() == [0, 128, 255]
    np.testing.assert_array_equal(pixels[..., 0], table[original().images.astype(int)])
    np.testing.assert_array_equal(dataset.train.labels, original().target)
    assert dataset.train.labels.dtype == np.int64


def test_digits_have_no_test_part():
    dataset = load_digits()
    assert len(dataset.test) == 0
    assert dataset.test.images.pixels.shape == (0, 8, 8, 1)
    assert dataset.class_names == ("0", "1", "2", "3", "4", "5", "6", "7", "8", "9")
