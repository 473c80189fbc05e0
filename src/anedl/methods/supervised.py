"""Supervised: cross-entropy on the labelled images alone; the pool is never looked at.

The yardstick for "did the pool help?": same backbone, augmentation, steps, schedule and EMA. The
inlier score is the largest softmax probability.
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
class SupervisedConfig(MethodConfig):
    """The labelled views are all there is to choose."""

    labelled_views: tuple[ViewName, ...] = option(
        ("flip", "weak"), "views of labelled images; as ANEDL's, so that only the pool differs"
    )

    def __post_init__(self) -> None:
        if not self.labelled_views:
            raise ConfigError("option labelled_views: needs one view or more")


class Supervised(Method):
    """See the module's docstring."""

    config_type = SupervisedConfig
    config: SupervisedConfig

    def __init__(self, config: SupervisedConfig, backbone: ImageEncoder, task: Task) -> None:
        super().__init__(config, backbone, task)
        self.classifier = SoftmaxHead(backbone.feature_width, task.classes)

    def wants(self, stage: Stage) -> dict[str, Want]:
        """Labelled images, in both stages."""
        return {"labelled": Want(Source.LABELLED, tuple(map(View, self.config.labelled_views)))}

    def loss(self, batch: Batch, progress: Progress) -> Losses:
        """Cross-entropy over all labelled views."""
        views = batch.labelled.views
        logits = self.classifier(self.backbone(torch.cat(views)))
        labels = batch.labelled.labels.repeat(len(views))
        return Losses({"ce": losses.cross_entropy(logits, labels).mean()})

    def outputs(self, images: Tensor) -> Outputs:
        """Features, logits and the largest softmax probability."""
        features = self.backbone(images)
        logits = self.classifier(features)
        return Outputs(features, logits, scores.max_softmax(logits))
