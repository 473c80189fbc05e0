"""From the name of a setting to the tensors a run trains and is judged on."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from anedl.data.dataset import ArrayImages, Dataset, Images, IntArray
from anedl.data.development import development_split
from anedl.data.protocol import Split, draw_split, hash_order
from anedl.data.resident import TrainingImages
from anedl.data.settings import Setting
from anedl.data.sources import load_dataset
from anedl.engine.task import task_of
from anedl.errors import ConfigError, DataError
from anedl.methods.base import Task


@dataclass(frozen=True)
class Problem:
    """A setting with its data and one split of it."""

    setting: Setting
    dataset: Dataset
    split: Split

    @property
    def task(self) -> Task:
        """What a method may know."""
        return task_of(self.setting, self.split.development)

    def training_images(self, device: torch.device) -> TrainingImages:
        """The labelled and pool images on the device; no label of the pool is read."""
        train = self.dataset.train
        targets = self.split.labelled_targets(train.labels)
        return TrainingImages(
            labelled=pixels_of(train.images, self.split.labelled).to(device),
            labels=torch.from_numpy(targets).to(device),
            pool=pixels_of(train.images, self.split.pool).to(device),
        )

    def validation(self) -> tuple[Tensor, IntArray]:
        """Validation images (V, C, H, W) uint8 and their known classes."""
        train = self.dataset.train
        return (
            pixels_of(train.images, self.split.validation),
            self.split.validation_targets(train.labels),
        )

    def test(self) -> tuple[Tensor, IntArray]:
        """Test images (T, C, H, W) uint8 and their known classes, −1 for outliers."""
        part = self.dataset.train if self.split.test_part == "train" else self.dataset.test
        targets = self.split.test_targets(self.dataset.train.labels, self.dataset.test.labels)
        return pixels_of(part.images, self.split.test), targets

    def pool_truth(self) -> IntArray:
        """True known classes of the pool, −1 for outliers: for reports only, never for training."""
        return self.split.targets(self.dataset.train.labels[self.split.pool])


def load_problem(
    setting: Setting,
    fold: int,
    development: bool = False,
    pool_limit: int | None = None,
    root: Path | None = None,
    dataset: Dataset | None = None,
) -> Problem:
    """Load a setting's data (or take `dataset`) and draw its split.

    `pool_limit` keeps that many pool images, for trials on a slow machine; the split's hash then
    differs, so such a run cannot be mistaken for one under the setting's protocol.
    """
    data = dataset if dataset is not None else load_dataset(setting.dataset, root)
    split = draw_split(setting, fold, data.train.labels, data.test.labels, data.class_names)
    if development:
        split = development_split(setting, split, data.train.labels)
    if pool_limit is not None:
        if not 1 <= pool_limit <= len(split.pool):
            raise ConfigError(f"pool limit {pool_limit}: the pool has {len(split.pool):,} images")
        kept = hash_order(split.pool.tolist(), f"{setting.dataset}/pool-limit")[:pool_limit]
        split = replace(split, pool=np.array(sorted(kept), dtype=np.int64))
    return Problem(setting, data, split)


def pixels_of(images: Images, indices: IntArray) -> Tensor:
    """The images with these indices as one (N, C, H, W) uint8 tensor."""
    if not isinstance(images, ArrayImages):
        raise DataError(
            "this data set is read from image files, which training does not stream yet: "
            "only sets held in memory (CIFAR, digits) can be trained on"
        )
    return torch.from_numpy(images.pixels[indices]).permute(0, 3, 1, 2).contiguous()
