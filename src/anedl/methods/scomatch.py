"""SCOMatch: outliers as one more class, learnt from a queue of likely outliers (ECCV 2024).

One linear head has K + 1 outputs, the last of them for outliers. Four terms train it: the labels; a
queue that each step pushes the pool image least like a known class into; open-set self-training on
one part of the pool with all K + 1 outputs; close-set self-training on another with the first K.
Both stages of the engine are the same to it.

Choices where the published code leaves one open. The confidence of close-set self-training is the
K-way one of the images it is about; the published code reads it off the other, unrelated part,
which `close_confidence` "official" repeats. The inlier score is the log-odds against the outlier
class, ordered as 1 − P(outlier) but without its rounding to 1; the K-way confidence, which the
paper may have tabulated instead, is among the scores that every run reports. The outlier class's
threshold divides by the confident images of all known classes together, as the published code does
where a name in it hints at the largest class alone; its half passes over the pool follow each other
through the run, and do not begin anew with an epoch. Until the queue holds a batch, labelled images
stand in for its images in the forward pass, so that BatchNorm sees nothing odd, and its term is
zero. The queue, its counters and the threshold are saved with the run.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from anedl import losses
from anedl.dirichlet import in_full_precision
from anedl.errors import ConfigError
from anedl.losses import Weight
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
from anedl.options import option
from anedl.outlier_class import known_log_odds
from anedl.views import View, ViewName

WITH_HEAD_BIAS = ("imagenet30", "miniimagenet")  # those with a ResNet-18


@dataclass(frozen=True)
class ScomatchConfig(MethodConfig):
    """Every choice in SCOMatch; "released" is what its published code does."""

    threshold: float = option(0.95, "least confidence of a pseudo-label (released)")
    least_outlier_threshold: float = option(
        0.75, "the outlier class's threshold falls no lower than this (released)"
    )
    queue_size: int | None = option(
        None, "images the outlier queue holds; default: 8 a class, at least 256 (released)"
    )
    queue_push: int = option(1, "K_m, images pushed into the queue each step (released)")
    queue_weight: float = option(1.0, "weight of the queue's term (released)")
    open_weight: float = option(1.0, "weight of open-set self-training (released)")
    close_weight: float = option(1.0, "weight of close-set self-training (released)")
    open_views: Literal["strong", "both"] | None = option(
        None, "views open-set self-training trains; default: CIFAR-10 strong, else both (released)"
    )
    close_confidence: Literal["known", "all", "official"] = option(
        "known",
        "what must be confident for close-set self-training: the K known outputs, all K + 1, or, "
        "as released, all K + 1 of the other part's images",
    )
    labelled_views: tuple[ViewName, ...] = option(("weak",), "views of labelled images (released)")
    pool_ratio: int = option(2, "pool images a labelled image, in each of the two parts (released)")
    head_bias: bool | None = option(
        None, "bias in the head; default: with a ResNet-18 set of images only (released)"
    )

    def __post_init__(self) -> None:
        if not self.labelled_views:
            raise ConfigError("option labelled_views: needs one view or more")
        for name in ("queue_size", "queue_push", "pool_ratio"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"option {name}: must be at least 1, got {value}")
        if not 0 <= self.least_outlier_threshold <= self.threshold <= 1:
            raise ConfigError(
                f"options least_outlier_threshold and threshold: need 0 ≤ first ≤ second ≤ 1, "
                f"got {self.least_outlier_threshold} and {self.threshold}"
            )

    def resolved(self, task: Task) -> Self:
        """Fill in the queue's size, the trained views and the head's bias."""
        defaults = {
            "queue_size": max(8 * task.classes, 256),
            "open_views": "strong" if task.dataset == "cifar10" else "both",
            "head_bias": task.dataset in WITH_HEAD_BIAS,
        }
        missing: dict[str, Any] = {
            key: value for key, value in defaults.items() if getattr(self, key) is None
        }
        return replace(self, **missing)


class Scomatch(Method):
    """See the module's docstring."""

    config_type = ScomatchConfig
    config: ScomatchConfig

    def __init__(self, config: ScomatchConfig, backbone: ImageEncoder, task: Task) -> None:
        config = config.resolved(task)
        super().__init__(config, backbone, task)
        assert config.queue_size is not None
        if config.queue_push > config.queue_size:
            raise ConfigError(
                f"option queue_push: {config.queue_push} images do not fit into a queue of "
                f"{config.queue_size}"
            )
        self.classifier = nn.Linear(
            backbone.feature_width, task.classes + 1, bias=bool(config.head_bias)
        )
        nn.init.xavier_normal_(self.classifier.weight)
        if self.classifier.bias is not None:
            nn.init.zeros_(self.classifier.bias)

        channels, side = len(backbone.normalise.mean), task.image_size
        # For training alone: a saved model must not carry pool images about.
        self.queue_images = nn.Buffer(
            torch.zeros(config.queue_size, channels, side, side, dtype=torch.uint8),
            persistent=False,
        )
        self.queue_scores = nn.Buffer(torch.zeros(config.queue_size), persistent=False)
        # Images, since the run began.
        self.pushed = nn.Buffer(torch.zeros((), dtype=torch.int64), persistent=False)
        self.outlier_threshold = nn.Buffer(torch.tensor(config.threshold))
        # Confident [known, outlier] images since the threshold was set, and steps since then.
        self.confident_counts = nn.Buffer(torch.zeros(2, dtype=torch.int64), persistent=False)
        self.counted_steps = nn.Buffer(torch.zeros((), dtype=torch.int64), persistent=False)

    @property
    def needs_pixels(self) -> str:
        """To keep images that look like outliers."""
        return "keeps images that look like outliers"

    def wants(self, stage: Stage) -> dict[str, Want]:
        """Labelled images and two independent parts of the pool, in both stages."""
        views = (View.WEAK, View.STRONG)
        return {
            "labelled": Want(Source.LABELLED, tuple(map(View, self.config.labelled_views))),
            "open": Want(Source.POOL, views, self.config.pool_ratio),
            "close": Want(Source.POOL, views, self.config.pool_ratio),
        }

    def loss(self, batch: Batch, progress: Progress) -> Losses:
        """Labels, queue, open-set and close-set self-training."""
        config = self.config
        queued, queued_scores, available = self._draw_queued(batch.labelled.views[0])
        open_images = batch.unlabelled["open"].views
        parts = [*batch.labelled.views, queued, *open_images, *batch.unlabelled["close"].views]
        logits = self.classifier(self.backbone(torch.cat(parts)))
        *labelled, queue, open_weak, open_strong, close_weak, close_strong = torch.split(
            logits, [len(part) for part in parts]
        )

        labels = batch.labelled.labels.repeat(len(labelled))
        queue_term = queued_outliers(queue, queued_scores, config.threshold).mean()
        open_labels, open_used = open_pseudo_labels(
            open_weak, config.threshold, self.outlier_threshold
        )
        open_logits = [open_weak, open_strong] if config.open_views == "both" else [open_strong]
        open_term = torch.cat(
            [losses.cross_entropy(view, open_labels) * open_used for view in open_logits]
        )
        if config.close_confidence == "official":
            confidence = open_weak
        else:
            confidence = close_weak[:, :-1] if config.close_confidence == "known" else close_weak
        _, confident = losses.pseudo_labels(confidence, config.threshold)
        close_term = close_self_training(close_strong, close_weak, confident)
        terms = {
            "ce": losses.cross_entropy(torch.cat(labelled), labels).mean(),
            "queue": config.queue_weight * available * queue_term,
            "open": config.open_weight * open_term.mean(),
            "close": config.close_weight * close_term.mean(),
        }
        monitors = {
            "outlier_threshold": self.outlier_threshold.clone(),
            "open_used": open_used.mean(),
            "open_outliers": (open_used * (open_labels == self.task.classes)).mean(),
        }
        self._push(open_images[0], open_weak)
        self._count(open_weak)
        return Losses(terms, monitors)

    @torch.no_grad()
    def _draw_queued(self, instead: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Distinct random images of the queue, their scores (n,), and 1.0 once there are n, ().

        n is the size of a labelled batch, or the queue's if that is smaller. Until there are n, the
        images are those of `instead` (N, C, H, W).
        """
        size = len(self.queue_scores)
        count = min(len(instead), size)
        empty = torch.arange(size, device=instead.device) >= self.pushed
        keys = torch.rand(size, device=instead.device) - empty.float()
        drawn = keys.topk(count).indices
        available = self.pushed >= count
        images = torch.where(available, self.queue_images.index_select(0, drawn), instead[:count])
        return images, self.queue_scores.index_select(0, drawn), available.float()

    @torch.no_grad()
    def _push(self, images: Tensor, logits: Tensor) -> None:
        """Overwrite the oldest images of the queue with those of `images` least like a class."""
        score, chosen = known_probability(logits).topk(self.config.queue_push, largest=False)
        slots = torch.arange(self.config.queue_push, device=images.device) + self.pushed
        slots = slots % len(self.queue_scores)
        self.queue_images.index_copy_(0, slots, images.index_select(0, chosen))
        self.queue_scores.index_copy_(0, slots, score)
        self.pushed.add_(self.config.queue_push)

    @torch.no_grad()
    def _count(self, logits: Tensor) -> None:
        """Count confident images; after each half pass over the pool set the outlier threshold."""
        config = self.config
        half_pass = max(1, self.task.pool_size // (2 * len(logits)))
        self.confident_counts.add_(confident_counts(logits, config.threshold))
        self.counted_steps.add_(1)
        due = self.counted_steps >= half_pass
        known, outliers = self.confident_counts.unbind()
        least, most = config.least_outlier_threshold, config.threshold
        self.outlier_threshold.copy_(
            torch.where(
                due, next_outlier_threshold(outliers, known, least, most), self.outlier_threshold
            )
        )
        kept = (~due).long()
        self.confident_counts.mul_(kept)
        self.counted_steps.mul_(kept)

    def outputs(self, images: Tensor) -> Outputs:
        """Features, the K known logits and the log-odds against the outlier class."""
        features = self.backbone(images)
        logits = self.classifier(features)
        return Outputs(features, logits[:, :-1], known_log_odds(logits))


@in_full_precision
def known_probability(logits: Tensor) -> Tensor:
    """The largest probability of a known class, (N,), by a softmax over all (N, K + 1) logits."""
    return logits.detach().softmax(-1)[:, :-1].amax(-1)


@in_full_precision
def queued_outliers(logits: Tensor, scores: Tensor, threshold: Weight) -> Tensor:
    """Cross-entropy (N,) of (N, K + 1) logits towards the outlier class.

    An image whose stored score (N,) reached `threshold`, so it looked like a known class, counts 0.
    """
    labels = torch.full_like(scores, logits.shape[-1] - 1, dtype=torch.int64)
    return losses.cross_entropy(logits, labels) * (scores < threshold)


@in_full_precision
def open_pseudo_labels(
    weak_logits: Tensor, threshold: Weight, outlier_threshold: Tensor
) -> tuple[Tensor, Tensor]:
    """Labels (N,) among K + 1 classes, and 1.0 where they are confident enough, (N,).

    Enough is `threshold` for a known class and `outlier_threshold` () for the outlier class. No
    gradient flows through either result.
    """
    confidence, labels = weak_logits.detach().softmax(-1).max(-1)
    is_outlier = labels == weak_logits.shape[-1] - 1
    needed = torch.where(is_outlier, outlier_threshold, threshold)
    return labels, (confidence >= needed).to(confidence.dtype)


@in_full_precision
def close_self_training(strong_logits: Tensor, weak_logits: Tensor, confident: Tensor) -> Tensor:
    """K-way cross-entropy (N,) of the strong view towards the weak view's known class.

    From (N, K + 1) logits. An image counts 0 where the weak view says outlier, or where `confident`
    (N,) is 0.
    """
    weak = weak_logits.detach()
    is_known = weak.argmax(-1) < weak.shape[-1] - 1
    labels = weak[:, :-1].argmax(-1)
    return losses.cross_entropy(strong_logits[:, :-1], labels) * (confident * is_known)


@in_full_precision
def confident_counts(logits: Tensor, threshold: Weight) -> Tensor:
    """How many of (N, K + 1) logits exceed `threshold`: [for known classes, for outliers], (2,)."""
    confidence, labels = logits.detach().softmax(-1).max(-1)
    confident = confidence > threshold
    is_outlier = labels == logits.shape[-1] - 1
    return torch.stack([(confident & ~is_outlier).sum(), (confident & is_outlier).sum()])


@in_full_precision
def next_outlier_threshold(outliers: Tensor, known: Tensor, least: float, most: float) -> Tensor:
    """most · outliers / known within least…most, (); `most` where no known image was confident."""
    ratio = most * outliers / known.clamp_min(1)
    return torch.where(known > 0, ratio.clamp(least, most), most)
