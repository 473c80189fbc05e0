"""The softmax and the evidential head."""

import pytest
import torch

from anedl.errors import ConfigError
from anedl.networks import EvidentialHead, SoftmaxHead
from anedl.networks.heads import EVIDENCE_ACTIVATIONS


def test_softmax_head_starts_xavier_normal_with_zero_bias() -> None:
    torch.manual_seed(0)
    head = SoftmaxHead(300, 200)
    assert head.weight.std().item() == pytest.approx((2 / 500) ** 0.5, rel=0.02)
    assert not head.bias.any()
    features = torch.randn(4, 300)
    torch.testing.assert_close(head(features), features @ head.weight.T)


@pytest.mark.parametrize("bn_momentum", [None, 0.2])
def test_evidential_head_has_four_layers_and_the_norms_asked_for(bn_momentum: float | None) -> None:
    head = EvidentialHead(12, 5, hidden_width=7, bn_momentum=bn_momentum)
    linear = [m for m in head.modules() if isinstance(m, torch.nn.Linear)]
    norms = [m for m in head.modules() if isinstance(m, torch.nn.BatchNorm1d)]
    assert [(m.in_features, m.out_features) for m in linear] == [(12, 7), (7, 7), (7, 7), (7, 5)]
    assert linear[-1].bias is None
    assert [m.momentum for m in norms] == ([] if bn_momentum is None else [0.2] * 3)


def test_alpha_is_the_layers_applied_by_hand() -> None:
    torch.manual_seed(0)
    head = EvidentialHead(6, 4, hidden_width=9, activation="softplus", bn_momentum=None)
    features = torch.randn(5, 6)
    x = features
    for number in (0, 2, 4):
        weight = head.get_parameter(f"hidden.{number}.weight")
        x = (x @ weight.T + head.get_parameter(f"hidden.{number}.bias")).clamp(min=0)
    expected = torch.log1p(torch.exp(x @ head.last.weight.T)) + 1
    torch.testing.assert_close(head(features), expected)


@pytest.mark.parametrize("activation", EVIDENCE_ACTIVATIONS)
def test_every_parameter_gets_a_gradient(activation: str) -> None:
    torch.manual_seed(0)
    head = EvidentialHead(6, 4, activation=activation)
    (head(torch.randn(16, 6)) * torch.randn(16, 4)).sum().backward()
    for name, parameter in head.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("activation", EVIDENCE_ACTIVATIONS)
def test_evidence_is_finite_and_not_negative_for_extreme_inputs(activation: str) -> None:
    evidence = EVIDENCE_ACTIVATIONS[activation]
    raw = torch.tensor([-1e30, -1e4, -100.0, -1.0, 0.0, 1.0, 100.0, 1e4, 1e30], requires_grad=True)
    out = evidence(raw)
    assert torch.isfinite(out).all()
    assert (out >= 0).all()
    assert (out.diff() >= 0).all()
    out.sum().backward()
    assert raw.grad is not None
    assert torch.isfinite(raw.grad).all()


def test_exp_evidence_is_the_exponential_up_to_one_million() -> None:
    raw = torch.tensor([-3.0, 0.5, 13.0, 14.0])
    expected = torch.tensor([0.049787068, 1.6487213, 442413.39, 1e6])
    torch.testing.assert_close(EVIDENCE_ACTIVATIONS["exp"](raw), expected, rtol=1e-5, atol=0)


@pytest.mark.parametrize("activation", EVIDENCE_ACTIVATIONS)
def test_the_last_layer_runs_in_float32_under_autocast(activation: str) -> None:
    torch.manual_seed(0)
    head = EvidentialHead(32, 10, activation=activation).eval()
    hidden = torch.rand(8, 32)
    outside = head.alpha_from_hidden(hidden)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = head.alpha_from_hidden(hidden)
        assert (hidden @ head.last.weight.T).dtype == torch.bfloat16
        whole = head(torch.randn(8, 32))
    assert inside.dtype == whole.dtype == torch.float32
    assert torch.equal(inside, outside)
    assert head.alpha_from_hidden(hidden.bfloat16()).dtype == torch.float32


def test_an_exported_head_carries_no_autocast_region() -> None:
    head = EvidentialHead(8, 3).eval()
    program = torch.export.export(head, (torch.randn(4, 8),))
    assert not any("autocast" in str(node.target) for node in program.graph.nodes)


def test_unknown_activation_is_refused() -> None:
    with pytest.raises(ConfigError, match="did you mean softplus"):
        EvidentialHead(8, 3, activation="soft-plus")


def test_again_gives_the_same_and_leaves_the_running_statistics():
    torch.manual_seed(0)
    head = EvidentialHead(8, 5, bn_momentum=0.5).train()
    features = torch.randn(16, 8)
    alpha = head(features)
    before = {name: buffer.clone() for name, buffer in head.named_buffers()}
    assert torch.equal(head.again(features), alpha)
    for name, buffer in head.named_buffers():
        assert torch.equal(buffer, before[name]), name
