"""Arrays of numbers as images: what a table of features must become before a network sees it."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, isqrt, prod
from typing import Any

import numpy as np
import numpy.typing as npt

from anedl.data.augment.host import HostAugment
from anedl.data.dataset import UInt8Array
from anedl.data.free_memory import free_memory
from anedl.errors import DataError

SMALLEST_SIDE, LARGEST_SIDE = 8, 96
# Up to which share of the numbers may lie far beyond white: where every pixel was scaled by itself,
# one that was nearly constant does so here and there.
FEW_BEYOND = 0.01
NUMBERS_AT_ONCE = 2**18  # whose conversion takes a few times eight bytes each
LEVELS = 256

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]


class ImageShapeError(DataError, ValueError):
    """Numbers cannot be laid out as images; a `ValueError` too, for callers who expect one."""


@dataclass(frozen=True)
class ImageFormat:
    """How a row of numbers becomes a square image of `side` pixels.

    A row is `height` × `width` × `channels` numbers in that order; `low` becomes 0 and `high` 255,
    and what lies beyond is clipped. `reached` is the largest number that `fit` saw.
    """

    height: int
    width: int
    channels: int
    low: float
    high: float
    side: int
    reached: float = -inf

    def check(self, shape: tuple[int, ...] | None) -> None:
        """Raise `ImageShapeError` where images of this shape, if they have one, are of another."""
        own = (self.height, self.width, self.channels)
        if shape is not None and (*shape, 1)[:3] != own:
            raise ImageShapeError(f"images of shape {tuple(shape)}, but the fitted ones are {own}")

    def check_batch(self, shape: tuple[int, ...]) -> None:
        """Raise `ImageShapeError` where an array of this shape is one image and no batch."""
        own = (self.height, self.width, self.channels)
        if len(shape) in (2, 3) and (*shape, 1)[:3] == own and prod(shape[1:]) != prod(own):
            raise ImageShapeError(
                f"X has the shape of one image, {tuple(shape)}: one image alone is X[None]"
            )

    def warn_of_scale(self, rows: Array) -> None:
        """Warn where rows, which are not those of `fit`, look like images on another scale."""
        if _other_scale(rows, self.low, self.high, max(self.high, self.reached)):
            # The frames between: this one, the judging one and the method that the caller called.
            warnings.warn(
                f"these images have numbers from {_least_to_largest(rows)}, but in fit "
                f"{self.low:g} was black and {self.high:g} white: bring them to that scale, or fit "
                f"again with a pixel_range that holds for all images",
                stacklevel=4,
            )

    def images(self, rows: Array) -> UInt8Array:
        """(N, side, side, channels) uint8 of rows (N, height · width · channels).

        Raises:
            ImageShapeError: images enlarged to `side` would not fit into memory.
        """
        resized = (self.height, self.width) != (self.side, self.side)
        if not resized and self._are_levels(rows):
            return rows.reshape(len(rows), self.side, self.side, self.channels)
        if resized:
            self._require_memory(len(rows))
        images = np.empty((len(rows), self.side, self.side, self.channels), np.uint8)
        frame = HostAugment("small", self.side) if resized else None
        for part in _parts(len(rows), rows.shape[1]):
            levels = self._levels(rows[part])
            images[part] = [frame.framed(image) for image in levels] if frame else levels
        return images

    def _levels(self, rows: Array) -> UInt8Array:
        """(N, height, width, channels) uint8: the images before they are resized."""
        levels = rows
        if not self._are_levels(rows):
            scaled = (rows.astype(np.float64) - self.low) * (255.0 / (self.high - self.low))
            levels = np.rint(scaled.clip(0.0, 255.0)).astype(np.uint8)
        return levels.reshape(len(rows), self.height, self.width, self.channels)

    def _are_levels(self, rows: Array) -> bool:
        return rows.dtype == np.uint8 and (self.low, self.high) == (0.0, 255.0)

    def _require_memory(self, count: int) -> None:
        # Training and judging copy what they look at.
        needed, free = 2 * count * self.channels * self.side**2, free_memory()
        if needed > free:
            raise ImageShapeError(
                f"image_size {self.side}: {count:,} images of {self.side} × {self.side} pixels "
                f"take {needed / 1e9:.1f} GB of memory, but {free / 1e9:.1f} GB are free: take a "
                f"smaller image_size or fewer images at once"
            )


def mean_and_deviation(images: UInt8Array) -> tuple[FloatArray, FloatArray]:
    """(C,) means and (C,) standard deviations of images (N, H, W, C), where white is 1."""
    counts = np.zeros((images.shape[3], LEVELS), np.int64)
    for part in _parts(len(images), images[:1].size):
        for channel, found in enumerate(counts):
            found += np.bincount(images[part, ..., channel].ravel(), minlength=LEVELS)
    levels = np.arange(LEVELS) / (LEVELS - 1)
    shares = counts / counts.sum(1, keepdims=True)
    mean = shares @ levels
    squares = shares * (levels - mean[:, None]) ** 2
    return mean, np.sqrt(squares.sum(1))


def _parts(count: int, numbers: int) -> Iterator[slice]:
    """Slices of `count` images of so many numbers each, so that copies of a part stay small."""
    size = max(1, NUMBERS_AT_ONCE // numbers)
    return (slice(start, start + size) for start in range(0, count, size))


def image_format(
    rows: Array,
    shape: tuple[int, ...] | None,
    pixel_range: tuple[float, float] | None,
    side: int | None,
) -> ImageFormat:
    """Choose the format of `rows` (N, D).

    Without `shape`, (height, width) or (height, width, channels), D numbers are a square grey image
    where D is a square, and one row of D grey pixels, stretched into a square, where it is not. A
    warning says so of as many as an image can have; fewer are a table, as people try things with.
    Without `pixel_range`, bytes and numbers within 0…1 keep their scale, and of any others the
    largest becomes white and zero, or the least where that is negative, black. Without `side` it is
    the longer side, but 8 at least and 96 at most.

    Raises:
        ImageShapeError: the shape does not fit the rows, or the range is empty.
    """
    height, width, channels = _shape(rows.shape[1], shape)
    if shape is None and height == 1 and width >= SMALLEST_SIDE**2:
        _warn_of_a_line(width)
    low, high = _range(rows) if pixel_range is None else pixel_range
    if not low < high:
        raise ImageShapeError(f"pixel_range {(low, high)}: the first number must be the smaller")
    if pixel_range is not None and _other_scale(rows, low, high, high):
        warnings.warn(
            f"these images have numbers from {_least_to_largest(rows)}, but pixel_range makes "
            f"{low:g} black and {high:g} white: is that the scale of these images?",
            stacklevel=3,
        )
    if side is None:
        side = min(max(height, width, SMALLEST_SIDE), LARGEST_SIDE)
    if side < SMALLEST_SIDE:
        raise ImageShapeError(f"image_size {side}: the least is {SMALLEST_SIDE} pixels")
    reached = float(rows.max())
    return ImageFormat(height, width, channels, float(low), float(high), side, reached)


def _shape(numbers: int, shape: tuple[int, ...] | None) -> tuple[int, int, int]:
    if shape is None:
        side = isqrt(numbers)
        return (side, side, 1) if side * side == numbers else (1, numbers, 1)
    if len(shape) not in (2, 3):
        raise ImageShapeError(
            f"images must be (height, width) or (height, width, channels), got {tuple(shape)}"
        )
    height, width, channels = (*shape, 1)[:3]
    if height * width * channels != numbers or channels not in (1, 3):
        raise ImageShapeError(
            f"an image of shape {tuple(shape)}, with 1 or 3 channels last, does not have {numbers} "
            f"numbers"
        )
    return height, width, channels


def _warn_of_a_line(numbers: int) -> None:
    """Say that so many numbers are no square image, and which shape they may have had."""
    side = isqrt(numbers // 3)
    guess = f"({side}, {side}, 3)" if 3 * side * side == numbers else "(height, width)"
    warnings.warn(
        f"{numbers} numbers an image are no square of grey pixels and are taken for one line of "
        f"pixels; give image_shape={guess}, or image_shape=(1, {numbers}) if they are a line",
        stacklevel=4,
    )


def _range(rows: Array) -> tuple[float, float]:
    if rows.dtype == np.uint8:
        return 0.0, 255.0
    low, high = min(0.0, float(rows.min())), float(rows.max())
    if low == 0.0 and high <= 1.0:
        return 0.0, 1.0
    return low, high if high > low else low + 1.0


def _other_scale(rows: Array, low: float, high: float, reached: float) -> bool:
    """Whether rows seem to be on another scale than black at `low` and white at `high`.

    Either they go far beyond `reached`, which that scale is known to reach, or they are shares of
    white where it is no share.
    """
    if rows.dtype == np.uint8 and high >= 255:
        return False
    if (rows > reached + (high - low) / 2).mean() > FEW_BEYOND:
        return True
    least, largest = float(rows.min()), float(rows.max())
    # A scale with numbers below zero, as of standardized images, is known by these.
    shares = rows.dtype.kind == "f" and 0 < largest <= 1 and (low >= 0 or least >= 0)
    return shares and high > 1.5 and not _one_dark_image(rows)


def _least_to_largest(rows: Array) -> str:
    return f"{rows.min():g} to {rows.max():g}"


def _one_dark_image(rows: Array) -> bool:
    """Whether this is a single image of whole numbers, which may be dark on any scale."""
    return len(rows) == 1 and bool((rows == np.rint(rows)).all())
