"""Making the features of a run with a frozen trunk: once, a view of all images at a time."""

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from anedl.data.batches import ImageBatches
from anedl.data.dataset import ArrayImages
from anedl.data.features import FeatureBank, slots_of
from anedl.data.progress import Progress, TransferBar
from anedl.data.sources import data_root
from anedl.engine.lock import one_after_another
from anedl.engine.model import build_method
from anedl.engine.precision import Precision, choose_precision
from anedl.engine.problem import Problem, load_problem
from anedl.engine.spec import RunSpec
from anedl.files import replacing
from anedl.networks.frozen_encoder import FrozenEncoder

SLOT = 2000  # beyond those of batches and of the selection, so that these views are others
# Images at once: on a CPU a trained trunk is half as fast with 64.
BATCH = {"cuda": 256, "cpu": 16}


@dataclass(frozen=True)
class Kept:
    """A folder that keeps features from one call to the next, and of which images they are.

    The features of a data set are `shared` by all runs on it, whatever their seed, method and
    split; those of a user's images belong to one fit, which may change its mind about their number.
    """

    folder: Path
    images_digest: str = ""
    shared: bool = False


def features_of_setting(
    problem: Problem, spec: RunSpec, precision: Precision, root: Path | None, quiet: bool = True
) -> Problem:
    """The problem with features that are kept beside the data sets, for every run on this one.

    Of images that are read from their files anew each time, or where nothing can be written, they
    are this run's alone.
    """
    parts = (problem.dataset.train.images, problem.dataset.test.images)
    folder = data_root(root) / "features"
    arrays = [part.pixels for part in parts if isinstance(part, ArrayImages) and len(part)]
    resident = len(arrays) == sum(len(part) > 0 for part in parts)
    kept = None
    if spec.train.frozen and resident and _is_writable(folder):
        digest = hashlib.sha256()
        for pixels in arrays:
            digest.update(np.ascontiguousarray(pixels).data)
        kept = Kept(folder, digest.hexdigest(), shared=True)
    return with_features(problem, spec, precision, quiet, kept)


def keep_features(
    spec: RunSpec, device: torch.device, root: Path | None, quiet: bool = True
) -> None:
    """Make the features that a run will want, where they are not kept already."""
    if spec.train.frozen and spec.own is None:
        precision = Precision(choose_precision(spec.train.precision, device), device)
        problem = load_problem(spec.terms, spec.fold, spec.development, spec.pool_limit, root)
        features_of_setting(problem, spec, precision, root, quiet)


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
    # Of the whole method, which may refuse: before anything is looked at.
    method = build_method(spec, problem.setting, problem.task, precision.device)
    encoder = method.backbone.eval()
    assert isinstance(encoder, FrozenEncoder)
    seed = 0 if kept is not None and kept.shared else spec.seed
    key = _key(problem, spec, encoder, precision, kept.images_digest if kept else "", seed)
    bar = None if quiet else TransferBar("looking at images", unit="views")
    looks = _looks(problem, spec, seed, all_images=kept is not None)
    total = sum(len(look.views) for look in looks)
    train_images = problem.dataset.train.images
    bank = _empty(len(train_images), len(slots_of(spec.train.feature_views)), encoder.trunk_width)
    done = 0
    try:
        with _place_for(kept, key, [look.file for look in looks]) as folder:
            for look in looks:
                features = _read(folder, look.file, key)
                if features is None:
                    features = _features(encoder, look.views, precision, bar, done, total)
                    if look.slot:
                        features = _halved(features)
                    if folder is not None:
                        with replacing(folder / look.file) as temporary:
                            save_file({"features": features}, temporary, {"key": key})
                bank = _filled(bank, look, features)
                done += len(look.views)
    finally:
        if bar is not None:
            bar.close()
    return replace(problem, features=bank)


@dataclass(frozen=True)
class _Look:
    """One view of all images of a part, which lies at `slot` of a bank; None for the test part."""

    file: str
    views: ImageBatches
    slot: int | None


def _looks(problem: Problem, spec: RunSpec, seed: int, all_images: bool) -> list[_Look]:
    images = problem.dataset.train.images
    indices = np.arange(len(images)) if all_images else problem.used_of_train()
    looks = [
        _Look(
            f"{slot:02}-{view}.safetensors",
            ImageBatches(
                images, indices, problem.host_augment, problem.workers, view, seed, slot, SLOT,
                by_index=True,
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


@contextmanager
def _place_for(kept: Kept | None, key: str, files: Sequence[str]) -> Iterator[Path | None]:
    """Where files are kept, for this process alone while it reads and writes them."""
    if kept is None:
        yield None
    elif kept.shared:
        folder = kept.folder / key[:16]
        with one_after_another(folder):
            yield folder
    else:
        yield kept.folder
        for path in kept.folder.glob("*.safetensors"):  # of a try that would have had more views
            if path.name not in files:
                path.unlink()


def _is_writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


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
    with precision.autocast():
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


def _key(
    problem: Problem,
    spec: RunSpec,
    encoder: FrozenEncoder,
    precision: Precision,
    images_digest: str,
    seed: int,
) -> str:
    """A digest of all that the features depend on but the number of views."""
    terms = problem.setting
    weights = hashlib.sha256()
    for name, value in sorted(encoder.trunk.state_dict().items()):
        weights.update(name.encode())
        weights.update(value.detach().cpu().contiguous().numpy().tobytes())
    mean, std = encoder.normalise.mean.tolist(), encoder.normalise.std.tolist()
    facts = {
        "backbone": spec.train.backbone, "weights": weights.hexdigest(), "mean": mean, "std": std,
        "image_size": terms.image_size, "side": encoder.side, "augmentation": terms.augmentation,
        "seed": seed, "precision": str(precision.dtype), "images": images_digest,
    }  # fmt: skip
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _read(folder: Path | None, name: str, key: str) -> Tensor | None:
    """Features that were kept under this key; None where there are none that can be used."""
    if folder is None or not (path := folder / name).exists():
        return None
    try:
        with safe_open(path, "pt") as file:
            if (file.metadata() or {}).get("key") != key:
                return None
        return load_file(path)["features"]
    except (OSError, SafetensorError, KeyError):
        return None  # damaged: they are made again
