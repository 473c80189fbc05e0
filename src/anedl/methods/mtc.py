"""MTC: multi-task curriculum (Yu et al., ECCV 2020).

Beside the classifier a second head says how likely an image is an inlier. It learns from soft
domain labels: 1 for labelled images; for a pool image 0 at first, later the mean of what the head
itself said of it in the last epochs. In pre-training that is all. In self-training Otsu's threshold
on these labels keeps part of the pool each epoch, and MixMatch learns from labelled and kept images
while the domain head goes on. The inlier score is the domain head's logit.

Chosen where the specification leaves a choice, or where an epoch or a batch is another thing here:

- The original draws one mixed batch from labelled and pool images together, in which labels are
  rare. Here the domain loss sees a batch of each, and labelled rows count as much as there are
  labelled images (`labelled_weight`). What the head said of the pool it learns from next, and
  labels pull that up towards 1; counting like pool rows they do so several times as fast.
- Its window is 10 of 100 pre-training epochs. Ours is shorter, as are our runs, and until it is
  full the selection uses the epochs there are; the labels of the pool stay 0 until then, as in the
  original. A pool image that an epoch did not visit keeps its last value instead of getting 0.
- In place of the engine's weight decay every parameter is multiplied by 1 − 0.02·lr after each step
  of self-training, as in the original (`multiplicative_decay` in the catalogue). Not on the digits,
  whose recipe is ours: in their 450 steps it would come to 2 %.
- Domain batch and mixed images pass the trunk together, so BatchNorm sees all of them.
- The averaged weights follow pre-training too, so that self-training begins with what it left; the
  original starts them with self-training.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

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
    Unlabelled,
    Want,
)
from anedl.mixmatch import draw_share, mix, sharpen, soft_cross_entropy, squared_error
from anedl.networks.encoder import ImageEncoder
from anedl.networks.heads import SoftmaxHead
from anedl.options import option
from anedl.otsu import otsu_threshold
from anedl.views import View


@dataclass(frozen=True)
class MtcConfig(MethodConfig):
    """Every constant of MTC, with its source."""

    domain_weight: float = option(1.0, "weight of the domain loss (released)")
    labelled_weight: float | None = option(
        None,
        "weight of a labelled row against a pool row in the domain loss; default: every image "
        "counts alike, as where the released code draws them together",
    )
    score_window: int = option(
        5, "epochs whose outputs make a soft domain label (released: 10 of 100 pre-training ones)"
    )
    temperature: float = option(0.5, "T of MixMatch's sharpening (released)")
    mix_concentration: float = option(0.75, "c of λ ~ Beta(c, c) in MixMatch (released)")
    pool_weight: float = option(75.0, "weight of the squared error of kept pool images (released)")
    ramp_share: float = option(
        16 / 1024, "share of self-training over which that weight rises (released: 16 of 1024)"
    )
    pool_ratio: int = option(1, "pool images a labelled image in the domain loss (released)")
    selected_ratio: int = option(1, "kept pool images a labelled image in MixMatch (released)")

    def __post_init__(self) -> None:
        for name in ("score_window", "pool_ratio", "selected_ratio"):
            if getattr(self, name) < 1:
                raise ConfigError(f"option {name}: must be at least 1, got {getattr(self, name)}")
        for name in ("temperature", "mix_concentration"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"option {name}: must be positive, got {getattr(self, name)}")
        if not 0 <= self.ramp_share <= 1:
            raise ConfigError(f"option ramp_share: must lie in 0…1, got {self.ramp_share}")


@in_full_precision
def domain_loss(logits: Tensor, soft_labels: Tensor) -> Tensor:
    """Binary cross-entropy of σ(logits) (N,) against soft labels in 0…1 (N,); (N,)."""
    return F.binary_cross_entropy_with_logits(logits, soft_labels, reduction="none")


class DomainMemory(torch.nn.Module):
    """What the domain head said of each pool image in the last epochs, and the labels made of it.

    `history` is a ring, (window, pool): the row of an epoch is its number modulo the window.
    `labels` (pool,) stay the same inside an epoch. `first` (pool,) is the epoch of an image's first
    visit: before it there is nothing to average. All are buffers, so that they are saved and the
    averaged model, which selects, has them too.
    """

    def __init__(self, window: int, pool_size: int) -> None:
        super().__init__()
        self.window = window
        self.history = torch.nn.Buffer(torch.zeros(window, pool_size))
        self.first = torch.nn.Buffer(torch.full((pool_size,), torch.inf))
        self.labels = torch.nn.Buffer(torch.zeros(pool_size))
        self.epoch = torch.nn.Buffer(torch.zeros(()))  # the last that was begun

    @torch.no_grad()
    def begin(self, epoch: Tensor) -> None:
        """Take in that `epoch` (), whole or with fractions, goes on; the first call of one counts.

        Then the labels become the mean of the window, once there is a full one, and the new
        epoch's row starts as a copy of the last: who is not visited keeps his value.
        """
        epoch = epoch.floor()
        new = epoch > self.epoch
        full = new & (epoch >= self.window)
        self.labels.copy_(torch.where(full, self.mean(), self.labels))
        row = _row(epoch, self.window)
        last = self.history.index_select(0, _row(epoch - 1, self.window))
        self.history.index_copy_(0, row, torch.where(new, last, self.history.index_select(0, row)))
        self.epoch.copy_(epoch)

    @torch.no_grad()
    def record(self, positions: Tensor, probabilities: Tensor) -> None:
        """Write what was said of the pool images at `positions` (N,) into the epoch's row."""
        flat = _row(self.epoch, self.window) * self.history.shape[1] + positions
        # Of an image that is twice in a batch the larger counts: the same one on every device.
        self.history.view(-1).scatter_reduce_(0, flat, probabilities, "amax", include_self=False)
        self.first.scatter_reduce_(0, positions, self.epoch.expand(len(positions)), "amin")

    def mean(self) -> Tensor:
        """The mean over the window, or since the first visit if that is later; (pool,).

        An image that no epoch has come to yet counts as the mean of all others.
        """
        visited = self.first.isfinite()
        means = self.history.sum(0) / (self.epoch - self.first + 1).clamp(1, self.window)
        typical = means.sum() / visited.sum().clamp_min(1)  # the others' means are 0
        return torch.where(visited, means, typical)


