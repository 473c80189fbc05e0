"""Distribution alignment: pull the classes predicted on the pool towards equal shares.

A memory (S, K) holds the mean class probabilities of the last S batches. What the network predicts
too often lately is divided down, what it predicts too rarely is raised. The functions change
nothing in place; the caller keeps the memory and its slot as buffers, so that they are saved.
"""

import torch
from torch import Tensor

from anedl.dirichlet import in_full_precision

# Added to every class's mean share, so that a class never predicted can be divided by it.
SMALLEST_SHARE = 1e-6


@in_full_precision
def push(memory: Tensor, slot: Tensor, mean: Tensor) -> tuple[Tensor, Tensor]:
    """Give the memory (S, K) with `mean` (K,) written at `slot` (), and the slot to write next, ().

    `slot` is an int64 on the memory's device. After the last slot comes the first again.
    """
    rows = torch.arange(len(memory), device=memory.device)
    written = torch.where((rows == slot).unsqueeze(-1), mean, memory)
    return written, (slot + 1) % len(memory)


@in_full_precision
def align(probabilities: Tensor, memory: Tensor) -> Tensor:
    """Give p_k / mean_k, scaled to sum to one again, for rows p (N, K) and a memory (S, K).

    The mean is over all S rows. Those not written yet hold zeros, which scale every class alike.
    So would a uniform target's share 1/K in the numerator, which is left out for that reason.
    """
    raised = probabilities / (memory.mean(0) + SMALLEST_SHARE)
    return raised / raised.sum(-1, keepdim=True)
