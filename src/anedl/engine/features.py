"""Making the features of a run with a frozen trunk: once, a view of all images at a time."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from anedl.data.batches import ImageBatches
from anedl.data.features import FeatureBank, slots_of
from anedl.data.progress import Progress, TransferBar
from anedl.data.sources import data_root
from anedl.engine.kept_features import Kept, Shelf, digest_of_images, key_of, view_seed
from anedl.engine.kept_memory import freed_memory_kept
from anedl.engine.model import build_method
from anedl.engine.precision import Precision, precision_of
from anedl.engine.problem import Problem, load_problem
from anedl.engine.spec import RunSpec
from anedl.networks.frozen_encoder import FrozenEncoder
from anedl.views import View

SLOT = 2000  # beyond those of batches and of the selection, so that these views are others
# Images at once: on a CPU a trained trunk is half as fast with 64.
BATCH = {"cuda": 256, "cpu": 16}


def features_of_setting(
    problem: Problem, spec: RunSpec, precision: Precision, root: Path | None, quiet: bool = True
) -> Problem:
    """The problem with features that are kept beside the data sets, for every run on this one.

    Where nothing can be written there they are this run's alone.
    """
    kept = _place_for(problem, root) if spec.train.frozen else None
    return with_features(problem, spec, precision, quiet, kept)


def keep_features(
    spec: RunSpec, device: torch.device, root: Path | None, quiet: bool = True
) -> bool:
    """Make the features that a run will want, where they can be kept and are not yet.

    False: this run would not come to want any, as it will say itself.
    """
    precision = precision_of(spec, device)
    problem = load_problem(spec.terms, spec.fold, spec.development, spec.pool_limit, root)
    if (kept := _place_for(problem, root)) is None:
        return True
    try:
        encoder = _encoder(problem, spec, device)
    except Exception:  # a refusal, or a slip in a user's method: other methods may have none
        return False
    _bank(problem, spec, encoder, precision, quiet, kept, only_to_keep=True)
    return True


def with_features(
    problem: Problem,
    spec: RunSpec,
    precision: Precision,
    quiet: bool = True,
    kept: Kept | None = None,
) -> Problem:
    """The problem with features in place of its images, where the trunk is frozen.

    A problem that has them stays as it is. Those of each view are a file in the folder that `kept`
    names, if it does, and read again where they are of the same trunk and the same images.
    """
    if not spec.train.frozen or problem.features is not None:
        return problem
    encoder = _encoder(problem, spec, precision.device)
    return replace(problem, features=_bank(problem, spec, encoder, precision, quiet, kept))


def _encoder(problem: Problem, spec: RunSpec, device: torch.device) -> FrozenEncoder:
    """The trunk that looks; with the whole method, which may refuse before anything is looked at.

    Raises:
        ConfigError: the method refuses a frozen trunk, or this one cannot be had.
    """
    encoder = build_method(spec, problem.setting, problem.task, device).backbone.eval()
    assert isinstance(encoder, FrozenEncoder)
    return encoder


def _bank(
    problem: Problem,
    spec: RunSpec,
    encoder: FrozenEncoder,
    precision: Precision,
    quiet: bool,
    kept: Kept | None,
    only_to_keep: bool = False,
) -> FeatureBank:
    """The features that the run wants, read or made; `only_to_keep`: none that cannot be kept."""
    key = key_of(problem, spec, encoder, precision, kept.images_digest if kept else "")
    shelf = Shelf(kept, key, quiet)
    looks = _looks(problem, spec, all_images=kept is not None)
    train_images = problem.dataset.train.images
    bank = _empty(len(train_images), len(slots_of(spec.train.feature_views)), encoder.trunk_width)
    missing = []
    for look in looks:
        if (features := shelf.read(look.file)) is None:
            missing.append(look)
        else:
            bank = _filled(bank, look, features)
    if missing:
        bar = None if quiet else TransferBar("looking at images", unit="views")
        done, total = 0, sum(len(look.views) for look in missing)
        try:
            with shelf.alone():
                for look in missing:
                    if only_to_keep and not shelf.keeps:
                        break
                    # Another process may have made them while this one waited.
                    if (features := shelf.read(look.file)) is None:
                        features = _features(encoder, look.views, precision, bar, done, total)
                        features = _halved(features) if look.slot else features
                        shelf.write(look.file, features)
                    bank = _filled(bank, look, features)
                    done += len(look.views)
        finally:
            if bar is not None:
                bar.close()
    shelf.keep_only([look.file for look in looks])
    return bank


def _place_for(problem: Problem, root: Path | None) -> Kept | None:
    """Where all runs on this data set keep features; None where they cannot."""
    folder = data_root(root) / "features"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return None
    if not os.access(folder, os.R_OK | os.X_OK):
        return None
    parts = (problem.dataset.train.images, problem.dataset.test.images)
    digest = digest_of_images(parts)
    return None if digest is None else Kept(folder, digest, shared=True)


@dataclass(frozen=True)
class _Look:
    """One view of all images of a part, which lies at `slot` of a bank; None for the test part."""

    file: str
    views: ImageBatches
    slot: int | None


def _looks(problem: Problem, spec: RunSpec, all_images: bool) -> list[_Look]:
    images = problem.dataset.train.images
    indices = np.arange(len(images)) if all_images else problem.used_of_train()
    looks = [
        _Look(
            f"{slot:02}-{view}.safetensors",
            ImageBatches(
                images, indices, problem.host_augment, problem.workers, view, view_seed(spec),
                slot, SLOT, by_index=True,
            ),
            slot,
        )
        for slot, view in enumerate(slots_of(spec.train.feature_views))
    ]  # fmt: skip
    if problem.split.test_part == "test":
        test = problem.dataset.test.images
        plain = ImageBatches(test, np.arange(len(test)), problem.host_augment, problem.workers)
        looks.append(_Look("test.safetensors", plain, None))
    return looks


def _filled(bank: FeatureBank, look: _Look, features: Tensor) -> FeatureBank:
    if look.slot is None:
        return replace(bank, test=features)
    rows = torch.tensor(look.views.indices)
    if look.slot == 0:
        bank.plain[rows] = features
    bank.views[rows, look.slot] = _halved(features)
    return bank


@torch.no_grad()
def _features(
    encoder: FrozenEncoder,
    images: ImageBatches,
    precision: Precision,
    progress: Progress | None,
    done: int,
    total: int,
) -> Tensor:
    """The trunk's features of all `images`, (n, d) float32 on the host."""
    device = precision.device
    pieces = []
    # Images are judged by their plain views; steps learn from the others.
    judged = images.view is View.PLAIN
    context = precision.judging() if judged else precision.autocast()
    with freed_memory_kept(device), context:
        for batch in images.batches(BATCH[device.type]):
            pieces.append(encoder.trunk_features(batch.to(device)).float().cpu())
            done += len(batch)
            if progress is not None:
                progress(done, total)
    return torch.cat(pieces)


def _empty(count: int, slots: int, width: int) -> FeatureBank:
    """A bank of `count` images of which nothing is known yet.

    Where nothing is filled in nothing may be judged: not numbers, which no run survives unnoticed.
    """
    views = torch.full((count, slots, width), torch.nan, dtype=torch.float16)
    return FeatureBank(torch.full((count, width), torch.nan), views)


def _halved(features: Tensor) -> Tensor:
    """In half the bytes, as steps learn from them."""
    largest = torch.finfo(torch.float16).max
    return features.clamp(-largest, largest).half()