def _row(epoch: Tensor, window: int) -> Tensor:
    """The row of an epoch (), as (1,) int64; the row before the first is the last."""
    return epoch.long().remainder(window).view(1)


class Mtc(Method):
    """Multi-task curriculum: a domain head, Otsu's threshold on its memory, and MixMatch."""

    config_type = MtcConfig
    config: MtcConfig
    backbone: ImageEncoder

    def __init__(self, config: MtcConfig, backbone: ImageEncoder, task: Task) -> None:
        super().__init__(config, backbone, task)
        self.classifier = SoftmaxHead(backbone.feature_width, task.classes)
        self.domain = SoftmaxHead(backbone.feature_width, 1)
        self.memory = DomainMemory(config.score_window, task.pool_size)
        self.pretrained = torch.nn.Buffer(torch.zeros(()))  # share of the run before self-training

    @property
    def needs_pixels(self) -> str:
        """To mix images with one another."""
        return "mixes images with one another"

    @property
    def labelled_weight(self) -> float:
        """Of a labelled row against a pool row: the batches are equal, the sets they are of not."""
        if self.config.labelled_weight is not None:
            return self.config.labelled_weight
        return self.config.pool_ratio * self.task.labelled_size / self.task.pool_size

    def wants(self, stage: Stage) -> dict[str, Want]:
        """Labelled and pool images for the domain head; for MixMatch a second view, and kept."""
        weak, pair = (View.WEAK,), (View.WEAK, View.WEAK)
        wants = {
            "labelled": Want(Source.LABELLED, weak if stage is Stage.PRETRAIN else pair),
            "pool": Want(Source.POOL, weak, self.config.pool_ratio),
        }
        if stage is Stage.SELF_TRAIN:
            wants["selected"] = Want(Source.SELECTED, pair, self.config.selected_ratio)
        return wants

    def loss(self, batch: Batch, progress: Progress) -> Losses:
        """The domain loss; in self-training MixMatch's two terms as well."""
        self.memory.begin(progress.epoch)
        pool = batch.unlabelled["pool"]
        images = self.backbone.normalise(torch.cat([batch.labelled.views[0], pool.views[0]]))
        if progress.stage is Stage.PRETRAIN:
            with torch.no_grad():
                self.pretrained.copy_(progress.fraction)
            return self._domain_losses(self.backbone.trunk(images), pool)

        mixed, targets = self._mixed(batch)
        features = self.backbone.trunk(torch.cat([images, mixed]))
        for_domain, for_classes = features.tensor_split([len(images)])
        found = self._domain_losses(for_domain, pool)
        rows = [len(batch.labelled.labels)]
        logits, pool_logits = self.classifier(for_classes).tensor_split(rows)
        target, pool_target = targets.tensor_split(rows)
        weight = self.config.pool_weight * progress.rise(self.config.ramp_share, self.pretrained)
        found.terms["labelled"] = soft_cross_entropy(logits, target).mean()
        found.terms["selected"] = weight * squared_error(pool_logits, pool_target).mean()
        found.monitors["pseudo_confidence"] = pool_target.amax(-1).mean()
        return found

    def _domain_losses(self, features: Tensor, pool: Unlabelled) -> Losses:
        """The domain loss of labelled rows, then pool rows; what it says of these is remembered."""
        logits = self.domain(features).squeeze(-1).float()
        count = len(pool.positions)
        labelled, of_pool = logits.tensor_split([len(logits) - count])
        soft_labels = torch.cat([torch.ones_like(labelled), self.memory.labels[pool.positions]])
        weights = torch.cat(
            [torch.full_like(labelled, self.labelled_weight), torch.ones_like(of_pool)]
        )
        value = (weights * domain_loss(logits, soft_labels)).sum() / weights.sum()
        with torch.no_grad():
            probabilities = of_pool.sigmoid()
            self.memory.record(pool.positions, probabilities)
        monitors = {
            "inlier_labelled": labelled.detach().sigmoid().mean(),
            "inlier_pool": probabilities.mean(),
        }
        return Losses({"domain": self.config.domain_weight * value}, monitors)

    @torch.no_grad()
    def _mixed(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Mixed images (N, C, H, W), labelled rows first, and their soft targets (N, K)."""
        selected = self.backbone.normalise(torch.cat(batch.unlabelled["selected"].views))
        first, second = self.classifier(self.backbone.trunk(selected)).float().softmax(-1).chunk(2)
        guess = sharpen((first + second) / 2, self.config.temperature)
        known = losses.one_hot(batch.labelled.labels, self.task.classes)
        images = torch.cat([self.backbone.normalise(batch.labelled.views[1]), selected])
        targets = torch.cat([known, guess, guess])
        permutation = torch.rand(len(images), device=images.device).argsort()
        share = draw_share(self.config.mix_concentration, images.device)
        return mix(images, targets, permutation, share)

    def select(self, outputs: Outputs) -> Selection:
        """The pool images whose remembered probability lies above Otsu's cut; never none.

        The judgements come from the epochs' own training passes; `outputs` is not looked at. What
        no epoch has come to is not selected, unless that is all.
        """
        remembered, judged = self.memory.mean(), self.memory.first.isfinite()
        if not judged.any():
            judged = torch.ones_like(judged)
        kept = judged & (remembered >= otsu_threshold(remembered[judged]))
        return Selection(kept.nonzero().squeeze(-1))

    def outputs(self, images: Tensor) -> Outputs:
        """Features, logits and the domain head's log-odds of an inlier."""
        features = self.backbone(images)
        inlier = self.domain(features).squeeze(-1).float()
        return Outputs(features, self.classifier(features), inlier)
