"""Otsu's threshold: the cut of a set of numbers that leaves two groups as far apart as possible."""

import torch
from torch import Tensor


@torch.no_grad()
def otsu_threshold(scores: Tensor) -> Tensor:
    """Give the least score of the upper group, (), for any (N,) scores, N ≥ 1, of any range.

    `scores >= otsu_threshold(scores)` is the upper group. The cut maximises the variance between
    the groups, w₀ w₁ (m₀ − m₁)², over all cuts between two different scores: no histogram, so no
    choice of bins. Where all scores are equal there is no cut, and the upper group is everything.
    """
    ordered = scores.sort().values
    count = len(ordered)
    # With the mean taken out, both group means follow from the sum of the lower group alone.
    centred = ordered.double() - ordered.double().mean()
    lower = torch.arange(1, count, device=scores.device, dtype=torch.float64)
    between = centred.cumsum(0)[:-1].square() / (lower * (count - lower))
    between = between.masked_fill(ordered[1:] == ordered[:-1], 0.0)
    # The whole set comes first: with nothing to gain by a cut, it stays whole.
    gain = torch.cat([between.new_zeros(1), between])
    return ordered[gain.argmax()]
