"""Networks: backbones by name, the heads that sit on them, and the step from bytes to numbers."""

import re
from collections.abc import Callable, Sequence
from importlib.metadata import PackageNotFoundError, version

import torch
from torch import Tensor, nn

from anedl.errors import ConfigError, unknown_name
from anedl.networks.heads import EvidentialHead, SoftmaxHead
from anedl.networks.lite_backbone import ARCHITECTURE, LITE, LiteBackbone, is_installed
from anedl.networks.resnet import ResNet18
from anedl.networks.timm_backbone import PREFIX, TimmBackbone, timm_trained_on
from anedl.networks.trained import TrainedOn
from anedl.networks.wide_resnet import WideResNet

__all__ = [
    "BACKBONES",
    "Backbone",
    "EvidentialHead",
    "LiteBackbone",
    "Normalise",
    "ResNet18",
    "SoftmaxHead",
    "TimmBackbone",
    "TrainedOn",
    "WideResNet",
    "brings_weights",
    "build_backbone",
    "is_installed",
    "package_of",
    "trained_on",
]

# A module from normalised images (N, channels, H, W) to features (N, feature_width).
Backbone = WideResNet | ResNet18 | LiteBackbone | TimmBackbone

# Name → (channels, bn_momentum) → backbone. Any other "wrn-<depth>-<width>" is understood as well.
BACKBONES: dict[str, Callable[[int, float], Backbone]] = {
    "wrn-28-2": lambda channels, momentum: WideResNet(28, 2, channels, bn_momentum=momentum),
    # 8, 16 and 32 channels: 19,384 parameters for one channel in. Half the time of 16, 32 and 64
    # channels, and with ten labelled digits a class within half a point of their accuracy.
    "wrn-digits": lambda channels, momentum: WideResNet(
        10, 1, channels, bn_momentum=momentum, base_width=8
    ),
    "resnet18": lambda channels, momentum: ResNet18(channels, bn_momentum=momentum),
    "resnet18-small": lambda channels, momentum: ResNet18(
        channels, small_stem=True, bn_momentum=momentum
    ),
}


def build_backbone(
    name: str,
    channels: int = 3,
    bn_momentum: float = 0.001,
    image_size: int | None = None,
    load_weights: bool = True,
) -> Backbone:
    """Build a freshly initialised backbone by name; its `feature_width` says how wide it ends.

    "wrn-28-2" (or any "wrn-<depth>-<width>" with a depth of 6·n + 4), "wrn-digits" for 8×8 images,
    "resnet18" for large images, "resnet18-small" for small ones. `bn_momentum` is the weight of the
    new statistics (0.001 is the published value for runs of 200,000 steps; short runs need more).
    "efficientnet-lite0" is trained already (see `lite_backbone`). "timm:<model>" is any model of
    timm (see `timm_backbone`), some of which need `image_size`; `load_weights` False leaves out the
    pretrained weights that such names may ask for.
    """
    if name in BACKBONES:
        return BACKBONES[name](channels, bn_momentum)
    if wide := re.fullmatch(r"wrn-(\d+)-(\d+)", name):
        depth, width = int(wide[1]), int(wide[2])
        return WideResNet(depth, width, channels, bn_momentum=bn_momentum)
    if name in LITE:
        return LiteBackbone(name, channels, bn_momentum, load_weights)
    if name.startswith(PREFIX):
        return TimmBackbone(name, channels, bn_momentum, image_size, load_weights)
    raise unknown_name("backbone", name, [*BACKBONES, "wrn-<depth>-<width>", *LITE, "timm:<model>"])


def trained_on(name: str | None) -> TrainedOn | None:
    """How the weights that a name brings were trained; None: it brings none, or nobody knows."""
    if name is None or not brings_weights(name):
        return None
    return LITE[name] if name in LITE else timm_trained_on(name)


def brings_weights(name: str) -> bool:
    """Whether a backbone of this name is trained already."""
    return name in LITE or (
        name.startswith(PREFIX) and bool(name.removeprefix(PREFIX).partition(":")[2])
    )


def package_of(name: str) -> str:
    """The package that a trained backbone's architecture comes from, with its version."""
    package = PREFIX.rstrip(":") if name.startswith(PREFIX) else ARCHITECTURE
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return package  # its code is there, and nothing that tells which


class Normalise(nn.Module):
    """Turn bytes into numbers around zero: (pixel / 255 − mean) / std, channel by channel.

    `mean` and `std` are given on the scale 0…1 and travel in the state dict, so that an exported
    network takes the same bytes as the one that was trained.
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        if len(mean) != len(std) or not mean or min(std) <= 0:
            raise ConfigError(
                f"normalisation needs one mean and one positive std a channel, "
                f"got mean {tuple(mean)} and std {tuple(std)}"
            )
        self.register_buffer("mean", torch.tensor(mean, dtype=torch.float32))
        self.register_buffer("std", torch.tensor(std, dtype=torch.float32))

    def forward(self, images: Tensor) -> Tensor:
        """Normalise images (N, channels, H, W), uint8 or float in 0…255; memory format is kept."""
        scale = (1.0 / (255.0 * self.std)).view(1, -1, 1, 1)
        offset = (self.mean / self.std).view(1, -1, 1, 1)
        return images.to(scale.dtype) * scale - offset
