"""What a finished run leaves behind: `results.json` and the outputs that reports are drawn from."""

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from anedl import __version__, dirichlet, scores
from anedl.data.outliers import default_outliers
from anedl.engine.checkpoint import load_module
from anedl.engine.inference import outputs_of
from anedl.engine.judge import Measured, Say, measure, measure_unseen, silent
from anedl.engine.own import OWN
from anedl.engine.precision import Precision
from anedl.engine.problem import Problem
from anedl.engine.spec import RunSpec
from anedl.evaluation.unseen import UnseenMetrics
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
    say: Say = silent,
    data_root: Path | None = None,
) -> dict[str, Any]:
    """Test the last model and the best by validation; write `results.json` and return it.

    `selected` are the pool images of the last self-training epoch, None where there was none. `say`
    is told what is being tested; below `data_root` outliers from elsewhere are looked for.
    """
    last_epoch = spec.train.epochs - 1
    say(f"looking at {len(problem.split.pool):,} pool images")
    pool = outputs_of(average, problem.pool(), precision)
    # A user's minutes are for their own images, and a trunk that is large for the machine has
    # seen those of the setting once; `anedl evaluate` looks at others on demand.
    skipped = problem.setting.dataset == OWN or spec.train.frozen
    unseen = {} if skipped else default_outliers(problem.setting, data_root, problem.workers)

    def tested(*names: str) -> dict[str, Any]:
        """Figures of `average` as it now is; its outputs are saved under each of the names."""
        measured = measure(average, problem, precision, say)
        for name in names:
            save_measured(folder / "outputs", name, measured)
        elsewhere = measure_unseen(average, unseen, measured, precision, say)
        return figures_of(measured, elsewhere)

    # Where the best model is the last one, it is tested once and told under both names.
    best_is_last = best is not None and best["epoch"] == last_epoch
    last = tested("last", "best") if best_is_last else tested("last")
    results: dict[str, Any] = {
        "anedl": __version__,
        "setting": spec.setting,
        "method": spec.method,
        "budget": spec.budget,
        "seed": spec.seed,
        "fold": spec.fold,
        "development": spec.development,
        "split_hash": problem.split.digest,
        "config_hash": spec.digest,
        "steps": spec.train.steps,
        "seconds": seconds,
        "device": describe_machine(precision),
        "torch": torch.__version__,
        "last": {"epoch": last_epoch, **last},
    }
    if best is not None:
        figures = last
        if not best_is_last:
            say(f"the best model by validation, of epoch {best['epoch'] + 1}")
            load_module(average, load_file(folder / "best.safetensors"))
            figures = tested("best")
        results["best_val"] = {**best, **figures}
    save_pool(folder / "outputs" / "pool-last.safetensors", problem, pool, selected)
    write_json(folder / "results.json", results)
    return results


def figures_of(measured: Measured, unseen: Mapping[str, UnseenMetrics]) -> dict[str, Any]:
    """A model's entry in `results.json`; outliers from elsewhere stay apart from the test."""
    return {
        "validation_error": measured.validation_error,
        "test": measured.metrics.to_json(),
        "thresholds": measured.thresholds,
        "unseen": {name: metrics.to_json() for name, metrics in unseen.items()},
    }


def save_measured(folder: Path, name: str, measured: Measured) -> None:
    """Write the outputs on validation and test images, for reports."""
    save_outputs(
        folder / f"validation-{name}.safetensors", measured.validation, measured.validation_targets
    )
    save_outputs(folder / f"test-{name}.safetensors", measured.test, measured.test_targets)


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

    `truth` is there for reports on benchmark data; it was written after training had ended. Of a
    user's own pile there is none.
    """
    probability, predicted = outputs.logits.softmax(-1).max(-1)
    tensors = {
        "score": outputs.score,
        "predicted": predicted,
        "probability": probability,
    }
    if problem.setting.dataset != OWN:
        tensors["truth"] = torch.from_numpy(problem.pool_truth())
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


def describe_machine(precision: Precision) -> str:
    """The device, with its arithmetic where that is not what such a device is expected to take."""
    device = describe_device(precision.device)
    expected = "bf16" if precision.device.type == "cuda" else "fp32"
    return device if precision.name == expected else f"{device}, {precision.name}"
