"""BatchNorm's statistics of the averaged weights.

While it trains, a network keeps running means of what its own, ever changing weights produced; the
average takes them over, although its weights are others. Measured anew they fit.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import update_bn

from anedl.engine.step import Stepper
from anedl.methods.base import Method, Source, Want
from anedl.views import View

# Images as an evaluation shows them (strong views have other means), mostly of the pool, as in
# training. Names of their own: a captured step reads the buffers that belong to its wants.
WANTS = {
    "statistics_labelled": Want(Source.LABELLED, (View.PLAIN,)),
    "statistics_pool": Want(Source.POOL, (View.PLAIN,), 5),
}


class _Forward(nn.Module):
    """The method's outputs as a call."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, images: Tensor) -> None:
        """Let the images pass; only what BatchNorm notes of them matters."""
        self.method.outputs(images)


@torch.no_grad()
def measure_statistics(stepper: Stepper, epoch: int, batches: int) -> None:
    """Fill the averaged model's running statistics with those of `batches` batches after `epoch`.

    The stream begins an epoch of its own for it; the next epoch of training begins as ever.
    """
    stepper.stream.begin_epoch(WANTS, epoch, batches, None)
    with stepper.precision.autocast():
        update_bn(_images(stepper, batches), _Forward(stepper.average))


def _images(stepper: Stepper, batches: int) -> Iterator[Tensor]:
    for number in range(batches):
        row = torch.full_like(stepper.row, number)
        batch = stepper.stream.batch(row, stepper.step + number)
        pool = batch.unlabelled["statistics_pool"].views
        yield torch.cat([*batch.labelled.views, *pool])
