"""Thumbnails of a page: every image is stored once, however often it is shown, and not too many.

They are kept as `<image>` elements that any number of `<use>` elements show, which needs no script.
"""

import io
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from PIL import Image

from anedl.data.dataset import UInt8Array
from anedl.report.images import Key, RunImages

MOST_IMAGES = 2000
MOST_BYTES = 8_000_000  # of the page, which also holds figures and scores
SHARP_SIDE = 48  # images up to this side keep their very pixels
SIDES = (96, 80, 64, 48, 32)  # for larger ones: the largest that fits the bytes


@dataclass(frozen=True)
class Thumbnail:
    """A picture ready for the page; a `sharp` one is enlarged pixel by pixel."""

    name: str
    source: str  # a data address
    sharp: bool


@dataclass
class Album:
    """Collects the images that a page shows. Without images at hand it takes none."""

    images: RunImages | None
    _names: dict[Key, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._names)

    def add(self, key: Key | None) -> str | None:
        """The name under which the page shows an image; None where it cannot be shown."""
        if self.images is None or key is None:
            return None
        if key not in self._names and len(self._names) >= MOST_IMAGES:
            return None
        return self._names.setdefault(key, f"{key[0][1]}{key[1]}")

    def thumbnails(self) -> list[Thumbnail]:
        """Every image that was added, encoded."""
        if self.images is None:
            return []
        pixels = {name: self.images[key] for key, name in self._names.items()}
        return encoded(pixels)


def encoded(pixels: Mapping[str, UInt8Array]) -> list[Thumbnail]:
    """Thumbnails of these images, as large as all of them together may be."""
    made: list[Thumbnail] = []
    for side in SIDES:
        made = [_thumbnail(name, image, side) for name, image in pixels.items()]
        if sum(len(one.source) for one in made) <= MOST_BYTES:
            break
    return made


def _thumbnail(name: str, pixels: UInt8Array, side: int) -> Thumbnail:
    image = Image.fromarray(pixels[..., 0] if pixels.shape[2] == 1 else np.asarray(pixels))
    file = io.BytesIO()
    if max(image.size) <= min(side, SHARP_SIDE):
        image.save(file, "PNG", optimize=True)
        return Thumbnail(name, _address("png", file), max(image.size) <= 32)
    image.thumbnail((side, side), Image.Resampling.LANCZOS)
    image.save(file, "JPEG", quality=80)
    return Thumbnail(name, _address("jpeg", file), False)


def _address(kind: str, file: io.BytesIO) -> str:
    return f"data:image/{kind};base64,{b64encode(file.getvalue()).decode('ascii')}"
