"""Views of labelled images that are others at the beginning of a run than later.

In the code that OpenMatch and ANEDL were released with, the weak second view that is meant for
labelled images only comes into use when the loader that was made before it has run dry: until then
it is a strong one. That loader holds every class often enough for an epoch, so this takes as many
epochs as there are classes.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from anedl.errors import ConfigError
from anedl.methods.base import Progress
from anedl.views import ViewName

RELEASED_EPOCHS = 200
"""Length of a run of the release, of which the first K epochs have the strong view."""


def check_early(views: Sequence[ViewName], early: Sequence[ViewName], share: float | None) -> None:
    """Refuse early views that are not as many as the later ones, or a share outside 0…1."""
    if early and len(early) != len(views):
        raise ConfigError(
            f"option early_labelled_views: takes as many views as labelled_views ({len(views)}), "
            f"got {len(early)}"
        )
    if share is not None and not 0 <= share <= 1:
        raise ConfigError(f"option early_share: must lie in 0…1, got {share}")


def released_share(classes: int) -> float:
    """Share of a run in which the release has its early views."""
    return min(1.0, classes / RELEASED_EPOCHS)


def views_to_make(views: Sequence[ViewName], early: Sequence[ViewName]) -> tuple[ViewName, ...]:
    """The later views, then those of the early ones that differ from what is in their place."""
    return (*views, *(first for first, view in zip(early, views, strict=False) if first != view))


def views_to_train_on(
    made: Sequence[Tensor],
    views: Sequence[ViewName],
    early: Sequence[ViewName],
    share: float | None,
    progress: Progress,
) -> tuple[Tensor, ...]:
    """Of the views that were made (as `views_to_make` names them), those of this step.

    Chosen on the device: a captured step stays valid when the early part ends.
    """
    others = iter(made[len(views) :])
    is_early = progress.fraction < (share or 0.0)
    kept = list(made[: len(views)])
    for place, (first, view) in enumerate(zip(early, views, strict=False)):
        if first != view:
            kept[place] = torch.where(is_early, next(others), kept[place])
    return tuple(kept)
