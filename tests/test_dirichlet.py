import mpmath
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special
from torch import Tensor
from torch.distributions import Dirichlet
from torch.distributions import kl_divergence as torch_kl_divergence

from anedl import dirichlet

DIGITS = 50

# Concentrations as (value, how often) pairs: few values, so that a reference at high precision is
# cheap for any K.
ROWS = {
    f"K={classes} {name}": row
    for classes in (2, 3, 55, 1000)
    for name, row in {
        "all 1": [(1.0, classes)],
        "all 1.25": [(1.25, classes)],
        "all 7.5": [(7.5, classes)],
        "all 9": [(9.0, classes)],
        "all 1e3": [(1e3, classes)],
        "all 1e6": [(1e6, classes)],
        "one 1e6": [(1e6, 1), (1.0, classes - 1)],
        "one 40": [(40.0, 1), (1.125, classes - 1)],
        "mixed": [(2.5, 1), (3e4, classes // 2), (1.0, classes - 1 - classes // 2)],
    }.items()
}


def tensor_of(row: list[tuple[float, int]], dtype: torch.dtype) -> Tensor:
    return torch.cat([torch.full((count,), value, dtype=dtype) for value, count in row])


def precise_log_determinant(row):
    """Eq. A12 as printed, and its gradient for each of the values, at high precision."""
    with mpmath.workdps(DIGITS):
        row = [(mpmath.mpf(value), count) for value, count in row if count]
        total = mpmath.fsum(value * count for value, count in row)
        first = [mpmath.psi(1, value) for value, _ in row]
        second = [mpmath.psi(2, value) for value, _ in row]
        total_first, total_second = mpmath.psi(1, total), mpmath.psi(2, total)
        inverses = mpmath.fsum(count / psi for psi, (_, count) in zip(first, row, strict=True))
        bracket = 1 - total_first * inverses
        value = mpmath.log(bracket) + mpmath.fsum(
            count * mpmath.log(psi) for psi, (_, count) in zip(first, row, strict=True)
        )
        gradient = [
            (p2 / p1) + (-total_second * inverses + total_first * p2 / p1**2) / bracket
            for p1, p2 in zip(first, second, strict=True)
        ]
        return float(value), tensor_of(
            [(float(g), count) for g, (_, count) in zip(gradient, row, strict=True)], torch.float64
        )


def precise_kl(alpha, beta):
    """Eq. A14 as printed, and its gradient in alpha, at high precision."""
    with mpmath.workdps(DIGITS):
        alpha, beta = [mpmath.mpf(x) for x in alpha], [mpmath.mpf(x) for x in beta]
        alpha_0, beta_0 = mpmath.fsum(alpha), mpmath.fsum(beta)
        value = mpmath.loggamma(alpha_0) - mpmath.loggamma(beta_0)
        value += mpmath.fsum(map(mpmath.loggamma, beta)) - mpmath.fsum(map(mpmath.loggamma, alpha))
        value += mpmath.fsum(
            (a - b) * (mpmath.psi(0, a) - mpmath.psi(0, alpha_0))
            for a, b in zip(alpha, beta, strict=True)
        )
        shared = (alpha_0 - beta_0) * mpmath.psi(1, alpha_0)
        gradient = [
            float((a - b) * mpmath.psi(1, a) - shared) for a, b in zip(alpha, beta, strict=True)
        ]
        return float(value), torch.tensor(gradient, dtype=torch.float64)


def value_and_gradient(function, alpha):
    alpha = alpha.clone().requires_grad_()
    value = function(alpha)
    (gradient,) = torch.autograd.grad(value.sum(), alpha)
    return value.detach(), gradient


def random_alpha(*shape, largest=30.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return 1 + (largest - 1) * torch.rand(shape, generator=generator, dtype=torch.float64)


def monte_carlo(samples: Tensor) -> tuple[float, float]:
    return samples.mean().item(), 5 * samples.std().item() / len(samples) ** 0.5


class TestInFullPrecision:
    def test_switches_autocast_off_inside_and_leaves_it_on_outside(self):
        a, b = torch.randn(8, 16), torch.randn(16, 8)
        product = dirichlet.in_full_precision(lambda left, right: left @ right)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            assert (a @ b).dtype == torch.bfloat16
            guarded = product(a, right=b)
            assert (a @ b).dtype == torch.bfloat16
        assert torch.equal(guarded, a @ b)

    @pytest.mark.parametrize(
        ("given_dtype", "seen"),
        [
            (torch.bfloat16, torch.float32),
            (torch.float16, torch.float32),
            (torch.float32, torch.float32),
            (torch.float64, torch.float64),
            (torch.int64, torch.int64),
        ],
    )
    def test_upcasts_half_precision_only(self, given_dtype, seen):
        dtypes = dirichlet.in_full_precision(lambda value, *, named: (value.dtype, named.dtype))
        value = torch.ones(3, dtype=given_dtype)
        assert dtypes(value, named=value) == (seen, seen)

    def test_gradient_reaches_a_half_precision_input_in_its_own_type(self):
        alpha = torch.full((2, 5), 3.0, dtype=torch.bfloat16, requires_grad=True)
        dirichlet.fisher_log_determinant(alpha).sum().backward()
        assert alpha.grad.dtype == torch.bfloat16
        assert alpha.grad.abs().min() > 0


class TestMoments:
    def test_by_hand(self):
        alpha = dirichlet.alpha_from_evidence(torch.tensor([[3.0, 0.0, 0.0, 1.0]]))
        assert alpha.tolist() == [[4.0, 1.0, 1.0, 2.0]]
        assert dirichlet.mean(alpha).tolist() == [[0.5, 0.125, 0.125, 0.25]]
        assert dirichlet.vacuity(alpha).tolist() == [0.5]

    def test_no_evidence_is_all_vacuity(self):
        assert dirichlet.vacuity(torch.ones(3, 7)).tolist() == [1.0] * 3


class TestSpecialFunctions:
    @pytest.mark.parametrize(
        ("dtype", "tolerance"), [(torch.float32, 3e-7), (torch.float64, 2e-15)]
    )
    def test_trigamma(self, dtype, tolerance):
        x = torch.logspace(0, 9, 2001, dtype=torch.float64).to(dtype)
        value, slope = value_and_gradient(dirichlet.trigamma, x)
        expected = torch.from_numpy(special.polygamma(1, x.double().numpy()))
        expected_slope = torch.from_numpy(special.polygamma(2, x.double().numpy()))
        torch.testing.assert_close(value.double(), expected, rtol=tolerance, atol=0)
        torch.testing.assert_close(slope.double(), expected_slope, rtol=3 * tolerance, atol=0)

    def test_inverse_series_begins_as_derived_by_hand(self):
        expected = [1 / 12, 1 / 24, -1 / 720, -11 / 480]
        assert dirichlet._INVERSE_TRIGAMMA_SERIES[:4] == pytest.approx(expected, rel=1e-15)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    @pytest.mark.parametrize("x", [0.25, 1.0, 1.5, 3.0, 12.0, 1e3, 1e6, 1e9])
    def test_remainders(self, x, dtype):
        with mpmath.workdps(DIGITS):
            exact = mpmath.mpf(x)
            log_gamma = float(mpmath.loggamma(exact) - exact * mpmath.log(exact) + exact)
            digamma = float(mpmath.psi(0, exact) - mpmath.log(exact))
            inverse = float(1 / mpmath.psi(1, exact) - exact + mpmath.mpf("0.5"))
        argument = torch.tensor(x, dtype=dtype)
        eps = torch.finfo(dtype).eps
        m, m_slope = value_and_gradient(dirichlet._log_gamma_remainder, argument)
        assert m.item() == pytest.approx(log_gamma, rel=10 * eps, abs=10 * eps)
        assert m_slope.item() == pytest.approx(digamma, rel=30 * eps)
        assert dirichlet._digamma_remainder(argument).item() == pytest.approx(digamma, rel=30 * eps)
        h = dirichlet._inverse_trigamma_remainder(argument)
        assert h.item() == pytest.approx(inverse, rel=10 * eps)


class TestFisherInformation:
    def test_is_the_hessian_of_the_log_normaliser(self):
        alpha = random_alpha(6, largest=20)

        def log_normaliser(alpha):
            return torch.lgamma(alpha).sum() - torch.lgamma(alpha.sum())

        hessian = torch.autograd.functional.hessian(log_normaliser, alpha)
        # torch.polygamma, behind this Hessian, is itself off by some 1e-12.
        torch.testing.assert_close(dirichlet.fisher_information(alpha), hessian, rtol=0, atol=1e-11)

    def test_is_the_covariance_of_the_score(self):
        """Eq. A9: the expected outer product of the gradient of the log-likelihood."""
        torch.manual_seed(0)
        alpha = torch.tensor([1.5, 3.0, 2.0], dtype=torch.float64)
        log_p = Dirichlet(alpha).sample((200_000,)).log()
        score = torch.special.digamma(alpha.sum()) - torch.special.digamma(alpha) + log_p
        estimate = torch.einsum("si,sj->ij", score, score) / len(score)
        torch.testing.assert_close(dirichlet.fisher_information(alpha), estimate, rtol=0, atol=0.02)

    def test_keeps_leading_dimensions(self):
        alpha = random_alpha(2, 3, 5)
        information = dirichlet.fisher_information(alpha)
        assert information.shape == (2, 3, 5, 5)
        torch.testing.assert_close(information[1, 2], dirichlet.fisher_information(alpha[1, 2]))


class TestFisherLogDeterminant:
    @pytest.mark.parametrize("classes", [2, 3, 10, 55, 200])
    @pytest.mark.parametrize("largest", [1.0, 2.0, 30.0, 1000.0])
    def test_against_slogdet(self, classes, largest):
        alpha = random_alpha(4, classes, largest=largest)
        sign, expected = torch.linalg.slogdet(dirichlet.fisher_information(alpha))
        assert (sign == 1).all()
        actual = dirichlet.fisher_log_determinant(alpha)
        # The matrix is nearly singular for large alpha, which costs slogdet digits, not us.
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-10)

    @pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
    def test_float32_value_and_gradient(self, row):
        classes = sum(count for _, count in row)
        expected, expected_gradient = precise_log_determinant(row)
        value, gradient = value_and_gradient(
            dirichlet.fisher_log_determinant, tensor_of(row, torch.float32)
        )
        assert abs(value.item() - expected) <= max(1e-6 * classes, 1e-5 * abs(expected))
        torch.testing.assert_close(gradient.double(), expected_gradient, rtol=1e-5, atol=0)

    @pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
    def test_float64_value_and_gradient(self, row):
        expected, expected_gradient = precise_log_determinant(row)
        value, gradient = value_and_gradient(
            dirichlet.fisher_log_determinant, tensor_of(row, torch.float64)
        )
        assert value.item() == pytest.approx(expected, rel=1e-13, abs=1e-13)
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-13, atol=0)


class TestKlDivergence:
    @pytest.mark.parametrize("classes", [2, 6, 55])
    def test_against_torch_distributions(self, classes):
        alpha, beta = random_alpha(20, classes), random_alpha(20, classes, largest=9, seed=1)
        expected = torch_kl_divergence(Dirichlet(alpha), Dirichlet(beta))
        torch.testing.assert_close(
            dirichlet.kl_divergence(alpha, beta), expected, rtol=1e-11, atol=1e-11
        )

    def test_against_monte_carlo(self):
        torch.manual_seed(0)
        alpha = torch.tensor([4.0, 1.5, 2.0, 1.0], dtype=torch.float64)
        beta = torch.tensor([1.0, 1.0, 6.0, 2.0], dtype=torch.float64)
        p = Dirichlet(alpha).sample((200_000,)).clamp_min(1e-300)
        p = p / p.sum(-1, keepdim=True)
        estimate, error = monte_carlo(Dirichlet(alpha).log_prob(p) - Dirichlet(beta).log_prob(p))
        assert dirichlet.kl_divergence(alpha, beta).item() == pytest.approx(estimate, abs=error)

    @pytest.mark.parametrize("beta", [[1.0] * 5, [1, 100.0, 1, 1, 1], [7.0, 0.5, 3e3, 1e6, 2]])
    @pytest.mark.parametrize(
        "alpha",
        [[1.0] * 5, [1e6] * 5, [1, 1e6, 1, 1, 1], [2.5, 80, 1, 1.25, 3], [3e4, 5e5, 1, 9, 1e6]],
    )
    @pytest.mark.parametrize(
        ("dtype", "tolerance"), [(torch.float32, 5e-6), (torch.float64, 1e-13)]
    )
    def test_value_and_gradient_survive_large_concentrations(self, alpha, beta, dtype, tolerance):
        target = torch.tensor(beta, dtype=dtype)
        expected, expected_gradient = precise_kl(alpha, beta)
        value, gradient = value_and_gradient(
            lambda alpha: dirichlet.kl_divergence(alpha, target), torch.tensor(alpha, dtype=dtype)
        )
        assert value.item() == pytest.approx(expected, rel=tolerance, abs=tolerance)
        scale = expected_gradient.abs().max().item() or 1.0
        torch.testing.assert_close(
            gradient.double(), expected_gradient, rtol=0, atol=tolerance * scale
        )

    @pytest.mark.parametrize("classes", [2, 55, 1000])
    def test_is_exactly_zero_between_equals(self, classes):
        alpha = random_alpha(8, classes, largest=1e6).float()
        assert dirichlet.kl_divergence(alpha, alpha.clone()).tolist() == [0.0] * 8

    def test_beta_broadcasts(self):
        alpha = random_alpha(4, 6)
        one = torch.ones(1, dtype=torch.float64)
        expected = dirichlet.kl_divergence(alpha, torch.ones_like(alpha))
        torch.testing.assert_close(dirichlet.kl_divergence(alpha, one), expected)

    def test_gradient_in_beta(self):
        alpha = random_alpha(3, 4)
        beta = random_alpha(3, 4, seed=1).requires_grad_()
        expected = torch_kl_divergence(Dirichlet(alpha), Dirichlet(beta))
        (expected_gradient,) = torch.autograd.grad(expected.sum(), beta)
        _, gradient = value_and_gradient(lambda b: dirichlet.kl_divergence(alpha, b), beta.detach())
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-10, atol=1e-12)


