"""A one-vs-all head: for every class a pair of logits, "not this class" and "this class"."""

from torch import Tensor, nn


class OneVsAllHead(nn.Linear):
    """Logits (N, 2, classes) from features (N, feature_width): Xavier-normal weight, zero bias.

    Along the axis of size 2, index 0 is "not class k" and index 1 "is class k".
    """

    def __init__(self, feature_width: int, classes: int, bias: bool = False) -> None:
        super().__init__(feature_width, 2 * classes, bias=bias)
        nn.init.xavier_normal_(self.weight)
        if bias:
            nn.init.zeros_(self.bias)

    def forward(self, features: Tensor) -> Tensor:
        """Pairs of logits, (N, 2, classes)."""
        logits: Tensor = super().forward(features)
        return logits.reshape(-1, 2, self.out_features // 2)
