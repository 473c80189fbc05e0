"""Which pool images a ranking picks: the highest of all, or some of every class first.

Equal images are picked in an order of their own, the same at every call: where the pool is sorted
by class, as lists of files often are, their positions would tell known from unknown.
"""

import torch
from torch import Tensor


def highest(ranking: Tensor, count: int) -> Tensor:
    """Sorted positions of the `count` highest entries of `ranking` (N,)."""
    return _best_first(ranking)[:count].sort().values


def highest_of_each(ranking: Tensor, classes: Tensor, count: int, quota: int) -> Tensor:
    """The same, but first the `quota` highest of each class of `classes` (N,), or all it has.

    What is then left of `count` goes to the highest of all others.
    """
    order = _best_first(ranking)
    of_class = classes[order]
    # The place of each image among those of its class, the best at 0.
    grouped = torch.sort(of_class, stable=True).indices
    sizes = torch.bincount(of_class)
    begins = (sizes.cumsum(0) - sizes)[of_class[grouped]]
    place = torch.empty_like(order)
    place[grouped] = torch.arange(len(order), device=order.device) - begins
    first = place < quota
    return torch.cat([order[first], order[~first]])[:count].sort().values


def _best_first(ranking: Tensor) -> Tensor:
    order = drawing_order(len(ranking)).to(ranking.device)
    return order[torch.sort(ranking[order], descending=True, stable=True).indices]


def drawing_order(count: int) -> Tensor:
    """In which order `count` equal images are picked: a fixed shuffle of their positions, (N,)."""
    return torch.randperm(count, generator=torch.Generator().manual_seed(0))
