"""What turns features into class scores, evidence or points to compare: the heads."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anedl.dirichlet import autocast_may_be_on
from anedl.errors import unknown_name

# Evidence is cut at one million: the Dirichlet terms are accurate up to there, e^88 overflows.
LARGEST_EXPONENT = math.log(1e6)


def _exp_evidence(raw: Tensor) -> Tensor:
    """e^raw, constant (and without gradient) above one million."""
    return raw.clamp(max=LARGEST_EXPONENT).exp()


# Each maps any finite real to evidence: finite and never negative.
EVIDENCE_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "softplus": F.softplus,
    "exp": _exp_evidence,
}


class SoftmaxHead(nn.Linear):
    """Logits (N, classes) from features (N, feature_width): Xavier-normal weight, zero bias."""

    def __init__(self, feature_width: int, classes: int) -> None:
        super().__init__(feature_width, classes)
        nn.init.xavier_normal_(self.weight)
        nn.init.zeros_(self.bias)


class ProjectionHead(nn.Sequential):
    """Features (N, feature_width) to the space of a contrastive loss, (N, width): two layers."""

    def __init__(self, feature_width: int, width: int) -> None:
        super().__init__(
            nn.Linear(feature_width, feature_width),
            nn.ReLU(inplace=True),
            nn.Linear(feature_width, width),
        )


class EvidentialHead(nn.Module):
    """Dirichlet parameters (N, classes) from features (N, feature_width): alpha = evidence + 1.

    Four layers: three of [Linear, BatchNorm, ReLU], `hidden_width` wide (default: the features'
    width), then a Linear without bias whose output becomes evidence by `activation` ("relu",
    "softplus" or "exp"). `bn_momentum` None leaves the BatchNorms out. The last layer and all that
    follows run in float32 also under autocast: the digamma-type terms made of alpha are not
    defined well enough in 16 bits.
    """

    def __init__(
        self,
        feature_width: int,
        classes: int,
        hidden_width: int | None = None,
        activation: str = "softplus",
        bn_momentum: float | None = 0.001,
    ) -> None:
        super().__init__()
        if activation not in EVIDENCE_ACTIVATIONS:
            raise unknown_name("evidence activation", activation, EVIDENCE_ACTIVATIONS)
        self.activation = activation
        hidden_width = hidden_width or feature_width
        layers: list[nn.Module] = []
        width_in = feature_width
        for _ in range(3):
            # A bias straight before BatchNorm is subtracted again, so it would only cost time.
            layers.append(nn.Linear(width_in, hidden_width, bias=bn_momentum is None))
            if bn_momentum is not None:
                layers.append(nn.BatchNorm1d(hidden_width, momentum=bn_momentum))
            layers.append(nn.ReLU(inplace=True))
            width_in = hidden_width
        self.hidden = nn.Sequential(*layers)
        self.last = nn.Linear(hidden_width, classes, bias=False)

        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_normal_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, features: Tensor) -> Tensor:
        """Dirichlet parameters alpha (N, classes), float32, each at least 1."""
        return self.alpha_from_hidden(self.hidden(features))

    def again(self, features: Tensor) -> Tensor:
        """What `forward` gives, without a second count of the batch.

        For a batch that passes the head twice with other gradients: its BatchNorms must not take
        it into their running statistics twice.
        """
        hidden = features
        for layer in self.hidden:
            if isinstance(layer, nn.BatchNorm1d) and layer.training:
                hidden = F.batch_norm(
                    hidden, None, None, layer.weight, layer.bias, training=True, eps=layer.eps
                )
            else:
                hidden = layer(hidden)
        return self.alpha_from_hidden(hidden)

    def alpha_from_hidden(self, hidden: Tensor) -> Tensor:
        """Alpha (N, classes) in float32 from the third layer's output (N, hidden_width)."""
        device = hidden.device.type
        if autocast_may_be_on(device):
            with torch.autocast(device, enabled=False):
                return self._alpha(hidden.float())
        # Without the context where it is not needed: an exported graph would carry it along.
        return self._alpha(hidden.float())

    def _alpha(self, hidden: Tensor) -> Tensor:
        raw = F.linear(hidden, self.last.weight.float())
        return EVIDENCE_ACTIVATIONS[self.activation](raw) + 1.0
