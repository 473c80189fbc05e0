"""From an image of any size to the pixels that a model takes: resize, crop, grey where it must be.

The same rule as at test time: the whole image is resized (bilinear, aspect ratio not kept) to a
square, of which the centre is cut out. A model of one channel sees the luminance of that.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from anedl.data.augment.host import HostAugment
from anedl.data.dataset import UInt8Array
from anedl.errors import DataError

if TYPE_CHECKING:
    from anedl.engine.model import TrainedModel

LUMA = (19595, 38470, 7471)  # ITU-R 601-2 in 65536ths, as Pillow rounds it


@dataclass(frozen=True)
class Framing:
    """Images are resized to `resize` pixels a side, then cropped at the centre to `side`."""

    resize: int
    side: int
    channels: int

    @classmethod
    def of(cls, trained: "TrainedModel") -> "Framing":
        """How the plain view of a run's images is made."""
        terms = trained.spec.terms
        probe = np.zeros((8, 8, 3), np.uint8)
        return cls(len(trained.augment.framed(probe)), terms.image_size, len(terms.mean))

    def frame(self, image: UInt8Array) -> UInt8Array:
        """The plain view (side, side, 3) of an image (h, w, 3)."""
        return self.crop(HostAugment("small", self.resize).framed(image))

    def crop(self, resized: UInt8Array) -> UInt8Array:
        """The centre (side, side, 3) of an image that was resized already."""
        start = (self.resize - self.side) // 2
        return resized[start : start + self.side, start : start + self.side]

    def batch(self, frames: UInt8Array) -> UInt8Array:
        """What the model takes, (N, channels, side, side), of frames (N, side, side, 3 or 1)."""
        if frames.dtype != np.uint8 or frames.ndim != 4 or frames.shape[3] not in (1, 3):
            raise DataError(
                f"frames are uint8 (N, {self.side}, {self.side}, 3), got {frames.dtype} "
                f"{frames.shape}"
            )
        if frames.shape[1:3] != (self.side, self.side):
            raise DataError(
                f"this model takes frames of {self.side} × {self.side} pixels, got "
                f"{frames.shape[1]} × {frames.shape[2]}: make them by `framing.frame`"
            )
        if self.channels == 1 and frames.shape[3] == 3:
            frames = luminance(frames)
        elif self.channels == 3 and frames.shape[3] == 1:
            frames = np.repeat(frames, 3, axis=3)
        return np.ascontiguousarray(frames.transpose(0, 3, 1, 2))

    def to_json(self) -> dict[str, Any]:
        """The rule in numbers and in words, for those who have only the model."""
        start = (self.resize - self.side) // 2
        mode = "RGB" if self.channels == 3 else "L (ITU-R 601-2 luminance of the RGB image)"
        return {
            "resize": self.resize,
            "crop": self.side,
            "crop_box": [start, start, start + self.side, start + self.side],
            "channels": self.channels,
            "resample": "bilinear",
            "layout": "NCHW",
            "dtype": "uint8",
            "rule": "turn upright by EXIF; transparent parts white; convert to RGB; resize the "
            f"whole image to {self.resize} × {self.resize} (Pillow's BILINEAR, aspect ratio not "
            f"kept); crop rows and columns {start} to {start + self.side}; convert to {mode}; no "
            "normalisation, the model does it",
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Framing":
        """Rebuild from what `to_json` returned."""
        return cls(int(document["resize"]), int(document["crop"]), int(document["channels"]))


def luminance(frames: UInt8Array) -> UInt8Array:
    """Grey (…, 1) of colours (…, 3), equal to Pillow's conversion to "L"."""
    weighted = frames.astype(np.uint32) @ np.array(LUMA, np.uint32)
    return ((weighted + 2**15) >> 16).astype(np.uint8)[..., None]
