"""Where a benchmark's figures come from: what every JSON file that one writes begins with."""

import shlex
import sys
from pathlib import Path

import torch

from anedl import __version__
from anedl.engine.model import choose_device
from anedl.engine.results import describe_device

# Options whose value says nothing to anyone elsewhere.
PLACES = ("--data", "--json", "--out", "--runs")


def origin(device="auto"):
    """The command that was typed, but for places on this machine; the machine and the versions."""
    chosen = choose_device(device) if isinstance(device, str) else device
    words = ["python", f"benchmarks/{Path(sys.argv[0]).name}"]
    given = zip(["", *sys.argv[1:]], sys.argv[1:], strict=False)
    words += [word for before, word in given if not {before, word} & {*PLACES}]
    return {
        "command": shlex.join(words),
        "device": describe_device(chosen),
        "threads": torch.get_num_threads() if chosen.type == "cpu" else None,
        "torch": torch.__version__,
        "anedl": __version__,
    }
