"""Trunks from timm (`pip install timm`): "timm:NAME", "timm:NAME:pretrained", "timm:NAME:FILE".

Of timm this relies on: `timm.create_model(name, pretrained=…, pretrained_cfg_overlay={"file": …},
num_classes=0, in_chans=…, img_size=…)`, whose forward then gives pooled features (N, width); and on
`timm.get_pretrained_cfg(name)`, whose `fixed_input_size` says whether a model must be told the size
of its images, and whose `input_size`, `mean` and `std` say how it was trained. A weights file goes
through the overlay, not through `checkpoint_path`: the former leaves the classifier out, the latter
refuses a file that has one.
"""

import importlib
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from anedl.errors import ConfigError
from anedl.networks.trained import TrainedOn

PREFIX = "timm:"
PRETRAINED = "pretrained"


class TimmBackbone(nn.Module):
    """A timm model without its classifier: normalised images in, pooled features out.

    Args:
        name: "timm:NAME", "timm:NAME:pretrained" or "timm:NAME:FILE".
        channels: of the images.
        bn_momentum: weight of new statistics in every BatchNorm, where the model has any.
        image_size: side of the images; needed for models with a fixed input, and checked for all.
        load_weights: False where the weights are about to be replaced anyway.
    """

    def __init__(
        self,
        name: str,
        channels: int = 3,
        bn_momentum: float = 0.1,
        image_size: int | None = None,
        load_weights: bool = True,
    ) -> None:
        super().__init__()
        timm = _import_timm(name)
        model, weights = _parts(name)
        if load_weights:
            _check_weights(name, model, weights)
        options: dict[str, Any] = {"num_classes": 0, "in_chans": channels}
        if image_size is not None and _is_fixed(timm, model):
            options["img_size"] = image_size
        if weights and load_weights:
            options["pretrained"] = True
            if weights != PRETRAINED:
                options["pretrained_cfg_overlay"] = {"file": weights}
        try:
            self.model: nn.Module = timm.create_model(model, **options)
        except Exception as error:
            # What may go wrong is timm's own: unknown names, sizes, files, no network.
            raise ConfigError(
                f"backbone {name!r}: timm cannot make it ({error}); `timm.list_models()` has the "
                f"names, and a weights file must be of this very model"
            ) from error
        for module in self.model.modules():
            if isinstance(module, _BatchNorm):
                module.momentum = bn_momentum
        self.feature_width = _width(self.model, name, channels, image_size)

    def forward(self, images: Tensor) -> Tensor:
        """Features (N, feature_width) of normalised images (N, channels, H, W)."""
        features: Tensor = self.model(images)
        return features


def timm_trained_on(name: str) -> TrainedOn | None:
    """How the weights that `name` asks for were trained; None where timm does not know."""
    model, weights = _parts(name)
    try:
        trained = _import_timm(name).get_pretrained_cfg(model)
    except RuntimeError:  # there are no such weights, as `create_model` will say
        return None
    if trained is None:  # an old name of a model, or one that has only ever had weights in files
        return None
    images = "other images" if weights == PRETRAINED else f"what {weights} was trained on"
    side = int(trained.input_size[-1])
    return TrainedOn(side, tuple(trained.mean), tuple(trained.std), images)


def _import_timm(name: str) -> Any:
    try:
        return importlib.import_module("timm")
    except ImportError as error:
        raise ConfigError(
            f"backbone {name!r} needs the package timm: install it with `pip install timm`"
        ) from error


def _parts(name: str) -> tuple[str, str]:
    """The model's name and where its weights come from, "" for none."""
    model, _, weights = name.removeprefix(PREFIX).partition(":")
    if not model:
        raise ConfigError(f"backbone {name!r}: name a model of timm, such as timm:resnet50")
    return model, weights


def _check_weights(name: str, model: str, weights: str) -> None:
    if weights and weights != PRETRAINED and not Path(weights).is_file():
        raise ConfigError(
            f"backbone {name!r}: there is no file {weights!r}; write timm:{model} for random "
            f"weights, timm:{model}:pretrained for timm's own, or timm:{model}:FILE"
        )


def _is_fixed(timm: Any, model: str) -> bool:
    """Whether the model takes images of one size only, which it must then be told."""
    try:
        return bool(getattr(timm.get_pretrained_cfg(model), "fixed_input_size", False))
    except RuntimeError:  # there are no such weights, as `create_model` will say
        return False


def _width(model: nn.Module, name: str, channels: int, image_size: int | None) -> int:
    """How wide the features are: measured, as `num_features` is not the last width of all."""
    if image_size is None:
        return int(model.num_features)  # type: ignore[arg-type]
    training = model.training
    try:
        with torch.no_grad():
            features = model.eval()(torch.zeros(1, channels, image_size, image_size))
    except Exception as error:
        raise ConfigError(
            f"backbone {name!r}: cannot take images of {image_size} pixels ({error}); choose "
            f"another --image-size or another model"
        ) from error
    finally:
        model.train(training)
    if features.ndim != 2:
        raise ConfigError(
            f"backbone {name!r}: gives features of shape {tuple(features.shape)}, not one vector "
            f"an image; choose another model"
        )
    return int(features.shape[1])
