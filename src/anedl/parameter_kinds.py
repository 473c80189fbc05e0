"""What kind of value each parameter of the estimator takes, checked before anything is fitted."""

from collections.abc import Callable, Mapping
from math import isfinite
from numbers import Integral, Real
from typing import Any

import numpy as np

from anedl.errors import AnedlError


class InputError(AnedlError, ValueError):
    """Labels or parameters that cannot be fitted; a `ValueError`, as scikit-learn expects."""


SEQUENCES = (tuple, list, np.ndarray)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_whole(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral)


def _is_number(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Real) and isfinite(value)


def _is_shape(value: Any) -> bool:
    if not isinstance(value, SEQUENCES) or len(value) not in (2, 3):
        return False
    return all(_is_whole(side) and side > 0 for side in value)


def _is_range(value: Any) -> bool:
    return isinstance(value, SEQUENCES) and len(value) == 2 and all(map(_is_number, value))


def _are_options(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value))


# What kind of value a parameter takes. Of the others somebody else says what is wrong.
KINDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "method": (_is_text, "the name of a method"),
    "epochs": (_is_whole, "a whole number"),
    "epoch_steps": (_is_whole, "a whole number"),
    "batch_size": (_is_whole, "a whole number"),
    "image_shape": (_is_shape, "(height, width) or (height, width, channels), whole numbers"),
    "image_size": (_is_whole, "a whole number of pixels"),
    "pixel_range": (_is_range, "the two numbers of black and white"),
    "level": (_is_number, "a number between 0 and 1"),
    "unknown_label": (np.isscalar, "text or a number"),
    "selection_share": (_is_number, "a number above 0, at most 1"),
    "validation_share": (_is_number, "a number of 0 or more"),
    "calibration_share": (_is_number, "a number of 0 or more"),
    "options": (_are_options, "a dictionary of values by name"),
}
MAY_BE_NONE = (
    "image_shape", "image_size", "pixel_range", "unknown_label", "selection_share", "options",
)  # fmt: skip


def check_kinds(parameters: Mapping[str, Any]) -> None:
    """Refuse a parameter whose value is of another kind than it takes.

    Raises:
        InputError: names it.
    """
    for name, (is_right, wanted) in KINDS.items():
        value = parameters[name]
        if not is_right(value) and not (value is None and name in MAY_BE_NONE):
            raise InputError(f"{name} {value!r}: must be {wanted}")
