"""How far an image leaves what labelled images have in common: a guard against the far away.

Evidence is learnt on images of the pool, and says nothing of what resembles none of them: noise or
an empty picture may have as much of it as a known class. Features tell. Those of labelled images
vary much in some directions and hardly in others, and what is foreign to the network varies in the
latter as well (compare the residual of ViM: Wang, Li, Feng and Zhang, CVPR 2022).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from anedl.dirichlet import in_full_precision
from anedl.errors import AnedlError


@dataclass(frozen=True, eq=False)
class Familiarity:
    """Directions in which labelled images hardly vary, `still` (d, r), and their `centre` (d,)."""

    centre: Tensor
    still: Tensor

    @classmethod
    def of(cls, features: Tensor) -> Self:
        """From the features (N, d) of labelled images that were trained on.

        Half of the directions count as still; more where there are fewer than d images, for these
        show at most N − 1 directions, and only the first half of them well.
        """
        if not features.isfinite().all():
            raise AnedlError("features of labelled images are not finite: the model has diverged")
        # In float64 on the CPU: the same directions wherever the features came from.
        exact = features.double().cpu()
        centre = exact.mean(0)
        centred = exact - centre
        _, directions = torch.linalg.eigh(centred.T @ centred)
        lively = min(exact.shape[1], len(exact)) // 2
        still = directions[:, : exact.shape[1] - lively]
        # Laid out as it will be read again, for the layout changes the last bit of a score.
        return cls(centre.float(), still.float().contiguous())

    @in_full_precision
    def score(self, features: Tensor) -> Tensor:
        """Minus the part of the features' length that lies in still directions, (N,)."""
        centre, still = (part.to(features.device) for part in (self.centre, self.still))
        beyond = ((features - centre) @ still).norm(dim=-1)
        length = features.norm(dim=-1).clamp_min(torch.finfo(features.dtype).tiny)
        score: Tensor = -beyond / length
        # Features that are all zero are unfamiliar, but their score is to be a number.
        return score.clamp_min(torch.finfo(score.dtype).min)

    def tensors(self) -> dict[str, Tensor]:
        """What it consists of, by name."""
        return {"centre": self.centre, "still": self.still}

    @classmethod
    def from_tensors(cls, tensors: Mapping[str, Tensor]) -> Self:
        """Rebuild from what `tensors` returned."""
        return cls(tensors["centre"], tensors["still"])
