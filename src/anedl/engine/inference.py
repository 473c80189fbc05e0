"""Running a method over many images, in evaluation mode, without gradients."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from anedl.data.batches import ImageSet
from anedl.engine.contract import check_outputs
from anedl.engine.precision import Precision
from anedl.methods.base import Method, Outputs
from anedl.networks.encoder import ImageEncoder

# Images at once: enough to fill a GPU; few enough for a CPU (1.6 times as fast as 600).
BATCH = {"cuda": 1000, "cpu": 100}
MOST_PIXELS = 2**23  # a batch; 167 images of 224 × 224, whose activations take a gigabyte or so


@torch.no_grad()
def outputs_of(
    method: Method,
    images: ImageSet,
    precision: Precision,
    batch: int | None = None,
    ask: Callable[[Tensor], Outputs] | None = None,
) -> Outputs:
    """What the method says of (N, C, H, W) uint8 images, as float32 on the precision's device.

    `ask` is the method's function that says it; None: its `outputs`.
    """
    ask = ask or method.outputs
    was_training = method.training
    method.eval()
    device = precision.device
    pieces = []
    with precision.judging():
        for piece in batches_of(images, batch or _batch(images, device, method)):
            said = ask(piece.to(device, non_blocking=True))
            check_outputs(said, len(piece), method.task.classes, _name_of(ask))
            pieces.append(said)
    method.train(was_training)
    alphas = [piece.alpha for piece in pieces if piece.alpha is not None]
    return Outputs(
        features=torch.cat([piece.features.float() for piece in pieces]),
        logits=torch.cat([piece.logits.float() for piece in pieces]),
        score=torch.cat([piece.score.float() for piece in pieces]),
        alpha=torch.cat(alphas) if alphas else None,
        others={
            name: torch.cat([piece.others[name].float() for piece in pieces])
            for name in pieces[0].others
        },
    )


def _name_of(ask: Callable[[Tensor], Outputs]) -> str:
    """Of the method's function, as its author knows it."""
    return getattr(ask, "__name__", "outputs")


def batches_of(images: ImageSet, size: int) -> Iterator[Tensor]:
    """The images in order, `size` at a time."""
    if isinstance(images, Tensor):
        return (images[start : start + size] for start in range(0, len(images), size))
    return images.batches(size)


def _batch(images: ImageSet, device: torch.device, method: Method) -> int:
    """As many as are quick and memory is sure to allow."""
    if isinstance(images, Tensor) and images.ndim == 2:  # features of images
        return BATCH["cuda"]
    side = images.shape[-1] if isinstance(images, Tensor) else images.side
    if isinstance(method.backbone, ImageEncoder):
        side = method.backbone.seen_side(side)
    return min(BATCH[device.type], max(1, MOST_PIXELS // side**2))
