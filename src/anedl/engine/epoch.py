"""The steps of one epoch, a log interval at a time."""

from collections.abc import Iterator

from anedl.engine.statistics import measure_statistics
from anedl.engine.step import Interval, Stepper
from anedl.errors import AnedlError


class NotFiniteError(AnedlError):
    """A term of the loss left the finite numbers."""


def take_epoch(stepper: Stepper, seed: int, epoch: int, row: int = 0) -> Iterator[Interval]:
    """Take the steps of `epoch` from its step `row` on; yield what each log interval did.

    At its end the average is ready to be looked at.

    Raises:
        NotFiniteError: names the terms and the step before which it happened.
    """
    config = stepper.config
    while row < config.epoch_steps:
        count = min(config.log_every - row % config.log_every, config.epoch_steps - row)
        interval = stepper.take_many(count, _mixed(seed, epoch * config.epoch_steps + row))
        row += count
        if interval.not_finite:
            step = epoch * config.epoch_steps + row
            raise NotFiniteError(f"not finite before step {step}: {', '.join(interval.not_finite)}")
        yield interval
    if config.fresh_statistics:
        measure_statistics(stepper, epoch, config.fresh_statistics)


def images_a_step(stepper: Stepper) -> int:
    """Views that a step of the present stage passes through the network."""
    wants = stepper.method.wants(stepper.stage).values()
    return stepper.config.batch_size * sum(want.passed for want in wants)


def _mixed(seed: int, step: int) -> int:
    """What seeds a step's draws: the next step has the next number."""
    return (seed * 1_000_003 + step) % 2**63
