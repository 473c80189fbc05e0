"""T2T: trash to treasure (Huang et al., ICCV 2021).

Beside the classifier there are a head that tells by how much a pool image was turned, outliers
included, and a cross-modal matching head: a logit of whether an image and a class belong together.
Matching learns from labelled images with their own class (belongs), the strongest wrong class and a
random other one (do not). In self-training the matching head also becomes decided on pool images,
by the entropy of its answers, and the pool images that match their predicted class, by Otsu's
threshold, join UDA. The inlier score is the matching logit of an image and its predicted class.

Chosen where the specification leaves a choice, or where this engine differs: the pool is filtered
anew each epoch (the original: every tenth of the second stage); all pairs of a step pass the
matching head together, so that its BatchNorm cannot tell labelled from pool images; learning rate,
schedule, weight decay and averaging are the engine's, the same in both stages (the original: a
first stage at 0.1 that falls in steps, decay of every parameter, no average). Since the averaged
weights judge, the matching head's BatchNorm averages over as many steps as theirs.
"""

from dataclasses import dataclass

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
    Selection,
    Source,
    Stage,
    Task,
    Want,
)
from anedl.networks.encoder import ImageEncoder
from anedl.networks.heads import SoftmaxHead
from anedl.options import option
from anedl.otsu import otsu_threshold
from anedl.turns import TURNS, turned_each_way
from anedl.views import View


