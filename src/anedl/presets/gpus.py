"""Which GPUs many runs may use, and a process that sees only one of them."""

import os

import torch

from anedl.engine.model import choose_device
from anedl.errors import ConfigError

VISIBLE = "CUDA_VISIBLE_DEVICES"


def gpus_of(device: str) -> list[str]:
    """The GPUs that `device` means, as CUDA_VISIBLE_DEVICES names them; none where it means a CPU.

    "auto" is every GPU that torch finds, "cuda" the first, and several are separated by commas,
    as in "cuda:0,cuda:2".

    Raises:
        ConfigError: one is not here, or the list is none of GPUs.
    """
    named = [choose_device(name) for name in names_of(device)]
    if any(one.type == "cpu" for one in named):
        return []
    there = range(torch.cuda.device_count())
    wanted = there if device == "auto" else dict.fromkeys(one.index or 0 for one in named)
    visible = os.environ.get(VISIBLE)
    names = visible.split(",") if visible else [str(index) for index in there]
    return [names[index].strip() for index in wanted]


def names_of(device: str) -> list[str]:
    """The devices that are named in one word, separated by commas, each once.

    Raises:
        ConfigError: several, of which one is no GPU.
    """
    names = [name.strip() for name in device.split(",")]
    if len(names) > 1 and not all(name.startswith("cuda") for name in names):
        raise ConfigError(
            f"device {device!r}: only GPUs can be several, as in cuda:0,cuda:2; take cpu or auto "
            f"by itself"
        )
    return list(dict.fromkeys(names))


def see_only(gpu: str) -> None:
    """Let this process find one GPU, before anything in it asks for any.

    Its runs are then as on a machine with no other, and share what was compiled.
    """
    os.environ[VISIBLE] = gpu
