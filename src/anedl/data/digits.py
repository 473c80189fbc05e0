"""The 1,797 handwritten digits that come with scikit-learn: a data set that needs no download."""

from pathlib import Path

import numpy as np

from anedl.data.dataset import ArrayImages, Dataset, LabelledImages


def load_digits(root: Path | None = None) -> Dataset:
    """All digits as train, (1797, 8, 8, 1) uint8, with an empty test part; `root` is not used.

    The grey levels 0…16 are stretched to 0…255: level v becomes v · 255/16 = 15.9375 v rounded to
    the nearest whole number (8, the only level that lands on a half, 127.5, goes to even 128), so
    the 17 levels stay apart.
    """
    from sklearn.datasets import load_digits as sklearn_digits

    bunch = sklearn_digits()
    pixels = np.rint(bunch.images * (255 / 16)).astype(np.uint8)[..., None]
    none = LabelledImages(ArrayImages(pixels[:0]), np.zeros(0, np.int64))
    return Dataset(
        name="digits",
        class_names=tuple("0123456789"),
        train=LabelledImages(ArrayImages(pixels), bunch.target.astype(np.int64)),
        test=none,
    )