@dataclass(frozen=True)
class T2tConfig(MethodConfig):
    """Every constant of T2T, with its source."""

    matching_weight: float = option(1.0, "weight of matching on labelled images (released)")
    rotation_weight: float = option(1.0, "weight of telling rotations of pool images (released)")
    entropy_weight: float = option(1.0, "weight of the entropy of matching on the pool (released)")
    uda_weight: float = option(1.0, "weight of UDA on kept pool images (released)")
    uda_temperature: float = option(0.4, "temperature of UDA's targets (released)")
    uda_threshold: float = option(0.8, "least softmax of a weak view for UDA (released)")
    ramp_share: float = option(
        0.2, "share of self-training over which the pool's two terms rise (released: 40k of 200k)"
    )
    match_width: int = option(128, "width of label embedding and hidden matching layer (released)")
    match_bn_momentum: float | None = option(
        None,
        "BatchNorm momentum in the matching head; default: the trunk's, for here the averaged "
        "model judges (released: 0.1, where the model in training does)",
    )
    pool_ratio: int = option(1, "pool images a labelled image, each in four rotations (released)")
    selected_ratio: int = option(5, "kept pool images a labelled image in UDA (released)")

    def __post_init__(self) -> None:
        for name in ("match_width", "pool_ratio", "selected_ratio"):
            if getattr(self, name) < 1:
                raise ConfigError(f"option {name}: must be at least 1, got {getattr(self, name)}")
        if self.uda_temperature <= 0:
            raise ConfigError(
                f"option uda_temperature: must be positive, got {self.uda_temperature}"
            )
        for name in ("ramp_share", "match_bn_momentum"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise ConfigError(f"option {name}: must lie in 0…1, got {value}")


class MatchingHead(nn.Module):
    """A logit (N,) of whether features (N, feature_width) and classes (N,) belong together."""

    def __init__(self, feature_width: int, classes: int, width: int, bn_momentum: float) -> None:
        super().__init__()
        self.classes = classes
        # No biases before the BatchNorm, which would take them out again.
        self.embed = nn.Linear(classes, width, bias=False)
        self.hidden = nn.Linear(feature_width + width, width, bias=False)
        self.norm = nn.BatchNorm1d(width, momentum=bn_momentum)
        self.last = nn.Linear(width, 1)

    def forward(self, features: Tensor, classes: Tensor) -> Tensor:
        """Match row by row."""
        # A product with one-hot rows, not a look-up: its gradient adds up in a fixed order.
        embedded = self.embed(losses.one_hot(classes, self.classes, features.dtype))
        hidden = self.norm(self.hidden(torch.cat([features, embedded], -1)))
        logits: Tensor = self.last(F.relu(hidden)).squeeze(-1)
        return logits


def hard_negative(logits: Tensor, labels: Tensor) -> Tensor:
    """The class with the highest logit that is not the label; (N, K) and (N,) → (N,)."""
    is_label = losses.one_hot(labels, logits.shape[-1], torch.bool)
    return logits.detach().masked_fill(is_label, -torch.inf).argmax(-1)


def other_class(excluded: tuple[Tensor, ...], classes: int) -> Tensor:
    """Draw a class uniformly from all but the excluded ones; each (N,), pairwise different → (N,).

    A number among those that are left steps over every excluded one, from the lowest up.
    """
    ordered = torch.stack(excluded).sort(0).values
    drawn = torch.randint(0, classes - len(excluded), excluded[0].shape, device=ordered.device)
    for barred in ordered:
        drawn = drawn + (drawn >= barred).long()
    return drawn


@in_full_precision
def matching_loss(logits: Tensor, belongs: Tensor) -> Tensor:
    """Binary cross-entropy of matching logits (N,) against 1 (belongs) or 0 (N,); (N,)."""
    return F.binary_cross_entropy_with_logits(logits, belongs, reduction="none")


@in_full_precision
def matching_entropy(logits: Tensor) -> Tensor:
    """Entropy in nats of a yes with probability σ(logit); (N,) → (N,)."""
    # It is even in the logit, and on the negative side nothing cancels.
    negative = -logits.abs()
    return F.softplus(negative) - negative * negative.sigmoid()


@in_full_precision
def uda(
    strong_logits: Tensor, weak_logits: Tensor, temperature: float, threshold: float
) -> tuple[Tensor, Tensor]:
    """KL(softmax(weak/T) ‖ softmax(strong)) (N,), and 1.0 where the weak softmax is sure (N,).

    The weak view gets no gradient. Sure is a largest softmax (of temperature 1) from `threshold`
    on; the loss is the mean over the sure alone.
    """
    weak = weak_logits.detach()
    target = (weak / temperature).log_softmax(-1)
    divergence = (target.exp() * (target - strong_logits.log_softmax(-1))).sum(-1)
    _, sure = losses.pseudo_labels(weak, threshold)
    return divergence, sure


class T2t(Method):
    """Trash to treasure: rotations of the whole pool, cross-modal matching, UDA on what matches."""

    config_type = T2tConfig
    config: T2tConfig

    def __init__(self, config: T2tConfig, backbone: ImageEncoder, task: Task) -> None:
        super().__init__(config, backbone, task)
        if task.classes < 3:
            raise ConfigError(
                f"T2T needs three known classes or more (a label, the strongest wrong class and "
                f"another one), got {task.classes}: take another method"
            )
        width = backbone.feature_width
        self.classifier = SoftmaxHead(width, task.classes)
        self.rotation = nn.Linear(width, TURNS)
        momentum = config.match_bn_momentum
        self.match = MatchingHead(
            width, task.classes, config.match_width,
            backbone.bn_momentum if momentum is None else momentum,
        )  # fmt: skip
        self.pretrained = nn.Buffer(torch.zeros(()))  # share of the run before self-training

    @property
    def needs_pixels(self) -> str:
        """To turn images."""
        return "turns images"

    def wants(self, stage: Stage) -> dict[str, Want]:
        """Labelled and pool images; in self-training kept ones in two views."""
        wants = {
            "labelled": Want(Source.LABELLED, (View.WEAK,)),
            "pool": Want(Source.POOL, (View.WEAK,), self.config.pool_ratio),
        }
        if stage is Stage.SELF_TRAIN:
            views = (View.WEAK, View.STRONG)
            wants["selected"] = Want(Source.SELECTED, views, self.config.selected_ratio)
        return wants

    def loss(self, batch: Batch, progress: Progress) -> Losses:
        """CE + matching + rotation, and in self-training ramped entropy and UDA."""
        config = self.config
        selected = batch.unlabelled.get("selected")
        views = [batch.labelled.views[0], *(selected.views if selected is not None else ())]
        features = self.backbone(torch.cat(views))
        labels = batch.labelled.labels
        logits, kept_logits = self.classifier(features).tensor_split([len(labels)])

        pool_images = batch.unlabelled["pool"].views[0]
        rotated, turns = turned_each_way(pool_images)
        rotated_features = self.backbone(rotated)
        rotation = losses.cross_entropy(self.rotation(rotated_features), turns)

        pairs = [self._labelled_pairs(features[: len(labels)], logits, labels)]
        if selected is not None:
            pairs.append(self._pool_pairs(rotated_features[: len(pool_images)]))
        matches = self._match(pairs)
        belongs = torch.zeros_like(matches[0])
        belongs[: len(labels)] = 1.0
        terms = {
            "ce": losses.cross_entropy(logits, labels).mean(),
            "matching": config.matching_weight * matching_loss(matches[0], belongs).mean(),
            "rotation": config.rotation_weight * rotation.mean(),
        }
        if selected is None:
            with torch.no_grad():
                self.pretrained.copy_(progress.fraction)
            return Losses(terms)

        ramp = progress.rise(config.ramp_share, self.pretrained)
        terms["entropy"] = ramp * config.entropy_weight * matching_entropy(matches[1]).mean()
        weak, strong = kept_logits.chunk(2)
        divergence, sure = uda(strong, weak, config.uda_temperature, config.uda_threshold)
        # Over the sure ones only; without any the sum is 0 and so is the term.
        value = (divergence * sure).sum() / sure.sum().clamp(min=1.0)
        terms["uda"] = ramp * config.uda_weight * value
        return Losses(terms, {"sure_share": sure.mean()})

    def _labelled_pairs(
        self, features: Tensor, logits: Tensor, labels: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Features and classes of three pairs an image: its own class, a hard and an easy wrong."""
        hard = hard_negative(logits, labels)
        easy = other_class((labels, hard), self.task.classes)
        return features.repeat(3, 1), torch.cat([labels, hard, easy])

    def _pool_pairs(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Features and classes of two pairs an image: the predicted class and a random other."""
        predicted = self.classifier(features.detach()).argmax(-1)
        other = other_class((predicted,), self.task.classes)
        return features.repeat(2, 1), torch.cat([predicted, other])

    def _match(self, pairs: list[tuple[Tensor, Tensor]]) -> list[Tensor]:
        """Matching logits of each group of pairs, from one pass of the head."""
        features = torch.cat([group for group, _ in pairs])
        classes = torch.cat([group for _, group in pairs])
        logits: Tensor = self.match(features, classes)
        return list(torch.split(logits, [len(group) for group, _ in pairs]))

    def select(self, outputs: Outputs) -> Selection:
        """The pool images that match their predicted class, above Otsu's cut; never none."""
        probability = outputs.score.sigmoid()
        kept = probability >= otsu_threshold(probability)
        return Selection(kept.nonzero().squeeze(-1))

    def outputs(self, images: Tensor) -> Outputs:
        """Features, logits and the log-odds that image and predicted class belong together."""
        features = self.backbone(images)
        logits = self.classifier(features)
        match = self.match(features, logits.argmax(-1))
        return Outputs(features, logits, match.float())
