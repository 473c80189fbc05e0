"""From the name of a setting to the images a run trains and is judged on."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from anedl.data.augment.host import HostAugment
from anedl.data.batches import ImageBatches, ImageSet, worker_count
from anedl.data.dataset import ArrayImages, Dataset, Images, IntArray
from anedl.data.development import development_split
from anedl.data.disk import DiskImages
from anedl.data.features import FeatureBank
from anedl.data.protocol import Split, draw_split, hash_order
from anedl.data.resident import TrainingImages
from anedl.data.settings import Setting
from anedl.data.sources import load_dataset
from anedl.engine.task import task_of_split
from anedl.errors import ConfigError
from anedl.methods.base import Task


@dataclass(frozen=True)
class Problem:
    """A setting with its data and one split of it; `workers` read what is not in memory.

    `features` stand in for the images of either part, where a frozen trunk has seen them.
    """

    setting: Setting
    dataset: Dataset
    split: Split
    workers: int = field(default_factory=lambda: worker_count(None), compare=False)
    features: FeatureBank | None = field(default=None, compare=False, repr=False)

    @property
    def task(self) -> Task:
        """What a method may know."""
        return task_of_split(self.setting, self.split)

    @property
    def host_augment(self) -> HostAugment:
        """How the host makes views of images that are not in memory."""
        return HostAugment(self.setting.augmentation, self.setting.image_size)

    def training_images(self, device: torch.device) -> TrainingImages:
        """The labelled and pool images on the device; no label of the pool is read."""
        if self.features is not None:
            return TrainingImages(
                labelled=self.features.views_of(self.split.labelled).to(device),
                labels=self._labels().to(device),
                pool=self.features.views_of(self.split.pool).to(device),
            )
        images = self.dataset.train.images
        assert isinstance(images, ArrayImages), "image files are decoded or streamed"
        return TrainingImages(
            labelled=pixels_of(images, self.split.labelled).to(device),
            labels=self._labels().to(device),
            pool=pixels_of(images, self.split.pool).to(device),
        )

    def to_be_judged(self) -> "Problem":
        """Without the features that only steps learn from, which now have their own of them."""
        if self.features is None:
            return self
        return replace(self, features=replace(self.features, views=torch.empty(0)))

    def disk_images(self) -> DiskImages:
        """Where the labelled and pool images are; no label of the pool is read."""
        images = self.dataset.train.images
        return DiskImages(images, self.split.labelled, self._labels(), self.split.pool)

    def _labels(self) -> Tensor:
        return torch.from_numpy(self.split.labelled_targets(self.dataset.train.labels))

    def pool(self) -> ImageSet:
        """Pool images (P, C, H, W) uint8, as at test time; or their features, (P, d)."""
        return self._images(self.dataset.train.images, self.split.pool)

    def validation(self) -> tuple[ImageSet, IntArray]:
        """Validation images (V, C, H, W) uint8 and their known classes."""
        train = self.dataset.train
        return (
            self._images(train.images, self.split.validation),
            self.split.validation_targets(train.labels),
        )

    def test(self) -> tuple[ImageSet, IntArray]:
        """Test images (T, C, H, W) uint8 and their known classes, −1 for outliers."""
        part = self.dataset.train if self.split.test_part == "train" else self.dataset.test
        targets = self.split.test_targets(self.dataset.train.labels, self.dataset.test.labels)
        return self._images(part.images, self.split.test), targets

    def images_at(self, indices: IntArray) -> ImageSet:
        """Any images of the train part by their indices, as at test time."""
        return self._images(self.dataset.train.images, indices)

    def used_of_train(self) -> IntArray:
        """Indices of the images of the train part that have a role, ascending."""
        split = self.split
        parts = [split.labelled, split.validation, split.pool]
        if split.test_part == "train":
            parts.append(split.test)
        return np.sort(np.concatenate(parts))

    def _images(self, images: Images, indices: IntArray) -> ImageSet:
        if self.features is not None and images is self.dataset.train.images:
            return self.features.plain_of(indices)
        if self.features is not None and images is self.dataset.test.images:
            assert self.features.test is not None
            return self.features.test[torch.tensor(indices)]
        if isinstance(images, ArrayImages) and self._as_they_are(images):
            return pixels_of(images, indices)
        return ImageBatches(images, indices, self.host_augment, self.workers)

    def _as_they_are(self, images: ArrayImages) -> bool:
        """Whether images in memory need neither a crop nor to be left on the disk they map."""
        side = self.setting.image_size
        mapped = isinstance(images.pixels, np.memmap)
        return images.pixels.shape[1:3] == (side, side) and not mapped

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


def pixels_of(images: ArrayImages, indices: IntArray) -> Tensor:
    """The images with these indices as one (N, C, H, W) uint8 tensor."""
    return torch.from_numpy(images.pixels[indices]).permute(0, 3, 1, 2).contiguous()
