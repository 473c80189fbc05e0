"""One-vs-all losses and probabilities: one binary question a class, "is it class k or not?".

`ova_logits` is (N, 2, K): index 0 of the pair speaks for "not class k", index 1 for "is class k",
and a softmax over the pair gives n_k and o_k with n_k + o_k = 1. Every function gives one value a
sample, (N,), unless its docstring says otherwise; the caller takes the mean. Logarithms are those
of a log-softmax, so no probability of zero is ever met. All of it runs in full precision.
"""

import torch.nn.functional as F
from torch import Tensor

from anedl.dirichlet import in_full_precision
from anedl.losses import one_hot


@in_full_precision
def hard_negative_loss(ova_logits: Tensor, labels: Tensor) -> Tensor:
    """−log o_y + max_{k≠y}(−log n_k): the true class, and the wrong one that is most believed in.

    `labels` is (N,) int64. With a single class there is no wrong one, and its part is 0.
    """
    log_not, log_is = F.log_softmax(ova_logits, dim=1).unbind(1)
    is_true = one_hot(labels, log_is.shape[-1], log_is.dtype)
    # −log n_k is never negative, so the zero at the true class never wins against another.
    hardest = (-log_not * (1 - is_true)).amax(-1)
    return hardest - (log_is * is_true).sum(-1)


@in_full_precision
def binary_entropy(ova_logits: Tensor) -> Tensor:
    """Entropy of the pair (n_k, o_k) in nats, mean over the classes."""
    log_probability = F.log_softmax(ova_logits, dim=1)
    return -(log_probability.exp() * log_probability).sum(1).mean(-1)


@in_full_precision
def consistency(ova_logits_a: Tensor, ova_logits_b: Tensor) -> Tensor:
    """Σ_k Σ_c |p_c(a) − p_c(b)|² between two views of the same samples, c over the pair."""
    difference = ova_logits_a.softmax(1) - ova_logits_b.softmax(1)
    return difference.square().sum((1, 2))


@in_full_precision
def class_probability(ova_logits: Tensor) -> Tensor:
    """o_k, "is class k", of every class, (N, K)."""
    return ova_logits.softmax(1)[:, 1]


@in_full_precision
def inlier_log_odds(ova_logits: Tensor, predicted: Tensor) -> Tensor:
    """log o/n at the class that a classifier `predicted`, (N,) int64.

    The order is that of o, without the ties where o rounds to 1.
    """
    log_odds = ova_logits[:, 1] - ova_logits[:, 0]
    return log_odds.gather(-1, predicted.unsqueeze(-1)).squeeze(-1)
