"""The losses, one small function an equation.

Every loss gives one value a sample, (N,), unless its docstring says otherwise; the caller takes the
mean. `alpha` is (N, K) concentrations, `logits` (N, K), `labels` (N,) int64. Weights may be numbers
or, so that a captured training step can change them, tensors. What a loss should not train, the
caller detaches. All of it runs in full precision, whatever autocast says.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from anedl.dirichlet import (
    fisher_log_determinant,
    in_full_precision,
    kl_divergence,
    mean,
    trigamma,
)
from anedl.mixmatch import soft_cross_entropy

Weight = float | Tensor

# A class share below this is taken as this, so that its logarithm stays finite.
SMALLEST_PRIOR = 1e-8


def one_hot(labels: Tensor, classes: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Write labels (N,) as rows with a one at the label and zeros elsewhere, (N, classes)."""
    return (labels.unsqueeze(-1) == torch.arange(classes, device=labels.device)).to(dtype)


def _as_target(target: Tensor, alpha: Tensor) -> Tensor:
    """Labels (N,) become one-hot rows; a target that has rows already, (N, K), stays as it is."""
    if target.dim() < alpha.dim():
        return one_hot(target, alpha.shape[-1], alpha.dtype)
    return target


# Evidential losses


@in_full_precision
def adaptive_weight(alpha: Tensor, *, adaptive: bool = True, hold_weight: bool = False) -> Tensor:
    """Give the weight ψ₁(α_k) of each class in Eq. 2 and 3, (N, K); it falls with evidence.

    Without `adaptive` every weight is 1; with `hold_weight` no gradient flows through it.
    """
    if not adaptive:
        return torch.ones_like(alpha)
    weight = trigamma(alpha)
    return weight.detach() if hold_weight else weight


