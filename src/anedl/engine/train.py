"""The training loop, from top to bottom: select → steps → evaluate → save, epoch by epoch."""

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from anedl.data.batches import worker_count
from anedl.data.split_file import read_split, write_split
from anedl.engine.audit import selection_audit
from anedl.engine.checkpoint import (
    Position,
    load_checkpoint,
    save_checkpoint,
    save_model,
    saved_epoch,
)
from anedl.engine.differences import describe_differences, differing_options
from anedl.engine.epoch import NotFiniteError, images_a_step, take_epoch
from anedl.engine.execution import Execution, choose_execution
from anedl.engine.features import features_of_setting, with_features
from anedl.engine.judge import judge
from anedl.engine.kept_method import check_place, keep_method
from anedl.engine.load import problem_of
from anedl.engine.lock import sole_training
from anedl.engine.log import Display, open_sinks
from anedl.engine.model import build_method, choose_device, wake, working_on
from anedl.engine.placement import build_stream, is_resident, placed
from anedl.engine.precision import Precision, precision_of
from anedl.engine.problem import Problem
from anedl.engine.restart import restart
from anedl.engine.results import write_results
from anedl.engine.run_files import ERROR_FILE
from anedl.engine.selection import select
from anedl.engine.spec import RunSpec, read_spec
from anedl.engine.step import Stepper
from anedl.engine.stopping import StopRequest
from anedl.errors import ConfigError, DataError
from anedl.files import sweep, write_json
from anedl.methods.base import Source


@dataclass(frozen=True)
class Surroundings:
    """Where a run happens; none of it changes what is computed on a given machine."""

    device: str = "auto"
    data_root: Path | None = None
    resume: bool = False
    quiet: bool = False
    wandb: bool = False
    save_seconds: float = 60.0  # least time between two checkpoints
    workers: int | None = None  # processes that read image files; None: a core each, at most 8


def train(
    spec: RunSpec,
    folder: Path,
    surroundings: Surroundings = Surroundings(),  # noqa: B008 - frozen
    problem: Problem | None = None,
    after_save: Callable[[int], None] | None = None,
) -> dict[str, Any]:
    """Train `spec` into `folder` and return its results, as also written to `results.json`.

    `problem` takes the place of what the spec's setting would load. `after_save` is called with
    the step of each checkpoint once that is on disk.
    """
    _check_folder(folder, spec, surroundings.resume)
    with sole_training(folder):
        device = choose_device(surroundings.device)
        with working_on(device):
            results = _train(spec, folder, device, surroundings, problem, after_save)
    _forget_failure(folder)
    return results


