"""ANEDL with another Eq. 6: the two views of a pool image agree in their means.

anedl train digits --method docs/examples/one_equation.py:Means --means-weight 0.5
"""

from dataclasses import dataclass

from torch import Tensor

from anedl.methods.anedl import Anedl
from anedl.methods.anedl_config import AnedlConfig
from anedl.options import option


@dataclass(frozen=True)
class MeansConfig(AnedlConfig):
    """The options of ANEDL and one more."""

    means_weight: float = option(1.0, "weight of the distance between the two views' means")


class Means(Anedl):
    """`anedl-plus`, but for one equation."""

    like = "anedl-plus"
    config_type = MeansConfig
    config: MeansConfig

    def consistency(self, alpha_pool: Tensor) -> Tensor:
        """In place of Eq. 6; concentrations (2N, K), one view after the other."""
        means = alpha_pool / alpha_pool.sum(-1, keepdim=True)
        first, second = means.chunk(2)
        return self.config.means_weight * (first - second).square().sum(-1).mean()
