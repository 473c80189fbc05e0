"""The contrastive loss against a computation pair by pair."""

import math

import numpy as np
import pytest
import torch

from anedl.contrast import contrast

N, D = 5, 7


@pytest.fixture
def views():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, N, D, generator=generator, dtype=torch.float64)


def by_pairs(first, second, temperature):
    rows = [*first.numpy(), *second.numpy()]
    found = []
    for i, row in enumerate(rows):
        partner = i + N if i < N else i - N
        cosines = [row @ other / np.linalg.norm(row) / np.linalg.norm(other) for other in rows]
        weights = [math.exp(cosine / temperature) for cosine in cosines]
        rest = sum(weight for j, weight in enumerate(weights) if j != i)
        found.append(-math.log(weights[partner] / rest))
    return found


@pytest.mark.parametrize("temperature", [0.2, 1.0])
def test_against_a_computation_pair_by_pair(views, temperature):
    found = contrast(*views, temperature)
    assert found.tolist() == pytest.approx(by_pairs(*views, temperature), rel=1e-9)


def test_length_does_not_count_and_the_two_views_are_alike(views):
    first, second = views
    found = contrast(first, second, 0.5)
    torch.testing.assert_close(contrast(3 * first, second / 7, 0.5), found)
    torch.testing.assert_close(contrast(second, first, 0.5), found.roll(N))


def test_least_where_views_agree_and_images_differ():
    apart = torch.eye(N)
    same = torch.ones(N, N)
    assert contrast(apart, apart, 0.1).max() < 0.001
    # Nothing tells the partner from the 2N − 2 others.
    assert contrast(same, same, 0.1).tolist() == pytest.approx([math.log(2 * N - 1)] * 2 * N)


def test_a_step_down_the_gradient_brings_partners_together(views):
    rows = views.clone().requires_grad_()
    loss = contrast(*rows, 0.5).mean()
    (gradient,) = torch.autograd.grad(loss, rows)
    with torch.no_grad():
        after = contrast(*(rows - 0.5 * gradient), 0.5).mean()
    assert after < loss


def test_half_precision_and_zero_rows_stay_finite():
    zeros = torch.zeros(N, D, dtype=torch.bfloat16, requires_grad=True)
    found = contrast(zeros, zeros, 0.1)
    found.sum().backward()
    assert found.dtype == torch.float32
    assert found.isfinite().all()
    assert zeros.grad.isfinite().all()
