"""ProSub: inliers are what lies near the subspace of the class prototypes (ECCV 2024).

Each class has a prototype, a moving average of its labelled features. The score of an image is the
cosine between its feature and the subspace that the prototypes span. A mixture of two Beta
distributions, followed by the method of moments, turns the score into a probability of being an
inlier, by which the pool images of each step are drawn as inliers or outliers. Drawn inliers join
FixMatch and are pulled towards the subspace, drawn outliers are pushed away from it. Beside that,
the projected feature of the strong view follows the weak view's. The engine's first stage leaves
out what needs the draw.

Choices where the published code leaves one open. Scores begin once every class has been seen: up to
then the basis is zero, no image is drawn, the distributions stay. Prototypes are of one step
before, as there. Scores stay 1e-6 away from 0 and 1 and densities are logarithms in float64, for a
narrow Beta distribution is a small difference of large numbers. The inlier share of the mixture is
one half, not the true share of the pool that the published runs use: that would be oracle
knowledge. The learning rate is held through pre-training and then falls as lr·cos(φπ/2·s), s being
the share of self-training that is done: φ is 7/8, and 5/8 on CIFAR-100 and (released for
Tiny-ImageNet) Mini-ImageNet; for ImageNet-30, of which none is known, 7/8 too. The digits, whose
whole recipe is ours, keep the cosine of the other methods there.
"""

import math
from dataclasses import dataclass, replace
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anedl import losses
from anedl.dirichlet import in_full_precision
from anedl.errors import ConfigError
from anedl.methods.base import (
    Batch,
    Losses,
    Method,
    MethodConfig,
    Outputs,
    Progress,
    Source,
    Stage,
    Task,
    Want,
)
from anedl.networks.encoder import ImageEncoder
from anedl.networks.heads import SoftmaxHead
from anedl.options import option
from anedl.views import View, ViewName

# Released for CIFAR-10, CIFAR-100, ImageNet-30 and, in place of Mini-ImageNet, Tiny-ImageNet.
SELF_SUPERVISION_WEIGHTS = {
    "cifar10": 10.0,
    "cifar100": 15.0,
    "imagenet30": 20.0,
    "miniimagenet": 50.0,
}
DEFAULT_SELF_SUPERVISION_WEIGHT = 10.0

SCORE_MARGIN = 1e-6  # between a score and 0 or 1, where a Beta density may be infinite
LEAST_VARIANCE = 1e-6
LEAST_PARAMETER = 1e-3  # of a fitted Beta distribution
RESPONSIBILITY_FLOOR = 1e-8


