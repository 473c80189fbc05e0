"""Milliseconds of a captured step of every method, both stages, at the shared batch size.

    python benchmarks/methods.py --out results/benchmarks/methods.json

On a CPU it takes one eager step of each, to see that it runs.
"""

import argparse
import json
from pathlib import Path

import torch
from origin import origin
from step import forget, measure, stepper_for

from anedl.engine.precision import Precision
from anedl.methods.base import Source, Stage
from anedl.methods.catalogue import METHODS


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--steps", type=int, default=60)
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    gpu = device.type == "cuda"
    mode, precision = ("captured", "bf16") if gpu else ("eager", "fp32")
    rows = []
    for name in arguments.methods:
        before = forget(device)
        stepper = stepper_for(55, mode, Precision(precision, device), {}, name)
        for stage in Stage:
            wants = stepper.method.wants(stage)
            selects = any(want.source is Source.SELECTED for want in wants.values())
            images = stepper.config.batch_size * sum(want.passed for want in wants.values())
            selected = torch.arange(10_000) if selects else None
            steps = arguments.steps if gpu else 1
            ms, peak, first = measure(stepper, stage, steps, selected, before)
            rows.append({
                "name": name, "mode": mode, "stage": int(stage), "classes": 55,
                "augmentation": True, "images": images, "ms_per_step": round(ms, 3),
                "peak_mib": round(peak), **origin(device),
            })  # fmt: skip
            print(
                f"{name:<16} stage {int(stage)}  {images:4} images {ms:8.3f} ms, first {first:.0f}",
                flush=True,
            )
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
