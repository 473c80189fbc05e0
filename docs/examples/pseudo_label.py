"""Pseudo-labelling (Lee, 2013) as a method of its own: confident predictions become labels."""

from dataclasses import dataclass

import torch

from anedl import losses, scores
from anedl.methods.base import Losses, Method, MethodConfig, Outputs, Source, Stage, Want
from anedl.networks.heads import SoftmaxHead
from anedl.options import option
from anedl.views import View


@dataclass(frozen=True)
class PseudoLabelConfig(MethodConfig):
    """Each field becomes a flag of `anedl train`."""

    threshold: float = option(0.95, "least confidence of a pseudo-label")
    weight: float = option(1.0, "weight of the pool's term")


class PseudoLabel(Method):
    """Cross-entropy on labels and, in the second stage, on confident pseudo-labels of the pool."""

    config_type = PseudoLabelConfig

    def __init__(self, config, backbone, task):
        super().__init__(config, backbone, task)
        self.classifier = SoftmaxHead(backbone.feature_width, task.classes)

    def wants(self, stage):
        wants = {"labelled": Want(Source.LABELLED, (View.WEAK,))}
        if stage is Stage.SELF_TRAIN:
            wants["pool"] = Want(Source.POOL, (View.WEAK,), ratio=2)
        return wants

    def loss(self, batch, progress):
        images = [*batch.labelled.views, *(v for u in batch.unlabelled.values() for v in u.views)]
        logits = self.classifier(self.backbone(torch.cat(images)))
        labelled, pool = logits.tensor_split([len(batch.labelled.labels)])
        terms = {"ce": losses.cross_entropy(labelled, batch.labelled.labels).mean()}
        if len(pool):
            own = losses.fixmatch(pool, pool, self.config.threshold)
            terms["pseudo"] = self.config.weight * own.mean()
        return Losses(terms)

    def outputs(self, images):
        features = self.backbone(images)
        logits = self.classifier(features)
        return Outputs(features, logits, scores.max_softmax(logits))
