"""From bytes to features: normalisation and trunk as one module, so a saved model carries both."""

from collections.abc import Sequence

from torch import Tensor, nn

from anedl.networks import Normalise, build_backbone


class ImageEncoder(nn.Module):
    """Pooled features (N, feature_width) of (N, C, H, W) uint8 images."""

    def __init__(
        self,
        backbone: str,
        mean: Sequence[float],
        std: Sequence[float],
        bn_momentum: float,
        image_size: int | None = None,
        load_weights: bool = True,
    ) -> None:
        super().__init__()
        self.normalise = Normalise(mean, std)
        self.trunk = build_backbone(backbone, len(mean), bn_momentum, image_size, load_weights)
        self.feature_width: int = self.trunk.feature_width
        self.bn_momentum = bn_momentum

    @property
    def untouched(self) -> tuple[str, ...]:
        """How the names begin of parameters and buffers that no training step changes."""
        return ()

    def seen_side(self, side: int) -> int:
        """Pixels a side that the trunk sees of images with `side`."""
        return side

    def forward(self, images: Tensor) -> Tensor:
        """Normalise and encode."""
        features: Tensor = self.trunk(self.normalise(images))
        return features
