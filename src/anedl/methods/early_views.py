"""Views of labelled images that are others at the beginning of a run than later.

In the code that OpenMatch and ANEDL were released with, the weak second view that is meant for
labelled images only comes into use when the loader that was made before it has run dry: until then
it is a strong one. That loader holds every class often enough for an epoch, so this takes as many
epochs as there are classes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from anedl.errors import ConfigError
from anedl.methods.base import Labelled, MethodConfig, Progress, Source, Task, Want
from anedl.options import option
from anedl.views import View, ViewName

RELEASED_EPOCHS = 200
"""Length of a run of the release, of which the first K epochs have the strong view."""


@dataclass(frozen=True)
class LabelledViewsConfig(MethodConfig):
    """Which views labelled images have, early in a run and later."""

    # Views that a user gives hold from the start, unless early ones are given too.
    drops: ClassVar[Mapping[str, str]] = {"labelled_views": "early_labelled_views"}

    labelled_views: tuple[ViewName, ...] = option(
        ("flip", "weak"), "views of labelled images (released: flip and weak; ANEDL's paper: one)"
    )
    early_labelled_views: tuple[ViewName, ...] = option(
        (),
        "views of labelled images in the first part of a run, where they are others (released: "
        "flip and strong)",
        later=True,
    )
    early_share: float | None = option(
        None,
        "share of the run that this part is; default: as many epochs of 200 as there are classes "
        "(released)",
        later=True,
    )

    def __post_init__(self) -> None:
        count, early = len(self.labelled_views), len(self.early_labelled_views)
        if not count:
            raise ConfigError("option labelled_views: needs one view or more")
        if early not in (0, count):
            raise ConfigError(
                f"option early_labelled_views: takes as many views as labelled_views ({count}), "
                f"got {early}"
            )
        if self.early_share is not None and not 0 <= self.early_share <= 1:
            raise ConfigError(f"option early_share: must lie in 0…1, got {self.early_share}")

    def resolved(self, task: Task) -> Self:
        """Take the early part's length from the number of classes, as the release has it."""
        if self.early_share is not None or not self.early_labelled_views:
            return self
        return replace(self, early_share=min(1.0, task.classes / RELEASED_EPOCHS))


def labelled_want(config: LabelledViewsConfig) -> Want:
    """The later views, then those of the early ones that differ from what is in their place."""
    pairs = zip(config.early_labelled_views, config.labelled_views, strict=False)
    others = [early for early, later in pairs if early != later]
    views = tuple(map(View, [*config.labelled_views, *others]))
    return Want(Source.LABELLED, views, alternatives=len(others))


def views_to_train_on(
    labelled: Labelled, config: LabelledViewsConfig, progress: Progress
) -> tuple[Tensor, ...]:
    """Of the views that were made (as `labelled_want` asks for them), those of this step.

    Chosen on the device: a captured step stays valid when the early part ends.
    """
    count = len(config.labelled_views)
    chosen, others = list(labelled.views[:count]), iter(labelled.views[count:])
    is_early = progress.fraction < (config.early_share or 0.0)
    pairs = zip(config.early_labelled_views, config.labelled_views, strict=False)
    for place, (early, later) in enumerate(pairs):
        if early != later:
            chosen[place] = torch.where(is_early, next(others), chosen[place])
    return tuple(chosen)
