"""All parameters of a module as one long vector.

The optimiser, the EMA, the check for non-finite values and a gradient all-reduce then work on one
tensor each instead of on a hundred small ones: a few kernels a step, on a CPU as on a GPU.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class FlatParameters:
    """The trainable parameters of `module`, moved into one buffer that they become views of.

    Parameters under weight decay come first, `values[:decayed]`; one-dimensional ones (biases and
    the scales and shifts of BatchNorm) follow and are never decayed. Convolution kernels lie in
    channels-last order if asked for, so that such a network needs no transposition.
    """

    def __init__(self, module: nn.Module, channels_last: bool = False) -> None:
        named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        named.sort(key=lambda item: item[1].ndim <= 1)  # stable: keeps the module's order otherwise
        self.names = [name for name, _ in named]
        self.parameters = [parameter for _, parameter in named]
        self.channels_last = channels_last
        self.shapes = [parameter.shape for parameter in self.parameters]
        self.decayed = sum(p.numel() for p in self.parameters if p.ndim > 1)
        self.values = torch.empty(
            sum(p.numel() for p in self.parameters), device=self.parameters[0].device
        )
        for parameter, view in zip(self.parameters, self.views(self.values), strict=True):
            view.copy_(parameter.data)
            parameter.data = view

    def views(self, buffer: Tensor) -> list[Tensor]:
        """Cut a vector as long as `values` into tensors shaped like the parameters."""
        pieces = torch.split(buffer, [shape.numel() for shape in self.shapes])
        return [
            _view_as(piece, shape, self.channels_last)
            for piece, shape in zip(pieces, self.shapes, strict=True)
        ]

    def gather(self, tensors: Sequence[Tensor], out: Tensor) -> None:
        """Copy tensors shaped like the parameters into the vector `out`."""
        torch._foreach_copy_(self.views(out), list(tensors))


def _view_as(piece: Tensor, shape: torch.Size, channels_last: bool) -> Tensor:
    if channels_last and len(shape) == 4:
        outputs, inputs, height, width = shape
        return piece.view(outputs, height, width, inputs).permute(0, 3, 1, 2)
    return piece.view(shape)
