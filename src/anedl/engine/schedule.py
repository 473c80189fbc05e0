"""The learning rate over a run, as tensor arithmetic on the step counter."""

import math

import torch
from torch import Tensor

from anedl.engine.config import TrainConfig

ARCS = {"cosine-7/16": 7 / 16, "cosine-5/16": 5 / 16}
"""How much of a half turn a cosine falls through."""


def learning_rate(config: TrainConfig, step: Tensor) -> Tensor:
    """Learning rate () for `step` (), counted from 0; if networks share a run, in their own time.

    "cosine-7/16" is the released form: at its horizon it still stands at 0.195 of the first rate,
    and with the released horizon of 2^19 steps and stop at 204,800 it never falls below 0.86 of it.
    With `hold_pretraining` the schedule falls from the end of pre-training to its horizon. A
    `cooldown_share` multiplies it, at the run's end, by what falls from one to zero.
    """
    horizon = config.horizon or config.steps
    held = config.pretrain_epochs * config.epoch_steps if config.hold_pretraining else 0
    # A horizon that ends with pre-training leaves a fall of one step, not a division by zero.
    share = ((step.float() - held) / max(1, horizon - held)).clamp(0.0, 1.0)
    if config.schedule in ARCS:
        factor = torch.cos(share * (ARCS[config.schedule] * math.pi))
    elif config.schedule == "cosine":
        factor = 0.5 * (1 + torch.cos(share * math.pi))
    else:
        factor = torch.ones_like(share)
    if config.warmup_steps:
        factor = factor * ((step.float() + 1) / config.warmup_steps).clamp(max=1.0)
    if config.cooldown_share:
        left = (config.steps - step.float()) / (config.cooldown_share * config.steps)
        factor = factor * left.clamp(0.0, 1.0)
    return config.learning_rate * factor
