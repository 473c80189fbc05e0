"""What a data set is: images, an integer label for each, and the names behind the integers.

An image is (height, width, channels) uint8 with one channel (grey) or three (red, green, blue).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from anedl.errors import DataError

UInt8Array = npt.NDArray[np.uint8]
IntArray = npt.NDArray[np.int64]


class Images(Protocol):
    """A numbered collection of images, each (height, width, channels) uint8, channels 1 or 3."""

    def __len__(self) -> int:
        """How many images there are."""
        ...

    def __getitem__(self, index: int, /) -> UInt8Array:
        """Image number `index`, (height, width, channels) uint8."""
        ...


@dataclass(frozen=True)
class ArrayImages:
    """Images of one size held in memory: `pixels` is (N, height, width, channels 1 or 3) uint8."""

    pixels: UInt8Array

    def __post_init__(self) -> None:
        shape, dtype = self.pixels.shape, self.pixels.dtype
        if len(shape) != 4 or shape[3] not in (1, 3) or dtype != np.uint8:
            raise DataError(
                "images in memory must be (N, height, width, channels) uint8 with 1 or 3 channels, "
                f"got {shape} {dtype}"
            )

    def __len__(self) -> int:
        return len(self.pixels)

    def __getitem__(self, index: int, /) -> UInt8Array:
        image: UInt8Array = self.pixels[index]
        return image


@dataclass(frozen=True)
class FileImages:
    """Images decoded from files when asked for, whatever their size: (height, width, 3) uint8."""

    paths: Sequence[Path]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int, /) -> UInt8Array:
        path = self.paths[index]
        try:
            with Image.open(path) as image:
                return to_rgb(image)
        except FileNotFoundError as error:
            raise DataError(
                f"{path}: the image is not there (removed since the folder was listed, or a link "
                "to nothing); restore it or list the folder again"
            ) from error
        except (
            UnidentifiedImageError,
            Image.DecompressionBombError,
            OSError,
            SyntaxError,
            ValueError,
        ) as error:
            raise DataError(
                f"{path}: cannot be decoded as an image ({error}); remove or replace the file"
            ) from error


def to_rgb(image: Image.Image) -> UInt8Array:
    """Decode any Pillow mode to writable (height, width, 3) uint8."""
    if image.mode.startswith("I"):
        # Pillow's own conversion clips 16-bit grey at 255, which turns most such images white.
        grey = np.asarray(image)
        if grey.min() < 0 or grey.max() > 65535:
            raise ValueError("grey values beyond 16 bits")
        eight_bit = np.rint(grey / 257).astype(np.uint8)
        return np.repeat(eight_bit[:, :, None], 3, axis=2)
    if image.mode == "F":
        raise ValueError("floating-point pixels have no fixed range")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")
    return np.array(image.convert("RGB"))


@dataclass(frozen=True)
class LabelledImages:
    """Images with one label each; −1 never occurs here: unknown is a protocol's word."""

    images: Images
    labels: IntArray

    def __post_init__(self) -> None:
        if len(self.images) != len(self.labels):
            raise DataError(f"{len(self.images)} images but {len(self.labels)} labels")

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Dataset:
    """A data set as its makers publish it, before any protocol decides who is known.

    `test` is empty (zero images) where the makers publish no test part; a protocol then cuts its
    own from `train`. Labels index `class_names`.
    """

    name: str
    class_names: tuple[str, ...]
    train: LabelledImages
    test: LabelledImages

    def __post_init__(self) -> None:
        for part, images in (("train", self.train), ("test", self.test)):
            labels = images.labels
            if len(labels) and not 0 <= labels.min() <= labels.max() < len(self.class_names):
                raise DataError(
                    f"{self.name}: {part} labels run from {labels.min()} to {labels.max()}, "
                    f"but there are {len(self.class_names)} class names"
                )