class TestEntropies:
    @pytest.mark.parametrize("classes", [2, 6, 100])
    def test_differential_entropy_against_torch_distributions(self, classes):
        alpha = random_alpha(20, classes)
        torch.testing.assert_close(
            dirichlet.differential_entropy(alpha),
            Dirichlet(alpha).entropy(),
            rtol=1e-11,
            atol=1e-11,
        )

    def test_entropy_of_mean_against_scipy(self):
        alpha = random_alpha(5, 9)
        expected = special.entr((alpha / alpha.sum(-1, keepdim=True)).numpy()).sum(-1)
        torch.testing.assert_close(dirichlet.entropy_of_mean(alpha), torch.from_numpy(expected))

    @pytest.mark.parametrize("alpha", [[1.0, 1.0, 1.0, 1.0], [5.0, 1.0, 2.5, 1.25], [30.0, 40.0]])
    def test_split_of_the_uncertainty_against_monte_carlo(self, alpha):
        torch.manual_seed(0)
        alpha = torch.tensor(alpha, dtype=torch.float64)
        p = Dirichlet(alpha).sample((200_000,))
        aleatoric, error = monte_carlo(torch.special.entr(p).sum(-1))
        total = torch.special.entr(alpha / alpha.sum()).sum().item()
        assert dirichlet.expected_entropy(alpha).item() == pytest.approx(aleatoric, abs=error)
        epistemic = dirichlet.mutual_information(alpha).item()
        assert epistemic == pytest.approx(total - aleatoric, abs=error)

    @pytest.mark.parametrize("alpha", [[1.0] * 3, [1e6] * 3, [1e6, 1.0], [3.0, 700.0, 2.0, 1e5]])
    def test_mutual_information_keeps_its_digits_in_float32(self, alpha):
        with mpmath.workdps(DIGITS):
            exact = [mpmath.mpf(x) for x in alpha]
            total = mpmath.fsum(exact)
            expected = -mpmath.fsum(
                x
                / total
                * (mpmath.log(x / total) - mpmath.psi(0, x + 1) + mpmath.psi(0, total + 1))
                for x in exact
            )
        actual = dirichlet.mutual_information(torch.tensor(alpha)).item()
        assert actual == pytest.approx(float(expected), rel=3e-6)


