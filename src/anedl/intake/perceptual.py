"""A 64-bit hash that changes little when an image is resized, recompressed or brightened.

The image is reduced to 32 × 32 grey pixels and transformed (two-dimensional cosine transform, type
II). A bit says whether one of the 64 lowest frequencies, the mean left out, is above their median.
"""

import functools

import numpy as np
import numpy.typing as npt
from PIL import Image

from anedl.data.dataset import IntArray, UInt8Array

_SIDE = 32
_BITS = 64


def perceptual_hash(image: UInt8Array) -> int:
    """The hash of an image (height, width, 3) uint8, 0 ≤ hash < 2⁶⁴.

    An image of a single colour has no structure to speak of; its hash is 0.
    """
    grey = Image.fromarray(image).convert("L")
    # Not grey.reduce: the same sampling whether the image is larger or smaller than 32 pixels.
    small = np.asarray(grey.resize((_SIDE, _SIDE), Image.Resampling.BILINEAR), np.float64)
    matrix = _cosines()
    rows, columns = _low_frequencies()
    # Rounded: what ought to be zero must not become a bit by its rounding error.
    low = np.round((matrix @ small @ matrix.T)[rows, columns], 3)
    return int.from_bytes(np.packbits(low > np.median(low)).tobytes(), "big")


@functools.cache
def _cosines() -> npt.NDArray[np.float64]:
    """Row k, column n: cos(π k (n + 1/2) / 32), scaled to an orthonormal matrix."""
    k, n = np.ogrid[:_SIDE, :_SIDE]
    matrix: npt.NDArray[np.float64] = np.cos(np.pi * k * (n + 0.5) / _SIDE) * np.sqrt(2 / _SIDE)
    matrix[0] /= np.sqrt(2)
    return matrix


@functools.cache
def _low_frequencies() -> tuple[IntArray, IntArray]:
    """Row and column of the 64 lowest frequencies by diagonal, without the mean at (0, 0)."""
    k, n = np.indices((_SIDE, _SIDE)).reshape(2, -1)
    lowest = np.lexsort((k, k + n))[1 : _BITS + 1]
    return k[lowest], n[lowest]
