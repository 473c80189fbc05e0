"""How long a run is likely to take: as recorded runs of its like, else by its measured steps."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from statistics import median

import torch

from anedl.engine.differences import portable_name
from anedl.engine.model import build_method
from anedl.engine.spec import RunSpec
from anedl.engine.task import task_of
from anedl.ledger.entry import LedgerRun
from anedl.ledger.rows import format_duration
from anedl.methods.anedl import Anedl
from anedl.methods.base import Stage
from anedl.methods.catalogue import get_method

# Measured on one NVIDIA H200: captured steps of ANEDL with WRN-28-2 on 32×32 images take 2.76 ms
# for 384 images and 4.75 ms for 640.
IMAGE_S = 7.4e-6
# Assumed for what ends an epoch: selection and validation.
EPOCH_END_S = 0.4
# Measured on two CPU cores with nothing else to do: half a minute for the 600 steps of the digits.
DIGITS_STEP_S = 0.05


@dataclass(frozen=True)
class Expected:
    """Seconds of a run and where the number comes from."""

    seconds: float
    basis: str

    def __str__(self) -> str:
        return f"about {format_duration(self.seconds)} ({self.basis})"


def expected_time(spec: RunSpec, recorded: Sequence[LedgerRun] = ()) -> Expected | None:
    """What to expect of a run; None where neither a run of its like nor its steps were measured."""
    like = [
        run
        for run in recorded
        if (run.setting, run.method, run.steps)
        == (spec.setting, portable_name(spec.method), spec.train.steps)
        and run.options.get("frozen", False) == spec.train.frozen
        and run.options.get("backbone", spec.terms.backbone) == spec.train.backbone
    ]
    if like:
        devices = " or ".join(sorted({run.device for run in like}))
        runs = "a run" if len(like) == 1 else f"{len(like)} runs"
        return Expected(median(run.wall_s for run in like), f"{runs} recorded on {devices}")
    is_anedl = issubclass(get_method(spec.method).method, Anedl)
    if spec.terms.dataset == "digits" and is_anedl and not spec.train.frozen:
        return Expected(
            spec.train.steps * DIGITS_STEP_S, "predicted from measured steps on two idle CPU cores"
        )
    if spec.train.backbone != "wrn-28-2" or spec.terms.image_size != 32:
        return None
    epochs = Counter(spec.stage_of(epoch) for epoch in range(spec.train.epochs))
    images = spec.train.epoch_steps * sum(
        count * images_a_step(spec, stage) for stage, count in epochs.items()
    )
    basis = "measured steps" if is_anedl else "its images a step and the measured steps of ANEDL"
    return Expected(
        images * IMAGE_S + spec.train.epochs * EPOCH_END_S,
        f"predicted from {basis} on an NVIDIA H200",
    )


def images_a_step(spec: RunSpec, stage: Stage) -> int:
    """How many views pass the trunk in a step, as the method's wants say."""
    return _images_a_step(replace(spec, seed=0, fold=0), stage)


@cache  # a table has three seeds of a hundred rows
def _images_a_step(spec: RunSpec, stage: Stage) -> int:
    task = replace(task_of(spec.terms, spec.development), pool_size=1)
    with torch.device("meta"):
        wants = build_method(spec, spec.terms, task, torch.device("meta"), False).wants(stage)
    return spec.train.batch_size * sum(want.passed for want in wants.values())


def stated(time: Expected | None) -> str:
    """In words, also where nothing is known."""
    return "time not measured" if time is None else str(time)
