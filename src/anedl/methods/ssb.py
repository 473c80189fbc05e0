"""SSB: semi-supervised learning that benefits from outliers (Fan et al., ICCV 2023), on FixMatch.

Two deep heads keep classifying and detecting apart on shared features. The first stage is plain
FixMatch over the whole pool, outliers included, and takes 93 % of the run; the detector idles. The
second stage goes on with FixMatch and trains the one-vs-all detector: on labels, by entropy and
consistency on the pool, and by pseudo-negative mining, which learns from every class that a pool
image certainly does not belong to.

Choices where the sources leave one open: the second strong view of the detector's pool images,
which the release makes and no loss looks at, is not made; the stages share one optimiser, schedule
and average, which the release gets by resuming. Until the second stage the inlier score is that of
an untrained detector. Backbone, augmentation and pool are the package's.
"""

from dataclasses import dataclass, replace
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anedl import losses, one_vs_all
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
from anedl.networks.one_vs_all_head import OneVsAllHead
from anedl.options import option
from anedl.views import View

# Sets for which the consistency weighs half as much as on CIFAR-100; digits are few classes too.
FEW_CLASSES = ("cifar10", "imagenet30", "digits")


@dataclass(frozen=True)
class SsbConfig(MethodConfig):
    """Every constant of SSB."""

    fixmatch_weight: float = option(1.0, "weight of FixMatch, in both stages (released)")
    fixmatch_threshold: float = option(0.95, "least confidence of a pseudo-label (released)")
    one_vs_all_weight: float = option(1.0, "weight of the detector's loss on labels (released)")
    entropy_weight: float = option(0.1, "weight of the detector's entropy on the pool (released)")
    consistency_weight: float | None = option(
        None,
        "weight of the detector's consistency between weak and flipped views; default: 1, or 0.5 "
        "for CIFAR-10, ImageNet-30 (released) and digits (ours)",
    )
    pseudo_negative_weight: float = option(1.0, "weight of pseudo-negative mining (released)")
    pseudo_negative_threshold: float = option(
        0.01, "most probability of a class that an image is taken not to belong to (released)"
    )
    hidden_width: int | None = option(
        None, "hidden width of both heads; default: 1024, ImageNet-30: 4096 (released)"
    )
    pool_ratio: int = option(
        2, "pool images a labelled image, for FixMatch and again for the detector (released)"
    )

    def __post_init__(self) -> None:
        for name in ("hidden_width", "pool_ratio"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"option {name}: must be at least 1, got {value}")

    def resolved(self, task: Task) -> Self:
        """Take from the data set what was not given of the consistency weight and the width."""
        weight, width = self.consistency_weight, self.hidden_width
        if weight is None:
            weight = 0.5 if task.dataset in FEW_CLASSES else 1.0
        if width is None:
            width = 4096 if task.dataset == "imagenet30" else 1024
        return replace(self, consistency_weight=weight, hidden_width=width)


@in_full_precision
def positive_loss(ova_logits: Tensor, labels: Tensor) -> Tensor:
    """−log o_y, "is class y", of one-vs-all logits (N, 2, K) and labels (N,); (N,)."""
    log_is = F.log_softmax(ova_logits, dim=1)[:, 1]
    return -log_is.gather(-1, labels.unsqueeze(-1)).squeeze(-1)


@in_full_precision
def negative_loss(ova_logits: Tensor, labels: Tensor) -> Tensor:
    """Σ_{k≠y} −log n_k, "not class k", divided by K and not by K − 1; (N, 2, K), (N,) → (N,).

    Every wrong class counts, not the hardest alone.
    """
    log_not = F.log_softmax(ova_logits, dim=1)[:, 0]
    is_wrong = 1 - losses.one_hot(labels, log_not.shape[-1], log_not.dtype)
    return -(log_not * is_wrong).mean(-1)


@in_full_precision
def pseudo_negatives(weak_ova_logits: Tensor, threshold: float) -> Tensor:
    """1.0 for classes with o_k of at most `threshold` on the weak view, else 0.0.

    (N, 2, K) → (N, K), without gradient.
    """
    is_class = one_vs_all.class_probability(weak_ova_logits.detach())
    return (is_class <= threshold).to(is_class.dtype)


@in_full_precision
def pseudo_negative_loss(strong_ova_logits: Tensor, negatives: Tensor) -> Tensor:
    """Sum of −log n_k over the `negatives` (N, K) of each image; (N, 2, K), (N, K) → (N,)."""
    log_not = F.log_softmax(strong_ova_logits, dim=1)[:, 0]
    return -(log_not * negatives).sum(-1)


