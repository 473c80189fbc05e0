"""Loading a finished run's model and testing it again."""

from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file

from anedl.data.settings import get_setting
from anedl.data.split_file import read_split
from anedl.engine.checkpoint import load_module
from anedl.engine.inference import outputs_of
from anedl.engine.judge import metrics_of, scores_of
from anedl.engine.precision import Precision, choose_precision
from anedl.engine.problem import Problem, load_problem
from anedl.engine.spec import RunSpec, read_spec
from anedl.engine.train import build_method, choose_device
from anedl.errors import DataError
from anedl.evaluation.metrics import OpenSetMetrics, acceptance_threshold
from anedl.methods.base import Method

MODEL_FILES = {"last": "model.safetensors", "best": "best.safetensors"}


def evaluate_run(
    folder: Path, model: str = "last", device: str = "auto", data_root: Path | None = None
) -> OpenSetMetrics:
    """Every test metric of a run's model, thresholds taken from its validation images."""
    _, problem, method, precision = load_run(folder, model, device, data_root)
    top_m = method.task.top_m
    images, _ = problem.validation()
    validation = scores_of(outputs_of(method, images, precision), top_m)
    thresholds = {name: acceptance_threshold(values) for name, values in validation.items()}
    images, targets = problem.test()
    return metrics_of(outputs_of(method, images, precision), targets, top_m, thresholds)


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
