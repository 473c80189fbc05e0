"""Tiny runs on the digits: a few steps of each stage, a second each on one core."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

from anedl.data.dataset import Dataset, FileImages, LabelledImages
from anedl.data.settings import get_setting
from anedl.engine.precision import Precision
from anedl.engine.problem import load_problem
from anedl.engine.spec import make_spec
from anedl.engine.train import Surroundings, build_stepper, train

POOL = 80  # images: enough for a batch and a selection

TINY = {
    "epochs": 3,
    "epoch_steps": 3,
    "pretrain_epochs": 1,
    "batch_size": 6,
    "log_every": 2,
    "ema_decay": 0.6,
    "bn_momentum": 0.3,
    "test_while_training": False,
}
SECONDS = ("seconds", "images_per_second")


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """The same sums in the same order, here and in the processes that tests start."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def problem():
    return load_problem(get_setting("digits"), 0, pool_limit=POOL)


@pytest.fixture(scope="session")
def files_problem(tmp_path_factory):
    """A problem of 120 pictures of several shapes in ten classes, its images in files.

    Augmentation of kind "imagenet" makes them a stream, "small" lets them be decoded once.
    """
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(10), 12)
    paths = []
    for number, label in enumerate(labels):
        noise = rng.integers(0, 120, (20 + number % 5, 26 - number % 3, 3))
        noise[label : label + 6, :, label % 3] += 130
        paths.append(folder / f"{number}.png")
        Image.fromarray(noise.astype(np.uint8)).save(paths[-1])
    dataset = Dataset(
        "pictures",
        tuple("0123456789"),
        LabelledImages(FileImages(paths), labels),
        LabelledImages(FileImages([]), labels[:0]),
    )

    def make(augmentation="imagenet", images=None):
        setting = replace(
            get_setting("digits"), train_counts=(12,) * 10, validation_per_class=2,
            test_cut_per_class=3, image_size=16, mean=(0.5,) * 3, std=(0.5,) * 3,
            augmentation=augmentation,
        )  # fmt: skip
        data = dataset
        if images is not None:
            data = replace(dataset, train=LabelledImages(images, labels))
        return load_problem(setting, 0, dataset=data)

    return make


@pytest.fixture(scope="session")
def tiny_spec():
    """A spec of nine steps; keywords are options of the engine."""

    def make(method="anedl", seed=0, options=None, development=False, setting="digits", **engine):
        return make_spec(
            setting, method, seed, 0, development, POOL, {**TINY, **engine}, options or {}
        )

    return make


@pytest.fixture(scope="session")
def tiny_stepper(problem):
    """A fresh stepper of a spec, on the CPU."""

    def make(spec, precision="fp32", of=problem):
        return build_stepper(spec, of, Precision(precision, torch.device("cpu")))

    return make


@pytest.fixture(scope="session")
def tiny_run(problem):
    """Train a spec into a folder, saving after every log interval."""

    def run(
        spec, folder, of=problem, after_save=None, save_seconds=0.0, resume=False, workers=None
    ):
        surroundings = Surroundings(
            device="cpu", quiet=True, resume=resume, save_seconds=save_seconds, workers=workers
        )
        return train(spec, folder, surroundings, of, after_save)

    return run


@pytest.fixture(scope="session")
def without_seconds():
    """A record less everything that a clock had a say in."""

    def strip(value):
        if isinstance(value, dict):
            return {key: strip(item) for key, item in value.items() if key not in SECONDS}
        return value

    return strip


@pytest.fixture(scope="session")
def rows_of(without_seconds):
    """The rows of a run's log less their timings."""

    def read(folder):
        lines = (folder / "metrics.jsonl").read_text().splitlines()
        return [without_seconds(json.loads(line)) for line in lines]

    return read
