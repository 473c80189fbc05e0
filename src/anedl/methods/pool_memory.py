"""What the averaged model has said of every pool image, epoch after epoch.

A network at one moment errs otherwise than some epochs later, so that the mean of what it says
should err less. It costs nothing: the whole pool is judged once an epoch anyway.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn

from anedl.methods.base import Outputs

SMALLEST = torch.finfo(torch.float32).tiny  # so that a probability of zero has a logarithm


class PoolMemory(nn.Module):
    """A moving mean of probabilities and concentrations, (N, K) each, over the pool.

    `share` is how much of the mean before stays when something new is said; 0 remembers the last
    word alone, and no concentrations. It serves training only: a saved model is without it.
    """

    def __init__(self, pool_size: int, classes: int, share: float) -> None:
        super().__init__()
        self.share = share
        shape = pool_size, classes
        self.probability = nn.Buffer(torch.full(shape, 1 / classes), persistent=False)
        self.alpha = nn.Buffer(torch.ones(shape if share else (0, classes)), persistent=False)
        self.times = nn.Buffer(torch.zeros((), dtype=torch.int64), persistent=False)

    @torch.no_grad()
    def join(self, outputs: Outputs) -> Outputs:
        """Take in outputs for the whole pool; give them back as the mean now has them."""
        # The first word counts in full: there is nothing to take a mean with.
        new = 1.0 - self.share if self.times else 1.0
        self.probability.lerp_(outputs.logits.float().softmax(-1), new)
        self.times.add_(1)
        if not self.share:
            return outputs
        assert outputs.alpha is not None
        self.alpha.lerp_(outputs.alpha.float(), new)
        return replace(outputs, logits=self._logarithm(self.probability), alpha=self.alpha.clone())

    def logits(self, positions: Tensor) -> Tensor:
        """Logarithm of the mean probabilities of the pool images at `positions` (n,), (n, K)."""
        return self._logarithm(self.probability[positions])

    @staticmethod
    def _logarithm(probability: Tensor) -> Tensor:
        return probability.clamp_min(SMALLEST).log()
