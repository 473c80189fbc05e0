"""The Dirichlet distribution in full precision: Fisher information, divergence and uncertainty.

`alpha` is a (..., K) tensor of concentrations, one for each of K classes, and `alpha_0` its sum.
Gamma functions are never subtracted from one another here: near alpha = 1e6 that would leave no
correct digit in fp32. Everything is written with three remainders instead, the parts of
log Γ, ψ and 1/ψ₁ that Stirling's leading terms leave over. They are small and smooth, so sums and
gradients of them keep their digits. A remainder moves its argument up by a few whole steps, where
an asymptotic series holds, and comes back down by an exact recurrence: elementary operations only,
no branch and no `where`, so gradients are finite everywhere and a compiler fuses the lot.
"""

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# B₂, B₄, … B₁₆: all three asymptotic series come from these.
_BERNOULLI = tuple(
    map(Fraction, ("1/6", "-1/30", "1/42", "-1/30", "5/66", "-691/2730", "7/6", "-3617/510"))
)
# How far a remainder moves up before its series, and how many Bernoulli numbers that then uses:
# with these the truncation lies below the rounding of the type for every argument from 1 on.
_SHIFT_AND_TERMS = {torch.float32: (3, 4), torch.float64: (8, 8)}


def in_full_precision(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Run `function` outside autocast, with half-precision tensor arguments upcast to fp32.

    float32 and float64 tensors, and everything that is not a floating tensor, pass unchanged.
    """

    @functools.wraps(function)
    def full_precision(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        upcast_args = [_upcast(value) for value in args]
        upcast_kwargs = {name: _upcast(value) for name, value in kwargs.items()}
        device = _device_type([*args, *kwargs.values()])
        if not autocast_may_be_on(device):
            return function(*upcast_args, **upcast_kwargs)  # type: ignore[arg-type]
        with torch.autocast(device, enabled=False):
            return function(*upcast_args, **upcast_kwargs)  # type: ignore[arg-type]

    return full_precision


def autocast_may_be_on(device: str) -> bool:
    """Whether autocast has to be switched off for a device type; True while being compiled.

    Some versions of the compiler trace the switch but break at the question. Outside it the
    question spares eager code, and an exported graph, a switch that changes nothing.
    """
    if torch.compiler.is_dynamo_compiling():
        return True
    return torch.amp.is_autocast_available(device) and torch.is_autocast_enabled(device)


def _upcast(value: object) -> object:
    if isinstance(value, Tensor) and value.dtype in (torch.bfloat16, torch.float16):
        return value.float()
    return value


def _device_type(values: list[object]) -> str:
    for value in values:
        if isinstance(value, Tensor):
            return value.device.type
    return "cpu"


@in_full_precision
def alpha_from_evidence(evidence: Tensor) -> Tensor:
    """Turn evidence e ≥ 0 into concentrations: α = e + 1; (..., K) → (..., K)."""
    return evidence + 1


@in_full_precision
def mean(alpha: Tensor) -> Tensor:
    """Give the expected class probabilities α_k / α₀; (..., K) → (..., K)."""
    return alpha / alpha.sum(-1, keepdim=True)


@in_full_precision
def vacuity(alpha: Tensor) -> Tensor:
    """Give the uncertainty u = K / α₀, 1 without any evidence; (..., K) → (...)."""
    return alpha.shape[-1] / alpha.sum(-1)


@in_full_precision
def trigamma(x: Tensor) -> Tensor:
    """Give ψ₁(x), the second derivative of log Γ, elementwise."""
    return 1 / _inverse_trigamma(x)


@in_full_precision
def fisher_information(alpha: Tensor) -> Tensor:
    """Give the Fisher information diag(ψ₁(α)) − ψ₁(α₀)·11ᵀ (Eq. A10); (..., K) → (..., K, K)."""
    shared = trigamma(alpha.sum(-1))[..., None, None]
    return torch.diag_embed(trigamma(alpha)) - shared


@in_full_precision
def fisher_log_determinant(alpha: Tensor) -> Tensor:
    """Give log |I(α)| (Eq. A12); (..., K) → (...).

    Eq. A12 holds 1 − Σ ψ₁(α₀)/ψ₁(α_k), which cancels. With 1/ψ₁(x) = x − 1/2 + h(x) the x add up
    to α₀ and drop out: it is ψ₁(α₀)·((K−1)/2 + h(α₀) − Σ h(α_k)), where h never exceeds 0.11.
    """
    both = _with_total(alpha)
    h = _inverse_trigamma_remainder(both)
    shared = (alpha.shape[-1] - 1) / 2 - _classes_less_total(h)
    return torch.log(shared) - torch.log(both - 0.5 + h).sum(-1)


@in_full_precision
def kl_divergence(alpha: Tensor, beta: Tensor) -> Tensor:
    """Give KL(Dir(α) ‖ Dir(β)) (Eq. A13, A14); (..., K) and a shape that broadcasts to it → (...).

    With m the remainder of log Γ and D(b, a) = m(b) − m(a) − m′(a)(b − a), Eq. A14 is exactly
    Σ D(β_k, α_k) − D(β₀, α₀) + Σ β_k (r_k − 1 − log r_k) for r_k = (α_k/α₀) / (β_k/β₀):
    every part is zero where α = β and none grows faster than log α.
    """
    a, b = _with_total(alpha), _with_total(beta.expand_as(alpha))
    divergence = _log_gamma_remainder(b) - _log_gamma_remainder(a) - _digamma_remainder(a) * (b - a)
    ratio = alpha / beta * (b[..., -1:] / a[..., -1:])
    return _classes_less_total(divergence) + (beta * (ratio - 1 - torch.log(ratio))).sum(-1)


@in_full_precision
def entropy_of_mean(alpha: Tensor) -> Tensor:
    """Give H[E[p]], the total uncertainty of the prediction in nats; (..., K) → (...)."""
    probability = mean(alpha)
    return -(probability * torch.log(probability)).sum(-1)


@in_full_precision
def mutual_information(alpha: Tensor) -> Tensor:
    """Give H[E[p]] − E[H[p]], the epistemic part of the uncertainty in nats; (..., K) → (...).

    The logarithms of the two entropies cancel by hand, which leaves the remainder l of ψ:
    (K − 1 + Σ α_k l(α_k) − α₀ l(α₀)) / α₀.
    """
    both = _with_total(alpha)
    remainders = _classes_less_total(both * _digamma_remainder(both))
    return (alpha.shape[-1] - 1 + remainders) / both[..., -1]


@in_full_precision
def expected_entropy(alpha: Tensor) -> Tensor:
    """Give E[H[p]], the aleatoric part of the uncertainty in nats; (..., K) → (...)."""
    return entropy_of_mean(alpha) - mutual_information(alpha)


@in_full_precision
def differential_entropy(alpha: Tensor) -> Tensor:
    """Give the differential entropy of Dir(α) in nats; (..., K) → (...).

    It is that of the uniform Dirichlet, −log Γ(K), less the divergence from the uniform one.
    """
    return -math.lgamma(alpha.shape[-1]) - kl_divergence(alpha, torch.ones_like(alpha))


def _with_total(alpha: Tensor) -> Tensor:
    """Append α₀ as a last column, so that one pass serves the classes and their sum."""
    return torch.cat((alpha, alpha.sum(-1, keepdim=True)), -1)


def _classes_less_total(values: Tensor) -> Tensor:
    """Σ f(α_k) − f(α₀), from f of what `_with_total` gives; (..., K + 1) → (...)."""
    return values[..., :-1].sum(-1) - values[..., -1]


def _inverse_series() -> tuple[float, ...]:
    """Coefficients of h(x) in 1/x, 1/x², …: the power series of ψ₁, inverted."""
    trigamma_series = [Fraction(1), Fraction(1, 2)]
    for number in _BERNOULLI:
        trigamma_series += [number, Fraction(0)]
    inverse = [Fraction(1)]
    for power in range(1, len(trigamma_series)):
        products = (trigamma_series[i] * inverse[power - i] for i in range(1, power + 1))
        inverse.append(-sum(products, Fraction(0)))
    return tuple(map(float, inverse[2:]))


_LOG_GAMMA_SERIES = tuple(
    float(number / (2 * k * (2 * k - 1))) for k, number in enumerate(_BERNOULLI, 1)
)
_DIGAMMA_SERIES = tuple(float(number / (2 * k)) for k, number in enumerate(_BERNOULLI, 1))
_INVERSE_TRIGAMMA_SERIES = _inverse_series()


def _polynomial(coefficients: tuple[float, ...], x: Tensor) -> Tensor:
    """c₀ + c₁ x + c₂ x² + …, elementwise."""
    total = x * coefficients[-1] + coefficients[-2]
    for coefficient in reversed(coefficients[:-2]):
        total = total * x + coefficient
    return total


def _log_gamma_remainder(x: Tensor) -> Tensor:
    """m(x) = log Γ(x) − x log x + x, which is log(2π/x)/2 + 1/(12x) − … ."""
    shift, terms = _SHIFT_AND_TERMS[x.dtype]
    upper = x + shift
    inverse = 1 / upper
    series = inverse * _polynomial(_LOG_GAMMA_SERIES[:terms], inverse * inverse)
    steps = x * inverse
    for step in range(1, shift):
        steps = steps * ((x + step) * inverse)
    drift = x * torch.log1p(shift / x) - shift
    return 0.5 * torch.log(2 * math.pi * inverse) + series + drift - torch.log(steps)


def _digamma_remainder(x: Tensor) -> Tensor:
    """l(x) = ψ(x) − log x = m′(x), which is −1/(2x) − 1/(12x²) + … ."""
    shift, terms = _SHIFT_AND_TERMS[x.dtype]
    inverse = 1 / (x + shift)
    square = inverse * inverse
    series = -0.5 * inverse - square * _polynomial(_DIGAMMA_SERIES[:terms], square)
    steps = 1 / x
    for step in range(1, shift):
        steps = steps + 1 / (x + step)
    return series + (torch.log1p(shift / x) - steps)


def _inverse_trigamma_remainder(x: Tensor) -> Tensor:
    """h(x) = 1/ψ₁(x) − x + 1/2, which is 1/(12x) + 1/(24x²) − 1/(720x³) − 11/(480x⁴) + … .

    The step down, h(x) from h(x + 1), is ψ₁(x) = ψ₁(x + 1) + 1/x² written for h: a ratio of sums of
    positive terms that shrinks any error.
    """
    shift, terms = _SHIFT_AND_TERMS[x.dtype]
    inverse = 1 / (x + shift)
    h = inverse * _polynomial(_INVERSE_TRIGAMMA_SERIES[: 2 * terms - 2], inverse)
    for step in reversed(range(shift)):
        lower = x + step
        square = lower * lower + 0.5
        h = (0.25 + h * (square - lower)) / (square + lower + h)
    return h


def _inverse_trigamma(x: Tensor) -> Tensor:
    """1/ψ₁(x)."""
    return x - 0.5 + _inverse_trigamma_remainder(x)
