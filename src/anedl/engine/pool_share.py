"""How many images of a pool are of known classes, by a short training on the labels alone."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from anedl.data.dataset import ArrayImages
from anedl.engine.config import LENGTH_OPTIONS
from anedl.engine.held_model import HeldModel
from anedl.engine.in_memory import train_in_memory
from anedl.engine.problem import Problem
from anedl.engine.spec import make_spec
from anedl.pollution import ShareEstimate, estimate_outlier_share

# Part of the run's epochs that the labels alone are trained for.
SHORT = 0.25
# O over the number of inliers in the pool, as in the authors' code on CIFAR-100.
SELECTED_OF_INLIERS = 0.71
# With fewer validation images the estimate says little.
FEWEST_VALIDATION = 10
# O as a share of the pool: what is taken unseen, and the least that an estimate may lead to.
UNSEEN_SHARE, LEAST_SHARE = 0.5, 0.05


def estimate_pool(
    arguments: Mapping[str, Any], problem: Problem, device: str = "auto", quiet: bool = True
) -> ShareEstimate:
    """The share of outliers in the pool of a problem in memory, whose validation images judge it.

    `arguments` are those of `make_spec` for the run that will follow. The validation images choose
    no epoch here, or they would score better than the pool's own inliers.
    """
    length = arguments["train"]
    train = {name: value for name, value in length.items() if name not in LENGTH_OPTIONS}
    train |= {"epochs": max(1, round(SHORT * length["epochs"])),
              "epoch_steps": length["epoch_steps"]}  # fmt: skip
    short = {**arguments, "method": "supervised", "train": train, "options": {}}
    split = replace(problem.split, validation=np.zeros(0, np.int64))
    run = train_in_memory(make_spec(**short), replace(problem, split=split), device, quiet)
    model = HeldModel(short, len(split.pool), run.weights, device)
    images = problem.dataset.train.images
    assert isinstance(images, ArrayImages)
    inliers = model.judge(images.pixels[problem.split.validation]).score
    pool = model.judge(images.pixels[split.pool]).score
    return estimate_outlier_share(inliers, pool)


def share_to_select(outlier_share: float | None) -> float:
    """O as a share of the pool, by the part of it that is of no known class; None: not known."""
    if outlier_share is None:
        return UNSEEN_SHARE
    return max(LEAST_SHARE, SELECTED_OF_INLIERS * (1.0 - outlier_share))
