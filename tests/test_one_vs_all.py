"""The one-vs-all head and losses against plain sums over probabilities in float64."""

import math

import numpy as np
import pytest
import torch
from torch.distributions import Bernoulli

from anedl import one_vs_all
from anedl.networks.one_vs_all_head import OneVsAllHead

ROWS, CLASSES = 7, 5


@pytest.fixture
def logits():
    torch.manual_seed(0)
    return 3 * torch.randn(ROWS, 2, CLASSES)


@pytest.fixture
def labels():
    return torch.tensor([0, 1, 2, 3, 4, 4, 0])


def probabilities(logits: torch.Tensor) -> np.ndarray:
    """(N, 2, K) of numpy: exponentials over their sum."""
    powers = np.exp(logits.double().numpy())
    return powers / powers.sum(1, keepdims=True)


def test_hard_negative_loss(logits, labels):
    p = probabilities(logits)
    expected = [
        -math.log(p[i, 1, y]) + max(-math.log(p[i, 0, k]) for k in range(CLASSES) if k != y)
        for i, y in enumerate(labels.tolist())
    ]
    found = one_vs_all.hard_negative_loss(logits, labels)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_hard_negative_loss_trains_the_true_class_and_the_hardest_wrong_one(logits, labels):
    logits.requires_grad_(True)
    one_vs_all.hard_negative_loss(logits, labels).sum().backward()
    p = probabilities(logits.detach())
    for i, y in enumerate(labels.tolist()):
        hardest = max((k for k in range(CLASSES) if k != y), key=lambda k: p[i, 1, k])
        touched = logits.grad[i].abs().sum(0).nonzero().squeeze(1).tolist()
        assert touched == sorted([y, hardest])
        assert logits.grad[i, 1, y] < 0 < logits.grad[i, 1, hardest]


def test_hard_negative_loss_of_a_single_class_has_no_negative():
    logits = torch.tensor([[[0.5], [2.0]]])
    found = one_vs_all.hard_negative_loss(logits, torch.tensor([0]))
    assert found.item() == pytest.approx(math.log(1 + math.exp(-1.5)), rel=1e-6)


def test_binary_entropy(logits):
    expected = Bernoulli(probs=torch.from_numpy(probabilities(logits)[:, 1])).entropy().mean(1)
    np.testing.assert_allclose(one_vs_all.binary_entropy(logits), expected, rtol=1e-4)
    even = torch.zeros(1, 2, CLASSES)
    assert one_vs_all.binary_entropy(even).item() == pytest.approx(math.log(2), rel=1e-6)


def test_consistency(logits):
    other = logits + torch.randn(ROWS, 2, CLASSES)
    a, b = probabilities(logits), probabilities(other)
    expected = [
        sum((a[i, c, k] - b[i, c, k]) ** 2 for c in range(2) for k in range(CLASSES))
        for i in range(ROWS)
    ]
    np.testing.assert_allclose(one_vs_all.consistency(logits, other), expected, rtol=1e-4)
    assert torch.equal(one_vs_all.consistency(logits, logits), torch.zeros(ROWS))


def test_probabilities_of_all_classes_and_of_the_predicted_one(logits, labels):
    expected = probabilities(logits)[:, 1]
    np.testing.assert_allclose(one_vs_all.class_probability(logits), expected, rtol=1e-5)
    predicted = one_vs_all.inlier_log_odds(logits, labels).sigmoid()
    np.testing.assert_allclose(predicted, expected[range(ROWS), labels.numpy()], rtol=1e-5)


def test_log_odds_tell_apart_what_rounds_to_the_same_probability():
    pair = torch.tensor([[[-20.0], [20.0]], [[-30.0], [30.0]]])
    assert torch.equal(*one_vs_all.class_probability(pair))
    first, second = one_vs_all.inlier_log_odds(pair, torch.zeros(2, dtype=torch.int64)).tolist()
    assert (first, second) == (40.0, 60.0)


def test_certainty_is_finite_in_value_and_gradient(labels):
    sure = torch.full((ROWS, 2, CLASSES), 200.0)
    sure[:, 1] = -200.0
    sure.requires_grad_(True)
    values = [
        one_vs_all.hard_negative_loss(sure, labels),
        one_vs_all.binary_entropy(sure),
        one_vs_all.consistency(sure, -sure),
        one_vs_all.inlier_log_odds(sure, labels),
    ]
    assert values[0].tolist() == pytest.approx([400.0] * ROWS)
    torch.stack(values).sum().backward()
    assert all(value.isfinite().all() for value in values)
    assert sure.grad.isfinite().all()


def test_half_precision_is_computed_in_full(logits, labels):
    half = logits.bfloat16()
    for function, second in [
        (one_vs_all.hard_negative_loss, labels),
        (one_vs_all.inlier_log_odds, labels),
        (one_vs_all.consistency, half.flip(0)),
    ]:
        found = function(half, second)
        assert found.dtype == torch.float32
        full = second.float() if second.is_floating_point() else second
        assert torch.equal(found, function(half.float(), full))
    assert torch.equal(one_vs_all.binary_entropy(half), one_vs_all.binary_entropy(half.float()))


@pytest.mark.parametrize("bias", [False, True])
def test_head(bias):
    torch.manual_seed(0)
    head = OneVsAllHead(6, CLASSES, bias=bias)
    assert head.weight.shape == (2 * CLASSES, 6)
    assert (head.bias is None) is not bias
    if bias:
        assert torch.equal(head.bias, torch.zeros(2 * CLASSES))
        with torch.no_grad():
            head.bias.copy_(torch.arange(10.0))
    features = torch.randn(3, 6)
    found = head(features)
    assert found.shape == (3, 2, CLASSES)
    for k in range(CLASSES):
        for c in range(2):
            expected = features @ head.weight[c * CLASSES + k] + (c * CLASSES + k) * bias
            torch.testing.assert_close(found[:, c, k], expected)


def test_head_starts_xavier_normal():
    torch.manual_seed(0)
    spread = OneVsAllHead(300, 100).weight.std().item()
    assert spread == pytest.approx(math.sqrt(2 / (300 + 200)), rel=0.02)
