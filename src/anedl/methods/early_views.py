"""Views of labelled images that are others at the beginning of a run than later.

In the code that OpenMatch and ANEDL were released with, the weak second view that is meant for
labelled images only comes into use when the loader that was made before it has run dry: until then
it is a strong one. That loader holds every class often enough for an epoch, so this takes as many
epochs as there are classes.
"""

from typing import Any, Protocol

import torch
from torch import Tensor

from anedl.errors import ConfigError
from anedl.methods.base import Labelled, Progress, Source, Want
from anedl.options import option
from anedl.views import View, ViewName

RELEASED_EPOCHS = 200
"""Length of a run of the release, of which the first K epochs have the strong view."""


DROPS = {"labelled_views": "early_labelled_views"}
"""Views that a user gives hold from the start, unless early ones are given too."""


class HasLabelledViews(Protocol):
    """The options of a method whose labelled views may change."""

    @property
    def labelled_views(self) -> tuple[ViewName, ...]:
        """Views of labelled images, after the early part where there is one."""

    @property
    def early_labelled_views(self) -> tuple[ViewName, ...]:
        """Views in the early part, as many; empty where there is none."""

    @property
    def early_share(self) -> float | None:
        """Share of the run that the early part is."""


def early_views_option() -> Any:
    """The field `early_labelled_views` of a method's options."""
    return option(
        (),
        "views of labelled images in the first part of a run, where they are others (released: "
        "flip and strong)",
        later=True,
    )


def early_share_option() -> Any:
    """The field `early_share` of a method's options."""
    return option(
        None,
        "share of the run that this part is; default: as many epochs of 200 as there are classes "
        "(released)",
        later=True,
    )


def check_early(config: HasLabelledViews) -> None:
    """Refuse early views that are not as many as the later ones, or a share outside 0…1."""
    count, share = len(config.labelled_views), config.early_share
    if config.early_labelled_views and len(config.early_labelled_views) != count:
        raise ConfigError(
            f"option early_labelled_views: takes as many views as labelled_views ({count}), got "
            f"{len(config.early_labelled_views)}"
        )
    if share is not None and not 0 <= share <= 1:
        raise ConfigError(f"option early_share: must lie in 0…1, got {share}")


def resolved_share(config: HasLabelledViews, classes: int) -> float | None:
    """The share as given, or the release's; None where there is no early part."""
    if config.early_share is not None or not config.early_labelled_views:
        return config.early_share
    return min(1.0, classes / RELEASED_EPOCHS)


def labelled_want(config: HasLabelledViews) -> Want:
    """The later views, then those of the early ones that differ from what is in their place."""
    pairs = zip(config.early_labelled_views, config.labelled_views, strict=False)
    others = [early for early, later in pairs if early != later]
    views = tuple(map(View, [*config.labelled_views, *others]))
    return Want(Source.LABELLED, views, alternatives=len(others))


def views_to_train_on(
    labelled: Labelled, config: HasLabelledViews, progress: Progress
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
