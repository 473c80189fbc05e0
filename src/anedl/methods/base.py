"""What a method is: a few verbs, and the types that pass between it and the engine.

A method never sees the engine, the data or a pool image's true label: `Unlabelled` has no field
that could carry one.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from anedl.errors import ConfigError
from anedl.views import View


class Stage(IntEnum):
    """The two stages of training; a method may treat them alike."""

    PRETRAIN = 1
    SELF_TRAIN = 2


class Source(StrEnum):
    """Where the images of one part of a batch are drawn from."""

    LABELLED = "labelled"
    POOL = "pool"
    SELECTED = "selected"  # those of the pool that `Method.select` named last


def no_member(value: object, kind: type[StrEnum]) -> str:
    """What to write in place of a value that is none of a kind's, such as a name."""
    *others, last = (f"{kind.__name__}.{member.name}" for member in kind)
    return f"{value!r} is no {kind.__name__}: write {', '.join(others)} or {last}"


@dataclass(frozen=True)
class Want:
    """One part of a batch that a method asks for: `ratio` × the labelled batch size images.

    Of its views `alternatives` are made so that the method can choose in the step; the others pass
    the network.
    """

    source: Source
    views: tuple[View, ...]
    ratio: int = 1
    alternatives: int = 0

    def __post_init__(self) -> None:
        """Refuse what the streams would take for something else, an unknown view for a strong one.

        Raises:
            ConfigError: says what to write.
        """
        # Types are compared by identity, so that a name in their place will not do.
        if not isinstance(self.source, Source):
            raise ConfigError(f"the method's `wants`: {no_member(self.source, Source)}")
        if not isinstance(self.views, tuple | list) or not self.views:
            raise ConfigError(
                f"the method's `wants`: a Want has a tuple of views, such as (View.WEAK,), got "
                f"{self.views!r}"
            )
        for view in self.views:
            if not isinstance(view, View):
                raise ConfigError(f"the method's `wants`: {no_member(view, View)}")
        if not isinstance(self.ratio, int) or self.ratio < 1:
            raise ConfigError(
                f"the method's `wants`: a Want has a ratio of 1, 2 … images for each labelled one, "
                f"got {self.ratio!r}"
            )

    @property
    def passed(self) -> int:
        """Views that pass the network, for each of the labelled batch's images."""
        return (len(self.views) - self.alternatives) * self.ratio


@dataclass(frozen=True)
class Labelled:
    """Labelled images: one (N, C, H, W) uint8 tensor a view, (N,) int64 labels."""

    views: tuple[Tensor, ...]
    labels: Tensor


@dataclass(frozen=True)
class Unlabelled:
    """Pool images: one (N, C, H, W) uint8 tensor a view, and (N,) positions in the pool."""

    views: tuple[Tensor, ...]
    positions: Tensor


@dataclass(frozen=True)
class Batch:
    """Everything one step sees; `unlabelled` is keyed by the names the method gave its wants."""

    labelled: Labelled
    unlabelled: Mapping[str, Unlabelled]


@dataclass(frozen=True)
class Progress:
    """Where the run stands. The tensors are 0-dim on the device, so a captured step stays valid.

    `epoch` counts from 0, with fractions inside an epoch; `fraction` is the share of steps done. A
    network that has a part of the run only lives through all of it in that part, in proportion.
    """

    stage: Stage
    epoch: Tensor
    fraction: Tensor

    def rise(self, share: float, after: Tensor) -> Tensor:
        """From 0 at the fraction `after` () to 1 over that share of what then is left, ()."""
        if share == 0:
            return torch.ones_like(self.fraction)
        return ((self.fraction - after) / (1 - after) / share).clamp(0.0, 1.0)


@dataclass(frozen=True)
class Losses:
    """Named terms, already weighted: the engine sums `terms`; `monitors` are logged only."""

    terms: dict[str, Tensor]
    monitors: dict[str, Tensor] = field(default_factory=dict)

    def total(self) -> Tensor:
        """Sum of the weighted terms, (), in float32."""
        return torch.stack([term.float() for term in self.terms.values()]).sum()


