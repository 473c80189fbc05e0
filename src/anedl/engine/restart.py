"""Beginning anew in the middle of a run: fresh weights, taught what the old ones found in the pool.

A network goes on believing what it once believed wrongly. A fresh one that learns from its names
errs less than it, for it sees them all before it has settled on any.
"""

from dataclasses import replace
from itertools import pairwise

import torch

from anedl.engine.checkpoint import load_module
from anedl.engine.model import build_method
from anedl.engine.problem import Problem
from anedl.engine.spec import RunSpec
from anedl.engine.step import Stepper
from anedl.errors import ConfigError
from anedl.methods.base import Method

SEED_STRIDE = 1_000_003  # from one network to the next, far from the seeds that people take


def check_restarts(spec: RunSpec, method: Method) -> None:
    """Refuse a restart that has nothing to go by.

    Raises:
        ConfigError: says why, and what to change.
    """
    config = spec.train
    if not config.restarts:
        return
    if not method.restartable:
        raise ConfigError(
            f"option restart_shares: {spec.method} as configured remembers no names of pool images "
            f"that a fresh network could learn from; take anedl-plus --pseudo-labels average"
        )
    length = config.pretrain_epochs
    ends = pairwise((0, *config.restarts, config.epochs))
    if any(end - begin <= length for begin, end in ends):
        raise ConfigError(
            f"option restart_shares: begins anew after epochs {config.restarts} of "
            f"{config.epochs}; before the first, between any two and after the last there must be "
            f"more than the {length} epochs of pre-training"
        )


@torch.no_grad()
def restart(stepper: Stepper, spec: RunSpec, problem: Problem, times: int) -> None:
    """Give model, average and optimiser a fresh beginning, the `times`-th; memory stays.

    In place, so that a captured step goes on working on the same tensors.
    """
    fresh = build_method(
        replace(spec, seed=spec.seed + SEED_STRIDE * times),
        problem.setting, problem.task, stepper.precision.device,
    )  # fmt: skip
    for module in (stepper.method, stepper.average):
        load_module(module, fresh.state_dict())
    for value in stepper.optimiser.state.values():
        value.zero_()
