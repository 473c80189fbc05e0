import inspect

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from anedl import scores
from anedl.errors import AnedlError, ConfigError

N, K, TOP_M = 9, 6, 3
GENERATOR = torch.Generator().manual_seed(0)
LOGITS = 3 * torch.randn(N, K, generator=GENERATOR, dtype=torch.float64)
ALPHA = 1 + 20 * torch.rand(N, K, generator=GENERATOR, dtype=torch.float64)


def numpy_scores(logits, alpha, top_m):
    total = alpha.sum(-1)
    mean = alpha / total[:, None]
    expected_entropy = special.digamma(total + 1) - (mean * special.digamma(alpha + 1)).sum(-1)
    return {
        "top_m_evidence": np.sort(alpha, axis=-1)[:, ::-1][:, :top_m].sum(-1),
        "total_evidence": total,
        "max_alpha": alpha.max(-1),
        "self_training": alpha[np.arange(len(alpha)), logits.argmax(-1)],
        "vacuity": -alpha.shape[-1] / total,
        "mutual_information": expected_entropy - special.entr(mean).sum(-1),
        "differential_entropy": -np.array([stats.dirichlet.entropy(row) for row in alpha]),
        "max_softmax": special.softmax(logits, axis=-1).max(-1),
        "energy": special.logsumexp(logits, axis=-1),
    }


EXPECTED = numpy_scores(LOGITS.numpy(), ALPHA.numpy(), TOP_M)


def test_names():
    assert set(scores.SCORES) == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_against_numpy(name):
    actual = scores.SCORES[name](LOGITS, ALPHA, TOP_M)
    assert actual.shape == (N,)
    np.testing.assert_allclose(actual.numpy(), EXPECTED[name], rtol=1e-10, atol=1e-12)


def test_all_scores_with_alpha():
    values = scores.all_scores(LOGITS, ALPHA, TOP_M)
    assert set(values) == set(EXPECTED)
    for name, value in values.items():
        np.testing.assert_allclose(value.numpy(), EXPECTED[name], rtol=1e-10, atol=1e-12)


def test_all_scores_without_alpha():
    values = scores.all_scores(LOGITS, None, TOP_M)
    assert set(values) == {"max_softmax", "energy"}
    for name, value in values.items():
        np.testing.assert_allclose(value.numpy(), EXPECTED[name], rtol=1e-10)


@pytest.mark.parametrize("name", EXPECTED)
def test_higher_means_more_inlier(name):
    """A sample with strong evidence for one class against one without any evidence."""
    logits = torch.zeros(2, K)
    logits[0, 2] = 8.0
    alpha = torch.nn.functional.softplus(logits) + 1
    inlier, outlier = scores.SCORES[name](logits, alpha, TOP_M)
    assert inlier > outlier


class TestTopM:
    def test_ends_of_the_range(self):
        assert torch.equal(scores.top_m_evidence(ALPHA, 1), scores.max_alpha(ALPHA))
        torch.testing.assert_close(scores.top_m_evidence(ALPHA, K), scores.total_evidence(ALPHA))

    @pytest.mark.parametrize("top_m", [-1, 0, K + 1])
    def test_refuses_a_number_that_cannot_be(self, top_m):
        with pytest.raises(ConfigError, match=f"top_m is {top_m}.*from 1 to {K}") as error:
            scores.top_m_evidence(ALPHA, top_m)
        assert isinstance(error.value, AnedlError)


def test_self_training_follows_the_softmax_head_not_the_evidence():
    logits = torch.tensor([[0.0, 5.0, 1.0]])
    alpha = torch.tensor([[90.0, 2.0, 7.0]])
    assert scores.self_training_confidence(logits, alpha).tolist() == [2.0]


def test_every_score_function_is_in_the_table():
    functions = {
        name
        for name, function in inspect.getmembers(scores, inspect.isfunction)
        if function.__module__ == scores.__name__ and not name.startswith("_")
    }
    renamed = {"self_training_confidence": "self_training"}
    named = {renamed.get(name, name) for name in functions - {"all_scores"}}
    assert named == set(scores.SCORES)


@pytest.mark.parametrize("name", EXPECTED)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_autocast_changes_no_bit(name, dtype):
    logits, alpha = LOGITS.to(dtype), ALPHA.to(dtype)
    plain = scores.SCORES[name](logits, alpha, TOP_M)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = scores.SCORES[name](logits, alpha, TOP_M)
    assert cast.dtype == torch.float32
    assert torch.equal(plain, cast)
    assert torch.equal(plain, scores.SCORES[name](logits.float(), alpha.float(), TOP_M))


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    st.lists(st.floats(0, 6), min_size=2, max_size=200),
    st.randoms(use_true_random=False),
)
def test_order_of_classes_does_not_matter_and_values_are_finite(exponents, random):
    order = list(range(len(exponents)))
    random.shuffle(order)
    alpha = 10 ** torch.tensor([exponents], dtype=torch.float64)
    # Distinct logits, so that the predicted class is one whatever the order.
    logits = torch.linspace(-1e4, 1e4, len(exponents), dtype=torch.float64)[None]
    top_m = (len(exponents) + 1) // 2
    original = scores.all_scores(logits, alpha, top_m)
    permuted = scores.all_scores(logits[:, order], alpha[:, order], top_m)
    single = scores.all_scores(logits.float(), alpha.float(), top_m)
    for name, value in original.items():
        torch.testing.assert_close(permuted[name], value, rtol=1e-9, atol=1e-9)
        assert single[name].isfinite().all()
