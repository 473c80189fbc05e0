"""What bf16 and kept memory bring on a CPU: training steps and looks of a frozen trunk.

python benchmarks/processor.py --out results/benchmarks/processor.json

Each in fp32 and in bf16, and with memory that goes back to the system as soon as a tensor is freed
or is kept for the next one. The four of a row are measured in turns in this run, so that ratios
compare like with like. Images are random: time does not depend on what they show.
"""

import argparse
import json
import time
from contextlib import nullcontext
from itertools import product
from pathlib import Path

import torch
from origin import origin
from step import random_dataset

from anedl.data.settings import get_setting
from anedl.engine.execution import Eager
from anedl.engine.features import BATCH
from anedl.engine.kept_memory import freed_memory_kept
from anedl.engine.precision import Precision, computes_bf16
from anedl.engine.problem import load_problem
from anedl.engine.spec import make_spec
from anedl.engine.train import build_stepper
from anedl.methods.base import Stage
from anedl.networks.frozen_encoder import FrozenEncoder

CPU = torch.device("cpu")
PRECISIONS = [Precision(name, CPU) for name in ("fp32", "bf16")]
STEPS = [("digits", "wrn-digits", 20), ("cifar100-55/50", "wrn-10-1", 5),
         ("cifar100-55/50", "wrn-28-2", 1)]  # fmt: skip
LOOKS = [("efficientnet-lite0", side) for side in (32, 96, 160, 224)]
TURNS = 5
CALLS = 4 * TURNS  # of one function: with memory kept and not, each once before it counts


def step_of(name, backbone, steps, precision):
    """A function that takes `steps` full second-stage steps."""
    setting = get_setting(name)
    epoch = {"epochs": 20, "epoch_steps": CALLS * steps}  # all of them in one epoch
    spec = make_spec(name, "anedl-plus", train={**epoch, "backbone": backbone})
    problem = load_problem(setting, spec.fold, dataset=random_dataset(setting, None))
    stepper = build_stepper(spec, problem, precision, Eager())
    stepper.begin_epoch(Stage.SELF_TRAIN, 10, 0, torch.arange(len(problem.split.pool) // 3))
    batch = stepper.draw_batch(stepper.row, stepper.step)
    parts = [batch.labelled.views, *(part.views for part in batch.unlabelled.values())]
    images = sum(len(views) * len(views[0]) for views in parts)
    return lambda: stepper.take_many(steps), images


def look_of(backbone, side, precision):
    """A function that looks at one batch, as features are made."""
    encoder = FrozenEncoder(backbone, (0.5,) * 3, (0.25,) * 3, 0.001, side).eval()
    images = torch.randint(0, 256, (BATCH["cpu"], 3, side, side), dtype=torch.uint8)

    def look():
        with precision.autocast():
            encoder.trunk_features(images)

    return look, len(images)


def fastest(functions):
    """Seconds of the fastest of several calls of each, by its index and whether memory is kept.

    In turns; before each call that counts comes one that does not, which memory is kept of.
    """
    seconds = {case: [] for case in product(range(len(functions)), (False, True))}
    for _ in range(TURNS):
        for (index, kept), times in seconds.items():
            with freed_memory_kept(CPU) if kept else nullcontext():
                functions[index]()
                began = time.perf_counter()
                functions[index]()
                times.append(time.perf_counter() - began)
    return {case: min(times) for case, times in seconds.items()}


def row(what, backbone, side, made, calls):
    """One row of the table, printed as it is measured."""
    functions, counts = zip(*made, strict=True)
    found = {case: seconds / calls for case, seconds in fastest(functions).items()}
    plain, half = found[0, True], found[1, True]
    plain_back, half_back = found[0, False], found[1, False]
    print(
        f"{what:<5} {backbone:<20} {side:>4} pixels, {counts[0]:>4} images: "
        f"fp32 {1e3 * plain:8.1f} ms ({1e3 * plain_back:8.1f} given back), "
        f"bf16 {1e3 * half:8.1f} ms ({1e3 * half_back:8.1f})"
    )
    return {
        "what": what, "backbone": backbone, "pixels": side, "images": counts[0],
        "fp32_seconds": round(plain, 5), "fp32_given_back_seconds": round(plain_back, 5),
        "bf16_seconds": round(half, 5), "bf16_given_back_seconds": round(half_back, 5),
        "bf16_ratio": round(plain / half, 2), "kept_ratio": round(plain_back / plain, 2),
        "kept_ratio_bf16": round(half_back / half, 2),
    }  # fmt: skip


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    print(f"this processor computes bf16 by itself: {computes_bf16()}")
    rows = []
    for name, backbone, steps in STEPS:
        made = [step_of(name, backbone, steps, precision) for precision in PRECISIONS]
        rows.append(row("step", backbone, get_setting(name).image_size, made, steps))
    for backbone, side in LOOKS:
        made = [look_of(backbone, side, precision) for precision in PRECISIONS]
        rows.append(row("look", backbone, side, made, 1))
    if arguments.out:
        record = {"computes_bf16": computes_bf16(), **origin(CPU), "rows": rows}
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
