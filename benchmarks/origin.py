"""Where a benchmark's figures come from: what every JSON file that one writes begins with."""

import shlex
import sys
from pathlib import Path

import torch

from anedl import __version__
from anedl.engine.model import choose_device
from anedl.engine.results import describe_device


def origin(device="auto"):
    """The command that was typed, the machine and the versions."""
    chosen = choose_device(device) if isinstance(device, str) else device
    script = f"benchmarks/{Path(sys.argv[0]).name}"
    return {
        "command": shlex.join(["python", script, *sys.argv[1:]]),
        "device": describe_device(chosen),
        "threads": torch.get_num_threads() if chosen.type == "cpu" else None,
        "torch": torch.__version__,
        "anedl": __version__,
    }
