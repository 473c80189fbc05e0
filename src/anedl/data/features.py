"""Features in place of images: what a frozen trunk makes of several views of each, made once.

A trunk that never changes says the same of a view every time. So its opinion of a few weak and a
few strong views of each image is kept, and a step draws among these instead of making new ones.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from anedl.data.augment.counter import uniforms
from anedl.data.dataset import IntArray
from anedl.views import View


@dataclass(frozen=True)
class FeatureBank:
    """Of N images the features of their plain view, and of as many weak as strong ones."""

    plain: Tensor  # (N, d) float32: what is judged
    views: Tensor  # (N, 1 + 2·copies, d) float16: plain, weak ones, strong ones; what is learnt
    test: Tensor | None = None  # (T, d) float32 of a test part, where there is one, plain

    @property
    def copies(self) -> int:
        """How many weak views there are of an image, and how many strong ones."""
        return (self.views.shape[1] - 1) // 2

    def plain_of(self, indices: IntArray) -> Tensor:
        """The plain views' features of the images at `indices`, (n, d)."""
        return self.plain[torch.tensor(indices)]

    def views_of(self, indices: IntArray) -> Tensor:
        """All views' features of the images at `indices`, (n, 1 + 2·copies, d)."""
        return self.views[torch.tensor(indices)]


def slots_of(copies: int) -> list[View]:
    """Which view lies where along the second axis of `FeatureBank.views`."""
    return [View.PLAIN] + [View.WEAK] * copies + [View.STRONG] * copies


@dataclass(frozen=True)
class DrawnViews:
    """Draws one of the kept views, where `BatchedAugment` would make one."""

    copies: int

    def __call__(
        self, features: Tensor, view: View, seed: int, step: Tensor | int, slot: int
    ) -> Tensor:
        """One view of each row of (N, 1 + 2·copies, d) features, (N, d) float32.

        Which one is a pure function of (seed, step, slot, position), as with images. A view that
        is only mirrored is not kept: a weak one stands for it.
        """
        if view is View.PLAIN:
            return features[:, 0].float()
        draw = uniforms(seed, step, slot, len(features), 1, features.device).squeeze(1)
        first = 1 + (self.copies if view is View.STRONG else 0)
        drawn = first + (draw * self.copies).long()
        rows = torch.arange(len(features), device=features.device)
        return features[rows, drawn].float()
