"""MixMatch's parts against plain numpy, and their behaviour at the edges."""

import numpy as np
import pytest
import torch

from anedl import mixmatch

ROWS, CLASSES = 7, 4


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def distributions(rng, rows=ROWS):
    return rng.dirichlet(np.ones(CLASSES), rows)


def softmax(logits):
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


@pytest.mark.parametrize("temperature", [0.25, 0.5, 1.0, 2.0])
def test_sharpening_is_a_power_made_a_distribution(rng, temperature):
    p = distributions(rng)
    expected = p ** (1 / temperature)
    expected /= expected.sum(1, keepdims=True)
    found = mixmatch.sharpen(torch.from_numpy(p), temperature)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-12)


def test_sharpening_survives_what_underflows():
    """With T = 0.01 every power of these is below the smallest float32."""
    p = torch.tensor([[0.3, 0.25, 0.25, 0.2], [0.25, 0.25, 0.25, 0.25]])
    found = mixmatch.sharpen(p, 0.01)
    assert found[0].tolist() == pytest.approx([1, 0, 0, 0], abs=1e-6)
    assert found[1].tolist() == pytest.approx([0.25] * 4)


def test_a_certain_row_stays_certain():
    p = torch.eye(CLASSES)
    assert torch.equal(mixmatch.sharpen(p, 0.5), p)


@pytest.mark.parametrize("shape", [(3, 5, 5), (11,)], ids=["images", "features"])
def test_mixing_row_by_row(rng, shape):
    inputs, targets = rng.normal(size=(ROWS, *shape)), distributions(rng)
    permutation = rng.permutation(ROWS)
    lam = 0.7
    mixed, labels = mixmatch.mix(
        torch.from_numpy(inputs), torch.from_numpy(targets), torch.from_numpy(permutation),
        torch.tensor(lam, dtype=torch.float64),
    )  # fmt: skip
    for row, other in enumerate(permutation):
        np.testing.assert_allclose(mixed[row], lam * inputs[row] + (1 - lam) * inputs[other])
        np.testing.assert_allclose(labels[row], lam * targets[row] + (1 - lam) * targets[other])
    np.testing.assert_allclose(labels.sum(1), 1)


def test_a_share_of_one_changes_nothing(rng):
    inputs, targets = torch.randn(ROWS, 3), torch.from_numpy(distributions(rng))
    mixed, labels = mixmatch.mix(inputs, targets, torch.arange(ROWS).flip(0), 1.0)
    assert torch.equal(mixed, inputs)
    assert torch.equal(labels, targets)


def test_the_drawn_share_is_the_larger_side_of_a_symmetric_beta():
    """Its mean for Beta(1, 1) is that of U(½, 1); a flat bowl (0.75) draws closer to 1."""
    torch.manual_seed(0)
    means = {}
    for concentration in (0.75, 1.0, 50.0):
        drawn = torch.stack(
            [mixmatch.draw_share(concentration, torch.device("cpu")) for _ in range(2000)]
        )
        assert drawn.shape == (2000,)
        assert (drawn >= 0.5).all()
        assert (drawn <= 1).all()
        means[concentration] = float(drawn.mean())
    fine = np.random.default_rng(1).beta(0.75, 0.75, 200_000)
    assert means[0.75] == pytest.approx(np.maximum(fine, 1 - fine).mean(), abs=0.01)
    assert means[1.0] == pytest.approx(0.75, abs=0.01)
    assert means[50.0] < 0.56


def test_soft_cross_entropy(rng):
    logits, target = rng.normal(size=(ROWS, CLASSES)) * 3, distributions(rng)
    found = mixmatch.soft_cross_entropy(torch.from_numpy(logits), torch.from_numpy(target))
    np.testing.assert_allclose(found, -(target * np.log(softmax(logits))).sum(1), rtol=1e-10)


def test_soft_cross_entropy_of_one_hot_rows_is_that_of_labels():
    logits, labels = torch.randn(ROWS, CLASSES), torch.arange(ROWS) % CLASSES
    found = mixmatch.soft_cross_entropy(logits, torch.eye(CLASSES)[labels])
    expected = torch.nn.functional.cross_entropy(logits, labels, reduction="none")
    torch.testing.assert_close(found, expected)


def test_squared_error_is_a_mean_over_classes(rng):
    logits, target = rng.normal(size=(ROWS, CLASSES)) * 3, distributions(rng)
    found = mixmatch.squared_error(torch.from_numpy(logits), torch.from_numpy(target))
    np.testing.assert_allclose(found, ((softmax(logits) - target) ** 2).mean(1), rtol=1e-10)


def test_losses_run_in_full_precision_under_autocast(rng):
    logits = torch.randn(ROWS, CLASSES)
    target = torch.from_numpy(distributions(rng)).float()
    half = logits.bfloat16()
    for loss in (mixmatch.soft_cross_entropy, mixmatch.squared_error):
        with torch.autocast("cpu", torch.bfloat16):
            found = loss(half, target)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, loss(half.float(), target))