REDUCTIONS = [
    dirichlet.vacuity,
    dirichlet.fisher_log_determinant,
    dirichlet.entropy_of_mean,
    dirichlet.mutual_information,
    dirichlet.expected_entropy,
    dirichlet.differential_entropy,
    lambda alpha: dirichlet.kl_divergence(alpha, torch.ones_like(alpha)),
]

exponents = st.lists(st.floats(0, 6), min_size=2, max_size=200)
modest = settings(max_examples=40, deadline=None, derandomize=True)


@modest
@given(exponents, st.randoms(use_true_random=False))
def test_order_of_classes_does_not_matter(exponents, random):
    alpha = 10 ** torch.tensor(exponents, dtype=torch.float64)
    order = list(range(len(exponents)))
    random.shuffle(order)
    for function in REDUCTIONS:
        torch.testing.assert_close(function(alpha[order]), function(alpha), rtol=1e-9, atol=1e-9)
    for function in (dirichlet.mean, dirichlet.trigamma):
        torch.testing.assert_close(function(alpha[order]), function(alpha)[order])
    torch.testing.assert_close(
        dirichlet.fisher_information(alpha[order]),
        dirichlet.fisher_information(alpha)[order][:, order],
    )


@modest
@given(exponents)
def test_value_and_gradient_are_finite(exponents):
    alpha = (10 ** torch.tensor(exponents, dtype=torch.float64)).float()
    for function in [*REDUCTIONS, dirichlet.mean, dirichlet.trigamma, dirichlet.fisher_information]:
        value, gradient = value_and_gradient(function, alpha)
        assert value.isfinite().all()
        assert gradient.isfinite().all()


@pytest.mark.parametrize("logit", [-1e4, -100.0, 0.0, 100.0, 1e4])
def test_finite_from_extreme_logits(logit):
    logits = torch.full((3, 10), logit)
    logits[1, 0] = 1e4
    logits[2, 0] = -1e4
    for function in REDUCTIONS:
        value, gradient = value_and_gradient(
            lambda z, f=function: f(dirichlet.alpha_from_evidence(torch.nn.functional.softplus(z))),
            logits,
        )
        assert value.isfinite().all()
        assert gradient.isfinite().all()
