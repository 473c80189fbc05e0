"""In which arithmetic the trunk runs: fp32, bf16, or fp16 with a loss scale that adapts itself.

A CPU that trains in bf16 judges in fp32 all the same: there images pass once and not once a step,
and what is said of them is then what it would be on other processors and in an exported model.
"""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from anedl.errors import ConfigError

if TYPE_CHECKING:
    from anedl.engine.spec import RunSpec

FIRST_LOSS_SCALE = 2.0**16
SMALLEST_LOSS_SCALE = 1.0  # a gradient that overflows below it does so by itself
GROWTH_INTERVAL = 2000  # steps without overflow after which the loss scale doubles

# What multiplies bf16 on a CPU, by torch's names.
BF16_INSTRUCTIONS = ("avx512_bf16", "amx_bf16")
# Of smaller images a step takes as long in either (docs/performance.md), and fp32 says nearly the
# same on every processor.
LEAST_BF16_SIDE = 24

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def computes_bf16() -> bool:
    """Whether this processor multiplies bf16 by itself; for others it is slower than fp32."""
    found = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return any(bool(found.get(name)) for name in BF16_INSTRUCTIONS)


def choose_precision(wanted: str, device: torch.device, side: int) -> str:
    """Resolve "auto": 16 bits where `device` multiplies them by itself, fp32 elsewhere.

    That is bf16 on a GPU with bf16 units, fp16 on an older one, and bf16 on a CPU with instructions
    for it where the trunk sees images of more than a few pixels a `side`.
    """
    if wanted != "auto":
        if wanted == "fp16" and device.type == "cpu":
            raise ConfigError("option precision: fp16 needs a GPU; take fp32 or bf16 on a CPU")
        return wanted
    if device.type == "cuda":
        # Ampere (8.0) is the first with bf16 tensor cores; torch emulates bf16 on older ones,
        # slowly.
        return "bf16" if torch.cuda.get_device_capability(device) >= (8, 0) else "fp16"
    if device.type == "cpu" and side >= LEAST_BF16_SIDE and computes_bf16():
        return "bf16"
    return "fp32"


def precision_of(spec: "RunSpec", device: torch.device) -> "Precision":
    """The arithmetic of a run on `device`."""
    return resolved(spec.train.precision, device, spec.terms.image_size)


def resolved(wanted: str, device: torch.device, side: int) -> "Precision":
    """What option `precision` means on `device` for images of `side` pixels."""
    name = choose_precision(wanted, device, side)
    judging = "fp32" if wanted == "auto" and device.type == "cpu" else name
    return Precision(name, device, judging)


class Precision:
    """Autocast and, for fp16, the loss scale; `state` is what a checkpoint must hold.

    `judging` names the arithmetic in which images are judged, where it is another than training's.
    """

    def __init__(self, name: str, device: torch.device, judging: str | None = None) -> None:
        self.name = name
        self.device = device
        self.dtype = DTYPES[name]
        self.judging_dtype = DTYPES[judging or name]
        self.channels_last = True
        self.state: dict[str, Tensor] = {}
        if name == "fp16":
            self.state["loss_scale"] = torch.tensor(FIRST_LOSS_SCALE, device=device)
            self.state["good_steps"] = torch.zeros((), device=device)

    def may_overflow(self) -> Tensor:
        """Whether a non-finite gradient is an everyday event that a smaller scale cures, ()."""
        if not self.state:
            return torch.zeros((), dtype=torch.bool, device=self.device)
        return self.state["loss_scale"] >= SMALLEST_LOSS_SCALE

    def autocast(self) -> AbstractContextManager[object]:
        """The context in which losses are computed."""
        return self._autocast(self.dtype)

    def judging(self) -> AbstractContextManager[object]:
        """The context in which images are judged."""
        return self._autocast(self.judging_dtype)

    def _autocast(self, dtype: torch.dtype) -> AbstractContextManager[object]:
        return torch.autocast(self.device.type, dtype=dtype, enabled=dtype != torch.float32)

    def scaled(self, loss: Tensor) -> Tensor:
        """The loss times the loss scale, ()."""
        return loss * self.state["loss_scale"] if self.state else loss

    @torch.no_grad()
    def unscale(self, gradient: Tensor, finite: Tensor) -> None:
        """Take the scale out of `gradient` in place, then adapt it to whether that was `finite`."""
        if self.state:
            scale, good = self.state["loss_scale"], self.state["good_steps"]
            gradient.div_(scale)
            new_good = torch.where(finite, good + 1, 0.0)
            grown = new_good >= GROWTH_INTERVAL
            scale.copy_(torch.where(finite, torch.where(grown, scale * 2, scale), scale / 2))
            good.copy_(torch.where(grown, 0.0, new_good))
