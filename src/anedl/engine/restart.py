"""Beginning anew in the middle of a run: a fresh network, beside what the one before it knows.

A network goes on believing what it once believed wrongly; another one errs elsewhere.
"""

from dataclasses import replace

import torch

from anedl.engine.checkpoint import load_module
from anedl.engine.model import build_method
from anedl.engine.problem import Problem
from anedl.engine.selection import pool_outputs
from anedl.engine.spec import RunSpec
from anedl.engine.step import Stepper

SEED_STRIDE = 1_000_003  # from one network to the next, far from the seeds that people take


@torch.no_grad()
def restart(stepper: Stepper, spec: RunSpec, problem: Problem, epoch: int) -> None:
    """Give model, average and optimiser a fresh beginning at `epoch`, one of the spec's restarts.

    What the method keeps of the averaged network stays. All happens in place, so that a captured
    step goes on working on the same tensors.
    """
    times = spec.restarts.index(epoch) + 1
    said = pool_outputs(stepper, epoch * spec.train.epoch_steps)
    load_module(stepper.method, stepper.average.state_dict())
    for module in (stepper.method, stepper.average):
        module.retire(said)
    fresh = build_method(
        replace(spec, seed=spec.seed + SEED_STRIDE * times),
        problem.setting, problem.task, stepper.precision.device,
    )  # fmt: skip
    state = fresh.state_dict()
    kept = stepper.average.state_dict()
    state |= {name: kept[name].clone() for name in state if name.startswith(fresh.kept_by_restart)}
    for module in (stepper.method, stepper.average):
        load_module(module, state)
    for value in stepper.optimiser.state.values():
        value.zero_()
