"""Networks before the present one: frozen, counted, and heard in equal parts."""

import pytest
import torch
from torch import nn

from anedl.methods.elders import Elders

POOL, CLASSES = 7, 3


def network(seed):
    torch.manual_seed(seed)
    return {
        "backbone": nn.Sequential(nn.Linear(4, 5), nn.BatchNorm1d(5)),
        "classifier": nn.Linear(5, CLASSES),
        "detector": nn.Linear(5, CLASSES),
    }


def speak(parts, images):
    features = parts["backbone"].eval()(images)
    return parts["classifier"](features), parts["detector"](features)


@pytest.fixture
def images():
    return torch.randn(6, 4, generator=torch.Generator().manual_seed(9))


@pytest.mark.parametrize("admitted", [0, 1, 2])
def test_all_that_were_admitted_are_heard(images, admitted):
    elders = Elders(network(0), 3, POOL, CLASSES).train()
    before = [network(seed) for seed in range(1, 1 + admitted)]
    for parts in before:
        parts["backbone"](torch.randn(20, 4) + 2)  # statistics of its own
        elders.admit(parts, torch.zeros(POOL, CLASSES))
    own = torch.randn(2, 6, CLASSES)
    said = [tuple(own), *(speak(parts, images) for parts in before)]
    for found, each in zip(elders.joined(images, *own), zip(*said, strict=True), strict=True):
        torch.testing.assert_close(found, torch.stack(each).mean(0))


def test_they_learn_no_more(images):
    elders = Elders(network(0), 1, POOL, CLASSES)
    parts = network(1)
    elders.admit(parts, torch.zeros(POOL, CLASSES))
    elders.train()
    assert not any(module.training for module in elders.modules())
    assert not any(p.requires_grad for p in elders.parameters())
    own = torch.zeros(6, CLASSES)
    before = elders.joined(images, own, own)[0]
    with torch.no_grad():
        parts["classifier"].weight.add_(1.0)  # the network that was admitted goes on
    assert torch.equal(elders.joined(images, own, own)[0], before)


def test_names_are_the_mean_over_networks():
    elders = Elders(network(0), 2, POOL, CLASSES)
    logits = torch.randn(2, CLASSES)
    places = torch.tensor([5, 0])
    assert torch.equal(elders.name(logits, places), logits)
    first, second = torch.randn(2, POOL, CLASSES)
    elders.admit(network(1), first)
    torch.testing.assert_close(elders.name(logits, places), (logits + first[places]) / 2)
    elders.admit(network(2), (first + second) / 2)
    expected = (logits + first[places] + second[places]) / 3
    torch.testing.assert_close(elders.name(logits, places), expected)


def test_a_saved_model_has_the_networks_and_not_the_names(images):
    elders = Elders(network(0), 2, POOL, CLASSES)
    elders.admit(network(1), torch.ones(POOL, CLASSES))
    again = Elders(network(5), 2, 0, CLASSES)
    again.load_state_dict(elders.state_dict())
    own = torch.zeros(6, CLASSES)
    for found, expected in zip(
        again.joined(images, own, own), elders.joined(images, own, own), strict=True
    ):
        assert torch.equal(found, expected)
    assert "said" not in elders.state_dict()
