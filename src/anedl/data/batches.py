"""Views of many images made by threads while they are looked at: whole sets, a batch at a time."""

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from anedl.data.augment.host import HostAugment, view_generator
from anedl.data.dataset import ArrayImages, Images, IntArray, UInt8Array
from anedl.data.progress import Progress
from anedl.errors import ConfigError
from anedl.views import View

MOST_WORKERS = 8  # by default: beyond, most machines wait for the disk
DECODED_AT_ONCE = 256


def worker_count(wanted: int | None) -> int:
    """How many workers read images: as many as `wanted`, else one a core, but at most eight.

    Raises:
        ConfigError: `wanted` is negative; 0 means that the main process reads by itself.
    """
    if wanted is None:
        # Of the cores that this process may use, where the system tells.
        usable = getattr(os, "sched_getaffinity", None)
        return min(MOST_WORKERS, len(usable(0)) if usable else os.cpu_count() or 1)
    if wanted < 0:
        raise ConfigError(f"workers {wanted}: must be 0 (no processes of their own) or more")
    return wanted


@dataclass(frozen=True)
class ImageBatches:
    """One view of the images at `indices`, made when a batch is asked for and then forgotten.

    Random views are a function of (seed, step, slot) and of the image's place in `indices`, or
    `by_index` of its index, whichever others are asked for with it.
    """

    images: Images
    indices: IntArray
    augment: HostAugment
    threads: int
    view: View = View.PLAIN
    seed: int = 0
    step: int = 0
    slot: int = 0
    by_index: bool = False

    def __len__(self) -> int:
        return len(self.indices)

    @property
    def side(self) -> int:
        """Height and width of what comes out, in pixels."""
        return self.augment.size

    def batches(self, size: int) -> Iterator[Tensor]:
        """Yield (n, C, H, W) uint8 tensors, n = `size` but for the last.

        While one batch is in use the next is being made, and no more: memory stays at two batches
        and the one that the caller holds.
        """
        threads = ThreadPoolExecutor(max(1, self.threads))
        try:
            making: list[Future[UInt8Array]] = []
            for start in range(0, len(self), size):
                places = range(start, min(start + size, len(self)))
                coming = [threads.submit(self._make, place) for place in places]
                if making:
                    yield _stacked(making)
                making = coming
            if making:
                yield _stacked(making)
        finally:
            # Reached early when an image cannot be read or the caller gives up.
            threads.shutdown(cancel_futures=True)

    def _make(self, place: int) -> UInt8Array:
        index = int(self.indices[place])
        rng = view_generator(self.seed, self.step, index if self.by_index else place, self.slot)
        return self.augment.apply(self.images[index], self.view, rng)


ImageSet = Tensor | ImageBatches
"""Images to evaluate: all of them, (N, C, H, W) uint8, or batches made when asked for."""


def to_memory(
    images: Images,
    indices: IntArray,
    augment: HostAugment,
    threads: int,
    progress: Progress | None = None,
) -> ArrayImages:
    """Decode the plain views of the images at `indices` once; all others stay black.

    They keep their numbers, so indices of `images` are indices of the result. `progress` is told
    the bytes decoded so far and their total.
    """
    shape = (len(images), augment.size, augment.size, 3)
    # Zeros cost no memory until they are written over: what is not asked for takes none.
    pixels = np.zeros(shape, dtype=np.uint8)
    total = len(indices) * int(np.prod(shape[1:]))
    done = 0
    for batch in ImageBatches(images, indices, augment, threads).batches(DECODED_AT_ONCE):
        pixels[indices[done : done + len(batch)]] = batch.permute(0, 2, 3, 1).numpy()
        done += len(batch)
        if progress is not None:
            progress(done * int(np.prod(shape[1:])), total)
    return ArrayImages(pixels)


def _stacked(making: list[Future[UInt8Array]]) -> Tensor:
    pixels = np.stack([future.result() for future in making])
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
