"""What a finished run leaves behind: `results.json` and the outputs that reports are drawn from."""

import platform
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from anedl import __version__, dirichlet, scores
from anedl.engine.checkpoint import load_module
from anedl.engine.inference import outputs_of
from anedl.engine.judge import metrics_of, scores_of
from anedl.engine.precision import Precision
from anedl.engine.problem import Problem
from anedl.engine.spec import RunSpec
from anedl.evaluation.metrics import acceptance_threshold
from anedl.files import replacing, write_json
from anedl.methods.base import Method, Outputs


def write_results(
    folder: Path,
    spec: RunSpec,
    problem: Problem,
    average: Method,
    best: dict[str, Any] | None,
    selected: Tensor | None,
    precision: Precision,
    seconds: float,
) -> dict[str, Any]:
    """Test the last model and the best by validation; write `results.json` and return it.

    `selected` are the pool images of the last self-training epoch, None where there was none.
    """
    pool = outputs_of(average, problem.pool(), precision)
    results: dict[str, Any] = {
        "anedl": __version__,
        "setting": spec.setting,
        "method": spec.method,
        "seed": spec.seed,
        "fold": spec.fold,
        "development": spec.development,
        "split_hash": problem.split.digest,
        "config_hash": spec.digest,
        "steps": spec.train.steps,
        "seconds": seconds,
        "device": describe_device(precision.device),
        "torch": torch.__version__,
        "last": {
            "epoch": spec.train.epochs - 1,
            **test_figures(folder, "last", problem, average, precision),
        },
    }
    if best is not None:
        load_module(average, load_file(folder / "best.safetensors"))
        results["best_val"] = {**best, **test_figures(folder, "best", problem, average, precision)}
    save_pool(folder / "outputs" / "pool-last.safetensors", problem, pool, selected)
    write_json(folder / "results.json", results)
    return results


def test_figures(
    folder: Path, name: str, problem: Problem, method: Method, precision: Precision
) -> dict[str, Any]:
    """Validation and test metrics of a model; its outputs go to `outputs/` for reports.

    The threshold behind the balanced accuracy accepts 95 % of the validation inliers.
    """
    top_m = method.task.top_m
    images, targets = problem.validation()
    validation = outputs_of(method, images, precision)
    thresholds = {
        score: acceptance_threshold(values)
        for score, values in scores_of(validation, top_m).items()
    }
    save_outputs(folder / "outputs" / f"validation-{name}.safetensors", validation, targets)
    validation_metrics = metrics_of(validation, targets, top_m)
    images, targets = problem.test()
    test = outputs_of(method, images, precision)
    save_outputs(folder / "outputs" / f"test-{name}.safetensors", test, targets)
    metrics = metrics_of(test, targets, top_m, thresholds)
    return {
        "validation_error": validation_metrics.error,
        "test": metrics.to_json(),
        "thresholds": thresholds,
    }


def save_outputs(path: Path, outputs: Outputs, targets: Any) -> None:
    """Write N outputs and their targets as one safetensors file."""
    tensors = {"features": outputs.features, "logits": outputs.logits, "score": outputs.score,
               "targets": torch.from_numpy(targets)}  # fmt: skip
    if outputs.alpha is not None:
        tensors["alpha"] = outputs.alpha
    with replacing(path) as temporary:
        save_file({key: value.cpu().contiguous() for key, value in tensors.items()}, temporary)


def save_pool(path: Path, problem: Problem, outputs: Outputs, selected: Tensor | None) -> None:
    """Write what the last model says of each pool image, in the order of the split's pool.

    `truth` is there for reports on benchmark data; it was written after training had ended.
    """
    probability, predicted = outputs.logits.softmax(-1).max(-1)
    tensors = {
        "score": outputs.score,
        "predicted": predicted,
        "probability": probability,
        "truth": torch.from_numpy(problem.pool_truth()),
    }
    if outputs.alpha is not None:
        tensors["evidence_predicted"] = scores.self_training_confidence(
            outputs.logits, outputs.alpha
        )
        tensors["epistemic"] = dirichlet.mutual_information(outputs.alpha)
        tensors["aleatoric"] = dirichlet.expected_entropy(outputs.alpha)
    if selected is not None:
        tensors["selected"] = selected
    with replacing(path) as temporary:
        save_file({key: value.cpu().contiguous() for key, value in tensors.items()}, temporary)


def describe_device(device: torch.device) -> str:
    """The name of the GPU, or of the processor with its threads."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU {platform.machine()}, {torch.get_num_threads()} threads"
