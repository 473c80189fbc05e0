"""A stream over images that fit on the device: a batch is an index, augmented where it lies.

Once an epoch the stream writes which images each step draws into buffers of fixed size; a step then
only reads its row. It needs nothing from the host, so a GPU can replay it from a captured graph.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from anedl.data.augment.batched import BatchedAugment
from anedl.data.dataset import IntArray
from anedl.data.order import endless_shuffle
from anedl.errors import DataError
from anedl.methods.base import Batch, Labelled, Source, Unlabelled, Want

# Each source has its own random order; a name would be hashed differently from run to run.
ORDER_KEY = {Source.LABELLED: 0, Source.POOL: 1, Source.SELECTED: 2}


@dataclass(frozen=True)
class TrainingImages:
    """What training may see: labelled images with labels, and pool images with none."""

    labelled: Tensor  # (L, C, H, W) uint8
    labels: Tensor  # (L,) int64, known classes 0…K−1
    pool: Tensor  # (P, C, H, W) uint8


class ResidentStream:
    """Draws and augments batches on the device that holds `images`."""

    def __init__(
        self, images: TrainingImages, augment: BatchedAugment, batch_size: int, seed: int
    ) -> None:
        self.images = images
        self.augment = augment
        self.batch_size = batch_size
        self.seed = seed
        self.wants: Mapping[str, Want] = {}
        self.drawn: dict[str, Tensor] = {}  # per want, (epoch_steps, images) positions

    def begin_epoch(
        self, wants: Mapping[str, Want], epoch: int, epoch_steps: int, selected: Tensor | None
    ) -> None:
        """Fix which images every step of `epoch` draws.

        `selected` (n,) are the pool positions of the current pseudo-inliers, None for the whole
        pool. Buffers keep their address from epoch to epoch while the wants stay the same.
        """
        for slot, (name, want) in enumerate(wants.items()):
            count = want.ratio * self.batch_size
            order = torch.from_numpy(
                self._order(want.source, slot, epoch, epoch_steps, count, selected)
            )
            if want.source is Source.SELECTED and selected is not None:
                order = selected.cpu()[order]
            order = order.view(epoch_steps, count)
            if name in self.drawn and self.drawn[name].shape == order.shape:
                self.drawn[name].copy_(order)
            else:
                self.drawn[name] = order.to(self.images.pool.device)
        self.wants = wants

    def _order(
        self,
        source: Source,
        slot: int,
        epoch: int,
        epoch_steps: int,
        count: int,
        selected: Tensor | None,
    ) -> IntArray:
        total = epoch_steps * count
        if source is Source.SELECTED and selected is not None:
            if len(selected) == 0:
                raise DataError("no pool image was selected for self-training")
            # A new set each epoch, so its shuffles start anew; the others go on where they were.
            return endless_shuffle(len(selected), 0, total, (self.seed, 2, slot, epoch))
        size = len(self.images.labelled if source is Source.LABELLED else self.images.pool)
        return endless_shuffle(size, epoch * total, total, (self.seed, ORDER_KEY[source], slot))

    def batch(self, row: Tensor, step: Tensor) -> Batch:
        """The batch of row `row` () of the epoch, augmented anew for global step `step` ()."""
        unlabelled: dict[str, Unlabelled] = {}
        labelled: Labelled | None = None
        slot = 0
        for name, want in self.wants.items():
            positions = self.drawn[name].index_select(0, row.view(1)).squeeze(0)
            pixels = self.images.labelled if want.source is Source.LABELLED else self.images.pool
            plain = pixels.index_select(0, positions)
            views = []
            for view in want.views:
                views.append(self.augment(plain, view, self.seed, step, slot))
                slot += 1
            if want.source is Source.LABELLED:
                labels = self.images.labels.index_select(0, positions)
                labelled = Labelled(tuple(views), labels)
            else:
                unlabelled[name] = Unlabelled(tuple(views), positions)
        assert labelled is not None, "a method must want one labelled part"
        return Batch(labelled, unlabelled)
