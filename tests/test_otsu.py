"""Otsu's threshold against a search over every cut."""

import numpy as np
import pytest
import torch

from anedl.otsu import otsu_threshold


def between_variance(scores, is_upper):
    """w₀ w₁ (m₀ − m₁)² from its definition."""
    lower, upper = scores[~is_upper], scores[is_upper]
    if len(lower) == 0:
        return 0.0
    weights = len(lower) * len(upper) / len(scores) ** 2
    return weights * (lower.mean() - upper.mean()) ** 2


def best_cut(scores):
    """The least score of the upper group, by trying each score as one."""
    candidates = np.unique(scores)
    gains = [between_variance(scores, scores >= candidate) for candidate in candidates]
    return candidates[int(np.argmax(gains))]


CASES = {
    "uniform": lambda rng: rng.random(301),
    "few": lambda rng: rng.random(3),
    "two": lambda rng: np.array([0.3, 0.9]),
    "bimodal": lambda rng: np.concatenate([rng.beta(2, 9, 200), rng.beta(9, 2, 60)]),
    "skewed": lambda rng: rng.beta(0.2, 3.0, 400),
    "with ties": lambda rng: rng.integers(0, 6, 100) / 5,
    "many at the ends": lambda rng: np.concatenate([np.zeros(80), np.ones(30), rng.random(20)]),
    "far from zero": lambda rng: 1000 + rng.normal(size=150),
    "negative": lambda rng: -50 * rng.random(150) - 3,
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_it_is_the_best_of_all_cuts(case, seed):
    scores = CASES[case](np.random.default_rng(seed))
    assert float(otsu_threshold(torch.from_numpy(scores))) == best_cut(scores)


def test_the_order_of_the_scores_does_not_matter():
    scores = torch.rand(200, generator=torch.Generator().manual_seed(0))
    expected = otsu_threshold(scores)
    assert torch.equal(otsu_threshold(scores.flip(0)), expected)
    assert torch.equal(otsu_threshold(scores.sort().values), expected)


def test_two_heaps_are_told_apart():
    rng = np.random.default_rng(0)
    low, high = rng.normal(0.2, 0.03, 900), rng.normal(0.8, 0.03, 100)
    scores = torch.from_numpy(np.concatenate([low, high]))
    kept = scores >= otsu_threshold(scores)
    assert kept[900:].all()
    assert not kept[:900].any()


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, -3.7, 1e-30])
@pytest.mark.parametrize("count", [1, 2, 1000])
def test_equal_scores_are_all_kept(value, count):
    """0.1 is not a float32: a mean that rounds must not invent a difference."""
    scores = torch.full((count,), value)
    assert (scores >= otsu_threshold(scores)).all()


@pytest.mark.parametrize("position", [0, 500, 999])
def test_one_score_that_differs_is_found(position):
    scores = torch.full((1000,), 0.1)
    scores[position] = 0.10001
    kept = scores >= otsu_threshold(scores)
    assert kept.nonzero().tolist() == [[position]]


def test_it_keeps_at_least_one_and_the_type_of_the_scores():
    for seed in range(20):
        scores = torch.rand(17, generator=torch.Generator().manual_seed(seed))
        threshold = otsu_threshold(scores)
        assert threshold.shape == ()
        assert threshold.dtype == scores.dtype
        assert (scores >= threshold).any()
