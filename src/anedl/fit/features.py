"""The features of a fit's images, where the trunk is frozen: for all of its trainings at once."""

import hashlib
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from anedl.data.batches import ImageBatches
from anedl.engine.features import BATCH, with_features
from anedl.engine.kept_features import Kept
from anedl.engine.kept_memory import freed_memory_kept
from anedl.engine.model import build_encoder, choose_device
from anedl.engine.precision import Precision, resolved
from anedl.engine.problem import Problem
from anedl.engine.spec import RunSpec, make_spec
from anedl.errors import ConfigError
from anedl.files import write_json
from anedl.fit.choices import (
    AS_BEGUN,
    LEAST_TRAINING,
    Choice,
    choose_feature_views,
    looking_overrun,
)
from anedl.fit.gather import Gathered
from anedl.fit.wishes import Say, Wishes
from anedl.intake.fitted import VIEWS_FILE
from anedl.networks.frozen_encoder import FrozenEncoder
from anedl.views import View

TIMED_BATCHES = 2


def looked_at(
    problem: Problem, gathered: Gathered, wishes: Wishes, recorded: int | None, say: Say
) -> tuple[Problem, Choice, float]:
    """The problem with features of all images, of how many views, and the minutes left to train.

    They are kept beside the decoded images, so that a call which was cut off goes on. `recorded` is
    the number of views that the run has begun with.
    """
    device = choose_device(wishes.device)
    # As the trainings have it: new images pass the trunk in the same arithmetic.
    wished = wishes.options.get("precision", "auto")
    precision = resolved(wished, device, problem.setting.image_size)
    began = time.monotonic()
    count = len(gathered.cache.items)
    if recorded is not None and wishes.feature_views not in (None, recorded):
        raise ConfigError(
            f"--feature-views {wishes.feature_views}: this run was begun with {recorded}; give "
            f"that or nothing, or choose another folder"
        )
    begun = gathered.cache.folder / VIEWS_FILE
    if wishes.resume and recorded is None and wishes.feature_views is None:
        recorded = _read_views(begun)  # a call that was cut off while it looked
    wanted = recorded if recorded is not None else wishes.feature_views
    draft = _draft(problem, wishes, 1)
    # With a length of its own a fit has no time to keep.
    is_timed = recorded is None and None in (wishes.feature_views, wishes.epochs)
    seconds = _seconds_a_view(draft, problem, precision) if is_timed else 0.0
    choice = choose_feature_views(count, seconds, wishes.minutes, wanted)
    if recorded is not None:
        choice = replace(choice, reason=AS_BEGUN)
    say(choice.describe())
    assert isinstance(choice.value, int)
    looking = (1 + 2 * choice.value) * count * seconds
    longer = looking_overrun(looking, wishes.minutes, problem.setting.image_size)
    if longer and wishes.epochs is None:
        say(longer)
    write_json(begun, choice.value)
    looked = with_features(
        problem, _draft(problem, wishes, choice.value), precision, wishes.quiet,
        Kept(gathered.cache.folder / "features", _digest(gathered)),
    )  # fmt: skip
    spent = (time.monotonic() - began) / 60
    return looked, choice, max(wishes.minutes - spent, LEAST_TRAINING * wishes.minutes)


def _read_views(path: Path) -> int | None:
    try:
        return int(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def _draft(problem: Problem, wishes: Wishes, views: int) -> RunSpec:
    train = {"frozen": True, "feature_views": views}
    return make_spec(problem.setting, "supervised", wishes.seed, train=train)


def _digest(gathered: Gathered) -> str:
    """Of all images in their order."""
    return hashlib.sha256(json.dumps(gathered.cache.digests).encode()).hexdigest()


@torch.no_grad()
def _seconds_a_view(spec: RunSpec, problem: Problem, precision: Precision) -> float:
    """What the trunk takes over one view of one image, its making included."""
    encoder = build_encoder(spec, problem.setting).to(precision.device).eval()
    assert isinstance(encoder, FrozenEncoder)
    images = problem.dataset.train.images
    size = min(BATCH[precision.device.type], len(images))
    some = np.arange(min(len(images), (1 + TIMED_BATCHES) * size))
    began, timed = None, 0
    with freed_memory_kept(precision.device), precision.autocast():
        # Strong views take longest to make.
        views = ImageBatches(images, some, problem.host_augment, problem.workers, View.STRONG)
        for batch in views.batches(size):
            encoder.trunk_features(batch.to(precision.device)).sum().item()
            if began is None:  # kernels are chosen in the first one
                began = time.monotonic()
            else:
                timed += len(batch)
    assert began is not None
    return (time.monotonic() - began) / max(1, timed)
