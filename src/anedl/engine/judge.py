"""Figures of a model on images with known truth."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from anedl import scores
from anedl.data.batches import ImageSet
from anedl.engine.inference import outputs_of
from anedl.engine.precision import Precision
from anedl.engine.problem import Problem
from anedl.errors import ConfigError
from anedl.evaluation.metrics import OUTLIER, OpenSetMetrics, acceptance_threshold, evaluate
from anedl.evaluation.unseen import UnseenMetrics, evaluate_unseen
from anedl.methods.base import Method, Outputs

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Say = Callable[[str], None]
"""Told in a line what is being done now."""


@dataclass(frozen=True)
class Measured:
    """What a model says of the validation and test images, and every figure that follows."""

    validation: Outputs
    validation_targets: IntArray
    test: Outputs
    test_targets: IntArray
    validation_error: float
    thresholds: dict[str, float]  # by score; each accepts 95 % of the validation images
    metrics: OpenSetMetrics  # of the test images, balanced accuracy at these thresholds
    inlier_scores: dict[str, FloatArray]  # of the test's inliers


def silent(text: str) -> None:
    """Say nothing."""


def judge(
    method: Method, images: ImageSet, targets: IntArray, precision: Precision
) -> dict[str, Any]:
    """Short figures for the log: error, calibration, and AUROC by the method's own score."""
    metrics = metrics_of(outputs_of(method, images, precision), targets, method.task.top_m)
    row: dict[str, Any] = {"error": metrics.error, "ece": metrics.ece}
    if metrics.by_score:
        row["auroc"] = {name: figures.auroc for name, figures in metrics.by_score.items()}
    return row


def measure(method: Method, problem: Problem, precision: Precision, say: Say = silent) -> Measured:
    """Run a model over validation and test images and compute every figure."""
    top_m = method.task.top_m
    images, validation_targets = problem.validation()
    say(f"setting thresholds on {len(images):,} validation images")
    validation = outputs_of(method, images, precision)
    thresholds = {
        name: acceptance_threshold(values) for name, values in scores_of(validation, top_m).items()
    }
    images, test_targets = problem.test()
    say(f"testing on {len(images):,} images")
    test = outputs_of(method, images, precision)
    inlier = test_targets != OUTLIER
    return Measured(
        validation=validation,
        validation_targets=validation_targets,
        test=test,
        test_targets=test_targets,
        validation_error=metrics_of(validation, validation_targets, top_m).error,
        thresholds=thresholds,
        metrics=metrics_of(test, test_targets, top_m, thresholds),
        inlier_scores={name: values[inlier] for name, values in scores_of(test, top_m).items()},
    )


def measure_unseen(
    method: Method,
    sets: Mapping[str, ImageSet],
    measured: Measured,
    precision: Precision,
    say: Say = silent,
) -> dict[str, UnseenMetrics]:
    """Figures of each set of outliers from elsewhere, against the test's inliers."""
    found = {}
    for name, images in sets.items():
        say(f"outliers from elsewhere: {name}, {len(images):,} images")
        of_set = scores_of(outputs_of(method, images, precision), method.task.top_m)
        found[name] = evaluate_unseen(measured.inlier_scores, of_set, measured.thresholds)
        if lost := [score for score in of_set if score not in found[name].by_score]:
            say(f"{name}: no figures by {', '.join(lost)}, which are not finite there")
    return found


def metrics_of(
    outputs: Outputs,
    targets: IntArray,
    top_m: int,
    thresholds: dict[str, float] | None = None,
) -> OpenSetMetrics:
    """Every metric of N outputs, for every score that applies to them."""
    return evaluate(
        outputs.logits.double().softmax(-1).cpu().numpy(),
        targets,
        scores_of(outputs, top_m),
        thresholds,
    )


def scores_of(outputs: Outputs, top_m: int) -> dict[str, FloatArray]:
    """Every score by name; "score" is the one the method itself declares.

    Raises:
        ConfigError: the method gives another score a name that is taken.
    """
    named = {"score": outputs.score, **scores.all_scores(outputs.logits, outputs.alpha, top_m)}
    if taken := named.keys() & outputs.others.keys():
        raise ConfigError(
            f"the method's outputs name a score {min(taken)!r} among the others, but that name is "
            f"taken; call it otherwise"
        )
    named |= outputs.others
    return {name: values.double().cpu().numpy() for name, values in named.items()}
