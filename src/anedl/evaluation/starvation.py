"""Classes that a pool gives hardly any image to, by what a model takes its images for."""

import numpy as np
import numpy.typing as npt

from anedl.data.dataset import IntArray

STARVED = 0.1  # of an even share, below which self-training leaves a class behind


def starved(predicted: IntArray, classes: int) -> npt.NDArray[np.bool_]:
    """Whether each class, (K,), is predicted (N,) for less than `STARVED` of an even share."""
    counts = np.bincount(predicted, minlength=classes)
    few: npt.NDArray[np.bool_] = counts < STARVED * counts.mean()
    return few
