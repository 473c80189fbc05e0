"""Backbones by name, and the normalisation in front of them."""

import pytest
import torch

from anedl.errors import ConfigError
from anedl.networks import BACKBONES, Normalise, build_backbone

SIZES = {"wrn-28-2": 32, "wrn-digits": 8, "resnet18": 64, "resnet18-small": 16, "wrn-16-1": 16}


@pytest.mark.parametrize("name", SIZES)
@pytest.mark.parametrize("channels", [1, 3])
def test_features_have_the_announced_shape_and_every_parameter_learns(
    name: str, channels: int
) -> None:
    torch.manual_seed(0)
    model = build_backbone(name, channels=channels)
    features = model(torch.randn(4, channels, SIZES[name], SIZES[name]))
    assert features.shape == (4, model.feature_width)
    (features * torch.randn_like(features)).sum().backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.abs().max() > 0, parameter_name


def test_every_named_backbone_is_tried_here() -> None:
    assert set(BACKBONES) <= set(SIZES)


@pytest.mark.parametrize("name", SIZES)
def test_channels_last_gives_the_same_features(name: str) -> None:
    torch.manual_seed(0)
    model = build_backbone(name).eval()
    images = torch.randn(2, 3, SIZES[name], SIZES[name])
    with torch.no_grad():
        expected = model(images)
        model = model.to(memory_format=torch.channels_last)
        actual = model(images.contiguous(memory_format=torch.channels_last))
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", SIZES)
def test_every_norm_has_the_momentum_asked_for(name: str) -> None:
    norms = [
        module
        for module in build_backbone(name, bn_momentum=0.37).modules()
        if isinstance(module, torch.nn.BatchNorm2d)
    ]
    assert norms
    assert {norm.momentum for norm in norms} == {0.37}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet-18", "did you mean resnet18"),
        ("vgg", "known: .*wrn-<depth>-<width>"),
        ("wrn-27-2", "depth must be"),
    ],
)
def test_unknown_names_are_refused_with_a_hint(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build_backbone(name)


@pytest.mark.parametrize("memory_format", [torch.contiguous_format, torch.channels_last])
def test_normalise_is_the_textbook_formula(memory_format: torch.memory_format) -> None:
    mean, std = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
    pixels = torch.randint(0, 256, (2, 3, 4, 5), dtype=torch.uint8)
    out = Normalise(mean, std)(pixels.contiguous(memory_format=memory_format))
    for channel in range(3):
        expected = (pixels[:, channel].double() / 255 - mean[channel]) / std[channel]
        torch.testing.assert_close(out[:, channel].double(), expected, rtol=1e-5, atol=1e-6)
    assert out.is_contiguous(memory_format=memory_format)
    assert torch.equal(Normalise(mean, std)(pixels.float()), out)


def test_normalise_travels_in_the_state_dict() -> None:
    trained, fresh = Normalise((0.1,), (0.2,)), Normalise((0.0,), (1.0,))
    fresh.load_state_dict(trained.state_dict())
    pixels = torch.arange(16, dtype=torch.uint8).view(1, 1, 4, 4)
    assert torch.equal(fresh(pixels), trained(pixels))


def test_normalise_refuses_a_zero_deviation() -> None:
    with pytest.raises(ConfigError, match="positive std"):
        Normalise((0.5,), (0.0,))
