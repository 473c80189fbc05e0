"""The Python layout of CIFAR, read without trusting it.

The official files are pickles written by Python 2 and numpy 1. A pickle is a program, so this
reader lends it nothing to call: the only three names such a file needs (`_reconstruct`, `ndarray`
and `dtype` of numpy) are answered with the small stand-ins below, and any other name ends the
reading. No numpy function ever runs on the file's say-so. This is the only place in the package
where a pickle is read.
"""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

from anedl.data.dataset import IntArray, UInt8Array
from anedl.errors import DataError


def read_cifar_pickle(
    path: Path, label_keys: tuple[str, ...], remedy: str
) -> tuple[UInt8Array, IntArray]:
    """Read one batch file: pixels as stored, (N, 3072) planar, and labels, (N, len(label_keys))."""
    batch = _load(path, remedy)
    missing = [key for key in ("data", *label_keys) if key not in batch]
    if missing:
        raise DataError(f"{path}: the batch has no entry {', '.join(missing)}; {remedy}")
    data = batch["data"]
    if not isinstance(data, _PickledArray) or data.pixels.ndim != 2:
        raise DataError(f"{path}: its 'data' is no table of pixels; {remedy}")
    columns = [_column(path, key, batch[key], len(data.pixels), remedy) for key in label_keys]
    return data.pixels, np.stack(columns, axis=1)


def _column(path: Path, key: str, labels: Any, length: int, remedy: str) -> IntArray:
    if not isinstance(labels, list) or not all(type(label) is int for label in labels):
        raise DataError(f"{path}: its {key!r} is no list of integers; {remedy}")
    if len(labels) != length:
        raise DataError(f"{path}: {length} images but {len(labels)} {key!r}; {remedy}")
    try:
        return np.array(labels, dtype=np.int64)
    except OverflowError as error:
        raise DataError(f"{path}: {key!r} holds a label beyond 64 bits; {remedy}") from error


def _load(path: Path, remedy: str) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            # Python 2 strings stay bytes, so that the pixels are never decoded as text.
            batch = _CifarUnpickler(file, encoding="bytes").load()
    except _RefusedError as error:
        raise DataError(
            f"{path}: refused: it asks for {error}, which no CIFAR file holds, so it may be made "
            f"to harm; nothing of it was run; delete it, then {remedy}"
        ) from error
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror}); {remedy}") from error
    except Exception as error:
        # A damaged pickle can fail in any way that its opcodes can: all of them mean one thing.
        problem = f"{type(error).__name__}: {error}"
        raise DataError(f"{path}: not a CIFAR batch file ({problem}); {remedy}") from error
    if not isinstance(batch, dict):
        raise DataError(f"{path}: not a CIFAR batch file (no dictionary); {remedy}")
    return {key.decode("latin1") if isinstance(key, bytes) else key: batch[key] for key in batch}


class _RefusedError(Exception):
    """The pickle names something that we do not lend."""


class _PickledType:
    """Stands for `numpy.dtype`, of which CIFAR needs one: unsigned bytes."""

    def __init__(self, code: object, *_: object) -> None:
        if code not in (b"u1", "u1"):
            raise _RefusedError(f"the number type {code!r}")

    def __setstate__(self, state: object) -> None:
        """Ignore byte order and layout, which mean nothing for single bytes."""


class _PickledArray:
    """Stands for `numpy.ndarray` and for numpy's `_reconstruct`, which makes an empty array.

    `pixels` holds the numbers once the array's state has been read.
    """

    def __init__(self, *_: object) -> None:
        self.pixels: UInt8Array = np.zeros(0, np.uint8)

    def __setstate__(self, state: Any) -> None:
        _, shape, kind, fortran, raw = state
        if not isinstance(kind, _PickledType) or not isinstance(raw, bytes):
            raise _RefusedError("an array of something other than bytes")
        self.pixels = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran else "C")


class _CifarUnpickler(pickle.Unpickler):
    """Knows the three names of a numpy array, as numpy 1 and numpy 2 spell them, and no other."""

    _lent = {  # noqa: RUF012 - never written to
        ("numpy.core.multiarray", "_reconstruct"): _PickledArray,
        ("numpy._core.multiarray", "_reconstruct"): _PickledArray,
        ("numpy", "ndarray"): _PickledArray,
        ("numpy", "dtype"): _PickledType,
    }

    def find_class(self, module: str, name: str, /) -> Any:
        """Answer with a stand-in, never with the thing named."""
        try:
            return self._lent[module, name]
        except KeyError:
            raise _RefusedError(f"{module}.{name}") from None
