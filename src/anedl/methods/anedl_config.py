"""Every choice in ANEDL as an option, and what the authors' released code chooses.

The defaults are the paper's equations with details of the authors' code; `RELEASED` holds what that
code does differently.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from anedl.errors import ConfigError
from anedl.methods.base import Task
from anedl.methods.early_views import LabelledViewsConfig
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
        True,
        "N-EDL trains the evidential head only, not the trunk (released; the paper's Algorithm 1 "
        "updates all of the network)",
    )
    detach_pool_kl: bool = option(
        True, "the same for the pool's KL (ours; Algorithm 1: all, release: open)"
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
        None,
        "λ_CON of Eq. 7 (paper: not stated; released: 0.03; 0.015 for CIFAR-10 and ImageNet-30 is "
        "ours, as is 0.001 for the paper's equations, from a trial)",
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
    rotation_weight: float = option(
        0.0,
        "weight of telling by how many quarters pool images are turned, in one more weak view of "
        "each (ours)",
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
        "(released), or the averaged one, by what it said when it selected them (ours)",
        later=True,
    )
    selected_views: tuple[ViewName, ...] | None = option(
        None,
        "views of selected images: the first names them and the others learn it; where the "
        "averaged model names them, all learn; default: weak and strong (released), or in that "
        "case strong alone (ours)",
        later=True,
    )
    pseudo_label_temperature: float = option(
        0.0,
        "a pseudo-label is the softmax at this temperature; 0: the class that is ahead (released)",
        later=True,
    )
    cutmix: float = option(
        0.0,
        "probability that a selected image learns with a rectangle of another one pasted in, and "
        "with that one's name in proportion (CutMix; ours)",
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
    networks: int = option(
        1,
        "networks that share a run, one after the other; all that are done or in training judge "
        "together (ours)",
        later=True,
    )
    networks_teach: bool = option(
        False,
        "those that are done select and name pool images together with the one in training (ours); "
        "else each selects and names by itself alone",
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
                     "rotation_weight", "contrast_weight", "pseudo_label_temperature"):  # fmt: skip
            if getattr(self, name) < 0:
                raise ConfigError(f"option {name}: must not be negative, got {getattr(self, name)}")
        for name in ("debias_momentum", "fixmatch_threshold", "selection_quota", "cutmix"):
            if not 0 <= getattr(self, name) <= 1:
                raise ConfigError(f"option {name}: must lie in 0…1, got {getattr(self, name)}")
        if self.cutmix and (self.selected_evidence or self._contrasts_selected):
            raise ConfigError(
                "option cutmix: a mixed image has no one class and no second view; set "
                "selected_evidence to 0 and contrast_of to pool, or cutmix to 0"
            )
        least = 1 if self.pseudo_labels == "average" else 2
        views = len(self.views_of_selected)
        if views < least:
            raise ConfigError(
                f"option selected_views: with pseudo_labels {self.pseudo_labels} takes at least "
                f"{least}, got {views}"
            )
        if self._contrasts_selected and views != 2:
            raise ConfigError(
                f"option contrast_of: compares two views of selected images, and there are "
                f"{views}; set selected_views to two, for example weak strong"
            )
        if self.selection_memory and self.selection_score == "energy":
            raise ConfigError(
                "option selection_score: energy is lost in a mean of probabilities; take another, "
                "or selection_memory 0"
            )
        if self.networks > 1 and self.remembers:
            raise ConfigError(
                "option networks: several cannot share what one averaged model remembers; set "
                "pseudo_labels to training and selection_memory to 0, or networks to 1"
            )
        if not 0 <= self.selection_memory < 1:
            raise ConfigError(
                f"option selection_memory: must be at least 0 and below 1, got "
                f"{self.selection_memory}"
            )
        for name in ("target_evidence", "contrast_temperature"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"option {name}: must be > 0, got {getattr(self, name)}")
        for name in ("selection_count", "pool_ratio", "selected_ratio", "head_width", "top_m",
                     "contrast_width", "networks"):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"option {name}: must be at least 1, got {value}")

    def check_wishes(self) -> None:
        """Weights below zero; teachers where there are none."""
        for name in ("lambda_1", "lambda_2", "consistency_weight"):
            if (getattr(self, name) or 0) < 0:
                raise ConfigError(f"option {name}: must not be negative, got {getattr(self, name)}")
        if self.networks_teach and self.networks == 1:
            raise ConfigError(
                "option networks_teach: there is one network, and none before it; set networks to "
                "2 or more"
            )

    @property
    def _contrasts_selected(self) -> bool:
        return self.contrast_weight > 0 and self.contrast_of == "selected"

    @property
    def remembers(self) -> bool:
        """Whether what the averaged model says of the pool is kept."""
        return self.pseudo_labels == "average" or self.selection_memory > 0

    @property
    def networks_in_turn(self) -> int:
        """The option `networks`."""
        return self.networks

    @property
    def views_of_selected(self) -> tuple[View, ...]:
        """As given, else what naming and learning need."""
        if self.selected_views is not None:
            return tuple(map(View, self.selected_views))
        return (View.STRONG,) if self.pseudo_labels == "average" else (View.WEAK, View.STRONG)

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
            raise ConfigError(
                f"option top_m: must be at most {task.classes}, the number of classes, got {top_m}"
            )
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
