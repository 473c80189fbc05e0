"""How fast this machine takes steps and looks at images, measured before a length is chosen."""

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from anedl.data.batches import ImageSet
from anedl.engine.execution import choose_execution
from anedl.engine.inference import outputs_of
from anedl.engine.model import working_on
from anedl.engine.placement import is_resident, placed
from anedl.engine.precision import Precision
from anedl.engine.problem import Problem
from anedl.engine.spec import RunSpec
from anedl.engine.step import Stepper
from anedl.engine.train import build_stepper
from anedl.methods.base import Source, Stage

WARM_UP, TIMED = 4, 6  # steps
IMAGES = 512  # of the pile, to time a look at it


@dataclass(frozen=True)
class Speed:
    """Seconds a step of the second stage takes, what comes once an epoch, and the first steps."""

    step: float
    epoch: float
    start: float  # compilation is in it, where steps are compiled


def measure_speed(spec: RunSpec, problem: Problem, precision: Precision) -> Speed:
    """Take a few steps with weights that are then thrown away."""
    with working_on(precision.device):
        return _measure_speed(spec, problem, precision)


def _measure_speed(spec: RunSpec, problem: Problem, precision: Precision) -> Speed:
    resident = is_resident(spec.train.stream, problem)
    execution = choose_execution(
        spec.train.execution, precision.device, lambda text: None, capturable=resident
    )
    stepper = build_stepper(spec, placed(problem, resident, quiet=True), precision, execution)
    try:
        wants = stepper.method.wants(Stage.SELF_TRAIN)
        selects = any(want.source is Source.SELECTED for want in wants.values())
        chosen = torch.arange(min(IMAGES, len(problem.split.pool))) if selects else None
        stepper.begin_epoch(Stage.SELF_TRAIN, spec.train.epochs - 1, 0, chosen)
        start = stepper.take_many(WARM_UP).seconds
        step = stepper.take_many(TIMED).seconds / TIMED
        look = _seconds_to_look(stepper, problem, precision)
    finally:
        stepper.stream.close()
    looks = len(problem.split.validation) + (len(problem.split.pool) if selects else 0)
    return Speed(step, look * looks, start)


def _seconds_to_look(stepper: Stepper, problem: Problem, precision: Precision) -> float:
    """What one image takes when the pile is ranked; images come as they do in training."""
    sample: ImageSet = stepper.stream.pool(stepper.average.selection_view, 0)
    if isinstance(sample, Tensor):
        sample = sample[:IMAGES]
    else:  # streamed, and not to be cut: its first images are read by themselves
        sample = problem.images_at(problem.split.pool[:IMAGES])
    outputs_of(stepper.average, sample, precision)  # kernels are chosen in the first look
    began = time.monotonic()
    outputs_of(stepper.average, sample, precision).score.sum().item()
    return (time.monotonic() - began) / min(IMAGES, len(problem.split.pool))
