"""EDL: classical evidential deep learning (Sensoy et al., NeurIPS 2018) as an outlier detector.

The loss of labelled images is the expected squared error under Dir(α), which is the error of the
mean plus the variance, and a KL, weighted more as training goes on, that takes evidence away from
the wrong classes. The paper classifies with the evidential head; here a softmax head does, and
self-training is ANEDL's. `labelled_evidential.py` has these and the other choices.
"""

from torch import Tensor

from anedl import losses
from anedl.methods.labelled_evidential import LabelledEvidential


class Edl(LabelledEvidential):
    """Classical evidential deep learning on labels, beside a softmax head that self-trains."""

    def evidential_loss(self, alpha: Tensor, labels: Tensor, kl_weight: Tensor) -> Tensor:
        """Squared error + variance + weighted KL, (N,)."""
        return losses.edl(alpha, labels, kl_weight)
