"""SGD and Adam on one flat vector of parameters, free of host decisions.

The learning rate and the permission to update are 0-dim tensors on the device: a captured step
stays valid when they change, and a step with a non-finite loss changes nothing.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from anedl.engine.config import TrainConfig

ADAM_EPSILON = 1e-8


class Optimiser:
    """Updates `values` in place; the first `decayed` entries are under weight decay.

    `sizes` are the lengths of the parameters that follow one another in `values`; None: it is one.
    `state` is what a checkpoint must hold. The arithmetic is torch.optim's.
    """

    def __init__(
        self, config: TrainConfig, values: Tensor, decayed: int, sizes: Sequence[int] | None = None
    ) -> None:
        self.config = config
        self.values = values
        self.decayed = decayed
        self.state = {"momentum": torch.zeros_like(values)}
        if config.optimiser == "adam":
            self.state["square"] = torch.zeros_like(values)
            # Of each parameter by itself: a head may begin to learn in the second stage.
            lengths = torch.tensor(sizes or [len(values)], device=values.device)
            self.state["count"] = torch.zeros(len(lengths), device=values.device)
            numbers = torch.arange(len(lengths), device=values.device)
            self._parameter_of = numbers.repeat_interleave(lengths)
            self._first_of = lengths.cumsum(0) - lengths

    @torch.no_grad()
    def update(
        self,
        gradient: Tensor,
        learning_rate: Tensor,
        allowed: Tensor,
        trained: Tensor | None = None,
    ) -> None:
        """Take one step along `gradient` (P,), or none where `allowed` () is False.

        Entries that are not `trained` (P,) stay as they are, as torch.optim leaves parameters
        without a gradient; None trains all. Adam's decay is the coupled one of torch.optim.Adam, as
        for SGD. `gradient` is overwritten.
        """
        config = self.config
        moving = allowed if trained is None else trained & allowed
        if config.weight_decay:
            gradient[: self.decayed].add_(self.values[: self.decayed], alpha=config.weight_decay)
        momentum = self.state["momentum"]
        if config.optimiser == "sgd":
            new_momentum = momentum * config.momentum + gradient
            direction = (
                gradient + config.momentum * new_momentum if config.nesterov else new_momentum
            )
        else:
            square, count = self.state["square"], self.state["count"]
            new_count = count + 1
            steps = new_count.index_select(0, self._parameter_of)
            new_momentum = torch.lerp(gradient, momentum, config.momentum)
            new_square = config.beta_2 * square + (1 - config.beta_2) * gradient * gradient
            mean = new_momentum / (1 - config.momentum**steps)
            scale = (new_square / (1 - config.beta_2**steps)).sqrt() + ADAM_EPSILON
            direction = mean / scale
            square.copy_(torch.where(moving, new_square, square))
            moved = moving if trained is None else moving.index_select(0, self._first_of)
            count.copy_(torch.where(moved, new_count, count))
        momentum.copy_(torch.where(moving, new_momentum, momentum))
        # `where` and not a product with 0: 0 · inf would write a NaN into the weights.
        self.values.sub_(torch.where(moving, learning_rate * direction, 0.0))

    @torch.no_grad()
    def shrink(self, learning_rate: Tensor, allowed: Tensor) -> None:
        """Multiply every parameter by 1 − d·lr, d being `multiplicative_decay`, where `allowed`."""
        lost = self.config.multiplicative_decay * learning_rate
        self.values.mul_(torch.where(allowed, 1 - lost, 1.0))


@torch.no_grad()
def clip_norm(gradient: Tensor, limit: float) -> Tensor:
    """Scale `gradient` (P,) in place to a norm of at most `limit`; returns the norm before, ()."""
    norm: Tensor = torch.linalg.vector_norm(gradient)
    gradient.mul_((limit / (norm + 1e-6)).clamp(max=1.0))
    return norm
