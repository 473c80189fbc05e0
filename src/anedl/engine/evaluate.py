"""Loading a finished run's model and testing it again."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file

from anedl.data.outliers import default_outliers, named_outliers
from anedl.data.settings import get_setting
from anedl.data.split_file import read_split
from anedl.engine.checkpoint import load_module
from anedl.engine.judge import Say, measure, measure_unseen, silent
from anedl.engine.precision import Precision, choose_precision
from anedl.engine.problem import Problem, load_problem
from anedl.engine.spec import RunSpec, read_spec
from anedl.engine.train import build_method, choose_device
from anedl.errors import DataError
from anedl.evaluation.metrics import OpenSetMetrics
from anedl.evaluation.unseen import UnseenMetrics
from anedl.methods.base import Method

MODEL_FILES = {"last": "model.safetensors", "best": "best.safetensors"}


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
    spec = read_spec(folder / "config.json")
    path = folder / MODEL_FILES[model]
    if not path.exists():
        raise DataError(f"{path}: there is no such model; finish the run with `--resume`")
    problem = load_problem(
        get_setting(spec.setting), spec.fold, spec.development, spec.pool_limit, data_root
    )
    written = read_split(folder / "split.json")
    if written != problem.split:
        raise DataError(
            f"{folder / 'split.json'}: the run was split as {written.digest[:12]}…, the data here "
            f"give {problem.split.digest[:12]}…: they are not the same files"
        )
    chosen = choose_device(device)
    method = build_method(spec, problem, chosen)
    try:
        load_module(method, load_file(path))
    except SafetensorError as error:
        raise DataError(
            f"{path}: the model cannot be read ({error}); train the run again"
        ) from error
    precision = Precision(choose_precision(spec.train.precision, chosen), chosen)
    return spec, problem, method.eval(), precision
