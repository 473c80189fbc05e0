"""I-EDL: evidential deep learning weighted by Fisher information (Deng et al., ICML 2023).

EDL's squared error and variance, each class weighted by ψ₁(α_k), so that classes with little
evidence count more; minus the weighted log-determinant of the Fisher information; plus EDL's KL.
As in EDL here, a softmax head classifies and self-training is ANEDL's; `labelled_evidential.py` has
these and the other choices.
"""

from dataclasses import dataclass

from torch import Tensor

from anedl import losses
from anedl.methods.labelled_evidential import LabelledEvidential, LabelledEvidentialConfig
from anedl.options import option


@dataclass(frozen=True)
class IEdlConfig(LabelledEvidentialConfig):
    """One option more than EDL has."""

    log_det_weight: float = option(
        0.05, "weight of the log-determinant (released: 0.05 for CIFAR-10, 0.005 for MNIST)"
    )


class IEdl(LabelledEvidential):
    """Fisher-weighted evidential learning on labels, beside a softmax head that self-trains."""

    config_type = IEdlConfig
    config: IEdlConfig

    def evidential_loss(self, alpha: Tensor, labels: Tensor, kl_weight: Tensor) -> Tensor:
        """ψ₁-weighted squared error + variance − weighted log-determinant + weighted KL, (N,)."""
        return losses.i_edl(alpha, labels, self.config.log_det_weight, kl_weight)
