"""Labels as people write them: numbers or text, and a mark for images that have none."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def is_unlabelled(labels: Array) -> npt.NDArray[np.bool_]:
    """(N,) which of the labels say that there is none.

    Among numbers that is −1, in an array of text "" or "-1" (which NumPy makes of a −1 between
    texts), and in one of objects any of these or None.
    """
    if labels.dtype.kind == "O":
        return np.array([label is None or label in ("", "-1", -1) for label in labels], dtype=bool)
    none: npt.NDArray[np.bool_] = np.isin(labels, ("", "-1")) if is_text(labels) else labels == -1
    return none


def is_text(labels: Array) -> bool:
    """Whether labels are text, as such or as objects."""
    return labels.dtype.kind == "U" or (
        labels.dtype.kind == "O" and any(isinstance(label, str) for label in labels)
    )


def with_unknown(classes: Array, unknown: Any) -> Array:
    """The classes (K,) and then what stands for none of them, (K + 1,), each still of its kind."""
    last = np.asarray([unknown])
    if classes.dtype.kind != "O" and is_text(classes) == is_text(last):
        return np.concatenate([classes, last])
    both = np.empty(len(classes) + 1, object)
    both[:-1], both[-1] = classes, unknown
    return both
