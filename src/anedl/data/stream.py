"""What a stream of batches is, wherever its images lie."""

from collections.abc import Mapping
from typing import Protocol

from torch import Tensor

from anedl.data.batches import ImageSet
from anedl.methods.base import Batch, Want
from anedl.views import View

SELECTION_SLOT = 1000  # beyond the slots of any batch, so that its random numbers are its own


class Stream(Protocol):
    """Draws and augments the batches of a run: a pure function of the seed and the step."""

    @property
    def capturable(self) -> bool:
        """Whether `batch` is work of the device alone, which can be compiled and captured."""
        ...

    def begin_epoch(
        self,
        wants: Mapping[str, Want],
        epoch: int,
        epoch_steps: int,
        selected: Tensor | None,
        first_row: int = 0,
    ) -> None:
        """Fix which images every step of `epoch` draws; the first to be asked for is `first_row`.

        `selected` (n,) are the pool positions of the current pseudo-inliers, None for the whole
        pool.
        """
        ...

    def batch(self, row: Tensor, step: Tensor) -> Batch:
        """The batch of row `row` () of the epoch, augmented anew for global step `step` ().

        Rows are asked for one after another.
        """
        ...

    def pool(self, view: View, step: int) -> ImageSet:
        """One view of every pool image, for the selection before `step`."""
        ...

    def close(self) -> None:
        """End what the stream has started; it may begin an epoch again."""
        ...
