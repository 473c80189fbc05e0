"""Labels as people write them: numbers or text, and a mark for images that have none."""

from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def as_labels(given: Any) -> Array:
    """Labels of any sort as an array in which none is NaN or pandas' NA: these become a mark.

    The mark is −1 among numbers and None among text; objects that are all numbers become numbers.
    """
    # Of a list of texts with a NaN among them NumPy would make the text "nan".
    texts = isinstance(given, list | tuple) and any(isinstance(label, str) for label in given)
    if texts and any(_is_missing(label) for label in given):
        labels = np.fromiter(given, object, len(given))
    else:
        labels = np.asarray(given)
    if labels.dtype.kind == "f":
        return np.where(np.isnan(labels), labels.dtype.type(-1), labels)
    if labels.dtype.kind != "O" or labels.ndim == 0:  # () is no list of labels, and told as such
        return labels
    missing = np.array([_is_missing(label) for label in labels.flat], bool).reshape(labels.shape)
    marked: Array = labels.copy()
    marked[missing] = None
    # Marks alone, as in a fold, may be those of texts or of numbers.
    if is_text(labels) or is_unlabelled(marked).all():
        return marked
    return np.array(np.where(missing, -1, labels).tolist())


def _is_missing(label: Any) -> bool:
    try:
        return label is None or bool(label != label)
    except TypeError:  # pandas' NA, of which nobody knows whether it is another
        return True


def is_unlabelled(labels: Array) -> npt.NDArray[np.bool_]:
    """(N,) which of the labels, as `as_labels` gives them, say that there is none.

    Among numbers that is −1, in an array of text "" or "-1" (which NumPy makes of a −1 between
    texts), and in one of objects any of these or None.
    """
    if labels.dtype.kind == "O":
        return np.array([label is None or label in ("", "-1", -1) for label in labels], dtype=bool)
    none: npt.NDArray[np.bool_] = np.isin(labels, ("", "-1")) if is_text(labels) else labels == -1
    return none


def marks(labels: Array) -> str:
    """The marks of an image without label among labels like these, for a message."""
    return '"", "-1", None or NaN' if is_text(labels) else "−1 or NaN"


def is_text(labels: Array) -> bool:
    """Whether labels are text, as such or as objects."""
    return labels.dtype.kind == "U" or (
        labels.dtype.kind == "O" and any(isinstance(label, str) for label in labels.flat)
    )


def with_unknown(classes: Array, unknown: Any) -> Array:
    """The classes (K,) and then what stands for none of them, (K + 1,), each still of its kind."""
    last = np.asarray([unknown])
    if classes.dtype.kind != "O" and is_text(classes) == is_text(last):
        return np.concatenate([classes, last])
    both = np.empty(len(classes) + 1, object)
    both[:-1], both[-1] = classes, unknown
    return both
