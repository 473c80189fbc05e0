"""Training without a run folder: the loop of `train` for callers that only want the model.

No checkpoint, no log, no test: a short run on a few images spends its time on steps. The steps are
those of `train`; a caller that wants to resume or to report needs that one.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from anedl.data.dataset import IntArray
from anedl.engine.epoch import NotFiniteError, images_a_step, take_epoch
from anedl.engine.execution import choose_execution
from anedl.engine.features import with_features
from anedl.engine.inference import outputs_of
from anedl.engine.judge import metrics_of
from anedl.engine.log import Display
from anedl.engine.model import choose_device, working_on
from anedl.engine.placement import is_resident
from anedl.engine.precision import Precision, precision_of
from anedl.engine.problem import Problem
from anedl.engine.restart import restart
from anedl.engine.selection import select
from anedl.engine.spec import RunSpec
from anedl.engine.step import Stepper
from anedl.engine.train import build_stepper
from anedl.methods.base import Source

NEVER = -1
"""In `InMemoryRun.first_selected`: self-training never took this image."""


@dataclass(frozen=True)
class InMemoryRun:
    """The model by validation, and which epoch (from 0) took each pool image first, (P,).

    `epoch` is the one that the model is of: the last, where there is no validation image.
    """

    weights: dict[str, Tensor]
    epoch: int
    first_selected: IntArray


def train_in_memory(
    spec: RunSpec, problem: Problem, device: str = "auto", quiet: bool = True
) -> InMemoryRun:
    """Train `spec` on `problem`; the caller's random numbers and current GPU stay as they are.

    Of two epochs with the same validation error the later one wins: few validation images tie
    often, and the detector goes on learning when they no longer tell classes apart any better.

    Raises:
        NotFiniteError: a term of the loss left the finite numbers.
    """
    chosen = choose_device(device)
    forked = torch.random.fork_rng(devices=[chosen] if chosen.type == "cuda" else [])
    with working_on(chosen), forked:
        return _train(spec, problem, chosen, quiet)


def _train(spec: RunSpec, problem: Problem, device: torch.device, quiet: bool) -> InMemoryRun:
    config = spec.train
    precision = precision_of(spec, device)
    display = Display(f"{spec.method}, seed {spec.seed}:", config.steps, quiet)
    problem = with_features(problem, spec, precision, quiet)
    resident = is_resident(config.stream, problem)
    execution = choose_execution(config.execution, device, display.say, capturable=resident)
    stepper = build_stepper(spec, problem, precision, execution)
    first_selected = np.full(len(problem.split.pool), NEVER, np.int64)
    selected: Tensor | None = None
    weights, best, best_epoch = None, np.inf, config.epochs - 1
    display.begin(0)
    try:
        for epoch in range(config.epochs):
            stage = spec.stage_of(epoch)
            if epoch == spec.pretraining:
                best = np.inf  # the best model is one of the whole method
            if epoch in spec.restarts:
                restart(stepper, spec, problem, epoch)
            wants = stepper.method.wants(stage)
            selects = any(want.source is Source.SELECTED for want in wants.values())
            if selects:
                selected, _ = select(stepper, epoch * config.epoch_steps)
                _note(first_selected, selected, epoch)
            stepper.begin_epoch(stage, epoch, 0, selected, spec.part_of(epoch))
            step, images = epoch * config.epoch_steps, images_a_step(stepper)
            for interval in take_epoch(stepper, spec.seed, epoch):
                step += interval.steps
                rate = images * interval.steps / interval.seconds
                display.update(step, f"loss {interval.loss:.3f}", rate)
            ended = epoch + 1 == config.epochs
            if len(problem.split.validation) and (
                ended or (epoch + 1) % config.evaluate_every == 0
            ):
                error = _validation_error(stepper, problem, precision)
                if error <= best and (spec.may_be_best(epoch) or weights is None):
                    weights, best, best_epoch = weights_of(stepper), error, epoch
    except NotFiniteError as error:
        raise NotFiniteError(
            f"{error}; try a smaller learning_rate, clip_norm 1 or precision fp32"
        ) from error
    finally:
        display.close()
        stepper.stream.close()
    return InMemoryRun(weights or weights_of(stepper), best_epoch, first_selected)


def _validation_error(stepper: Stepper, problem: Problem, precision: Precision) -> float:
    images, targets = problem.validation()
    outputs = outputs_of(stepper.average, images, precision)
    return metrics_of(outputs, targets, stepper.average.task.top_m).error


def weights_of(stepper: Stepper) -> dict[str, Tensor]:
    """A copy of the averaged model's weights and running statistics, on the host."""
    state = stepper.average.state_dict()
    return {name: value.detach().to("cpu", copy=True).contiguous() for name, value in state.items()}


def _note(first_selected: IntArray, selected: Tensor | None, epoch: int) -> None:
    positions = slice(None) if selected is None else selected.cpu().numpy()
    chosen = np.zeros(len(first_selected), bool)
    chosen[positions] = True
    first_selected[chosen & (first_selected == NEVER)] = epoch
