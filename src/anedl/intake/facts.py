"""How large the images are, from their headers alone: enough to choose a size before decoding."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from anedl.data.dataset import IntArray
from anedl.intake.decoding import UnreadableError, header_size
from anedl.intake.listing import Item

SAMPLE = 500
OBLONG = 1.25  # longer side over shorter, from where squeezing is worth a word


@dataclass(frozen=True)
class ImageSizes:
    """Widths and heights (n,) of the images that were looked at, in pixels."""

    width: IntArray
    height: IntArray
    unreadable: int = 0  # files looked at that have no readable header

    def __len__(self) -> int:
        return len(self.width)

    @property
    def median_short_side(self) -> int:
        """The shorter side that half of the images exceed or equal; 0 without images."""
        if not len(self):
            return 0
        return int(np.quantile(np.minimum(self.width, self.height), 0.5, method="lower"))

    @property
    def oblong(self) -> bool:
        """Whether one side of most images is longer than the other by a quarter or more."""
        if not len(self):
            return False
        longer = np.maximum(self.width, self.height) / np.minimum(self.width, self.height)
        return bool(np.median(longer) >= OBLONG)


def image_sizes(items: Sequence[Item], sample: int = SAMPLE) -> ImageSizes:
    """Sizes of at most `sample` upright images, taken evenly from all of the list."""
    count = min(sample, len(items))
    sizes = []
    for position in np.linspace(0, len(items) - 1, count).round().astype(np.int64):
        try:
            sizes.append(header_size(items[position].path))
        except UnreadableError:
            continue
    table = np.array(sizes, np.int64).reshape(-1, 2)
    return ImageSizes(table[:, 0], table[:, 1], count - len(sizes))
