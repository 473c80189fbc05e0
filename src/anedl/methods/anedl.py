"""ANEDL: adaptive negative evidential deep learning (Yu et al., AAAI 2024).

A softmax head classifies; an evidential head, trained on labels (P-EDL, Eq. 3), on the whole pool
(N-EDL, Eq. 2) and towards target Dirichlets (Eq. 5), says how much evidence there is. After
pre-training, the pool images with most evidence for their predicted class join FixMatch
self-training with debiased pseudo-labels. At inference the sum of the M largest concentrations
(Eq. 9) tells inliers from outliers.

The defaults are the paper's equations. `RELEASED` holds what the authors' released code does
differently, option by option.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from anedl import losses, scores
from anedl.contrast import contrast
from anedl.dirichlet import fisher_log_determinant
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
from anedl.methods.pool_memory import PoolMemory
from anedl.methods.ranking import highest_of_each
from anedl.networks.encoder import ImageEncoder
from anedl.networks.heads import EvidentialHead, ProjectionHead, SoftmaxHead
from anedl.options import option
from anedl.views import View, ViewName

ScoreName = Literal[
    "self_training", "top_m_evidence", "total_evidence", "max_alpha", "vacuity",
    "mutual_information", "differential_entropy", "max_softmax", "energy",
]  # fmt: skip


@dataclass(frozen=True)
class AnedlConfig(LabelledViewsConfig):
    """Every choice in ANEDL; where the paper leaves one open, the help text says whose it is."""

    lambda_p: float = option(0.4, "λ_P of Eq. 8, weight of the labelled evidential loss (released)")
    lambda_n: float = option(0.8, "λ_N of Eq. 8, weight of the pool's evidential loss (released)")
    lambda_1: float = option(2.5e-4, "λ_1 of Eq. 2, log-determinant of the pool (released)")
    lambda_2: float = option(2.5e-4, "λ_2 of Eq. 3, log-determinant of the labelled (released)")
    variance_weight: float = option(1.0, "weight of the variance in Eq. 3: paper 1, released 1.25")
    kl_weight: float = option(
        1.25e-3, "weight of the KL terms in Eq. 8: paper 1; this one is the released ratio"
    )
    kl_ramp_epochs: int = option(
        10, "epochs over which the KL weight rises (released; paper: none)"
    )
    kl: Literal["strengthened", "original"] = option("strengthened", "Eq. 5 or Eq. 4")
    target_evidence: float = option(100.0, "P of Eq. 5")
    negative: bool = option(True, "negative optimisation: the pool's terms of Eq. 8")
    adaptive: bool = option(True, "ψ₁ weights and log-determinants in Eq. 2 and 3")
    hold_weight: bool = option(False, "no gradient through the ψ₁ weights (ours)")
    detach_negative: bool = option(
        True, "N-EDL trains the evidential head only, not the trunk (released; paper: not stated)"
    )
    detach_pool_kl: bool = option(
        True, "the same for the pool's KL (paper and release leave it open)"
    )
    negative_pool: Literal["all", "rest"] = option(
        "all",
        "pool images that Eq. 2 and 5 see: all (paper), or in self-training only the rest, those "
        "that are not selected (ours)",
        later=True,
    )
    edl_pool_views: Literal["both", "first"] = option(
        "both", "pool views that Eq. 2 and 5 see (released: both; paper: not stated)"
    )
    edl_labelled_views: Literal["all", "first"] = option(
        "all",
        "labelled views that Eq. 3 and 5 see: all (released), or the first, so that a strong "
        "second one trains the classifier alone (ours)",
        later=True,
    )
    label_target: Literal["one-hot", "plus-uniform"] = option(
        "one-hot", "target of Eq. 3; the release adds 1/K to every class, which looks like a slip"
    )
    consistency_weight: float | None = option(
        None, "λ_CON of Eq. 7; default: 0.03, or 0.015 for CIFAR-10 and ImageNet-30"
    )
    consistency_from: Literal["start", "self-training"] = option(
        "start", "when Eq. 6 sets in (paper: start; released: with self-training)"
    )
    consistency_detach: Literal["none", "first", "second"] = option(
        "none", "which side of Eq. 6 is a constant (paper and release: none)"
    )
    pool_views: tuple[ViewName, ...] = option(
        ("weak", "strong"), "the two views of Eq. 6 (released: weak twice)"
    )
    pool_ratio: int = option(2, "pool images a labelled image, also for the selected")
    selected_ratio: int | None = option(
        None,
        "selected images a labelled image (ours); default: as many as of the pool",
        later=True,
    )
    contrast_weight: float = option(
        0.0,
        "weight of a contrastive loss between the views of one image, through a projection; the "
        "other images of a batch, or of the part of it that --accumulate makes, are what it is "
        "told from (ours)",
        later=True,
    )
    contrast_of: Literal["pool", "selected"] = option(
        "pool",
        "whose two views it compares: the pool's, or those of self-training (ours)",
        later=True,
    )
    contrast_temperature: float = option(0.2, "its temperature (ours)", later=True)
    contrast_width: int = option(64, "dimensions of its projection (ours)", later=True)
    selected_evidence: float = option(
        0.0,
        "weight of Eq. 3 and 5 on selected images with their pseudo-labels, beside the labelled "
        "ones (ours)",
        later=True,
    )
    fixmatch_weight: float = option(1.0, "weight of FixMatch")
    fixmatch_threshold: float = option(0.0, "least confidence of a pseudo-label (as OpenMatch: 0)")
    pseudo_labels: Literal["training", "average"] = option(
        "training",
        "who names the selected images: the model in training, by their weak view in every step "
        "(released), or the averaged one, once an epoch, when it selects them (ours)",
        later=True,
    )
    pseudo_label_temperature: float = option(
        0.0,
        "a pseudo-label is the softmax at this temperature; 0: the class that is ahead (released)",
        later=True,
    )
    fixmatch_trains_classifier: bool = option(
        True, "released: no, its gradient passes a frozen copy of the classifier"
    )
    debias: bool = option(True, "DebiasPL in FixMatch")
    debias_tau: float = option(1.0, "τ of DebiasPL")
    debias_momentum: float = option(0.999, "momentum of DebiasPL's q̂")
    selection_score: ScoreName = option("self_training", "what ranks the pool for self-training")
    selection_share: float | None = option(
        None, "O as a share of the pool; default: 0.71 × the true inlier share, oracle knowledge"
    )
    selection_count: int | None = option(None, "O as a number of images, instead of the share")
    selection_quota: float = option(
        0.0,
        "part of O that every predicted class gives an even share of, so that no class goes "
        "without (ours; paper: 0, by rank alone)",
        later=True,
    )
    selection_memory: float = option(
        0.0,
        "how much of what the averaged model said of a pool image in earlier epochs counts beside "
        "what it says now, when it selects and names: 0 nothing (released), 0.9 a mean over about "
        "ten epochs (ours)",
        later=True,
    )
    selection_view: Literal["plain", "flip"] = option(
        "plain", "view that is ranked (released: flip)"
    )
    score: ScoreName = option("top_m_evidence", "inlier score at inference")
    top_m: int | None = option(None, "M of Eq. 9; default: the setting's")
    evidence: Literal["softplus", "relu", "exp"] = option("softplus", "evidence activation")
    head_width: int | None = option(
        None, "hidden width of the evidential head; default: the trunk's"
    )
    head_batchnorm: bool = option(True, "BatchNorm in the evidential head")
    head_batches: Literal["joint", "separate"] = option(
        "joint",
        "rows that share BatchNorm statistics in the evidential head: labelled and pool images, "
        "for Eq. 2 too (ours), or for Eq. 2 the pool alone once more; then the selected ones move "
        "the running statistics as well (released)",
        later=True,
    )
    forward_passes: Literal["two", "one"] = option(
        "two",
        "selected images in a pass of their own (released), or with the others (other BN batch)",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.pool_views) != 2:
            raise ConfigError(f"option pool_views: takes exactly two, got {len(self.pool_views)}")
        if self.selection_share is not None and not 0 < self.selection_share <= 1:
            raise ConfigError(f"selection_share must lie in 0…1, got {self.selection_share}")
        for name in ("lambda_p", "lambda_n", "kl_weight", "kl_ramp_epochs", "variance_weight",
                     "fixmatch_weight", "debias_tau", "selected_evidence",
                     "contrast_weight", "pseudo_label_temperature"):  # fmt: skip
            if getattr(self, name) < 0:
                raise ConfigError(f"option {name}: must not be negative, got {getattr(self, name)}")
        for name in ("debias_momentum", "fixmatch_threshold", "selection_quota"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"option {name}: must lie in 0…1, got {getattr(self, name)}")
        if not 0 <= self.selection_memory < 1:
            raise ConfigError(
                f"option selection_memory: must be at least 0 and below 1, got "
                f"{self.selection_memory}"
            )
        for name in ("target_evidence", "contrast_temperature"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"option {name}: must be > 0, got {getattr(self, name)}")
        for name in ("selection_count", "pool_ratio", "selected_ratio", "head_width", "top_m",
                     "contrast_width"):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"option {name}: must be at least 1, got {value}")

    def resolved(self, task: Task) -> Self:
        """Take from the task what was not given of M, O, λ_CON and the early part's length."""
        defaults = {
            "consistency_weight": task.consistency_weight,
            "selection_share": task.inlier_share,
            "top_m": task.top_m,
        }
        missing: dict[str, Any] = {
            key: value for key, value in defaults.items() if getattr(self, key) is None
        }
        top_m = task.top_m if self.top_m is None else self.top_m
        if top_m > task.classes:
            raise ConfigError(f"option top_m: there are {task.classes} classes, got {top_m}")
        return replace(super().resolved(task), **missing)


