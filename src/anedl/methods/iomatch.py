"""IOMatch: joint inlier and outlier utilisation (Li et al., ICCV 2023).

A closed head tells the K known classes apart. On a projection of the features a one-vs-all head
says for each class whether an image belongs to it, and an open head has K + 1 classes, the last
being "outlier". Products of closed and one-vs-all probabilities are the open head's soft targets on
the pool; the closed head trains itself on pool images that are confident and probably inliers.
There is one stage, and no image is left out for being an outlier.

Choices where the sources leave one open: the inlier score is the open head's log-odds of all known
classes together, because the release has no code that ranks outliers, and Σ p_k·o_k is measured
beside it; the release starts the open term after the first of 256 epochs, which is kept as a share
of the run; the rotation term, off in the configurations that the release's instructions train, is
left out; backbone, augmentation and pool are the package's. A data set without a published
configuration is treated as CIFAR-100.
"""

from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor, nn

from anedl import losses, one_vs_all
from anedl.alignment import align, push
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
from anedl.mixmatch import soft_cross_entropy
from anedl.networks.encoder import ImageEncoder
from anedl.networks.heads import SoftmaxHead
from anedl.networks.one_vs_all_head import OneVsAllHead
from anedl.options import option
from anedl.outlier_class import known_log_odds
from anedl.views import View


@dataclass(frozen=True)
class IoMatchConfig(MethodConfig):
    """Every constant of IOMatch."""

    one_vs_all_weight: float = option(1.0, "weight of the one-vs-all loss on labels (released)")
    closed_weight: float = option(1.0, "weight of the closed head's self-training (released)")
    open_weight: float = option(1.0, "weight of the open head's self-training (released)")
    closed_threshold: float = option(
        0.95, "least confidence of a closed pseudo-label, τ_p (released)"
    )
    open_threshold: float = option(0.5, "least confidence of an open target, τ_q (released)")
    outlier_threshold: float = option(
        0.5, "outlier probability from which an image no longer trains the closed head (released)"
    )
    open_start: float = option(
        1 / 256, "share of the run after which the open term sets in (released: epoch 1 of 256)"
    )
    alignment: bool | None = option(
        None,
        "align pseudo-labels to equal class shares; default: yes, but not on CIFAR-10 (released)",
    )
    alignment_batches: int | None = option(
        None, "batches that alignment looks back over; default: 128, ImageNet-30: 32 (released)"
    )
    projection_width: int = option(
        128, "width of the one-vs-all and open heads' features (released)"
    )
    pool_ratio: int = option(
        7, "pool images a labelled image, μ (released: 7, ImageNet-30: 1; 2 is OpenMatch's budget)"
    )
    score: Literal["open", "combined"] = option(
        "open",
        "inlier score: the open head's, or Σ p_k o_k of the closed and one-vs-all heads (ours)",
    )

    def __post_init__(self) -> None:
        for name in ("alignment_batches", "projection_width", "pool_ratio"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"option {name}: must be at least 1, got {value}")

    def resolved(self, task: Task) -> Self:
        """Take from the data set what was not given of the alignment."""
        alignment, batches = self.alignment, self.alignment_batches
        if alignment is None:
            alignment = task.dataset != "cifar10"
        if batches is None:
            batches = 32 if task.dataset == "imagenet30" else 128
        return replace(self, alignment=alignment, alignment_batches=batches)


@in_full_precision
def open_target(probability: Tensor, is_class: Tensor) -> Tensor:
    """p_k·o_k for the known classes, and Σ p_k·(1 − o_k) for "outlier"; (N, K), (N, K) → (N, K+1).

    `probability` p is the closed head's and sums to one, and so do the rows given.
    """
    outlier = (probability * (1 - is_class)).sum(-1, keepdim=True)
    return torch.cat([probability * is_class, outlier], -1)


@in_full_precision
def closed_mask(probability: Tensor, target: Tensor, confidence: float, outlier: float) -> Tensor:
    """1.0 for pool images that train the closed head, else 0.0, (N,).

    Their largest `probability` (N, K) reaches `confidence`, and the last entry of their open
    `target` (N, K+1) lies below `outlier`.
    """
    chosen = (probability.amax(-1) >= confidence) & (target[:, -1] < outlier)
    return chosen.to(probability.dtype)


@in_full_precision
def open_mask(target: Tensor, confidence: float) -> Tensor:
    """1.0 where the largest entry of the open target (N, K+1) reaches `confidence`, (N,)."""
    return (target.amax(-1) >= confidence).to(target.dtype)


