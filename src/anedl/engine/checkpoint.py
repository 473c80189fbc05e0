"""A run's state on disk: complete, atomic, and nothing pickled.

A checkpoint is a folder of safetensors files and one JSON file. It is written under a temporary
name, then renamed, then `last.json` is pointed at it: a process killed at any moment leaves the
last complete checkpoint in place.
"""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from anedl.engine.memory import memory_of
from anedl.engine.step import Stepper
from anedl.errors import DataError
from anedl.files import replacing, write_json

FORMAT = 1


@dataclass(frozen=True)
class Position:
    """Where a run stands between two steps, with what cannot be recomputed from its seed."""

    step: int
    selected: Tensor | None  # pool positions of the current pseudo-inliers
    best: dict[str, Any] | None  # the best validation so far: {"epoch": …, "validation_error": …}
    seconds: float  # spent training, over all sittings


def save_checkpoint(folder: Path, stepper: Stepper, position: Position, config_hash: str) -> None:
    """Write a checkpoint of `stepper` under `folder` and make it the last one."""
    stepper.unsaved.tell()
    name = f"step-{position.step:08d}"
    temporary = folder / f".{name}.tmp"
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    save_model(temporary / "model.safetensors", stepper.method)
    save_model(temporary / "average.safetensors", stepper.average)
    extra = _state_of(stepper)
    if position.selected is not None:
        extra["selected"] = position.selected
    _save_tensors(temporary / "optimiser.safetensors", extra)
    write_json(temporary / "position.json", {
        "format": FORMAT, "step": position.step, "best": position.best,
        "seconds": position.seconds, "config_hash": config_hash,
    })  # fmt: skip
    final = folder / name
    shutil.rmtree(final, ignore_errors=True)
    temporary.rename(final)
    write_json(folder / "last.json", {"checkpoint": name})
    for old in [*folder.glob("step-*"), *folder.glob(".step-*.tmp")]:
        if old.name != name:
            shutil.rmtree(old, ignore_errors=True)


def load_checkpoint(folder: Path, stepper: Stepper, config_hash: str) -> Position | None:
    """Bring `stepper` to the last checkpoint under `folder`; None where there is none."""
    pointer = folder / "last.json"
    if not pointer.exists():
        return None
    checkpoint = folder
    try:
        checkpoint = folder / str(json.loads(pointer.read_text())["checkpoint"])
        record = json.loads((checkpoint / "position.json").read_text())
        if record["format"] != FORMAT or record["config_hash"] != config_hash:
            raise DataError(
                f"{checkpoint}: this checkpoint belongs to another configuration; resume with the "
                f"run's own config.json, or choose another run folder"
            )
        extra = load_file(checkpoint / "optimiser.safetensors")
        model = load_file(checkpoint / "model.safetensors")
        average = load_file(checkpoint / "average.safetensors")
        position = Position(
            record["step"], extra.get("selected"), record["best"], record["seconds"]
        )
        saved = [(value, extra[key]) for key, value in _state_of(stepper).items()]
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise DataError(
            f"{checkpoint}: the checkpoint cannot be read ({error!r}); "
            f"remove {folder} to start this run again"
        ) from error
    load_module(stepper.method, model)
    load_module(stepper.average, average)
    with torch.no_grad():
        for into, value in saved:
            into.copy_(value)
    return position


def _state_of(stepper: Stepper) -> dict[str, Tensor]:
    """What optimiser, loss scale and method remember, by name: the tensors themselves."""
    parts = {
        "optimiser": stepper.optimiser.state,
        "precision": stepper.precision.state,
        "memory": memory_of(stepper.method),
    }
    return {f"{part}.{key}": value for part, state in parts.items() for key, value in state.items()}


def save_model(path: Path, module: torch.nn.Module, metadata: dict[str, str] | None = None) -> None:
    """Write a model's weights and running statistics as one safetensors file."""
    _save_tensors(path, module.state_dict(), metadata)


def saved_epoch(path: Path) -> int | None:
    """The epoch that a saved model says it is of; None where there is none."""
    if not path.exists():
        return None
    with safe_open(path, "pt") as file:
        return int((file.metadata() or {}).get("epoch", -1))


def _save_tensors(
    path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None
) -> None:
    own = {
        # Parameters are views of one flat buffer; safetensors wants each to own its memory.
        key: value.detach().cpu().contiguous().clone(memory_format=torch.contiguous_format)
        for key, value in tensors.items()
    }
    with replacing(path) as temporary:
        save_file(own, temporary, metadata)


def load_module(module: torch.nn.Module, tensors: dict[str, Tensor]) -> None:
    """Copy into the module's own tensors, which stay views of their flat buffer."""
    own = module.state_dict()
    missing = own.keys() ^ tensors.keys()
    if missing:
        raise DataError(f"the saved model and this method differ in {', '.join(sorted(missing))}")
    with torch.no_grad():
        for key, value in own.items():
            value.copy_(tensors[key])
