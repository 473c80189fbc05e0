"""ANEDL: adaptive negative evidential deep learning (Yu et al., AAAI 2024).

A softmax head classifies; an evidential head, trained on labels (P-EDL, Eq. 3), on the whole pool
(N-EDL, Eq. 2) and towards target Dirichlets (Eq. 5), says how much evidence there is. After
pre-training, the pool images with most evidence for their predicted class join FixMatch
self-training with debiased pseudo-labels. At inference the sum of the M largest concentrations
(Eq. 9) tells inliers from outliers.

`anedl_config.py` has its options.
"""

from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from anedl import losses, scores
from anedl.contrast import contrast
from anedl.cutmix import draw_patches, partner_of, paste, share_kept
from anedl.dirichlet import fisher_log_determinant
from anedl.methods.anedl_config import AnedlConfig
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
from anedl.methods.early_views import labelled_want, views_to_train_on
from anedl.methods.elders import Elders
from anedl.methods.pool_memory import PoolMemory
from anedl.methods.ranking import highest_of_each
from anedl.networks.encoder import ImageEncoder
from anedl.networks.heads import EvidentialHead, ProjectionHead, SoftmaxHead
from anedl.turns import TURNS, turned_one_way
from anedl.views import View


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
        if config.rotation_weight:
            self.rotation = SoftmaxHead(width, TURNS)
        if config.contrast_weight:
            self.projection = ProjectionHead(width, config.contrast_width)
        self.prior = torch.nn.Buffer(torch.full((task.classes,), 1 / task.classes))
        if config.remembers:
            self.memory = PoolMemory(task.pool_size, task.classes, config.selection_memory)
        if config.networks > 1:
            places = config.networks - 1
            self.elders = Elders(self._network, places, task.pool_size, task.classes)
        if config.negative_pool == "rest":
            # Steps since each pool image was last in the selected part of a batch.
            since = torch.full((task.pool_size,), torch.inf)
            self.since_chosen = torch.nn.Buffer(since, persistent=False)

    @property
    def _network(self) -> dict[str, torch.nn.Module]:
        """What judges an image."""
        return {
            "backbone": self.backbone, "classifier": self.classifier, "detector": self.detector
        }  # fmt: skip

    def wants(self, stage: Stage) -> dict[str, Want]:
        """Labelled and pool images; from the second stage on selected ones too."""
        config = self.config
        pool_views = tuple(map(View, config.pool_views))
        if config.rotation_weight:
            pool_views = (*pool_views, View.WEAK)
        wants = {
            "labelled": labelled_want(config),
            "pool": Want(Source.POOL, pool_views, config.pool_ratio),
        }
        if stage is Stage.SELF_TRAIN:
            ratio = config.selected_ratio or config.pool_ratio
            wants["selected"] = Want(Source.SELECTED, config.views_of_selected, ratio)
        return wants

    def loss(self, batch: Batch, progress: Progress) -> Losses:
        """The terms of Eq. 7, each already weighted."""
        labelled_views = views_to_train_on(batch.labelled, self.config, progress)
        pool_views = batch.unlabelled["pool"].views[:2]
        turned, turns = self._turned(batch)
        first = [*labelled_views, *pool_views, *turned]
        selected = batch.unlabelled.get("selected")
        second = list(selected.views) if selected is not None else []
        second, kept = self._mixed(second)
        if self.config.forward_passes == "one":
            features = self._encode(first + second)
        else:
            features = self._encode(first) + (self._encode(second) if second else [])
        count = len(labelled_views)
        labelled, pool = features[:count], features[count : count + 2]
        turned, chosen = features[count + 2 : len(first)], features[len(first) :]

        labels = batch.labelled.labels.repeat(count)
        logits = self.classifier(torch.cat(labelled))
        terms = {"ce": losses.cross_entropy(logits, labels).mean()}
        alpha_labelled, alpha_pool, alpha_pool_head, alpha_chosen = self._concentrations(
            labelled, pool, chosen
        )
        ramp = self._kl_ramp(progress)
        judged = len(labels) // (count if self.config.edl_labelled_views == "first" else 1)
        terms |= self.positive_terms(alpha_labelled[:judged], labels[:judged], ramp)
        monitors = {
            "evidence_labelled": alpha_labelled.detach().sum(-1).mean(),
            "evidence_pool": alpha_pool.detach().sum(-1).mean(),
        }
        if self.config.negative:
            terms |= self.negative_terms(
                alpha_pool_head if self.config.detach_negative else alpha_pool,
                alpha_pool_head if self.config.detach_pool_kl else alpha_pool,
                ramp,
                self._not_selected(batch),
            )
        if progress.stage is Stage.SELF_TRAIN or self.config.consistency_from == "start":
            terms["consistency"] = self.consistency(alpha_pool)
        compared = pool if self.config.contrast_of == "pool" else chosen
        if self.config.contrast_weight and compared:
            terms["contrast"] = self._contrast(*compared)
        if turns is not None:
            terms["rotation"] = self._rotation(turned[0], turns)
        if selected is not None:
            said = self._opinion(chosen, selected.positions)
            if self.config.selected_evidence:
                guessed = self._debiased(said).argmax(-1).repeat(len(chosen))
                found = self.positive_terms(alpha_chosen, guessed, ramp)
                weight = self.config.selected_evidence
                terms |= {f"selected_{name}": weight * term for name, term in found.items()}
            terms["fixmatch"] = self.fixmatch(chosen, said, kept)
            monitors["pseudo_confidence"] = scores.max_softmax(said).mean()
        return Losses(terms, monitors)

    def _turned(self, batch: Batch) -> tuple[list[Tensor], Tensor | None]:
        """The pool's third view with quarters of a turn in it, and how many; none without one."""
        if not self.config.rotation_weight:
            return [], None
        images, turns = turned_one_way(batch.unlabelled["pool"].views[2])
        return [images], turns

    def _rotation(self, features: Tensor, turns: Tensor) -> Tensor:
        """The weighted cross-entropy of `turns` (N,), told from `features` (N, d)."""
        value = losses.cross_entropy(self.rotation(features), turns)
        return self.config.rotation_weight * value.mean()

    def _mixed(self, views: list[Tensor]) -> tuple[list[Tensor], Tensor | None]:
        """Views of selected images with patches of others in those that learn.

        With them the part of each learning view, one after the other, that is still its own.
        """
        if not views or not self.config.cutmix:
            return views, None
        naming, learning = views[: self._naming], views[self._naming :]
        patches = [draw_patches(view, self.config.cutmix) for view in learning]
        mixed = [paste(view, patch) for view, patch in zip(learning, patches, strict=True)]
        return naming + mixed, share_kept(torch.cat(patches))

    @property
    def _naming(self) -> int:
        """How many of the selected images' views name them, and do not learn."""
        return 0 if self.config.pseudo_labels == "average" else 1

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

    def positive_terms(self, alpha: Tensor, labels: Tensor, ramp: Tensor) -> dict[str, Tensor]:
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

    def negative_terms(
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

    def consistency(self, alpha_pool: Tensor) -> Tensor:
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

    @torch.no_grad()
    def _opinion(self, chosen: list[Tensor], positions: Tensor) -> Tensor:
        """Logits (N, K) that name selected images, before any debiasing.

        Of the first of their views' features, (N, d) each, with what earlier networks say of the
        pool images at `positions`; or what the averaged model said of these.
        """
        if self.config.pseudo_labels == "average":
            return self.memory.logits(positions)
        logits: Tensor = self.classifier(chosen[0])
        return self.elders.name(logits, positions) if self._is_taught else logits

    def _debiased(self, logits: Tensor) -> Tensor:
        if not self.config.debias:
            return logits
        return losses.debiased_logits(logits, self.prior, self.config.debias_tau)

    def recall(self, outputs: Outputs) -> Outputs:
        """Join what the averaged model says now with what it said before, where it is kept."""
        return self.memory.join(outputs) if self.config.remembers else outputs

    @property
    def untouched(self) -> tuple[str, ...]:
        """A frozen trunk; and the elders, until another network joins them."""
        return (*super().untouched, "elders.")

    @property
    def needs_pixels(self) -> str:
        """To turn images, and to paste parts of one into another."""
        if self.config.rotation_weight:
            return "turns images unless its option rotation_weight is 0"
        return "pastes images into others unless its option cutmix is 0" * bool(self.config.cutmix)

    @property
    def kept_by_restart(self) -> tuple[str, ...]:
        """The elders; and q̂, which debiases names, where they go on naming."""
        return ("elders.", "prior") if self.config.networks_teach else ("elders.",)

    def retire(self, outputs: Outputs) -> None:
        """Join the elders, who from now on say what all have said together."""
        self.elders.admit(self._network, outputs.logits)

    def fixmatch(self, chosen: list[Tensor], said: Tensor, kept: Tensor | None = None) -> Tensor:
        """FixMatch: the learning views learn what was `said` (N, K), both debiased.

        `kept` is the part of each learning view that is its own; the rest is its partner's.
        """
        config = self.config
        weight: Tensor = self.classifier.weight
        bias: Tensor = self.classifier.bias
        if not config.fixmatch_trains_classifier:
            weight, bias = weight.detach(), bias.detach()
        learning = chosen[self._naming :]
        logits = F.linear(torch.cat(learning), weight, bias)
        if config.debias:
            logits = losses.margin_logits(logits, self.prior, config.debias_tau)
        named = self._debiased(said)
        value = self._against(logits, named.repeat(len(learning), 1))
        if kept is not None:
            others = self._against(logits, partner_of(named).repeat(len(learning), 1))
            value = kept * value + (1 - kept) * others
        if config.debias:
            with torch.no_grad():
                self.prior.copy_(losses.update_prior(self.prior, said, config.debias_momentum))
        return config.fixmatch_weight * value.mean()

    def _against(self, logits: Tensor, named: Tensor) -> Tensor:
        """FixMatch of `logits` (N, K) against the pseudo-labels that `named` (N, K) gives, (N,)."""
        threshold = self.config.fixmatch_threshold
        temperature = self.config.pseudo_label_temperature
        if temperature:
            return losses.soft_fixmatch(logits, named, threshold, temperature)
        return losses.fixmatch(logits, named, threshold)

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
        """Logits, Dirichlet parameters and inlier score, of all networks together.

        The features are those of the one in training, or the last.
        """
        return self._outputs(images, joined=self.config.networks > 1)

    def opinion(self, images: Tensor) -> Outputs:
        """The same of the network in training alone, unless others teach it."""
        return self._outputs(images, joined=self._is_taught)

    def _outputs(self, images: Tensor, joined: bool) -> Outputs:
        features = self.backbone(images)
        logits = self.classifier(features)
        alpha = self.detector(features)
        if joined:
            logits, alpha = self.elders.joined(images, logits, alpha)
        return Outputs(features, logits, self._score(self.config.score, logits, alpha), alpha)

    @property
    def _is_taught(self) -> bool:
        return self.config.networks > 1 and self.config.networks_teach

    def _score(self, name: str, logits: Tensor, alpha: Tensor | None) -> Tensor:
        assert alpha is not None
        return scores.SCORES[name](logits, alpha, self.task.top_m)