def _train(
    spec: RunSpec,
    folder: Path,
    device: torch.device,
    surroundings: Surroundings,
    problem: Problem | None,
    after_save: Callable[[int], None] | None,
) -> dict[str, Any]:
    if (folder / "config.json").exists():  # else the folder may be anything, a user's home too
        sweep(folder)
    of_setting = problem is None and spec.own is None
    if problem is None:
        problem = problem_of(spec, folder, surroundings.data_root)
    wake(device)
    problem = replace(problem, workers=worker_count(surroundings.workers))
    _check_split(folder / "split.json", problem)
    precision = precision_of(spec, device)
    quiet = surroundings.quiet
    if of_setting:
        problem = features_of_setting(problem, spec, precision, surroundings.data_root, quiet)
    else:
        problem = with_features(problem, spec, precision, quiet)
    resident = is_resident(spec.train.stream, problem)
    display = Display(f"{spec.method} on {spec.setting}, seed {spec.seed}:", spec.train.steps,
                      surroundings.quiet)  # fmt: skip
    execution = choose_execution(spec.train.execution, device, display.say, capturable=resident)
    if execution.name != "eager":
        display.say("compiling: the first steps of a stage take a minute or so, if not cached yet")
    problem = placed(problem, resident, surroundings.quiet)
    stepper = build_stepper(spec, problem, precision, execution)
    problem = problem.to_be_judged()
    validation, test = problem.validation(), problem.test()
    position = load_checkpoint(folder / "state", stepper, spec.digest) or Position(
        0, None, None, 0.0
    )
    if position.step:
        display.say(f"resuming {folder} at step {position.step:,} of {spec.train.steps:,}")
    elif surroundings.resume and (folder / "config.json").exists():
        display.say(f"{folder}: it was ended before its first checkpoint, so it begins anew")
    sinks = open_sinks(folder, position.step, spec.to_json(), surroundings.wandb)
    # Written only now: a run that is refused should leave its folder free for another try.
    config_record = spec.to_json()
    config_record["differs"] = differing_options(config_record, spec.entry)
    # As the method has them; readers then need not know which of its options says so.
    config_record |= {"restarts": spec.restarts, "pretraining": spec.pretraining}
    write_json(folder / "config.json", config_record)
    keep_method(folder, spec.entry)
    write_split(problem.split, folder / "split.json")

    def log(step: int, row: dict[str, Any]) -> None:
        for sink in sinks:
            sink.write(step, row)

    config = spec.train
    selected, best = position.selected, position.best
    if best is not None and saved_epoch(folder / "best.safetensors") != best["epoch"]:
        # Of steps after the checkpoint, which are taken again and may turn out otherwise.
        best = None
    started = time.monotonic() - position.seconds
    last_save = time.monotonic()

    def save(step: int) -> None:
        nonlocal last_save
        last_save = time.monotonic()
        now = Position(step, selected, best, last_save - started)
        save_checkpoint(folder / "state", stepper, now, spec.digest)
        if after_save is not None:
            after_save(step)

    step = position.step
    display.begin(step)
    stop = StopRequest(display.say)
    try:
        while step < config.steps:
            epoch, row = divmod(step, config.epoch_steps)
            stage = spec.stage_of(epoch)
            wants = stepper.method.wants(stage)
            notes: dict[str, Any] = {"epoch": epoch, "stage": int(stage)}
            if step == spec.pretraining * config.epoch_steps:
                # The best model is one of the whole method: a detector may only learn from here on.
                best = None

            if row == 0 and epoch in spec.restarts:
                restart(stepper, spec, problem, epoch)

            # Select, unless resuming inside an epoch, whose selection came with the checkpoint.
            selects = any(want.source is Source.SELECTED for want in wants.values())
            if row == 0 and selects:
                selected, predicted = select(stepper, step)
                notes["selection"] = selection_audit(selected, predicted, problem)

            # Train for the rest of the epoch.
            stepper.begin_epoch(stage, epoch, row, selected, spec.part_of(epoch))
            images = images_a_step(stepper)
            for interval in take_epoch(stepper, spec.seed, epoch, row):
                row, step = row + interval.steps, step + interval.steps
                rate = images * interval.steps / interval.seconds
                figures: dict[str, Any] = {"loss": interval.loss, "train": interval.means}
                figures |= {"learning_rate": interval.learning_rate, "images_per_second": rate}
                log(step, notes | figures)
                display.update(step, f"loss {interval.loss:.3f}", rate)
                notes.pop("selection", None)
                due = time.monotonic() - last_save >= surroundings.save_seconds
                if (due or stop) and row < config.epoch_steps:
                    save(step)
                    stop.obey()

            # Evaluate the averaged model; only the validation error chooses.
            ended = step == config.steps
            if ended or (epoch + 1) % config.evaluate_every == 0:
                figures = {"validation": judge(stepper.average, *validation, precision)}
                if config.test_while_training:
                    figures["test"] = judge(stepper.average, *test, precision)
                log(step, {**notes, **figures})
                error = figures["validation"]["error"]
                display.update(
                    step, f"loss {interval.loss:.3f}, validation error {error:.1%}", rate
                )
                if best is None or (error < best["validation_error"] and spec.may_be_best(epoch)):
                    best = {"epoch": epoch, "validation_error": error}
                    save_model(folder / "best.safetensors", stepper.average, {"epoch": str(epoch)})

            if ended or stop or time.monotonic() - last_save >= surroundings.save_seconds:
                save(step)
            if not ended:
                stop.obey()
    except NotFiniteError as error:
        raise NotFiniteError(f"{error}; {_remedy(folder)}") from error
    finally:
        stop.close()
        display.close()
        stepper.stream.close()
        for sink in sinks:
            sink.close()

    save_model(folder / "model.safetensors", stepper.average, {"epoch": str(config.epochs - 1)})
    seconds = time.monotonic() - started
    results = write_results(
        folder, spec, problem, stepper.average, best, selected, precision, seconds,
        display.say, surroundings.data_root,
    )  # fmt: skip
    # Asked to stop in its last steps this run is complete, but what the caller has next must wait.
    stop.obey()
    return results


def build_stepper(
    spec: RunSpec, problem: Problem, precision: Precision, execution: Execution | None = None
) -> Stepper:
    """The method, its average and its stream, ready for the first step."""
    # Every step has the same shapes, so timing cuDNN's kernels once in the first steps pays.
    torch.backends.cudnn.benchmark = precision.device.type == "cuda"
    method = build_method(spec, problem.setting, problem.task, precision.device)
    for epoch in (0, spec.train.epochs - 1):
        method.wants(spec.stage_of(epoch))  # a slip in the second stage's is told before the first
    average = copy.deepcopy(method)
    stream = build_stream(spec, problem, precision.device)
    method.train()
    return Stepper(method, average, stream, spec.train, precision, execution)


def _check_folder(folder: Path, spec: RunSpec, resume: bool) -> None:
    """Refuse a folder that holds another run, or this one unless it is to go on."""
    written = folder / "config.json"
    if written.exists() and not resume:
        raise ConfigError(
            f"{folder} already holds a run: continue it with --resume or choose another folder"
        )
    # Before anything is written: the folder's own config.json is what could continue it.
    if written.exists() and (before := read_spec(written, tell=False)).digest != spec.digest:
        raise ConfigError(
            f"{written}: the run in this folder has another configuration "
            f"({describe_differences(before, spec)}); continue it with --config {written}, or "
            f"choose another folder"
        )
    check_place(folder, spec.entry)


def _forget_failure(folder: Path) -> None:
    """Remove the traceback of an earlier try; a file of that name that holds none is not ours."""
    path = folder / ERROR_FILE
    if path.is_file() and path.read_text(errors="replace").startswith("Traceback"):
        path.unlink()


def _check_split(path: Path, problem: Problem) -> None:
    """A run that goes on must find the images it began with."""
    if path.exists() and read_split(path) != problem.split:
        raise DataError(
            f"{path}: the run began on another split than the data here give; "
            f"point --data at the files it began with, or choose another folder"
        )


def _remedy(folder: Path) -> str:
    last = folder / "state" / "last.json"
    where = f"the last good checkpoint is in {folder / 'state'}" if last.exists() else (
        "no checkpoint had been written yet"
    )  # fmt: skip
    return (
        f"{where}. Try again in a new folder (--out) with a smaller --learning-rate, --clip-norm 1 "
        f"or --precision fp32."
    )
