"""Networks that one run trains one after the other, and that judge together.

Two networks that know nothing of one another err on different images, and the mean of what they say
errs less than either. A run that gives each of several networks a part of its steps has that mean
without further training. Those that are done may also select and name, with the next one, the pool
images which that learns from; it then errs more as they do.
"""

from collections.abc import Mapping
from copy import deepcopy

import torch
from torch import Tensor, nn


class Elders(nn.Module):
    """The networks before the present one, frozen: places for them, and what they say of the pool.

    A network is a backbone, a classifier and a detector, by these names. Until `admit` fills a
    place, what stands there says nothing.
    """

    def __init__(
        self, network: Mapping[str, nn.Module], places: int, pool_size: int, classes: int
    ) -> None:
        super().__init__()
        self.networks = nn.ModuleList(
            nn.ModuleDict({name: deepcopy(part) for name, part in network.items()})
            for _ in range(places)
        )
        self.requires_grad_(False)
        self.count = nn.Buffer(torch.zeros((), dtype=torch.int64))
        # Only training asks for it: a saved model is without.
        self.said = nn.Buffer(torch.zeros(pool_size, classes), persistent=False)

    def train(self, mode: bool = True) -> "Elders":
        """They learn no more: always in evaluation mode."""
        return super().train(False)

    @torch.no_grad()
    def admit(self, network: Mapping[str, nn.Module], said: Tensor) -> None:
        """Take in one more, with the mean of the logits (N, K) that all now give the pool."""
        place = self.networks[int(self.count)]
        assert isinstance(place, nn.ModuleDict)
        for name, part in network.items():
            place[name].load_state_dict(part.state_dict())
        self.said.copy_(said)
        self.count.add_(1)

    def joined(self, images: Tensor, logits: Tensor, alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Mean of the present network's logits and concentrations, (N, K) each, and theirs."""
        # An exported graph cannot ask how many there are: there, empty places count for nothing.
        asked = len(self.networks) if torch.compiler.is_exporting() else int(self.count)
        for place, elder in enumerate(list(self.networks)[:asked]):
            assert isinstance(elder, nn.ModuleDict)
            weight = (place < self.count).to(logits.dtype)
            features = elder["backbone"](images)
            logits = logits + weight * elder["classifier"](features)
            alpha = alpha + weight * elder["detector"](features)
        return logits / (self.count + 1), alpha / (self.count + 1)

    def name(self, logits: Tensor, positions: Tensor) -> Tensor:
        """Mean of the present network's logits (N, K) for the pool images there, and theirs."""
        return (logits + self.count * self.said[positions]) / (self.count + 1)
