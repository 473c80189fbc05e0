"""What EDL and I-EDL share here: an evidential head that learns from labels alone.

A softmax head classifies, and an evidential head beside it learns from the labelled images by one
of the classical losses; the pool has no evidential term. All else is ANEDL's, so that the detectors
compare like for like: after pre-training the O pool images with most evidence for their predicted
class join FixMatch with debiased pseudo-labels. The inlier score is the total evidence α₀, as in
the papers of both; EDL's vacuity K/α₀ ranks alike.

Choices: the pool is not looked at before it is first selected from, so BatchNorm sees labelled
images alone until then; labelled and selected images share one pass through the trunk, and labelled
ones alone pass the evidential head. The evidential loss reaches the trunk, weighted by ANEDL's λ_P.
"""

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Literal, Self

import torch
from torch import Tensor

from anedl import losses, scores
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
from anedl.methods.ranking import highest
from anedl.networks.encoder import ImageEncoder
from anedl.networks.heads import EvidentialHead, SoftmaxHead
from anedl.options import option
from anedl.views import View


@dataclass(frozen=True)
class LabelledEvidentialConfig(LabelledViewsConfig):
    """The classical detectors' options; self-training's are as ANEDL has them."""

    evidential_weight: float = option(
        0.4, "weight of the evidential loss beside the cross-entropy (ANEDL's λ_P)"
    )
    kl_weight: float = option(1.0, "weight of the KL to no evidence once it has risen (paper)")
    kl_ramp_share: float = option(
        0.05,
        "share of the run over which the KL weight rises from 0; "
        "paper: min(1, epoch/10), which is this in a run of 200 epochs",
    )
    evidence: Literal["softplus", "relu", "exp"] = option(
        "softplus", "evidence activation (I-EDL, ANEDL: softplus; EDL: relu)"
    )
    head_width: int | None = option(
        None, "hidden width of the evidential head; default: the trunk's"
    )
    head_batchnorm: bool = option(True, "BatchNorm in the evidential head (as ANEDL)")
    pool_ratio: int = option(2, "selected images a labelled image (as ANEDL)")
    fixmatch_weight: float = option(1.0, "weight of FixMatch (as ANEDL)")
    fixmatch_threshold: float = option(0.0, "least confidence of a pseudo-label (as ANEDL)")
    debias: bool = option(True, "DebiasPL in FixMatch (as ANEDL)")
    debias_tau: float = option(1.0, "τ of DebiasPL")
    debias_momentum: float = option(0.999, "momentum of DebiasPL's q̂")
    selection_share: float | None = option(
        None, "O as a share of the pool; default: 0.71 × the true inlier share, oracle knowledge"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("pool_ratio", "head_width"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"option {name}: must be at least 1, got {value}")
        if self.selection_share is not None and not 0 < self.selection_share <= 1:
            raise ConfigError(f"selection_share must lie in 0…1, got {self.selection_share}")
        if not 0 <= self.kl_ramp_share <= 1:
            raise ConfigError(f"kl_ramp_share must lie in 0…1, got {self.kl_ramp_share}")

    def resolved(self, task: Task) -> Self:
        """Take from the task what was not given of O and the early part's length."""
        share = task.inlier_share if self.selection_share is None else self.selection_share
        return replace(super().resolved(task), selection_share=share)


class LabelledEvidential(Method):
    """See the module's docstring; a subclass brings its evidential loss."""

    config_type = LabelledEvidentialConfig
    config: LabelledEvidentialConfig

    def __init__(
        self, config: LabelledEvidentialConfig, backbone: ImageEncoder, task: Task
    ) -> None:
        config = config.resolved(task)
        super().__init__(config, backbone, task)
        width = backbone.feature_width
        self.classifier = SoftmaxHead(width, task.classes)
        self.detector = EvidentialHead(
            width,
            task.classes,
            hidden_width=config.head_width,
            activation=config.evidence,
            bn_momentum=backbone.bn_momentum if config.head_batchnorm else None,
        )
        self.prior = torch.nn.Buffer(torch.full((task.classes,), 1 / task.classes))

    @abstractmethod
    def evidential_loss(self, alpha: Tensor, labels: Tensor, kl_weight: Tensor) -> Tensor:
        """Give the loss (N,) of alpha (N, K) at labels (N,) with the KL weight of the moment."""

    def wants(self, stage: Stage) -> dict[str, Want]:
        """Labelled images; from the second stage on selected ones too."""
        config = self.config
        wants = {"labelled": labelled_want(config)}
        if stage is Stage.SELF_TRAIN:
            views = (View.WEAK, View.STRONG)
            wants["selected"] = Want(Source.SELECTED, views, config.pool_ratio)
        return wants

    def loss(self, batch: Batch, progress: Progress) -> Losses:
        """Cross-entropy and evidential loss on labels; FixMatch once images are selected."""
        labelled_views = views_to_train_on(batch.labelled, self.config, progress)
        labels = batch.labelled.labels.repeat(len(labelled_views))
        selected = batch.unlabelled.get("selected")
        chosen_views = selected.views if selected is not None else ()
        features = self.backbone(torch.cat([*labelled_views, *chosen_views]))
        labelled, chosen = features.tensor_split([len(labels)])
        alpha = self.detector(labelled)
        evidential = self.evidential_loss(alpha, labels, self._kl_weight(progress))
        terms = {
            "ce": losses.cross_entropy(self.classifier(labelled), labels).mean(),
            "evidential": self.config.evidential_weight * evidential.mean(),
        }
        monitors = {"evidence_labelled": alpha.detach().sum(-1).mean()}
        if selected is not None:
            weak, strong = self.classifier(chosen).chunk(2)
            terms["fixmatch"] = self.config.fixmatch_weight * self._fixmatch(weak, strong).mean()
            monitors["pseudo_confidence"] = scores.max_softmax(weak.detach()).mean()
        return Losses(terms, monitors)

    def _kl_weight(self, progress: Progress) -> Tensor:
        """kl_weight × min(1, share of the run done / kl_ramp_share), ()."""
        if self.config.kl_ramp_share == 0:
            return torch.full_like(progress.fraction, self.config.kl_weight)
        ramp = (progress.fraction / self.config.kl_ramp_share).clamp(max=1.0)
        return self.config.kl_weight * ramp

    def _fixmatch(self, weak: Tensor, strong: Tensor) -> Tensor:
        """FixMatch (n,) on logits (n, K) of selected images, with debiased pseudo-labels."""
        config = self.config
        if not config.debias:
            return losses.fixmatch(strong, weak, config.fixmatch_threshold)
        value = losses.debiased_fixmatch(
            strong, weak, self.prior, config.fixmatch_threshold, config.debias_tau
        )
        with torch.no_grad():
            self.prior.copy_(losses.update_prior(self.prior, weak, config.debias_momentum))
        return value

    def select(self, outputs: Outputs) -> Selection:
        """The O pool images with the highest concentration of their predicted class."""
        assert outputs.alpha is not None
        assert self.config.selection_share is not None
        ranking = scores.self_training_confidence(outputs.logits, outputs.alpha)
        count = max(1, round(self.config.selection_share * len(ranking)))
        return Selection(highest(ranking, count))

    def outputs(self, images: Tensor) -> Outputs:
        """Features, logits, Dirichlet parameters and their sum."""
        features = self.backbone(images)
        alpha = self.detector(features)
        return Outputs(features, self.classifier(features), scores.total_evidence(alpha), alpha)
