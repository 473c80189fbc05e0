"""The images behind a run, where they are still at hand: a benchmark's, or a user's own."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from anedl.data.augment.host import HostAugment
from anedl.data.dataset import Dataset, UInt8Array
from anedl.data.settings import Setting, get_setting
from anedl.data.sources import load_dataset
from anedl.engine.own import own_problem
from anedl.errors import DataError
from anedl.options import from_json
from anedl.report.run_folder import Run
from anedl.views import View

Part = Literal["train", "test"]
Key = tuple[Part, int]
"""Which image: the part of the data set, and its place there."""


@dataclass(frozen=True)
class RunImages:
    """The images of a run as its model saw them."""

    dataset: Dataset
    augment: HostAugment

    def __getitem__(self, key: Key) -> UInt8Array:
        """The plain view of an image, (side, side, channels 1 or 3) uint8."""
        part, place = key
        images = (self.dataset.train if part == "train" else self.dataset.test).images
        # Nothing is random about the plain view.
        return self.augment.apply(images[place], View.PLAIN, np.random.default_rng(0))


def open_images(run: Run, data_root: Path | None = None) -> RunImages:
    """The images of a run.

    Raises:
        AnedlError: they are not here, or are not those the run saw.
    """
    setting, dataset = run_images(run, data_root)
    check_images(run, dataset)
    return RunImages(dataset, HostAugment(setting.augmentation, setting.image_size))


def run_images(run: Run, data_root: Path | None = None) -> tuple[Setting, Dataset]:
    """The terms and images of a run: a benchmark's, or a user's own as the run keeps them."""
    if run.is_own:
        problem = own_problem(from_json(Setting, run.config["own"]), run.folder)
        return problem.setting, problem.dataset
    setting = get_setting(run.config["setting"])
    return setting, load_dataset(setting.dataset, data_root)


def check_images(run: Run, dataset: Dataset) -> None:
    """Raise `DataError` unless the data set is the one the run was trained on."""
    labels, pool = dataset.train.labels, run.split.pool
    fits = len(pool) == len(run.pool["score"]) and pool.max(initial=-1) < len(labels)
    if fits and run.pool_truth is not None:
        fits = np.array_equal(run.split.targets(labels[pool]), run.pool_truth)
    if not fits:
        raise DataError(
            f"the data set {dataset.name} found here is not the one the run was trained on"
        )
