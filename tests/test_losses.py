import inspect
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special
from torch.distributions import MultivariateNormal, kl_divergence
from torch.nn.functional import softplus

from anedl import dirichlet, losses

N, K = 7, 5
LABELS = torch.tensor([0, 4, 2, 2, 1, 3, 0])


def random_alpha(samples=N, classes=K, largest=20.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return 1 + (largest - 1) * torch.rand(samples, classes, generator=generator).double()


def random_logits(samples=N, classes=K, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return 3 * torch.randn(samples, classes, generator=generator, dtype=torch.float64)


def gradient(function, tensor):
    tensor = tensor.clone().requires_grad_()
    (result,) = torch.autograd.grad(function(tensor).sum(), tensor)
    return result


# References in numpy, sample by sample and class by class.


def numpy_edl_parts(alpha, target, weight):
    error, variance = np.zeros(len(alpha)), np.zeros(len(alpha))
    for j, row in enumerate(alpha):
        total = row.sum()
        for k, a in enumerate(row):
            error[j] += (target[j, k] - a / total) ** 2 * weight[j, k]
            variance[j] += a * (total - a) / (total**2 * (total + 1)) * weight[j, k]
    return error, variance


def numpy_log_determinant(alpha):
    trigamma = special.polygamma(1, alpha)
    shared = special.polygamma(1, alpha.sum(-1))
    return np.array(
        [np.linalg.slogdet(np.diag(t) - s)[1] for t, s in zip(trigamma, shared, strict=True)]
    )


def numpy_kl(alpha, beta):
    log_gamma, digamma = special.gammaln, special.digamma
    alpha_0, beta_0 = alpha.sum(-1), beta.sum(-1)
    value = log_gamma(alpha_0) - log_gamma(alpha).sum(-1)
    value += log_gamma(beta).sum(-1) - log_gamma(beta_0)
    return value + ((alpha - beta) * (digamma(alpha) - digamma(alpha_0)[:, None])).sum(-1)


def assert_matches(actual, expected):
    np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-10, atol=1e-12)


ALPHA = random_alpha()
ONE_HOT = np.eye(K)[LABELS.numpy()]
TRIGAMMA = special.polygamma(1, ALPHA.numpy())


class TestOneHot:
    def test_against_numpy(self):
        assert_matches(losses.one_hot(LABELS, K, torch.float64), ONE_HOT)

    def test_is_float32_unless_told(self):
        assert losses.one_hot(LABELS, K).dtype == torch.float32


class TestAdaptiveWeight:
    def test_falls_with_evidence(self):
        weight = losses.adaptive_weight(torch.linspace(1, 1000, 5000)[None])
        assert (weight.diff() < 0).all()
        assert weight[0, 0].item() == pytest.approx(math.pi**2 / 6)

    def test_is_one_without_adaptive(self):
        assert (losses.adaptive_weight(ALPHA, adaptive=False) == 1).all()

    def test_held_weight_has_the_same_value_and_no_gradient(self):
        alpha = ALPHA.clone().requires_grad_()
        held = losses.adaptive_weight(alpha, hold_weight=True)
        assert not held.requires_grad
        assert torch.equal(held, losses.adaptive_weight(alpha).detach())


class TestParts:
    def test_squared_error_takes_labels_or_any_target(self):
        weight = torch.from_numpy(TRIGAMMA)
        shifted = ONE_HOT + 1 / K
        expected, _ = numpy_edl_parts(ALPHA.numpy(), ONE_HOT, TRIGAMMA)
        assert_matches(losses.squared_error(ALPHA, LABELS, weight), expected)
        expected, _ = numpy_edl_parts(ALPHA.numpy(), shifted, TRIGAMMA)
        assert_matches(losses.squared_error(ALPHA, torch.from_numpy(shifted), weight), expected)

    def test_variance_is_that_of_the_dirichlet(self):
        expected = torch.distributions.Dirichlet(ALPHA).variance
        assert_matches(losses.variance(ALPHA, torch.ones_like(ALPHA)), expected.sum(-1))
        _, weighted = numpy_edl_parts(ALPHA.numpy(), ONE_HOT, TRIGAMMA)
        assert_matches(losses.variance(ALPHA, torch.from_numpy(TRIGAMMA)), weighted)


class TestNEdl:
    def test_against_numpy(self):
        error, _ = numpy_edl_parts(ALPHA.numpy(), np.full((N, K), 1 / K), TRIGAMMA)
        expected = error - 0.3 * numpy_log_determinant(ALPHA.numpy())
        assert_matches(losses.n_edl(ALPHA, 0.3), expected)
        assert_matches(losses.n_edl(ALPHA, torch.tensor(0.3, dtype=torch.float64)), expected)

    def test_without_adaptive(self):
        error, _ = numpy_edl_parts(ALPHA.numpy(), np.full((N, K), 1 / K), np.ones((N, K)))
        assert_matches(losses.n_edl(ALPHA, 0.3, adaptive=False), error)

    @pytest.mark.parametrize("classes", [2, 4, 10])
    @pytest.mark.parametrize(("sigma", "spread"), [(0.5, 0.3), (1.0, 2.0)])
    def test_is_the_gaussian_divergence_of_eq_1_less_its_trace(self, classes, sigma, spread):
        """2σ²·KL(N(1/K, λ²I) ‖ N(mean, σ²I(α)⁻¹)) = Eq. 2 at λ₁ = σ², + λ² tr I(α) + a constant."""
        alpha = random_alpha(samples=50, classes=classes, largest=40)
        information = dirichlet.fisher_information(alpha)
        identity = torch.eye(classes, dtype=torch.float64)
        target = MultivariateNormal(
            torch.full((50, classes), 1 / classes, dtype=torch.float64), spread**2 * identity
        )
        predicted = MultivariateNormal(
            alpha / alpha.sum(-1, keepdim=True), precision_matrix=information / sigma**2
        )
        trace = information.diagonal(dim1=-2, dim2=-1).sum(-1)
        equation = losses.n_edl(alpha, sigma**2) + spread**2 * trace
        difference = 2 * sigma**2 * kl_divergence(target, predicted) - equation
        constant = sigma**2 * classes * (math.log(sigma**2) - math.log(spread**2) - 1)
        torch.testing.assert_close(
            difference, torch.full_like(difference, constant), rtol=0, atol=1e-8
        )
        assert trace.std() > 0.05, "the trace must vary, or dropping it would not matter"

    @pytest.mark.parametrize("classes", [2, 6, 55])
    @pytest.mark.parametrize("largest", [2.0, 30.0, 1000.0])
    def test_a_step_with_the_weight_held_pulls_the_mean_towards_uniform(self, classes, largest):
        alpha = random_alpha(100, classes, largest)
        slope = gradient(lambda a: losses.n_edl(a, 0.0, hold_weight=True), alpha)
        # So short a step, relative to alpha, that only its direction counts.
        step = 1e-3 * alpha.amin(-1, keepdim=True) * slope / slope.norm(dim=-1, keepdim=True)
        before = (dirichlet.mean(alpha) - 1 / classes).norm(dim=-1)
        after = (dirichlet.mean(alpha - step) - 1 / classes).norm(dim=-1)
        assert (after < before).all()

    def test_gradient_does_not_pull_low_evidence_harder_in_general(self):
        """A smaller weight on high evidence does not make for a smaller gradient there."""
        alpha = torch.tensor([[2.0, 1, 1, 1, 1, 1]], dtype=torch.float64)
        slope = gradient(lambda a: losses.n_edl(a, 0.0), alpha)[0]
        step = 1e-6
        for k in range(6):
            moved = alpha.clone()
            moved[0, k] += step
            numeric = (losses.n_edl(moved, 0.0) - losses.n_edl(alpha, 0.0)).item() / step
            assert slope[k].item() == pytest.approx(numeric, abs=1e-6)
        assert slope[0].item() == pytest.approx(0.018, abs=5e-4)
        assert slope[1:].tolist() == pytest.approx([-0.011] * 5, abs=5e-4)


class TestPEdl:
    def test_against_numpy(self):
        error, variance = numpy_edl_parts(ALPHA.numpy(), ONE_HOT, TRIGAMMA)
        expected = error + variance - 0.2 * numpy_log_determinant(ALPHA.numpy())
        assert_matches(losses.p_edl(ALPHA, LABELS, 0.2), expected)
        assert_matches(losses.p_edl(ALPHA, torch.from_numpy(ONE_HOT), 0.2), expected)

    def test_without_adaptive(self):
        error, variance = numpy_edl_parts(ALPHA.numpy(), ONE_HOT, np.ones((N, K)))
        assert_matches(losses.p_edl(ALPHA, LABELS, 0.2, adaptive=False), error + variance)

    def test_held_weight_changes_the_gradient_but_not_the_value(self):
        held = losses.p_edl(ALPHA, LABELS, 0.2, hold_weight=True)
        assert torch.equal(held, losses.p_edl(ALPHA, LABELS, 0.2))
        constant = torch.from_numpy(TRIGAMMA)
        expected = gradient(
            lambda a: losses.squared_error(a, LABELS, constant) + losses.variance(a, constant),
            ALPHA,
        )
        actual = gradient(lambda a: losses.p_edl(a, LABELS, 0.0, hold_weight=True), ALPHA)
        torch.testing.assert_close(actual, expected)
        full = gradient(lambda a: losses.p_edl(a, LABELS, 0.0), ALPHA)
        assert (full - expected).abs().max() > 1e-3


class TestKl:
    def test_original_ignores_evidence_for_the_true_class(self):
        misleading = ALPHA.numpy() * (1 - ONE_HOT) + ONE_HOT
        assert_matches(losses.kl_original(ALPHA, LABELS), numpy_kl(misleading, np.ones((N, K))))
        slope = gradient(lambda a: losses.kl_original(a, LABELS), ALPHA)
        assert (slope.gather(1, LABELS[:, None]) == 0).all()

    @pytest.mark.parametrize("evidence", [100.0, 200.0])
    def test_strengthened_for_labelled(self, evidence):
        beta = 1 + (evidence - 1) * ONE_HOT
        actual = losses.kl_strengthened(ALPHA, LABELS, evidence)
        assert_matches(actual, numpy_kl(ALPHA.numpy(), beta))
        at_target = losses.kl_strengthened(torch.from_numpy(beta).float(), LABELS, evidence)
        assert at_target.tolist() == [0.0] * N

    def test_strengthened_for_pool(self):
        actual = losses.kl_strengthened(ALPHA)
        assert_matches(actual, numpy_kl(ALPHA.numpy(), np.ones((N, K))))


def test_consistency_is_the_squared_distance():
    strong, weak = random_alpha(seed=1), random_alpha(seed=2)
    expected = np.linalg.norm(strong.numpy() - weak.numpy(), axis=-1) ** 2
    assert_matches(losses.consistency(strong, weak), expected)


def test_edl_against_numpy():
    error, variance = numpy_edl_parts(ALPHA.numpy(), ONE_HOT, np.ones((N, K)))
    kl = numpy_kl(ALPHA.numpy() * (1 - ONE_HOT) + ONE_HOT, np.ones((N, K)))
    assert_matches(losses.edl(ALPHA, LABELS, 0.7), error + variance + 0.7 * kl)
    assert_matches(losses.edl(ALPHA, LABELS, 0.0), error + variance)


def test_i_edl_against_numpy():
    error, variance = numpy_edl_parts(ALPHA.numpy(), ONE_HOT, TRIGAMMA)
    kl = numpy_kl(ALPHA.numpy() * (1 - ONE_HOT) + ONE_HOT, np.ones((N, K)))
    expected = error + variance - 0.05 * numpy_log_determinant(ALPHA.numpy()) + 0.7 * kl
    assert_matches(losses.i_edl(ALPHA, LABELS, 0.05, 0.7), expected)


class TestTotals:
    TERMS = torch.tensor([1.0, 10.0, 100.0, 1000.0]).unbind()

    def test_ano(self):
        total = losses.ano_total(*self.TERMS, lambda_p=2.0, lambda_n=3.0)
        assert total.item() == 2 * (1 + 10) + 3 * (100 + 1000)

    def test_ano_with_our_weight_of_the_divergence(self):
        total = losses.ano_total(*self.TERMS, lambda_p=2.0, lambda_n=3.0, lambda_kl=0.5)
        assert total.item() == 2 * (1 + 5) + 3 * (100 + 500)

    def test_anedl(self):
        assert losses.anedl_total(*self.TERMS, lambda_con=0.5).item() == 1 + 10 + 100 + 500


LOGITS = random_logits()


class TestFixMatch:
    def test_cross_entropy_against_numpy(self):
        expected = -special.log_softmax(LOGITS.numpy(), axis=-1)[np.arange(N), LABELS.numpy()]
        assert_matches(losses.cross_entropy(LOGITS, LABELS), expected)

    def test_threshold_is_reached_by_equality(self):
        even = torch.zeros(1, 4)
        labels, confident = losses.pseudo_labels(even, 0.25)
        assert labels.tolist() == [0]
        assert confident.tolist() == [1.0]
        assert losses.pseudo_labels(even, 0.2500001)[1].tolist() == [0.0]

    @pytest.mark.parametrize("threshold", [0.0, 0.7, 0.95, 1.1])
    def test_against_numpy(self, threshold):
        strong, weak = random_logits(50, 6, seed=1), random_logits(50, 6, seed=2)
        p = special.softmax(weak.numpy(), axis=-1)
        log_q = special.log_softmax(strong.numpy(), axis=-1)
        expected = np.where(p.max(-1) >= threshold, -log_q[np.arange(50), p.argmax(-1)], 0.0)
        actual = losses.fixmatch(strong, weak, threshold)
        assert_matches(actual, expected)
        assert actual.mean().item() == pytest.approx(expected.sum() / 50)

    def test_trains_only_the_strong_view(self):
        strong = random_logits(seed=1).requires_grad_()
        weak = random_logits(seed=2).requires_grad_()
        for loss in (losses.fixmatch(strong, weak, 0.0), losses.soft_fixmatch(strong, weak, 0, 1)):
            strong.grad = None
            loss.sum().backward()
            assert weak.grad is None
            assert strong.grad.abs().max() > 0

    @pytest.mark.parametrize("threshold", [0.0, 0.8])
    @pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
    def test_soft_against_numpy(self, threshold, temperature):
        strong, weak = random_logits(50, seed=1), random_logits(50, seed=2)
        confident = special.softmax(weak.numpy(), axis=-1).max(-1) >= threshold
        target = special.softmax(weak.numpy() / temperature, axis=-1)
        log_q = special.log_softmax(strong.numpy(), axis=-1)
        expected = np.where(confident, -(target * log_q).sum(-1), 0.0)
        assert_matches(losses.soft_fixmatch(strong, weak, threshold, temperature), expected)

    def test_soft_and_cold_is_hard(self):
        strong, weak = random_logits(50, seed=1), random_logits(50, seed=2)
        cold = losses.soft_fixmatch(strong, weak, 0.3, 1e-4)
        assert_matches(cold, losses.fixmatch(strong, weak, 0.3).numpy())


class TestDebiasPL:
    PRIOR = torch.tensor([0.6, 0.2, 0.1, 0.07, 0.03], dtype=torch.float64)

    def test_by_hand(self):
        logits = torch.zeros(1, 2)
        prior = torch.tensor([0.8, 0.2])
        debiased = losses.debiased_logits(logits, prior, 1.0).softmax(-1)
        assert debiased[0].tolist() == pytest.approx([0.2, 0.8])
        margin = losses.margin_logits(logits, prior, 1.0).softmax(-1)
        assert margin[0].tolist() == pytest.approx([0.8, 0.2])

    @pytest.mark.parametrize("tau", [0.0, 0.5, 1.0])
    @pytest.mark.parametrize("threshold", [0.0, 0.8])
    def test_debiased_fixmatch_against_numpy(self, tau, threshold):
        strong, weak = random_logits(50, seed=1), random_logits(50, seed=2)
        bias = tau * np.log(self.PRIOR.numpy())
        p = special.softmax(weak.numpy() - bias, axis=-1)
        log_q = special.log_softmax(strong.numpy() + bias, axis=-1)
        expected = np.where(p.max(-1) >= threshold, -log_q[np.arange(50), p.argmax(-1)], 0.0)
        assert_matches(losses.debiased_fixmatch(strong, weak, self.PRIOR, threshold, tau), expected)
        if tau == 1.0:
            assert (p.argmax(-1) != weak.numpy().argmax(-1)).any(), "the prior must matter here"

    def test_prior_follows_the_mean_softmax(self):
        weak = random_logits(50)
        expected = 0.9 * self.PRIOR.numpy() + 0.1 * special.softmax(weak.numpy(), axis=-1).mean(0)
        assert_matches(losses.update_prior(self.PRIOR, weak, 0.9), expected)

    def test_prior_starts_no_graph_and_leaves_its_input_alone(self):
        prior = self.PRIOR.clone()
        updated = losses.update_prior(prior, random_logits().requires_grad_(), 0.9)
        assert not updated.requires_grad
        assert torch.equal(prior, self.PRIOR)

    def test_a_class_never_predicted_keeps_finite_logits(self):
        weak = torch.tensor([[1e4, 0.0, 0.0]])
        prior = losses.update_prior(torch.tensor([1.0, 0.0, 0.0]), weak, 0.5)
        assert (prior > 0).all()
        for zero_or_not in (prior, torch.tensor([1.0, 0.0, 0.0])):
            assert losses.debiased_logits(weak, zero_or_not, 1.0).isfinite().all()
            assert losses.margin_logits(weak, zero_or_not, 1.0).isfinite().all()


# Every loss as a function of two floating inputs: alpha or logits, and a second view of the same.
TWO_VIEWS = {
    "adaptive_weight": lambda a, b: losses.adaptive_weight(a),
    "squared_error": lambda a, b: losses.squared_error(a, LABELS, b),
    "variance": lambda a, b: losses.variance(a, b),
    "n_edl": lambda a, b: losses.n_edl(a, 0.1),
    "p_edl": lambda a, b: losses.p_edl(a, LABELS, 0.1),
    "kl_original": lambda a, b: losses.kl_original(a, LABELS),
    "kl_strengthened": lambda a, b: losses.kl_strengthened(a, LABELS),
    "consistency": lambda a, b: losses.consistency(a, b),
    "edl": lambda a, b: losses.edl(a, LABELS, 0.5),
    "i_edl": lambda a, b: losses.i_edl(a, LABELS, 0.1, 0.5),
    "ano_total": lambda a, b: losses.ano_total(
        a[0, 0], b[0, 0], a[0, 1], b[0, 1], lambda_p=0.3, lambda_n=0.7
    ),
    "anedl_total": lambda a, b: losses.anedl_total(
        a[0, 0], b[0, 0], a[0, 1], b[0, 1], lambda_con=0.3
    ),
    "cross_entropy": lambda a, b: losses.cross_entropy(a, LABELS),
    "pseudo_labels": lambda a, b: losses.pseudo_labels(a, 0.5)[1],
    "fixmatch": lambda a, b: losses.fixmatch(a, b, 0.3),
    "soft_fixmatch": lambda a, b: losses.soft_fixmatch(a, b, 0.3, 0.5),
    "debiased_logits": lambda a, b: losses.debiased_logits(a, b[0].softmax(-1), 1.0),
    "margin_logits": lambda a, b: losses.margin_logits(a, b[0].softmax(-1), 1.0),
    "debiased_fixmatch": lambda a, b: losses.debiased_fixmatch(a, b, b[0].softmax(-1), 0.3, 1.0),
    "update_prior": lambda a, b: losses.update_prior(b[0].softmax(-1), a, 0.9),
}
NO_FLOATING_INPUT = {"one_hot"}
NO_GRADIENT = {"pseudo_labels", "update_prior"}
PER_SAMPLE = set(TWO_VIEWS) - {
    "adaptive_weight",
    "ano_total",
    "anedl_total",
    "debiased_logits",
    "margin_logits",
    "update_prior",
}


def test_every_public_loss_is_in_the_table():
    public = {
        name
        for name, function in inspect.getmembers(losses, inspect.isfunction)
        if function.__module__ == losses.__name__ and not name.startswith("_")
    }
    assert public - NO_FLOATING_INPUT == set(TWO_VIEWS)


@pytest.mark.parametrize("name", sorted(PER_SAMPLE))
def test_gives_one_value_a_sample(name):
    assert TWO_VIEWS[name](ALPHA, random_alpha(seed=1)).shape == (N,)


@pytest.mark.parametrize("name", TWO_VIEWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_autocast_changes_no_bit(name, dtype):
    a, b = random_alpha().to(dtype).requires_grad_(), random_alpha(seed=1).to(dtype)
    plain = TWO_VIEWS[name](a, b)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = TWO_VIEWS[name](a, b)
    assert cast.dtype == torch.float32
    assert torch.equal(plain, cast)
    if name not in NO_GRADIENT:
        slopes = [torch.autograd.grad(value.sum(), a)[0] for value in (plain, cast)]
        assert torch.equal(*slopes)


@pytest.mark.parametrize("name", TWO_VIEWS)
def test_float64_stays_float64(name):
    assert TWO_VIEWS[name](ALPHA, random_alpha(seed=1)).dtype == torch.float64


modest = settings(max_examples=40, deadline=None, derandomize=True)
exponents = st.lists(st.floats(0, 6), min_size=2, max_size=200)


def evidential_losses(alpha, labels):
    return [
        losses.n_edl(alpha, 0.1),
        losses.p_edl(alpha, labels, 0.1),
        losses.kl_original(alpha, labels),
        losses.kl_strengthened(alpha, labels),
        losses.kl_strengthened(alpha),
        losses.edl(alpha, labels, 1.0),
        losses.i_edl(alpha, labels, 0.1, 1.0),
    ]


@modest
@given(exponents, st.randoms(use_true_random=False))
def test_order_of_classes_does_not_matter(exponents, random):
    order = list(range(len(exponents)))
    random.shuffle(order)
    alpha = 10 ** torch.tensor([exponents], dtype=torch.float64)
    original = evidential_losses(alpha, torch.tensor([order[0]]))
    permuted = evidential_losses(alpha[:, order], torch.tensor([0]))
    for a, b in zip(original, permuted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-9)


@modest
@given(exponents)
def test_value_and_gradient_are_finite(exponents):
    alpha = (10 ** torch.tensor([exponents], dtype=torch.float64)).float()
    labels = torch.tensor([len(exponents) - 1])
    assert torch.stack(evidential_losses(alpha, labels)).isfinite().all()
    # A gradient that is not finite stays so in the sum.
    assert gradient(lambda a: torch.stack(evidential_losses(a, labels)), alpha).isfinite().all()


@modest
@given(st.lists(st.sampled_from([-1e4, -50.0, 0.0, 3.0, 1e4]), min_size=2, max_size=20))
def test_finite_from_extreme_logits(values):
    logits = torch.tensor([values])
    labels = torch.tensor([0])

    def everything(z):
        alpha = dirichlet.alpha_from_evidence(softplus(z))
        prior = losses.update_prior(torch.full_like(z[0], 1 / len(values)), z, 0.9)
        softmax = [
            losses.cross_entropy(z, labels),
            losses.fixmatch(z, z, 0.5),
            losses.debiased_fixmatch(z, z, prior, 0.5, 1.0),
        ]
        return torch.stack([*evidential_losses(alpha, labels), *softmax])

    assert everything(logits).isfinite().all()
    assert gradient(everything, logits).isfinite().all()