class Ssb(Method):
    """SSB: FixMatch on everything, then a detector that learns from pseudo-negatives."""

    config_type = SsbConfig
    config: SsbConfig

    def __init__(self, config: SsbConfig, backbone: ImageEncoder, task: Task) -> None:
        config = config.resolved(task)
        super().__init__(config, backbone, task)
        assert config.hidden_width is not None
        width, hidden, classes = backbone.feature_width, config.hidden_width, task.classes
        known = SoftmaxHead(hidden, classes)
        pairs = OneVsAllHead(hidden, classes, bias=True)
        self.classifier = nn.Sequential(*_hidden_layers(width, hidden), known)
        self.detector = nn.Sequential(*_hidden_layers(width, hidden), pairs)

    def wants(self, stage: Stage) -> dict[str, Want]:
        """FixMatch's images; in the second stage more labelled views and the detector's images."""
        ratio = self.config.pool_ratio
        fixmatch = Want(Source.POOL, (View.WEAK, View.STRONG), ratio)
        if stage is Stage.PRETRAIN:
            return {"labelled": Want(Source.LABELLED, (View.WEAK,)), "fixmatch": fixmatch}
        views = (View.WEAK, View.FLIP, View.STRONG)
        return {
            "labelled": Want(Source.LABELLED, (*views, View.STRONG)),
            "fixmatch": fixmatch,
            "detector": Want(Source.POOL, views, ratio),
        }

    def loss(self, batch: Batch, progress: Progress) -> Losses:
        """FixMatch; in the second stage with the detector's terms."""
        if progress.stage is Stage.PRETRAIN:
            return self._first_stage(batch)
        return self._second_stage(batch)

    def _first_stage(self, batch: Batch) -> Losses:
        """Plain FixMatch, from one forward pass."""
        (images,) = batch.labelled.views
        labelled, weak, strong = self._encode(images, *batch.unlabelled["fixmatch"].views)
        fixmatch, confident = self._fixmatch(weak, strong)
        logits = self.classifier(labelled)
        ce = losses.cross_entropy(logits, batch.labelled.labels).mean()
        return Losses({"ce": ce, "fixmatch": fixmatch}, {"confident_share": confident})

    def _second_stage(self, batch: Batch) -> Losses:
        """All terms; FixMatch's images pass the network by themselves, after the others."""
        config = self.config
        assert config.consistency_weight is not None
        features = self._encode(*batch.labelled.views, *batch.unlabelled["detector"].views)
        labelled, pool = features[:4], features[4:]
        fixmatch, confident = self._fixmatch(*self._encode(*batch.unlabelled["fixmatch"].views))

        # The labelled views are weak, flip, strong, strong: only the first two are classified.
        twice, labels = batch.labelled.labels.repeat(2), batch.labelled.labels.repeat(4)
        ce = losses.cross_entropy(self.classifier(torch.cat(labelled[:2])), twice).mean()
        ova = self.detector(torch.cat(labelled))
        positive = positive_loss(ova[: len(twice)], twice).mean()
        weak, flip, strong = self.detector(torch.cat(pool)).chunk(3)
        entropy = one_vs_all.binary_entropy(torch.cat([weak, flip])).mean()
        consistency = one_vs_all.consistency(weak, flip).mean()
        negatives = pseudo_negatives(weak, config.pseudo_negative_threshold)
        mined = pseudo_negative_loss(strong, negatives).mean()
        terms = {
            "ce": ce,
            "fixmatch": fixmatch,
            "ova_positive": config.one_vs_all_weight * positive,
            "ova_negative": config.one_vs_all_weight * negative_loss(ova, labels).mean(),
            "entropy": config.entropy_weight * entropy,
            "consistency": config.consistency_weight * consistency,
            "pseudo_negative": config.pseudo_negative_weight * mined,
        }
        monitors = {"confident_share": confident, "negative_share": negatives.mean()}
        return Losses(terms, monitors)

    def _encode(self, *views: Tensor) -> list[Tensor]:
        """Features of several views from one forward pass."""
        features: Tensor = self.backbone(torch.cat(views))
        return list(torch.split(features, [len(view) for view in views]))

    def _fixmatch(self, weak: Tensor, strong: Tensor) -> tuple[Tensor, Tensor]:
        """The weighted term of two views' features, and the share of confident pseudo-labels."""
        weak_logits, strong_logits = self.classifier(torch.cat([weak, strong])).chunk(2)
        threshold = self.config.fixmatch_threshold
        value = losses.fixmatch(strong_logits, weak_logits, threshold).mean()
        _, confident = losses.pseudo_labels(weak_logits, threshold)
        return self.config.fixmatch_weight * value, confident.mean()

    def outputs(self, images: Tensor) -> Outputs:
        """Features, logits and the log-odds of o at the predicted class."""
        features = self.backbone(images)
        logits = self.classifier(features)
        score = one_vs_all.inlier_log_odds(self.detector(features), logits.argmax(-1))
        return Outputs(features, logits, score)


def _hidden_layers(width: int, hidden: int) -> list[nn.Module]:
    """Two of [Linear, ReLU], with Xavier-normal weights and zero biases."""
    first, second = nn.Linear(width, hidden), nn.Linear(hidden, hidden)
    for layer in (first, second):
        nn.init.xavier_normal_(layer.weight)
        nn.init.zeros_(layer.bias)
    return [first, nn.ReLU(), second, nn.ReLU()]
