"""A trunk that stays as it is, and the layer behind it that learns."""

import pytest
import torch

from anedl.networks.frozen_encoder import DROPOUT, FrozenEncoder


@pytest.fixture
def encoder(trained_backbone):
    return FrozenEncoder(trained_backbone, (0.5,) * 3, (0.25,) * 3, 0.1, 16)


@pytest.fixture
def images():
    rng = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (10, 3, 16, 16), generator=rng, dtype=torch.uint8)


def test_images_and_their_features_give_the_same(encoder, images):
    encoder.eval()
    features = encoder.trunk_features(images)
    assert features.shape == (10, encoder.trunk_width)
    torch.testing.assert_close(encoder(images), encoder(features))


def test_only_the_adapter_learns(encoder, images):
    encoder.train()
    encoder(images).square().sum().backward()
    learning = {name for name, value in encoder.named_parameters() if value.grad is not None}
    assert learning == {name for name, _ in encoder.named_parameters() if "adapter" in name}
    assert not any(value.requires_grad for value in encoder.trunk.parameters())


def test_the_trunk_keeps_its_statistics_while_the_rest_trains(encoder, images):
    before = encoder.trunk.state_dict()
    before = {name: value.clone() for name, value in before.items()}
    encoder.train()
    first = encoder.trunk_features(images)
    encoder(images)
    assert not encoder.trunk.training
    assert encoder.adapter.training
    for name, value in encoder.trunk.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert torch.equal(encoder.trunk_features(images), first)


def test_in_training_most_features_are_left_out(encoder):
    encoder.train()
    with torch.no_grad():
        kept = encoder.adapter[1](torch.ones(100, encoder.trunk_width)) > 0
    assert kept.float().mean() == pytest.approx(1 - DROPOUT, abs=0.03)


def test_what_no_step_changes_has_names(encoder):
    names = [*dict(encoder.named_parameters()), *dict(encoder.named_buffers())]
    rest = [name for name in names if not name.startswith(encoder.untouched)]
    assert rest
    assert all(name.startswith("adapter.") for name in rest)


def test_images_are_enlarged_before_the_trunk_sees_them(trained_backbone, images):
    plain = FrozenEncoder(trained_backbone, (0.5,) * 3, (0.25,) * 3, 0.1, 32)
    enlarging = FrozenEncoder(trained_backbone, (0.5,) * 3, (0.25,) * 3, 0.1, 16, side=32)
    # An image of one colour is the same at any size.
    flat = images[:, :, :1, :1]
    small, large = flat.expand(-1, -1, 16, 16), flat.expand(-1, -1, 32, 32)
    torch.testing.assert_close(enlarging.trunk_features(small), plain.trunk_features(large))
    assert not torch.equal(enlarging.trunk_features(images), plain.trunk_features(images))
