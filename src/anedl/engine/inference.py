"""Running a method over many images, in evaluation mode, without gradients."""

import torch
from torch import Tensor

from anedl.engine.precision import Precision
from anedl.methods.base import Method, Outputs

BATCH = 1000  # divides the 10,000 CIFAR test images, so a compiled network meets one shape


@torch.no_grad()
def outputs_of(method: Method, images: Tensor, precision: Precision, batch: int = BATCH) -> Outputs:
    """What the method says of (N, C, H, W) uint8 images, as float32 on the images' device."""
    was_training = method.training
    method.eval()
    device = precision.device
    with precision.autocast():
        pieces = [
            method.outputs(images[start : start + batch].to(device, non_blocking=True))
            for start in range(0, len(images), batch)
        ]
    method.train(was_training)
    alphas = [piece.alpha for piece in pieces if piece.alpha is not None]
    return Outputs(
        features=torch.cat([piece.features.float() for piece in pieces]),
        logits=torch.cat([piece.logits.float() for piece in pieces]),
        score=torch.cat([piece.score.float() for piece in pieces]),
        alpha=torch.cat(alphas) if alphas else None,
    )