@in_full_precision
def combined_inlier_score(logits: Tensor, ova_logits: Tensor) -> Tensor:
    """Σ p_k·o_k of closed logits (N, K) and one-vs-all logits (N, 2, K), (N,)."""
    return (logits.softmax(-1) * one_vs_all.class_probability(ova_logits)).sum(-1)


class IoMatch(Method):
    """IOMatch: soft open-set targets made of a closed and a one-vs-all head."""

    config_type = IoMatchConfig
    config: IoMatchConfig

    def __init__(self, config: IoMatchConfig, backbone: ImageEncoder, task: Task) -> None:
        config = config.resolved(task)
        super().__init__(config, backbone, task)
        assert config.alignment_batches is not None
        width, projected = backbone.feature_width, config.projection_width
        self.classifier = SoftmaxHead(width, task.classes)
        self.projection = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, projected)
        )
        self.one_vs_all = OneVsAllHead(projected, task.classes)
        self.open = SoftmaxHead(projected, task.classes + 1)
        self.memory = nn.Buffer(torch.zeros(config.alignment_batches, task.classes))
        self.memory_slot = nn.Buffer(torch.zeros((), dtype=torch.int64))

    def wants(self, stage: Stage) -> dict[str, Want]:
        """A weak view of labelled images, a weak and a strong one of the pool, in both stages."""
        return {
            "labelled": Want(Source.LABELLED, (View.WEAK,)),
            "pool": Want(Source.POOL, (View.WEAK, View.STRONG), self.config.pool_ratio),
        }

    def loss(self, batch: Batch, progress: Progress) -> Losses:
        """Two terms on labels, two on the pool's strong views; every one reaches the backbone."""
        config = self.config
        (images,), labels = batch.labelled.views, batch.labelled.labels
        weak, strong = batch.unlabelled["pool"].views
        features = self.backbone(torch.cat([images, weak, strong]))
        projected = self.projection(features)
        counts = [len(images), len(weak), len(strong)]
        logits, weak_logits, strong_logits = self.classifier(features).split(counts)
        # One call and a detach: some versions of autocast would keep the weights that they cast
        # without gradient for the labelled images too.
        ova_logits, weak_ova_logits = self.one_vs_all(projected[: -len(strong)]).split(counts[:2])
        open_logits = self.open(projected[-len(strong) :])

        probability = self._pseudo_labels(weak_logits)
        is_class = one_vs_all.class_probability(weak_ova_logits.detach())
        target = open_target(probability, is_class)
        trusted = closed_mask(
            probability, target, config.closed_threshold, config.outlier_threshold
        )
        decided = open_mask(target, config.open_threshold)
        closed = soft_cross_entropy(strong_logits, probability) * trusted
        opened = soft_cross_entropy(open_logits, target) * decided
        ova = one_vs_all.hard_negative_loss(ova_logits, labels)
        begun = (progress.fraction >= config.open_start).to(opened.dtype)
        terms = {
            "ce": losses.cross_entropy(logits, labels).mean(),
            "one_vs_all": config.one_vs_all_weight * ova.mean(),
            "closed": config.closed_weight * closed.mean(),
            "open": config.open_weight * begun * opened.mean(),
        }
        monitors = {
            "closed_share": trusted.mean(),
            "open_share": decided.mean(),
            "outlier_probability": target[:, -1].mean(),
        }
        return Losses(terms, monitors)

    @torch.no_grad()
    def _pseudo_labels(self, weak_logits: Tensor) -> Tensor:
        """The closed head's probabilities (N, K), aligned where so configured."""
        probability = weak_logits.float().softmax(-1)
        if not self.config.alignment:
            return probability
        # The batch counts in the memory that it is aligned by.
        memory, slot = push(self.memory, self.memory_slot, probability.mean(0))
        self.memory.copy_(memory)
        self.memory_slot.copy_(slot)
        return align(probability, memory)

    def outputs(self, images: Tensor) -> Outputs:
        """Features, the closed head's logits and both inlier scores."""
        features = self.backbone(images)
        logits = self.classifier(features)
        projected = self.projection(features)
        found = {
            "open": known_log_odds(self.open(projected)),
            "combined": combined_inlier_score(logits, self.one_vs_all(projected)),
        }
        return Outputs(features, logits, found.pop(self.config.score), others=found)
