"""A stream over images that fit on the device: a batch is an index, augmented where it lies.

Once an epoch the stream writes which images each step draws into buffers of fixed size; a step then
only reads its row. It needs nothing from the host, so a GPU can replay it from a captured graph.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from anedl.data.augment.batched import BatchedAugment
from anedl.data.features import DrawnViews
from anedl.data.order import draw_epoch
from anedl.data.stream import SELECTION_SLOT
from anedl.methods.base import Batch, Labelled, Source, Unlabelled, Want
from anedl.views import View


@dataclass(frozen=True)
class TrainingImages:
    """What training may see: labelled images with labels, and pool images with none.

    With a frozen trunk they are features of several views each, (L, V, d) and (P, V, d).
    """

    labelled: Tensor  # (L, C, H, W) uint8
    labels: Tensor  # (L,) int64, known classes 0…K−1
    pool: Tensor  # (P, C, H, W) uint8


class ResidentStream:
    """Draws and augments batches on the device that holds `images`; a `Stream`."""

    capturable = True

    def __init__(
        self,
        images: TrainingImages,
        augment: BatchedAugment | DrawnViews,
        batch_size: int,
        seed: int,
    ) -> None:
        self.images = images
        self.augment = augment
        self.batch_size = batch_size
        self.seed = seed
        self.wants: Mapping[str, Want] = {}
        self.drawn: dict[str, Tensor] = {}  # per want, (epoch_steps, images) positions

    def begin_epoch(
        self,
        wants: Mapping[str, Want],
        epoch: int,
        epoch_steps: int,
        selected: Tensor | None,
        first_row: int = 0,
    ) -> None:
        """Fix which images every step of `epoch` draws, whichever row comes first.

        Buffers keep their address from epoch to epoch while the wants stay the same.
        """
        sizes = {Source.LABELLED: len(self.images.labelled), Source.POOL: len(self.images.pool)}
        chosen = None if selected is None else selected.cpu().numpy()
        drawn = draw_epoch(wants, sizes, self.batch_size, self.seed, epoch, epoch_steps, chosen)
        for name, positions in drawn.items():
            order = torch.from_numpy(positions)
            if name in self.drawn and self.drawn[name].shape == order.shape:
                self.drawn[name].copy_(order)
            else:
                self.drawn[name] = order.to(self.images.pool.device)
        self.wants = wants

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

    def pool(self, view: View, step: int) -> Tensor:
        """One view of every pool image, (P, C, H, W) uint8."""
        made: Tensor = self.augment(self.images.pool, view, self.seed, step, SELECTION_SLOT)
        return made

    def close(self) -> None:
        """Nothing is open."""
