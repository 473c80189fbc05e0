"""A trunk that was trained elsewhere and stays as it is; what learns is a layer behind it."""

from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from anedl.networks.encoder import ImageEncoder

# What the heads see is narrower than a trained trunk's features, and in training most of these are
# left out: with a few labels a class a layer learns them by heart otherwise (docs/fit.md).
ADAPTED_WIDTH = 128
DROPOUT = 0.8
LEAK = 0.1


class FrozenEncoder(ImageEncoder):
    """Features (N, feature_width) of uint8 images (N, C, H, W), or of what the trunk made of them.

    The trunk's features of an image never change, so they can be made once and be passed in their
    place, (N, trunk_width). Where `side` is not 0, images are brought to so many pixels a side
    first: a trunk that knows photographs of 224 pixels finds little in one of 32.
    """

    def __init__(
        self,
        backbone: str,
        mean: Sequence[float],
        std: Sequence[float],
        bn_momentum: float,
        image_size: int | None = None,
        load_weights: bool = True,
        side: int = 0,
    ) -> None:
        super().__init__(backbone, mean, std, bn_momentum, side or image_size, load_weights)
        self.side = side
        self.trunk.requires_grad_(False)
        # On a CPU up to twice as fast; on a GPU what the engine takes anyway.
        self.trunk.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.trunk_width = self.feature_width
        self.feature_width = min(self.trunk_width, ADAPTED_WIDTH)
        self.adapter = nn.Sequential(
            nn.BatchNorm1d(self.trunk_width, affine=False, momentum=bn_momentum),
            nn.Dropout(DROPOUT),
            nn.Linear(self.trunk_width, self.feature_width, bias=False),
            nn.BatchNorm1d(self.feature_width, momentum=bn_momentum),
            nn.LeakyReLU(LEAK),
        )
        self.train(self.training)

    @property
    def untouched(self) -> tuple[str, ...]:
        """The trunk, which no step changes."""
        return ("normalise.", "trunk.")

    def train(self, mode: bool = True) -> Self:
        """Switch the adapter; the trunk always judges by the statistics it came with."""
        super().train(mode)
        self.trunk.eval()
        return self

    def forward(self, images: Tensor) -> Tensor:
        """Adapt the trunk's features, made here unless they were passed."""
        features = images if images.ndim == 2 else self.trunk_features(images)
        adapted: Tensor = self.adapter(features)
        return adapted

    def seen_side(self, side: int) -> int:
        """Pixels a side that the trunk sees of images with `side`."""
        return self.side or side

    @torch.no_grad()
    def trunk_features(self, images: Tensor) -> Tensor:
        """What the trunk makes of (N, C, H, W) uint8 images, (N, trunk_width)."""
        seen = self.normalise(images)
        if self.side:
            seen = interpolate(seen, size=(self.side, self.side), mode="bicubic")
        features: Tensor = self.trunk(seen.contiguous(memory_format=torch.channels_last))
        return features