@dataclass(frozen=True)
class ProsubConfig(MethodConfig):
    """Every choice in ProSub; "released" is what its published code does."""

    self_supervision_weight: float | None = option(
        None,
        "w_s; default: 10, CIFAR-100 15, ImageNet-30 20, Mini-ImageNet 50 (released, the last for "
        "Tiny-ImageNet)",
    )
    fixmatch_weight: float = option(1.0, "weight of FixMatch on drawn inliers (released)")
    fixmatch_threshold: float = option(0.95, "least confidence of a pseudo-label (released)")
    subspace_weight: float = option(1.0, "weight of the pull to or from the subspace (released)")
    inlier_prior: float = option(
        0.5, "π, inlier share of the mixture (released: the pool's true share, oracle knowledge)"
    )
    density_floor: float = option(
        0.1, "density that counts as outlier wherever both others are low (released)"
    )
    first_inlier: tuple[float, ...] = option(
        (10.0, 2.0), "first a and b of the inliers' Beta distribution (released)"
    )
    first_outlier: tuple[float, ...] = option(
        (2.0, 10.0), "first a and b of the outliers' Beta distribution (released)"
    )
    prototype_momentum: float | None = option(
        None,
        "share of a prototype that stays each step; released: 0.999; default: as BatchNorm's, "
        "which is that in runs of 20,000 steps or more, and less in shorter ones",
    )
    beta_momentum: float | None = option(
        None, "the same for the Beta distributions' parameters; default: likewise"
    )
    labelled_views: tuple[ViewName, ...] = option(("weak",), "views of labelled images (released)")
    pool_ratio: int = option(7, "pool images a labelled image (released)")

    def __post_init__(self) -> None:
        if not self.labelled_views:
            raise ConfigError("option labelled_views: needs one view or more")
        if self.pool_ratio < 1:
            raise ConfigError(f"option pool_ratio: must be at least 1, got {self.pool_ratio}")
        if not 0 < self.inlier_prior < 1:
            raise ConfigError(
                f"option inlier_prior: must lie between 0 and 1, got {self.inlier_prior}"
            )
        if self.density_floor <= 0:
            raise ConfigError(f"option density_floor: must be positive, got {self.density_floor}")
        for name in ("first_inlier", "first_outlier"):
            value = getattr(self, name)
            if len(value) != 2 or min(value) <= 0:
                raise ConfigError(f"option {name}: needs two positive numbers, got {value}")
        for name in ("prototype_momentum", "beta_momentum"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < 1:
                raise ConfigError(f"option {name}: must lie in 0…1 and below 1, got {value}")

    def resolved(self, task: Task) -> Self:
        """Take the weight of self-supervision from the data set if it was not given."""
        if self.self_supervision_weight is not None:
            return self
        weight = SELF_SUPERVISION_WEIGHTS.get(task.dataset, DEFAULT_SELF_SUPERVISION_WEIGHT)
        return replace(self, self_supervision_weight=weight)


class Prosub(Method):
    """See the module's docstring."""

    config_type = ProsubConfig
    config: ProsubConfig

    def __init__(self, config: ProsubConfig, backbone: ImageEncoder, task: Task) -> None:
        super().__init__(config.resolved(task), backbone, task)
        width = backbone.feature_width
        if task.classes >= width:
            raise ConfigError(
                f"prosub: {task.classes} prototypes span all of a feature space of {width} "
                f"dimensions, so nothing lies outside; choose a wider backbone"
            )
        self.classifier = SoftmaxHead(width, task.classes)
        self.projection = SoftmaxHead(width, width)  # linear; initialised as a classifier is
        memory = 1 - backbone.bn_momentum
        self._prototype_momentum = (
            memory if config.prototype_momentum is None else config.prototype_momentum
        )
        self._beta_momentum = memory if config.beta_momentum is None else config.beta_momentum
        self.prototypes = nn.Buffer(torch.zeros(task.classes, width))
        self.seen = nn.Buffer(torch.zeros(task.classes))  # 1.0 for a class that has a prototype
        # Kept beside the prototypes, so that inference needs no factorisation.
        self.basis = nn.Buffer(torch.zeros(width, task.classes))
        self.beta = nn.Buffer(torch.tensor([config.first_inlier, config.first_outlier]))

    def wants(self, stage: Stage) -> dict[str, Want]:
        """Labelled and pool images, in both stages."""
        return {
            "labelled": Want(Source.LABELLED, tuple(map(View, self.config.labelled_views))),
            "pool": Want(Source.POOL, (View.WEAK, View.STRONG), self.config.pool_ratio),
        }

    def loss(self, batch: Batch, progress: Progress) -> Losses:
        """Cross-entropy and self-supervision; in the second stage FixMatch and the subspace too."""
        config = self.config
        parts = [*batch.labelled.views, *batch.unlabelled["pool"].views]
        features = self.backbone(torch.cat(parts))
        *own, weak, strong = torch.split(features, [len(part) for part in parts])
        labelled = torch.cat(own)
        labels = batch.labelled.labels.repeat(len(own))
        assert config.self_supervision_weight is not None
        following = self_supervision(self.projection(strong), weak)
        terms = {
            "ce": losses.cross_entropy(self.classifier(labelled), labels).mean(),
            "self_supervision": config.self_supervision_weight * following.mean(),
        }

        # Copies: what is used here for the gradient is overwritten below.
        basis, ready = self.basis.clone(), self.seen.amin()
        score = subspace_score(weak, basis)
        labelled_score = subspace_score(labelled.detach(), basis)
        monitors = {"score_labelled": labelled_score.mean(), "score_pool": score.detach().mean()}
        if progress.stage is Stage.SELF_TRAIN:
            probability = inlier_probability(
                score.detach(), self.beta, config.inlier_prior, config.density_floor
            )
            drawn = (torch.rand_like(probability) <= probability).float() * ready
            fixmatch = losses.fixmatch(
                self.classifier(strong), self.classifier(weak.detach()), config.fixmatch_threshold
            )
            terms["fixmatch"] = config.fixmatch_weight * (drawn * fixmatch).mean()
            pull = subspace_pull(score, drawn).mean()
            terms["subspace"] = config.subspace_weight * ready * pull
            monitors["drawn_inliers"] = drawn.mean()
        self._update_mixture(score.detach(), labelled_score, ready)
        self._update_prototypes(labelled.detach(), labels)
        return Losses(terms, monitors)

    @torch.no_grad()
    def _update_mixture(self, pool: Tensor, labelled: Tensor, ready: Tensor) -> None:
        """Move both Beta distributions towards those of this step's scores, (P,) and (L,)."""
        inlier = inlier_probability(pool, self.beta, self.config.inlier_prior, RESPONSIBILITY_FLOOR)
        fitted = torch.stack(
            [
                fit_beta(
                    torch.cat([pool, labelled]), torch.cat([inlier, torch.ones_like(labelled)])
                ),
                fit_beta(pool, 1 - inlier),
            ]
        )
        self.beta.lerp_(fitted, (1 - self._beta_momentum) * ready)

    @torch.no_grad()
    def _update_prototypes(self, features: Tensor, labels: Tensor) -> None:
        """Move the prototypes of the classes in a batch, then span the subspace anew."""
        means, present = class_means(features, labels, self.task.classes)
        weight = (1 - self._prototype_momentum) * present
        self.prototypes.lerp_(means, weight.unsqueeze(-1))
        self.seen.copy_(torch.maximum(self.seen, present))
        self.basis.copy_(orthonormal_basis(self.prototypes) * self.seen.amin())

    def outputs(self, images: Tensor) -> Outputs:
        """Features, logits and the cosine to the subspace of the prototypes."""
        features = self.backbone(images)
        return Outputs(features, self.classifier(features), subspace_score(features, self.basis))


@in_full_precision
def class_means(features: Tensor, labels: Tensor, classes: int) -> tuple[Tensor, Tensor]:
    """Mean feature (K, d) of each class in (N, d), and 1.0 for the classes that occur, (K,)."""
    member = losses.one_hot(labels, classes, features.dtype)
    count = member.sum(0)
    return member.T @ features / count.clamp_min(1).unsqueeze(-1), count.clamp_max(1)


@in_full_precision
def orthonormal_basis(prototypes: Tensor) -> Tensor:
    """Q (d, K) of the QR decomposition whose columns span the prototypes (K, d)."""
    # Scaled first: the span is the same, and fresh prototypes are short.
    basis: Tensor = torch.linalg.qr(F.normalize(prototypes, dim=-1).T).Q
    return basis


@in_full_precision
def subspace_score(features: Tensor, basis: Tensor) -> Tensor:
    """Cosine ‖Qᵀz‖ / ‖z‖ in 0…1 between features (N, d) and the span of `basis` (d, K), (N,)."""
    length: Tensor = torch.linalg.vector_norm(features, dim=-1)
    projected: Tensor = torch.linalg.vector_norm(features @ basis, dim=-1)
    return projected / length.clamp_min(1e-12)


@in_full_precision
def self_supervision(projected_strong: Tensor, weak: Tensor) -> Tensor:
    """1 − cos(h(z_strong), z_weak), (N,), of features (N, d); the weak view is a constant."""
    return 1 - F.cosine_similarity(projected_strong, weak.detach(), dim=-1)


@in_full_precision
def subspace_pull(score: Tensor, drawn: Tensor) -> Tensor:
    """−s where `drawn` (N,) is 1, for an inlier, and +s where it is 0, for an outlier, (N,)."""
    return score * (1 - 2 * drawn)


@in_full_precision
def beta_log_density(score: Tensor, parameters: Tensor) -> Tensor:
    """log Beta(s; a, b) of scores (N,) for `parameters` (2,), in float64, (N,)."""
    s = score.double().clamp(SCORE_MARGIN, 1 - SCORE_MARGIN)
    a, b = parameters.double().unbind()
    scale = torch.lgamma(a + b) - torch.lgamma(a) - torch.lgamma(b)
    return (a - 1) * s.log() + (b - 1) * torch.log1p(-s) + scale


@in_full_precision
def inlier_probability(score: Tensor, beta: Tensor, prior: float, floor: float) -> Tensor:
    """π B₁(s) / (π B₁(s) + (1 − π) B₂(s) + floor) of scores (N,), (N,).

    B₁ and B₂ are Beta densities whose parameters are the rows of `beta` (2, 2).
    """
    inlier = math.log(prior) + beta_log_density(score, beta[0])
    outlier = math.log(1 - prior) + beta_log_density(score, beta[1])
    low = torch.full_like(inlier, math.log(floor))
    return (inlier - torch.stack([inlier, outlier, low]).logsumexp(0)).exp().to(score.dtype)


@in_full_precision
def fit_beta(score: Tensor, weight: Tensor) -> Tensor:
    """a and b, (2,), of the Beta distribution with the weighted mean and variance of scores (N,).

    Both are 1 where the weights (N,) sum to 0.
    """
    total = weight.sum()
    share = weight / total.clamp_min(1e-12)
    mean = (share * score).sum()
    variance = (share * (score - mean).square()).sum().clamp_min(LEAST_VARIANCE)
    concentration = mean * (1 - mean) / variance - 1
    fitted = torch.stack([mean, 1 - mean]) * concentration
    return torch.where(total > 0, fitted.clamp_min(LEAST_PARAMETER), 1.0)