@dataclass(frozen=True)
class Outputs:
    """What a trained method says of N images; scores are higher for inliers, in every method.

    `score` is the one that a method stands for. What it names in `others` is measured beside it, as
    are the scores that follow from logits and from `alpha`.
    """

    features: Tensor  # (N, d)
    logits: Tensor  # (N, K)
    score: Tensor  # (N,)
    alpha: Tensor | None = None  # (N, K) Dirichlet parameters, for evidential methods
    others: dict[str, Tensor] = field(default_factory=dict)  # (N,) each


@dataclass(frozen=True)
class Selection:
    """The pool images that join self-training, as sorted (n,) int64 positions in the pool."""

    positions: Tensor


@dataclass(frozen=True)
class Task:
    """What a method may know of the problem before it sees an image."""

    classes: int
    top_m: int  # M of Eq. 9 for this number of classes
    inlier_share: (
        float  # share of the pool taken as inliers; oracle knowledge in the paper's settings
    )
    consistency_weight: float = 0.03
    dataset: str = ""
    pool_size: int = 0  # images in the pool, for methods that remember something of each
    labelled_size: int = 0  # labelled images, for methods that weigh by how many there are
    image_size: int = 32  # pixels a side, for methods that keep images


@dataclass(frozen=True)
class MethodConfig:
    """Options of a method; each method extends it beside its own code.

    `drops` names options that lose what the catalogue set for them when a user gives another, on
    which they bear.
    """

    drops: ClassVar[Mapping[str, str]] = {}

    @property
    def networks_in_turn(self) -> int:
        """Networks that share a run, one after the other; see `Method.retire`."""
        return 1

    def check_wishes(self) -> None:
        """Refuse what cannot be meant where a run is asked for; what was trained stays readable.

        Raises:
            ConfigError: says what to change.
        """

    def resolved(self, task: Task) -> Self:
        """Fill in what was left open and depends on the task; a method without such keeps this."""
        return self


class Method(nn.Module, ABC):
    """A training method: what it wants in a batch, its loss, its selection and its outputs.

    `engine` are the engine's options that a method from a user's file changes, by name; those of
    the package state theirs in the catalogue. A subclass of one of these has its defaults, and
    `like` says of which by name where several share a class.
    """

    config_type: ClassVar[type[MethodConfig]] = MethodConfig
    engine: ClassVar[Mapping[str, Any]] = {}
    like: ClassVar[str | None] = None

    def __init__(self, config: Any, backbone: nn.Module, task: Task) -> None:
        super().__init__()
        self.config = config
        self.task = task
        self.backbone = backbone

    @property
    def selection_view(self) -> View:
        """The view of the pool that `select` judges."""
        return View.PLAIN

    @abstractmethod
    def wants(self, stage: Stage) -> dict[str, Want]:
        """Name the parts of a batch; exactly one of them, "labelled", is drawn from the labels."""

    @abstractmethod
    def loss(self, batch: Batch, progress: Progress) -> Losses:
        """Compute the named, weighted terms of one step."""

    def select(self, outputs: Outputs) -> Selection | None:
        """Choose, once an epoch, the pool images that join self-training; None selects all."""
        return None

    def recall(self, outputs: Outputs) -> Outputs:
        """Take in what the averaged model says of every pool image; give back what to select by.

        Called on the model in training before `select`, which the averaged model does. What it
        keeps must be a buffer, filled in place; one that only training needs is not persistent.
        """
        return outputs

    def opinion(self, images: Tensor) -> Outputs:
        """What the averaged model selects by, where that is not all that `outputs` tells."""
        return self.outputs(images)

    @property
    def untouched(self) -> tuple[str, ...]:
        """How the names begin of parameters and buffers that no training step changes."""
        return tuple(f"backbone.{name}" for name in getattr(self.backbone, "untouched", ()))

    @property
    def needs_pixels(self) -> str:
        """What is done with images here that a frozen trunk's features won't do for; or nothing."""
        return ""

    @property
    def kept_by_restart(self) -> tuple[str, ...]:
        """How the names begin of parameters and buffers that stay when a fresh network comes."""
        return ()

    def retire(self, outputs: Outputs) -> None:
        """Keep what is to stay of this network, whose place a fresh one is about to take.

        `outputs` is what it says of every pool image. Called on both models with the averaged
        weights, where the config has several `networks_in_turn`.
        """

    @abstractmethod
    def outputs(self, images: Tensor) -> Outputs:
        """Evaluate (N, C, H, W) uint8 images, in evaluation mode and without gradient."""
