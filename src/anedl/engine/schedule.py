"""The learning rate over a run, as tensor arithmetic on the step counter."""

import math

import torch
from torch import Tensor

from anedl.engine.config import TrainConfig


def learning_rate(config: TrainConfig, step: Tensor) -> Tensor:
    """Learning rate () for `step` (), counted from 0.

    "cosine-7/16" is the released form: at its horizon it still stands at 0.195 of the first rate,
    and with the released horizon of 2^19 steps and stop at 204,800 it never falls below 0.86 of it.
    """
    horizon = config.horizon or config.steps
    share = (step.float() / horizon).clamp(max=1.0)
    if config.schedule == "cosine-7/16":
        factor = torch.cos(share * (7 * math.pi / 16))
    elif config.schedule == "cosine":
        factor = 0.5 * (1 + torch.cos(share * math.pi))
    else:
        factor = torch.ones_like(share)
    if config.warmup_steps:
        factor = factor * ((step.float() + 1) / config.warmup_steps).clamp(max=1.0)
    return config.learning_rate * factor
