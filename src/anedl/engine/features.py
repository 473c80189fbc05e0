"""Making the features of a run with a frozen trunk: once, a view of all images at a time."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from anedl.data.batches import ImageBatches
from anedl.data.features import FeatureBank, slots_of
from anedl.data.progress import Progress, TransferBar
from anedl.engine.model import build_method
from anedl.engine.precision import Precision
from anedl.engine.problem import Problem
from anedl.engine.spec import RunSpec
from anedl.files import replacing
from anedl.networks.frozen_encoder import FrozenEncoder

SLOT = 2000  # beyond those of batches and of the selection, so that these views are others
# Images at once: on a CPU a trained trunk is half as fast with 64.
BATCH = {"cuda": 256, "cpu": 16}


def with_features(
    problem: Problem,
    spec: RunSpec,
    precision: Precision,
    quiet: bool = True,
    kept: Path | None = None,
    images_digest: str = "",
) -> Problem:
    """The problem with features in place of its training images, where the trunk is frozen.

    A problem that has them stays as it is. Those of each view are kept as a file in the folder
    `kept`, if one is given, and read again where they are of the same trunk and, as
    `images_digest` says, of the same images.
    """
    if not spec.train.frozen or problem.features is not None:
        return problem
    # Of the whole method, which may refuse: before anything is looked at.
    method = build_method(spec, problem.setting, problem.task, precision.device)
    encoder = method.backbone.eval()
    assert isinstance(encoder, FrozenEncoder)
    images = problem.dataset.train.images
    indices = np.arange(len(images)) if kept else problem.used_of_train()
    slots = slots_of(spec.train.feature_views)
    bank = _empty(len(images), len(slots), encoder.trunk_width)
    bar = None if quiet else TransferBar("looking at images", unit="views")
    key = _key(problem, spec, encoder, precision, images_digest)
    files = [f"{slot:02}-{view}.safetensors" for slot, view in enumerate(slots)]
    try:
        for slot, view in enumerate(slots):
            path = kept / files[slot] if kept else None
            features = _read(path, key)
            if features is None:
                views = ImageBatches(
                    images, indices, problem.host_augment, problem.workers, view, spec.seed, slot,
                    SLOT, by_index=True,
                )  # fmt: skip
                features = _features(
                    encoder, views, precision, bar, slot * len(indices), len(slots) * len(indices)
                )
                if slot:
                    features = _halved(features)
                if path is not None:
                    with replacing(path) as temporary:
                        save_file({"features": features}, temporary, {"key": key})
            if not slot:
                bank.plain[torch.tensor(indices)] = features
            bank.views[torch.tensor(indices), slot] = _halved(features)
    finally:
        if bar is not None:
            bar.close()
    if kept is not None:
        for path in kept.glob("*.safetensors"):  # of a try that would have had more views
            if path.name not in files:
                path.unlink()
    return replace(problem, features=bank)


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
) -> str:
    """A digest of all that the features depend on but the number of views."""
    terms = problem.setting
    weights = hashlib.sha256()
    for name, value in sorted(encoder.trunk.state_dict().items()):
        weights.update(name.encode())
        weights.update(value.detach().cpu().contiguous().numpy().tobytes())
    facts = {
        "backbone": spec.train.backbone, "weights": weights.hexdigest(), "mean": terms.mean,
        "std": terms.std, "image_size": terms.image_size, "augmentation": terms.augmentation,
        "seed": spec.seed, "precision": str(precision.dtype), "images": images_digest,
    }  # fmt: skip
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()


def _read(path: Path | None, key: str) -> Tensor | None:
    """Features that were kept under this key; None where there are none that can be used."""
    if path is None or not path.exists():
        return None
    try:
        with safe_open(path, "pt") as file:
            if (file.metadata() or {}).get("key") != key:
                return None
        return load_file(path)["features"]
    except (OSError, SafetensorError, KeyError):
        return None  # damaged: they are made again
