"""Which pool images a ranking picks: the highest of all, or some of every class first."""

import torch
from torch import Tensor


def highest(ranking: Tensor, count: int) -> Tensor:
    """Sorted positions of the `count` highest entries of `ranking` (N,); equal ones by position."""
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
    return torch.sort(ranking, descending=True, stable=True).indices
