"""Parameters as one vector."""

import pytest
import torch
from torch import nn

from anedl.engine.flat import FlatParameters


def small_network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 5, 3, bias=True), nn.BatchNorm2d(5), nn.Conv2d(5, 4, 1, bias=False),
        nn.Flatten(), nn.Linear(4 * 6 * 6, 7),
    )  # fmt: skip


@pytest.mark.parametrize("channels_last", [False, True])
def test_the_network_computes_as_before(channels_last):
    network = small_network()
    images = torch.randn(2, 3, 8, 8)
    before = {name: value.detach().clone() for name, value in network.named_parameters()}
    expected = network(images)
    flat = FlatParameters(network, channels_last)
    for name, parameter in network.named_parameters():
        assert torch.equal(parameter, before[name])
        assert parameter.shape == before[name].shape
    torch.testing.assert_close(network(images), expected)
    assert len(flat.values) == sum(value.numel() for value in before.values())


@pytest.mark.parametrize("channels_last", [False, True])
def test_parameters_and_vector_share_their_memory(channels_last):
    network = small_network()
    flat = FlatParameters(network, channels_last)
    with torch.no_grad():
        flat.values.fill_(3.0)
    assert all((parameter == 3).all() for parameter in network.parameters())
    with torch.no_grad():
        network[0].weight.fill_(5.0)
    assert (flat.values == 5).sum() == network[0].weight.numel()
    network.load_state_dict(small_network().state_dict())
    assert torch.equal(flat.views(flat.values)[0], network[0].weight)


def test_decayed_parameters_come_first_and_the_rest_is_one_dimensional():
    network = small_network()
    flat = FlatParameters(network)
    assert flat.names == [
        "0.weight", "2.weight", "4.weight", "0.bias", "1.weight", "1.bias", "4.bias",
    ]  # fmt: skip
    assert flat.decayed == 5 * 27 + 20 + 7 * 144
    with torch.no_grad():
        flat.values[: flat.decayed] = 0
    assert all((p == 0).all() for p in network.parameters() if p.ndim > 1)
    assert (network[1].weight == 1).all()
    assert (network[4].bias != 0).all()


def test_kernels_lie_channels_last_when_asked():
    network = small_network()
    FlatParameters(network, channels_last=True)
    kernel = network[0].weight
    assert kernel.is_contiguous(memory_format=torch.channels_last)
    assert not kernel.is_contiguous()
    assert kernel.stride() == (27, 1, 9, 3)
    FlatParameters(plain := small_network(), channels_last=False)
    assert plain[0].weight.is_contiguous()


@pytest.mark.parametrize("channels_last", [False, True])
def test_gather_puts_each_gradient_where_its_parameter_is(channels_last):
    network = small_network()
    flat = FlatParameters(network, channels_last)
    loss = network(torch.randn(2, 3, 8, 8)).square().sum()
    gradients = torch.autograd.grad(loss, flat.parameters)
    vector = torch.full_like(flat.values, torch.nan)
    flat.gather(gradients, vector)
    for view, gradient in zip(flat.views(vector), gradients, strict=True):
        assert torch.equal(view, gradient)
    # A step along the vector is a step of every parameter.
    expected = [p.detach() - 0.1 * g for p, g in zip(flat.parameters, gradients, strict=True)]
    with torch.no_grad():
        flat.values.sub_(0.1 * vector)
    for parameter, value in zip(flat.parameters, expected, strict=True):
        torch.testing.assert_close(parameter.detach(), value, rtol=0, atol=1e-7)


def test_frozen_parameters_stay_out():
    network = small_network()
    network[4].requires_grad_(False)
    flat = FlatParameters(network)
    assert not any(name.startswith("4.") for name in flat.names)
    assert len(flat.values) == sum(p.numel() for p in network.parameters() if p.requires_grad)
