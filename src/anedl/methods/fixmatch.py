"""FixMatch: confident predictions on weak views label the strong ones (Sohn et al., NeurIPS 2020).

Closed-set self-training as the yardstick of open-set methods: the whole pool takes part from the
first step, outliers included, and nothing but the confidence threshold keeps them out. The inlier
score is the largest softmax probability.

Both stages are alike, and the catalogue has it start with the second. The paper has seven pool
images a labelled one; the default here is two, as in the open-set protocol and in ANEDL.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from anedl import losses, scores
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


@dataclass(frozen=True)
class FixMatchConfig(MethodConfig):
    """The paper's constants, but for the size of the pool's part."""

    labelled_views: tuple[ViewName, ...] = option(
        ("weak",), "views of labelled images (paper: weak once)"
    )
    pool_ratio: int = option(2, "μ, pool images a labelled image (paper: 7; open-set protocol: 2)")
    fixmatch_weight: float = option(1.0, "λ_u, weight of the pool's loss (paper)")
    fixmatch_threshold: float = option(0.95, "least confidence of a pseudo-label (paper)")

    def __post_init__(self) -> None:
        if not self.labelled_views:
            raise ConfigError("option labelled_views: needs one view or more")
        if self.pool_ratio < 1:
            raise ConfigError(f"option pool_ratio: must be at least 1, got {self.pool_ratio}")


class FixMatch(Method):
    """FixMatch on the whole pool, outliers and all."""

    config_type = FixMatchConfig
    config: FixMatchConfig

    def __init__(self, config: FixMatchConfig, backbone: ImageEncoder, task: Task) -> None:
        super().__init__(config, backbone, task)
        self.classifier = SoftmaxHead(backbone.feature_width, task.classes)

    def wants(self, stage: Stage) -> dict[str, Want]:
        """Labelled images and a weak and a strong view of pool images, in both stages."""
        config = self.config
        return {
            "labelled": Want(Source.LABELLED, tuple(map(View, config.labelled_views))),
            "pool": Want(Source.POOL, (View.WEAK, View.STRONG), config.pool_ratio),
        }

    def loss(self, batch: Batch, progress: Progress) -> Losses:
        """Cross-entropy on labels and on confident pseudo-labels, from one forward pass."""
        config = self.config
        labels = batch.labelled.labels.repeat(len(batch.labelled.views))
        weak, strong = batch.unlabelled["pool"].views
        logits = self.classifier(self.backbone(torch.cat([*batch.labelled.views, weak, strong])))
        labelled, weak_logits, strong_logits = torch.split(
            logits, [len(labels), len(weak), len(strong)]
        )
        pool = losses.fixmatch(strong_logits, weak_logits, config.fixmatch_threshold)
        _, confident = losses.pseudo_labels(weak_logits, config.fixmatch_threshold)
        return Losses(
            {
                "ce": losses.cross_entropy(labelled, labels).mean(),
                "fixmatch": config.fixmatch_weight * pool.mean(),
            },
            {
                "pseudo_confidence": scores.max_softmax(weak_logits.detach()).mean(),
                "pseudo_share": confident.mean(),
            },
        )

    def outputs(self, images: Tensor) -> Outputs:
        """Features, logits and the largest softmax probability."""
        features = self.backbone(images)
        logits = self.classifier(features)
        return Outputs(features, logits, scores.max_softmax(logits))
