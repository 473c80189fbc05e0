"""Beginning anew in the middle of a run: fresh weights, taught what the old ones found in the pool.

A network goes on believing what it once believed wrongly. The hope is that a fresh one, which sees
all its names before it has settled on any, errs less than it.
"""

from dataclasses import replace

import torch

from anedl.engine.checkpoint import load_module
from anedl.engine.model import build_method
from anedl.engine.problem import Problem
from anedl.engine.spec import RunSpec
from anedl.engine.step import Stepper

SEED_STRIDE = 1_000_003  # from one network to the next, far from the seeds that people take


@torch.no_grad()
def restart(stepper: Stepper, spec: RunSpec, problem: Problem, times: int) -> None:
    """Give model, average and optimiser a fresh beginning, the `times`-th.

    What the method remembers stays: its memory, and the buffers it names. All happens in place, so
    that a captured step goes on working on the same tensors.
    """
    fresh = build_method(
        replace(spec, seed=spec.seed + SEED_STRIDE * times),
        problem.setting, problem.task, stepper.precision.device,
    )  # fmt: skip
    state = fresh.state_dict()
    kept = stepper.method.state_dict()
    state |= {name: kept[name].clone() for name in stepper.method.kept_by_restart}
    for module in (stepper.method, stepper.average):
        load_module(module, state)
    for value in stepper.optimiser.state.values():
        value.zero_()
