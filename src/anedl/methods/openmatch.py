"""OpenMatch: a one-vs-all outlier detector beside FixMatch (Saito et al., NeurIPS 2021).

A softmax head classifies; a one-vs-all head asks of every class "is it this one or not?". That head
learns from labels (the true class and the hardest wrong one), from the pool by entropy minimisation
(OEM) and by soft consistency between two views (SOCR). After pre-training, the pool images that the
averaged model takes for inliers, that is whose predicted class is more likely right than not, join
FixMatch. The inlier score is the log-odds of o at the predicted class.

Choices where the method is open: two labelled views are flip and weak, as in ANEDL; selected images
pass the trunk apart from the others, as in the code that ANEDL grew from; for sets that the authors
did not use, the weight of SOCR is that of CIFAR-10 where there are few classes (digits) and that of
CIFAR-100 elsewhere. If no pool image is taken for an inlier, the likeliest one is selected.
"""

from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor

from anedl import losses, one_vs_all, scores
from anedl.errors import ConfigError
from anedl.methods.base import (
    Batch,
    Losses,
    Method,
    Outputs,
    Progress,
    Selection,
    Source,
    Stage,
    Task,
    Want,
)
from anedl.methods.early_views import LabelledViewsConfig, labelled_want, views_to_train_on
from anedl.networks.encoder import ImageEncoder
from anedl.networks.heads import SoftmaxHead
from anedl.networks.one_vs_all_head import OneVsAllHead
from anedl.options import option
from anedl.views import View, ViewName

SOCR_WEIGHTS = {"cifar10": 0.5, "imagenet30": 0.5, "digits": 0.5}
DEFAULT_SOCR_WEIGHT = 1.0


@dataclass(frozen=True)
class OpenMatchConfig(LabelledViewsConfig):
    """OpenMatch's constants; where one is not its authors', the help text says so."""

    ova_weight: float = option(1.0, "weight of the one-vs-all loss on labels (paper)")
    entropy_weight: float = option(0.1, "weight of OEM, the pool's binary entropy (paper)")
    consistency_weight: float | None = option(
        None, "weight of SOCR; default: 1.0, or 0.5 for CIFAR-10, ImageNet-30 (paper) and digits"
    )
    pool_views: tuple[ViewName, ...] = option(
        ("weak", "weak"), "the two views of OEM and SOCR (paper)"
    )
    pool_ratio: int = option(2, "μ, pool images a labelled image, also for the selected (paper)")
    fixmatch_weight: float = option(1.0, "weight of FixMatch (paper)")
    fixmatch_threshold: float = option(0.0, "least confidence of a pseudo-label (paper)")
    selection_threshold: float = option(
        0.5, "selected are images with more than this probability of their class (paper)"
    )
    forward_passes: Literal["two", "one"] = option(
        "two", "selected images in a pass of their own, or with the others (other BN batch)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.pool_views) != 2:
            raise ConfigError(f"option pool_views: takes exactly two, got {len(self.pool_views)}")
        if self.pool_ratio < 1:
            raise ConfigError(f"option pool_ratio: must be at least 1, got {self.pool_ratio}")

    def resolved(self, task: Task) -> Self:
        """Take the weight of SOCR from the data set, the early part's length from the classes."""
        weight = self.consistency_weight
        if weight is None:
            weight = SOCR_WEIGHTS.get(task.dataset, DEFAULT_SOCR_WEIGHT)
        return replace(super().resolved(task), consistency_weight=weight)


class OpenMatch(Method):
    """FixMatch on the pool images that a one-vs-all detector takes for inliers."""

    config_type = OpenMatchConfig
    config: OpenMatchConfig

    def __init__(self, config: OpenMatchConfig, backbone: ImageEncoder, task: Task) -> None:
        super().__init__(config.resolved(task), backbone, task)
        self.classifier = SoftmaxHead(backbone.feature_width, task.classes)
        self.detector = OneVsAllHead(backbone.feature_width, task.classes)

    def wants(self, stage: Stage) -> dict[str, Want]:
        """Labelled and pool images; from the second stage on selected ones too."""
        config = self.config
        wants = {
            "labelled": labelled_want(config),
            "pool": Want(Source.POOL, tuple(map(View, config.pool_views)), config.pool_ratio),
        }
        if stage is Stage.SELF_TRAIN:
            views = (View.WEAK, View.STRONG)
            wants["selected"] = Want(Source.SELECTED, views, config.pool_ratio)
        return wants

    def loss(self, batch: Batch, progress: Progress) -> Losses:
        """Cross-entropy, one-vs-all loss, OEM and SOCR; FixMatch once there are selected images."""
        config = self.config
        assert config.consistency_weight is not None
        labelled, pool, chosen = self._features(batch, progress)
        labels = batch.labelled.labels.repeat(len(config.labelled_views))
        ova_labelled, ova_pool = self.detector(torch.cat([labelled, pool])).tensor_split(
            [len(labelled)]
        )
        pool_consistency = one_vs_all.consistency(*ova_pool.chunk(2)).mean()
        terms = {
            "ce": losses.cross_entropy(self.classifier(labelled), labels).mean(),
            "ova": config.ova_weight * one_vs_all.hard_negative_loss(ova_labelled, labels).mean(),
            "entropy": config.entropy_weight * one_vs_all.binary_entropy(ova_pool).mean(),
            "consistency": config.consistency_weight * pool_consistency,
        }
        monitors = {}
        if chosen is not None:
            weak, strong = self.classifier(chosen).chunk(2)
            value = losses.fixmatch(strong, weak, config.fixmatch_threshold)
            terms["fixmatch"] = config.fixmatch_weight * value.mean()
            monitors["pseudo_confidence"] = scores.max_softmax(weak.detach()).mean()
        return Losses(terms, monitors)

    def _features(self, batch: Batch, progress: Progress) -> tuple[Tensor, Tensor, Tensor | None]:
        """Features of all labelled views, both pool views and, if any, both selected views."""
        labelled_views = views_to_train_on(batch.labelled, self.config, progress)
        first = torch.cat([*labelled_views, *batch.unlabelled["pool"].views])
        rows = len(batch.labelled.labels) * len(labelled_views)
        selected = batch.unlabelled.get("selected")
        chosen: Tensor | None
        if selected is None:
            features, chosen = self.backbone(first), None
        elif self.config.forward_passes == "two":
            features, chosen = self.backbone(first), self.backbone(torch.cat(selected.views))
        else:
            together = self.backbone(torch.cat([first, *selected.views]))
            features, chosen = together.tensor_split([len(first)])
        labelled, pool = features.tensor_split([rows])
        return labelled, pool, chosen

    def select(self, outputs: Outputs) -> Selection:
        """The pool images that the averaged model takes for inliers; at least the likeliest."""
        believed = outputs.score.sigmoid() > self.config.selection_threshold
        inliers = believed.nonzero().squeeze(-1)
        if not len(inliers):
            inliers = outputs.score.argmax().view(1)
        return Selection(inliers)

    def outputs(self, images: Tensor) -> Outputs:
        """Features, logits and the log-odds of o at the predicted class."""
        features = self.backbone(images)
        logits = self.classifier(features)
        score = one_vs_all.inlier_log_odds(self.detector(features), logits.argmax(-1))
        return Outputs(features, logits, score)
