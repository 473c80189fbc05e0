"""Scores of how well a sample fits the known classes: higher always means more inlier.

Each function gives one value a sample, (N,), from `logits` (N, K) or `alpha` (N, K), in full
precision. A quantity that grows with uncertainty is negated here and nowhere else.
"""

from collections.abc import Callable

from torch import Tensor

from anedl import dirichlet
from anedl.dirichlet import in_full_precision
from anedl.errors import ConfigError


@in_full_precision
def self_training_confidence(logits: Tensor, alpha: Tensor) -> Tensor:
    """Give ŷ·α, the concentration of the class that the softmax head predicts."""
    predicted = logits.argmax(-1, keepdim=True)
    return alpha.gather(-1, predicted).squeeze(-1)


@in_full_precision
def top_m_evidence(alpha: Tensor, top_m: int) -> Tensor:
    """Sum the `top_m` largest concentrations (Eq. 9)."""
    classes = alpha.shape[-1]
    if not 1 <= top_m <= classes:
        raise ConfigError(
            f"top_m is {top_m}, but the score sums the largest of {classes} concentrations: "
            f"choose a number from 1 to {classes}"
        )
    return alpha.topk(top_m, dim=-1).values.sum(-1)


@in_full_precision
def total_evidence(alpha: Tensor) -> Tensor:
    """Give α₀, the sum of all concentrations."""
    return alpha.sum(-1)


@in_full_precision
def max_alpha(alpha: Tensor) -> Tensor:
    """Give the largest concentration."""
    return alpha.amax(-1)


@in_full_precision
def vacuity(alpha: Tensor) -> Tensor:
    """Give −K/α₀."""
    return -dirichlet.vacuity(alpha)


@in_full_precision
def mutual_information(alpha: Tensor) -> Tensor:
    """Give minus the mutual information between the label and the class probabilities."""
    return -dirichlet.mutual_information(alpha)


@in_full_precision
def differential_entropy(alpha: Tensor) -> Tensor:
    """Give minus the differential entropy of Dir(α)."""
    return -dirichlet.differential_entropy(alpha)


@in_full_precision
def max_softmax(logits: Tensor) -> Tensor:
    """Give the largest softmax probability."""
    return logits.softmax(-1).amax(-1)


@in_full_precision
def energy(logits: Tensor) -> Tensor:
    """Give log Σ exp(logits), the negative free energy."""
    return logits.logsumexp(-1)


# Every score by name, called as score(logits, alpha, top_m).
SCORES: dict[str, Callable[[Tensor, Tensor, int], Tensor]] = {
    "top_m_evidence": lambda logits, alpha, top_m: top_m_evidence(alpha, top_m),
    "total_evidence": lambda logits, alpha, top_m: total_evidence(alpha),
    "max_alpha": lambda logits, alpha, top_m: max_alpha(alpha),
    "self_training": lambda logits, alpha, top_m: self_training_confidence(logits, alpha),
    "vacuity": lambda logits, alpha, top_m: vacuity(alpha),
    "mutual_information": lambda logits, alpha, top_m: mutual_information(alpha),
    "differential_entropy": lambda logits, alpha, top_m: differential_entropy(alpha),
    "max_softmax": lambda logits, alpha, top_m: max_softmax(logits),
    "energy": lambda logits, alpha, top_m: energy(logits),
}


def all_scores(logits: Tensor, alpha: Tensor | None, top_m: int) -> dict[str, Tensor]:
    """Give every score that applies, by name; without `alpha` only those of the logits."""
    if alpha is None:
        return {"max_softmax": max_softmax(logits), "energy": energy(logits)}
    return {name: score(logits, alpha, top_m) for name, score in SCORES.items()}