RELEASED: dict[str, Any] = {
    "variance_weight": 1.25,
    "label_target": "plus-uniform",
    "consistency_from": "self-training",
    "early_labelled_views": ("flip", "strong"),
    "pool_views": ("weak", "weak"),
    "head_batches": "separate",
    "fixmatch_trains_classifier": False,
    "selection_view": "flip",
}
"""What the released code does differently from the paper's equations."""


class Anedl(Method):
    """See the module's docstring."""

    config_type = AnedlConfig
    config: AnedlConfig

    def __init__(self, config: AnedlConfig, backbone: ImageEncoder, task: Task) -> None:
        config = config.resolved(task)
        assert config.top_m is not None
        # With the M that was chosen, so that every figure of this run means the same one.
        super().__init__(config, backbone, replace(task, top_m=config.top_m))
        width = backbone.feature_width
        self.classifier = SoftmaxHead(width, task.classes)
        self.detector = EvidentialHead(
            width,
            task.classes,
            hidden_width=config.head_width,
            activation=config.evidence,
            bn_momentum=backbone.bn_momentum if config.head_batchnorm else None,
        )
        if config.contrast_weight:
            self.projection = ProjectionHead(width, config.contrast_width)
        self.prior = torch.nn.Buffer(torch.full((task.classes,), 1 / task.classes))
        if config.pseudo_labels == "average" or config.selection_memory:
            self.memory = PoolMemory(task.pool_size, task.classes, config.selection_memory)
        if config.negative_pool == "rest":
            # Steps since each pool image was last in the selected part of a batch.
            since = torch.full((task.pool_size,), torch.inf)
            self.since_chosen = torch.nn.Buffer(since, persistent=False)

    def wants(self, stage: Stage) -> dict[str, Want]:
        """Labelled and pool images; from the second stage on selected ones too."""
        config = self.config
        wants = {
            "labelled": labelled_want(config),
            "pool": Want(Source.POOL, tuple(map(View, config.pool_views)), config.pool_ratio),
        }
        if stage is Stage.SELF_TRAIN:
            views = (View.WEAK, View.STRONG)
            ratio = config.selected_ratio or config.pool_ratio
            wants["selected"] = Want(Source.SELECTED, views, ratio)
        return wants

    def loss(self, batch: Batch, progress: Progress) -> Losses:
        """The terms of Eq. 7, each already weighted."""
        labelled_views = views_to_train_on(batch.labelled, self.config, progress)
        first = [*labelled_views, *batch.unlabelled["pool"].views]
        selected = batch.unlabelled.get("selected")
        second = list(selected.views) if selected is not None else []
        if self.config.forward_passes == "one":
            features = self._encode(first + second)
        else:
            features = self._encode(first) + (self._encode(second) if second else [])
        count = len(labelled_views)
        labelled, pool, chosen = (
            features[:count],
            features[count : count + 2],
            features[count + 2 :],
        )

        labels = batch.labelled.labels.repeat(count)
        logits = self.classifier(torch.cat(labelled))
        terms = {"ce": losses.cross_entropy(logits, labels).mean()}
        alpha_labelled, alpha_pool, alpha_pool_head, alpha_chosen = self._concentrations(
            labelled, pool, chosen
        )
        ramp = self._kl_ramp(progress)
        judged = len(labels) // (count if self.config.edl_labelled_views == "first" else 1)
        terms |= self._positive_terms(alpha_labelled[:judged], labels[:judged], ramp)
        monitors = {
            "evidence_labelled": alpha_labelled.detach().sum(-1).mean(),
            "evidence_pool": alpha_pool.detach().sum(-1).mean(),
        }
        if self.config.negative:
            terms |= self._negative_terms(
                alpha_pool_head if self.config.detach_negative else alpha_pool,
                alpha_pool_head if self.config.detach_pool_kl else alpha_pool,
                ramp,
                self._not_selected(batch),
            )
        if progress.stage is Stage.SELF_TRAIN or self.config.consistency_from == "start":
            terms["consistency"] = self._consistency(alpha_pool)
        compared = pool if self.config.contrast_of == "pool" else chosen
        if self.config.contrast_weight and compared:
            terms["contrast"] = self._contrast(*compared)
        if selected is not None:
            if self.config.selected_evidence:
                with torch.no_grad():
                    said = self._opinion(self.classifier(chosen[0]), selected.positions)
                guessed = said.argmax(-1).repeat(2)
                found = self._positive_terms(alpha_chosen, guessed, ramp)
                weight = self.config.selected_evidence
                terms |= {f"selected_{name}": weight * term for name, term in found.items()}
            weak, strong = chosen
            terms["fixmatch"], monitors["pseudo_confidence"] = self._fixmatch(
                weak, strong, selected.positions
            )
        return Losses(terms, monitors)

    def _encode(self, views: list[Tensor]) -> list[Tensor]:
        """Features of several views from one forward pass."""
        features: Tensor = self.backbone(torch.cat(views))
        return list(torch.split(features, [len(view) for view in views]))

    def _concentrations(
        self, labelled: list[Tensor], pool: list[Tensor], chosen: list[Tensor]
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Alpha of labelled and pool images, of the pool for the head alone, and of the chosen.

        The third differs from the second in that its gradient stops at the features; with separate
        batches in value too. The fourth is empty where nothing asks for it.
        """
        config = self.config
        head_only = config.negative and (config.detach_negative or config.detach_pool_kl)
        rows = sum(len(part) for part in labelled)
        if config.head_batches == "separate":
            alpha = self.detector(torch.cat(labelled + pool))
            alpha_labelled, alpha_pool = alpha.tensor_split([rows])
            again = self.detector(torch.cat(pool).detach()) if head_only else alpha_pool
            alpha_chosen = self.detector(torch.cat(chosen)) if chosen else alpha_pool[:0]
            return alpha_labelled, alpha_pool, again, alpha_chosen
        # All rows pass the head together: with BatchNorm statistics of their own the head could
        # tell labelled from pool rows by these, and would have learnt nothing that holds at test
        # time.
        features = torch.cat(labelled + pool + (chosen if config.selected_evidence else []))
        ends = [rows, rows + sum(len(part) for part in pool)]
        alpha_labelled, alpha_pool, alpha_chosen = self.detector(features).tensor_split(ends)
        again = alpha_pool
        if head_only:
            again = self.detector.again(features.detach()).tensor_split(ends)[1]
        return alpha_labelled, alpha_pool, again, alpha_chosen

    def _not_selected(self, batch: Batch) -> Tensor | None:
        """1.0 for each row of the pool's views that Eq. 2 and 5 are to see, else 0.0; None for all.

        The selected part of a batch goes round the selection again and again: who has not been in
        it for two rounds is not selected any more. The engine need not tell of a new selection,
        but an image that has left it counts as selected for these two rounds still (a quarter of
        an epoch on CIFAR-100 55/45), and so a round should be much shorter than an epoch.
        """
        selected = batch.unlabelled.get("selected")
        if self.config.negative_pool == "all" or selected is None:
            return None
        round_steps = self._selected_count(self.task.pool_size) / len(selected.positions)
        with torch.no_grad():
            self.since_chosen.add_(1.0)
            self.since_chosen[selected.positions] = 0.0
            rest = self.since_chosen[batch.unlabelled["pool"].positions] > 2 * round_steps
            return rest.float().repeat(2)

    def _kl_ramp(self, progress: Progress) -> Tensor:
        """min(1, (epoch + 1)/ramp) with whole epochs counted from 0, ()."""
        return ((progress.epoch.floor() + 1) / max(1, self.config.kl_ramp_epochs)).clamp(max=1.0)

    def _positive_terms(self, alpha: Tensor, labels: Tensor, ramp: Tensor) -> dict[str, Tensor]:
        """λ_P (Eq. 3 + weighted KL) on labelled images, in parts."""
        config = self.config
        weight = losses.adaptive_weight(
            alpha, adaptive=config.adaptive, hold_weight=config.hold_weight
        )
        target = losses.one_hot(labels, alpha.shape[-1])
        if config.label_target == "plus-uniform":
            target = target + 1 / alpha.shape[-1]
        terms = {
            "p_error": losses.squared_error(alpha, target, weight),
            "p_variance": config.variance_weight * losses.variance(alpha, weight),
        }
        if config.adaptive:
            terms["p_logdet"] = -config.lambda_2 * fisher_log_determinant(alpha)
        if config.kl == "strengthened":
            divergence = losses.kl_strengthened(alpha, labels, config.target_evidence)
        else:
            divergence = losses.kl_original(alpha, labels)
        terms["p_kl"] = ramp * config.kl_weight * divergence
        return {name: config.lambda_p * term.mean() for name, term in terms.items()}

    def _negative_terms(
        self, alpha: Tensor, alpha_kl: Tensor, ramp: Tensor, rows: Tensor | None
    ) -> dict[str, Tensor]:
        """λ_N (Eq. 2 + weighted KL) on pool images, in parts; the two alphas differ in gradient.

        `rows` is 1.0 for each row that counts, None where all do.
        """
        config = self.config
        if config.edl_pool_views == "first":
            alpha, alpha_kl = alpha.chunk(2)[0], alpha_kl.chunk(2)[0]
            rows = None if rows is None else rows.chunk(2)[0]
        uniform = torch.full_like(alpha, 1 / alpha.shape[-1])
        weight = losses.adaptive_weight(
            alpha, adaptive=config.adaptive, hold_weight=config.hold_weight
        )
        terms = {"n_error": losses.squared_error(alpha, uniform, weight)}
        if config.adaptive:
            terms["n_logdet"] = -config.lambda_1 * fisher_log_determinant(alpha)
        # Eq. 4 without a label is Eq. 5 with β = 1: both readings agree on the pool.
        terms["n_kl"] = ramp * config.kl_weight * losses.kl_strengthened(alpha_kl)
        if rows is None:
            return {name: config.lambda_n * term.mean() for name, term in terms.items()}
        count = rows.sum().clamp_min(1.0)
        return {name: config.lambda_n * (rows * term).sum() / count for name, term in terms.items()}

    def _consistency(self, alpha_pool: Tensor) -> Tensor:
        """λ_CON × Eq. 6 between the two views; its gradient reaches the trunk."""
        first, second = alpha_pool.chunk(2)
        if self.config.consistency_detach == "first":
            first = first.detach()
        elif self.config.consistency_detach == "second":
            second = second.detach()
        assert self.config.consistency_weight is not None
        return self.config.consistency_weight * losses.consistency(second, first).mean()

    def _contrast(self, first: Tensor, second: Tensor) -> Tensor:
        """The weighted contrastive loss of two views' features, (N, d) each."""
        one, other = self.projection(torch.cat([first, second])).chunk(2)
        value = contrast(one, other, self.config.contrast_temperature)
        return self.config.contrast_weight * value.mean()

    def _opinion(self, weak_logits: Tensor, positions: Tensor) -> Tensor:
        """Debiased logits (N, K) that pseudo-labels are read from.

        Those of weak views, or of what the averaged model said of the pool images at `positions`.
        """
        logits = weak_logits
        if self.config.pseudo_labels == "average":
            logits = self.memory.logits(positions)
        if not self.config.debias:
            return logits
        return losses.debiased_logits(logits, self.prior, self.config.debias_tau)

    def recall(self, outputs: Outputs) -> Outputs:
        """Join what the averaged model says now with what it said before, where it is kept."""
        if self.config.pseudo_labels == "average" or self.config.selection_memory:
            return self.memory.join(outputs)
        return outputs

    @property
    def restartable(self) -> bool:
        """Yes where names are remembered; a fresh network's own would be arbitrary."""
        return self.config.pseudo_labels == "average"

    def _fixmatch(self, weak: Tensor, strong: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """FixMatch on selected images with debiased pseudo-labels; and their mean confidence."""
        config = self.config
        weight: Tensor = self.classifier.weight
        bias: Tensor = self.classifier.bias
        if not config.fixmatch_trains_classifier:
            weight, bias = weight.detach(), bias.detach()
        weak_logits = F.linear(weak.detach(), weight, bias).detach()
        strong_logits = F.linear(strong, weight, bias)
        if config.debias:
            strong_logits = losses.margin_logits(strong_logits, self.prior, config.debias_tau)
        said = self._opinion(weak_logits, positions)
        if config.pseudo_label_temperature:
            value = losses.soft_fixmatch(
                strong_logits, said, config.fixmatch_threshold, config.pseudo_label_temperature
            )
        else:
            value = losses.fixmatch(strong_logits, said, config.fixmatch_threshold)
        if config.debias:
            with torch.no_grad():
                self.prior.copy_(
                    losses.update_prior(self.prior, weak_logits, config.debias_momentum)
                )
        return config.fixmatch_weight * value.mean(), scores.max_softmax(weak_logits).mean()

    @property
    def selection_view(self) -> View:
        """As configured."""
        return View(self.config.selection_view)

    def select(self, outputs: Outputs) -> Selection:
        """The O pool images with the highest selection score, a part of them class by class."""
        ranking = self._score(self.config.selection_score, outputs.logits, outputs.alpha)
        count = self._selected_count(len(ranking))
        quota = int(self.config.selection_quota * count / self.task.classes)
        return Selection(highest_of_each(ranking, outputs.logits.argmax(1), count, quota))

    def _selected_count(self, pool: int) -> int:
        if self.config.selection_count is not None:
            return min(self.config.selection_count, pool)
        assert self.config.selection_share is not None
        return max(1, round(self.config.selection_share * pool))

    def outputs(self, images: Tensor) -> Outputs:
        """Features, logits, Dirichlet parameters and the inlier score."""
        features = self.backbone(images)
        logits = self.classifier(features)
        alpha = self.detector(features)
        return Outputs(features, logits, self._score(self.config.score, logits, alpha), alpha)

    def _score(self, name: str, logits: Tensor, alpha: Tensor | None) -> Tensor:
        assert alpha is not None
        return scores.SCORES[name](logits, alpha, self.task.top_m)
