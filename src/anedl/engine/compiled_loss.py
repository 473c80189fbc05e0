"""A compiled loss whose buffers change only after the gradient has been computed.

The compiler computes parts of the forward pass once more in the backward pass, from the tensors as
they are by then. A buffer that the loss reads and then overwrites, such as a moving average, would
be the new one there, and the gradient wrong without a word; a copy that the loss takes beforehand
is optimised away. So the compiled loss works on copies of a method's buffers and returns what
became of them, and `settle` writes that back.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from anedl.errors import ConfigError
from anedl.methods.base import Batch, Losses, Method, Progress


class CompiledLoss:
    """Stands for `method.loss`; `settle` is to be called once the gradient is there."""

    def __init__(self, method: Method) -> None:
        self._loss = _Loss(method)
        self._compiled: Any = torch.compile(self._on_copies, dynamic=False)
        self._changed: dict[str, Tensor] = {}

    def __call__(self, batch: Batch, progress: Progress) -> Losses:
        """The terms; the method's buffers stay as they are."""
        losses: Losses
        losses, self._changed = self._compiled(batch, progress, self._buffers())
        return losses

    def settle(self) -> None:
        """Give the buffers the values that the last loss has for them.

        Raises:
            ConfigError: the loss has made a buffer, or one of another shape.
        """
        buffers = self._buffers()
        for name, buffer in buffers.items():
            if name not in self._changed or self._changed[name].shape != buffer.shape:
                raise ConfigError(
                    f"the method's loss has changed the shape of its buffer "
                    f"{name.removeprefix('method.')!r}: make it in __init__, as large as it gets, "
                    f"and fill it in place"
                )
        if buffers:
            torch._foreach_copy_(list(buffers.values()), [self._changed[name] for name in buffers])

    def _on_copies(
        self, batch: Batch, progress: Progress, buffers: dict[str, Tensor]
    ) -> tuple[Losses, dict[str, Tensor]]:
        copies = {name: buffer.clone() for name, buffer in buffers.items()}
        return functional_call(self._loss, copies, (batch, progress)), copies

    def _buffers(self) -> dict[str, Tensor]:
        """The method's own; no gradient depends on a trunk's running statistics in training."""
        method = self._loss.method
        return {
            f"method.{name}": buffer
            for name, buffer in method.named_buffers()
            if not name.startswith(("backbone.", *method.untouched))
        }


class _Loss(nn.Module):
    """`method.loss` as the forward pass of a module, which can be called with other buffers."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self.method = method

    def forward(self, batch: Batch, progress: Progress) -> Losses:
        return self.method.loss(batch, progress)
