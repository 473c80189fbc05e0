"""Where a run's images live while it trains: on the device, or on disk and read step by step."""

from dataclasses import replace

import numpy as np
import torch

from anedl.data.augment.batched import BatchedAugment
from anedl.data.batches import to_memory
from anedl.data.dataset import ArrayImages, IntArray, LabelledImages
from anedl.data.disk import DiskStream
from anedl.data.features import DrawnViews
from anedl.data.progress import TransferBar
from anedl.data.resident import ResidentStream
from anedl.data.stream import Stream
from anedl.engine.problem import Problem
from anedl.engine.spec import RunSpec
from anedl.errors import ConfigError

# Decoded bytes of all images of a split up to which they are worth holding: 1.3 GB for
# Mini-ImageNet. The same on every machine, as the two streams draw other random numbers.
MOST_RESIDENT_BYTES = 8 * 2**30


def is_resident(wanted: str, problem: Problem) -> bool:
    """Resolve "auto": images in memory, and files that fit there at their final size, are resident.

    `wanted` is "auto", "resident" or "disk".

    Raises:
        ConfigError: "resident" was asked for where views are cut from larger originals.
    """
    if problem.features is not None:
        return True
    crops = problem.setting.augmentation == "imagenet"
    if wanted == "resident" and crops:
        raise ConfigError(
            f"option stream: the views of {problem.setting.name} are cut from images larger than "
            f"{problem.setting.image_size} pixels, which are read from disk; take auto or disk"
        )
    if wanted != "auto" or crops:
        return wanted == "resident"
    images = problem.dataset.train.images
    in_memory = isinstance(images, ArrayImages) and not isinstance(images.pixels, np.memmap)
    return in_memory or decoded_bytes(problem) <= MOST_RESIDENT_BYTES


def decoded_bytes(problem: Problem) -> int:
    """Memory that all images of the split take as red, green and blue bytes at their final size."""
    count = sum(len(indices) for indices in _used(problem).values())
    return count * 3 * problem.setting.image_size**2


def placed(problem: Problem, resident: bool, quiet: bool = False) -> Problem:
    """The problem itself, or with its image files decoded into memory where they are resident."""
    dataset, used = problem.dataset, _used(problem)
    in_memory = isinstance(dataset.train.images, ArrayImages) or problem.features is not None
    if not resident or in_memory:
        return problem
    bar = None if quiet else TransferBar(f"decoding {dataset.name}")

    def decoded(part: LabelledImages, indices: IntArray) -> LabelledImages:
        images = to_memory(part.images, indices, problem.host_augment, problem.workers, bar)
        return LabelledImages(images, part.labels)

    try:
        train, test = decoded(dataset.train, used["train"]), decoded(dataset.test, used["test"])
    finally:
        if bar is not None:
            bar.close()
    return replace(problem, dataset=replace(dataset, train=train, test=test))


def build_stream(spec: RunSpec, problem: Problem, device: torch.device) -> Stream:
    """The stream that a run's batches come from."""
    setting, batch_size = problem.setting, spec.train.batch_size
    if is_resident(spec.train.stream, problem):
        images = placed(problem, resident=True, quiet=True).training_images(device)
        if problem.features is not None:
            drawn = DrawnViews(problem.features.copies)
            return ResidentStream(images, drawn, batch_size, spec.seed)
        augment = BatchedAugment(setting.augmentation, setting.image_size, len(setting.mean))
        return ResidentStream(images, augment.to(device), batch_size, spec.seed)
    return DiskStream(
        problem.disk_images(), problem.host_augment, batch_size, spec.seed, device, problem.workers
    )


def _used(problem: Problem) -> dict[str, IntArray]:
    """Indices of the images that have a role, in the train and in the test part."""
    split = problem.split
    test = split.test[:0] if split.test_part == "train" else split.test
    return {"train": problem.used_of_train(), "test": test}
