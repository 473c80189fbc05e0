"""Loading a finished run's model and testing it again."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anedl.data.outliers import default_outliers, named_outliers
from anedl.engine.judge import Say, measure, measure_unseen, silent
from anedl.engine.load import problem_of
from anedl.engine.model import load_model
from anedl.engine.precision import Precision
from anedl.engine.problem import Problem
from anedl.engine.spec import RunSpec
from anedl.errors import DataError
from anedl.evaluation.metrics import OpenSetMetrics
from anedl.evaluation.unseen import UnseenMetrics
from anedl.methods.base import Method


@dataclass(frozen=True)
class Evaluation:
    """The test's figures, and apart from them those of outliers from elsewhere, by set."""

    test: OpenSetMetrics
    unseen: dict[str, UnseenMetrics]

    def to_json(self) -> dict[str, Any]:
        """The test's figures as `results.json` has them, and beside them `unseen`."""
        unseen = {name: metrics.to_json() for name, metrics in self.unseen.items()}
        return {**self.test.to_json(), "unseen": unseen}


def evaluate_run(
    folder: Path,
    model: str = "last",
    device: str = "auto",
    data_root: Path | None = None,
    unseen: Sequence[str] | None = None,
    say: Say = silent,
) -> Evaluation:
    """Every test metric of a run's model, thresholds taken from its validation images.

    `unseen` names sets of outliers from elsewhere (`anedl.data.outliers`); None takes both kinds of
    noise and, where its files are at hand, the other CIFAR; `["none"]` takes none.
    """
    _, problem, method, precision = load_run(folder, model, device, data_root)
    setting, threads = problem.setting, problem.workers
    if unseen is None:
        sets = default_outliers(setting, data_root, threads)
    else:
        sets = named_outliers(unseen, setting, data_root, threads)
    measured = measure(method, problem, precision, say)
    return Evaluation(measured.metrics, measure_unseen(method, sets, measured, precision, say))


def load_run(
    folder: Path, model: str = "last", device: str = "auto", data_root: Path | None = None
) -> tuple[RunSpec, Problem, Method, Precision]:
    """A run's spec, data, trained method and precision.

    Raises:
        DataError: the model is missing, or the data are not those the run was split on.
    """
    trained = load_model(folder, model, device)
    problem = problem_of(trained.spec, folder, data_root)
    if trained.split != problem.split:
        raise DataError(
            f"{folder / 'split.json'}: the run was split as {trained.split.digest[:12]}…, the data "
            f"here give {problem.split.digest[:12]}…: they are not the same files"
        )
    return trained.spec, problem, trained.method, trained.precision