@in_full_precision
def squared_error(alpha: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Σ_k (target_k − α_k/α₀)² w_k, the first part of Eq. 2 and 3; labels or any (N, K) target."""
    return ((_as_target(target, alpha) - mean(alpha)).square() * weight).sum(-1)


@in_full_precision
def variance(alpha: Tensor, weight: Tensor) -> Tensor:
    """Σ_k Var[p_k] w_k with Var[p_k] = α_k(α₀ − α_k) / (α₀²(α₀ + 1)), the second part of Eq. 3."""
    probability = mean(alpha)
    alpha_0 = alpha.sum(-1)
    return (probability * (1 - probability) * weight).sum(-1) / (alpha_0 + 1)


@in_full_precision
def n_edl(
    alpha: Tensor, lambda_1: Weight, *, adaptive: bool = True, hold_weight: bool = False
) -> Tensor:
    """Adaptive negative EDL loss of pool samples (Eq. 2): weighted pull of the mean to uniform.

    Without `adaptive` the weights are 1 and the log-determinant is dropped.
    """
    weight = adaptive_weight(alpha, adaptive=adaptive, hold_weight=hold_weight)
    error = squared_error(alpha, torch.full_like(alpha, 1 / alpha.shape[-1]), weight)
    return error - lambda_1 * fisher_log_determinant(alpha) if adaptive else error


@in_full_precision
def p_edl(
    alpha: Tensor,
    target: Tensor,
    lambda_2: Weight,
    *,
    adaptive: bool = True,
    hold_weight: bool = False,
) -> Tensor:
    """Positive EDL loss of labelled samples (Eq. 3); `target` is labels (N,) or rows (N, K).

    Without `adaptive` the weights are 1 and the log-determinant is dropped.
    """
    weight = adaptive_weight(alpha, adaptive=adaptive, hold_weight=hold_weight)
    error = squared_error(alpha, target, weight) + variance(alpha, weight)
    return error - lambda_2 * fisher_log_determinant(alpha) if adaptive else error


@in_full_precision
def kl_original(alpha: Tensor, labels: Tensor) -> Tensor:
    """KL(Dir(α̂) ‖ Dir(1)) with the true class's evidence taken out, α̂ = α(1 − y) + y (Eq. 4)."""
    is_true = _as_target(labels, alpha)
    misleading = alpha * (1 - is_true) + is_true
    return kl_divergence(misleading, torch.ones_like(alpha))


@in_full_precision
def kl_strengthened(
    alpha: Tensor, labels: Tensor | None = None, target_evidence: Weight = 100.0
) -> Tensor:
    """KL(Dir(α) ‖ Dir(β)) (Eq. 5).

    For labelled samples β is `target_evidence` (P in the paper) at the true class and 1 elsewhere;
    for pool samples, which have no labels, β = 1.
    """
    beta = torch.ones_like(alpha)
    if labels is not None:
        beta = beta + _as_target(labels, alpha) * (target_evidence - 1)
    return kl_divergence(alpha, beta)


@in_full_precision
def consistency(alpha_strong: Tensor, alpha_weak: Tensor) -> Tensor:
    """‖α_strong − α_weak‖² between two views of the same samples (Eq. 6, before its mean)."""
    return (alpha_strong - alpha_weak).square().sum(-1)


@in_full_precision
def edl(alpha: Tensor, target: Tensor, kl_weight: Weight) -> Tensor:
    """Classical EDL (Sensoy et al. 2018): squared error + variance + annealed KL of Eq. 4.

    `kl_weight` is the annealing factor of the moment, min(1, epoch / 10) in that paper. `target` is
    labels (N,) or one-hot rows (N, K).
    """
    return p_edl(alpha, target, 0.0, adaptive=False) + kl_weight * kl_original(alpha, target)


@in_full_precision
def i_edl(alpha: Tensor, target: Tensor, log_det_weight: Weight, kl_weight: Weight) -> Tensor:
    """I-EDL (Deng et al. 2023): Eq. 3 with `log_det_weight` as λ₂, plus the KL of Eq. 4."""
    return p_edl(alpha, target, log_det_weight) + kl_weight * kl_original(alpha, target)


# Totals: of terms whose means have been taken, each a number (a scalar tensor).


@in_full_precision
def ano_total(
    p_edl: Tensor,
    kl_labelled: Tensor,
    n_edl: Tensor,
    kl_pool: Tensor,
    *,
    lambda_p: Weight,
    lambda_n: Weight,
    lambda_kl: Weight = 1.0,
) -> Tensor:
    """λ_P(P-EDL + λ_KL·KL of labelled) + λ_N(N-EDL + λ_KL·KL of pool), a scalar (Eq. 8).

    Eq. 8 has no λ_KL; the weight is ours, and 1 gives the equation.
    """
    labelled = p_edl + lambda_kl * kl_labelled
    pool = n_edl + lambda_kl * kl_pool
    return lambda_p * labelled + lambda_n * pool


@in_full_precision
def anedl_total(
    cross_entropy: Tensor, fixmatch: Tensor, ano: Tensor, consistency: Tensor, *, lambda_con: Weight
) -> Tensor:
    """CE + FixMatch + ANO + λ_CON·consistency, a scalar (Eq. 7)."""
    return cross_entropy + fixmatch + ano + lambda_con * consistency


# Losses of the softmax classifier


@in_full_precision
def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """−log softmax(logits) at the label."""
    return F.cross_entropy(logits, labels, reduction="none")


@in_full_precision
def pseudo_labels(weak_logits: Tensor, threshold: Weight) -> tuple[Tensor, Tensor]:
    """Give the predicted labels (N,) and 1.0 where the softmax reaches `threshold`, else 0.0, (N,).

    No gradient flows through either.
    """
    confidence, labels = weak_logits.detach().softmax(-1).max(-1)
    return labels, (confidence >= threshold).to(confidence.dtype)


@in_full_precision
def fixmatch(strong_logits: Tensor, weak_logits: Tensor, threshold: Weight) -> Tensor:
    """Cross-entropy of the strong view against the weak view's confident pseudo-labels.

    A sample below `threshold` counts as 0, so the mean is over the full batch.
    """
    labels, confident = pseudo_labels(weak_logits, threshold)
    return cross_entropy(strong_logits, labels) * confident


@in_full_precision
def soft_fixmatch(
    strong_logits: Tensor, weak_logits: Tensor, threshold: Weight, temperature: Weight
) -> Tensor:
    """FixMatch against the weak view's whole softmax(z/T) in place of its predicted class."""
    _, confident = pseudo_labels(weak_logits, threshold)
    target = (weak_logits.detach() / temperature).softmax(-1)
    return soft_cross_entropy(strong_logits, target) * confident


@in_full_precision
def debiased_logits(weak_logits: Tensor, prior: Tensor, tau: Weight) -> Tensor:
    """DebiasPL, counterfactual part: z − τ log q̂ takes the class bias q̂ (K,) out of z (N, K)."""
    return weak_logits - tau * prior.clamp_min(SMALLEST_PRIOR).log()


@in_full_precision
def margin_logits(strong_logits: Tensor, prior: Tensor, tau: Weight) -> Tensor:
    """DebiasPL, adaptive margin: z + τ log q̂ inside the cross-entropy asks more of rare classes."""
    return strong_logits + tau * prior.clamp_min(SMALLEST_PRIOR).log()


@in_full_precision
def debiased_fixmatch(
    strong_logits: Tensor, weak_logits: Tensor, prior: Tensor, threshold: Weight, tau: Weight
) -> Tensor:
    """FixMatch with both parts of DebiasPL; `prior` is q̂ (K,)."""
    return fixmatch(
        margin_logits(strong_logits, prior, tau),
        debiased_logits(weak_logits, prior, tau),
        threshold,
    )


@in_full_precision
def update_prior(prior: Tensor, weak_logits: Tensor, momentum: Weight) -> Tensor:
    """Give the next q̂ (K,): a moving average of the batch's mean softmax, not debiased, never 0."""
    batch_mean = weak_logits.detach().softmax(-1).mean(0)
    return (momentum * prior + (1 - momentum) * batch_mean).clamp_min(SMALLEST_PRIOR)
