"""The parts of MixMatch (Berthelot et al. 2019): sharpening, mixing, and the losses of soft labels.

Losses give one value a sample, (N,); the caller takes the mean. All of it runs in full precision,
whatever autocast says, and nothing asks the host a question, so a step made of it can be captured.
"""

import torch
from torch import Tensor
from torch.distributions import Beta

from anedl.dirichlet import in_full_precision


@in_full_precision
def sharpen(probabilities: Tensor, temperature: float) -> Tensor:
    """Raise each row to the power 1/temperature and let it sum to 1 again; (N, K) → (N, K)."""
    # Scaled to a largest entry of 1 first, so that a high power cannot turn a row into zeros.
    scaled = probabilities / probabilities.amax(-1, keepdim=True)
    powers = scaled.pow(1 / temperature)
    return powers / powers.sum(-1, keepdim=True)


def draw_share(concentration: float, device: torch.device) -> Tensor:
    """Draw the share of the first partner in a mixture, (): max(λ, 1 − λ), λ ~ Beta(c, c)."""
    c = torch.full((), concentration, device=device)
    lam: Tensor = Beta(c, c, validate_args=False).sample()
    return torch.maximum(lam, 1 - lam)


@in_full_precision
def mix(
    inputs: Tensor, targets: Tensor, permutation: Tensor, lam: float | Tensor
) -> tuple[Tensor, Tensor]:
    """Mix each row with the row that `permutation` (N,) names: λ·own + (1 − λ)·other.

    `inputs` (N, …) are normalised images or features, `targets` (N, K) their soft labels; both are
    mixed alike. `lam` is a number or a tensor ().
    """
    mixed_inputs = lam * inputs + (1 - lam) * inputs[permutation]
    mixed_targets = lam * targets + (1 - lam) * targets[permutation]
    return mixed_inputs, mixed_targets


@in_full_precision
def soft_cross_entropy(logits: Tensor, target: Tensor) -> Tensor:
    """−Σ_k target_k log softmax(logits)_k; (N, K) and (N, K) → (N,)."""
    return -(target * logits.log_softmax(-1)).sum(-1)


@in_full_precision
def squared_error(logits: Tensor, target: Tensor) -> Tensor:
    """Mean over the classes of (softmax(logits)_k − target_k)²; (N, K) and (N, K) → (N,)."""
    return (logits.softmax(-1) - target).square().mean(-1)
