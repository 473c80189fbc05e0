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
from anedl.data.dataset import IntArray
from anedl.data.features import FeatureBank, slots_of
from anedl.data.progress import Progress, TransferBar
from anedl.engine.model import build_encoder
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
    encoder = build_encoder(spec, problem.setting).to(precision.device).eval()
    assert isinstance(encoder, FrozenEncoder)
    indices = np.arange(len(problem.dataset.train.images)) if kept else problem.used_of_train()
    slots = slots_of(spec.train.feature_views)
    made: list[Tensor] = []
    bar = None if quiet else TransferBar("looking at images", unit="views")
    key = _key(problem, spec, encoder, precision, images_digest)
    try:
        for slot, view in enumerate(slots):
            images = ImageBatches(
                problem.dataset.train.images, indices, problem.host_augment, problem.workers,
                view, spec.seed, slot, SLOT, by_index=True,
            )  # fmt: skip
            path = kept / f"{slot:02}-{view}.safetensors" if kept else None
            features = _read(path, key)
            if features is None:
                features = _features(
                    encoder, images, precision, bar, slot * len(indices), len(slots) * len(indices)
                )
                if path is not None:
                    with replacing(path) as temporary:
                        save_file({"features": features}, temporary, {"key": key})
            made.append(features)
    finally:
        if bar is not None:
            bar.close()
    return replace(problem, features=_bank(made, indices, len(problem.dataset.train.images)))


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


def _bank(made: list[Tensor], indices: IntArray, count: int) -> FeatureBank:
    """The bank of `count` images, of which there are features at `indices`."""
    largest = torch.finfo(torch.float16).max
    width = made[0].shape[1]
    places = torch.tensor(indices)
    # Where there is nothing nothing may be judged: not numbers, which no run survives unnoticed.
    plain = torch.full((count, width), torch.nan)
    plain[places] = made[0]
    views = torch.full((count, len(made), width), torch.nan, dtype=torch.float16)
    for slot, features in enumerate(made):
        views[places, slot] = features.clamp(-largest, largest).half()
    return FeatureBank(plain, views)


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
