"""How long a run is likely to take: as recorded runs of its like, else by its measured steps."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from anedl.engine.spec import RunSpec
from anedl.ledger.entry import LedgerRun, portable_name
from anedl.ledger.rows import format_duration
from anedl.methods.anedl import Anedl
from anedl.methods.catalogue import get_method

# Measured on one NVIDIA H200: captured steps of ANEDL with WRN-28-2 on 32×32 images, batch 64.
PRETRAIN_STEP_S = 2.8e-3
SELF_TRAIN_STEP_S = 4.7e-3
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
    ]
    if like:
        devices = " or ".join(sorted({run.device for run in like}))
        runs = "a run" if len(like) == 1 else f"{len(like)} runs"
        return Expected(median(run.wall_s for run in like), f"{runs} recorded on {devices}")
    if get_method(spec.method).method is not Anedl:
        return None
    if spec.setting == "digits":
        return Expected(spec.train.steps * DIGITS_STEP_S, "measured on two idle CPU cores")
    if spec.train.backbone != "wrn-28-2" or spec.terms.image_size != 32:
        return None
    pretraining = spec.train.pretrain_epochs * spec.train.epoch_steps
    seconds = (
        pretraining * PRETRAIN_STEP_S
        + (spec.train.steps - pretraining) * SELF_TRAIN_STEP_S
        + spec.train.epochs * EPOCH_END_S
    )
    return Expected(seconds, "predicted from measured steps on an NVIDIA H200")


def stated(time: Expected | None) -> str:
    """In words, also where nothing is known."""
    return "time not measured" if time is None else str(time)
