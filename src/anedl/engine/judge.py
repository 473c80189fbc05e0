"""Figures of a model on a set of images with known truth."""

from typing import Any

import numpy as np
import numpy.typing as npt

from anedl import scores
from anedl.data.batches import ImageSet
from anedl.engine.inference import outputs_of
from anedl.engine.precision import Precision
from anedl.evaluation.metrics import OpenSetMetrics, evaluate
from anedl.methods.base import Method, Outputs

FloatArray = npt.NDArray[np.float64]


def judge(
    method: Method, images: ImageSet, targets: npt.NDArray[np.int64], precision: Precision
) -> dict[str, Any]:
    """Short figures for the log: error, calibration, and AUROC by the method's own score."""
    metrics = metrics_of(outputs_of(method, images, precision), targets, method.task.top_m)
    row: dict[str, Any] = {"error": metrics.error, "ece": metrics.ece}
    if metrics.by_score:
        row["auroc"] = {name: figures.auroc for name, figures in metrics.by_score.items()}
    return row


def metrics_of(
    outputs: Outputs,
    targets: npt.NDArray[np.int64],
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
    """Every score by name; "score" is the one the method itself declares."""
    named = {"score": outputs.score, **scores.all_scores(outputs.logits, outputs.alpha, top_m)}
    return {name: values.double().cpu().numpy() for name, values in named.items()}
