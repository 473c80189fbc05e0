"""Milliseconds and memory of one training step, in every way it can be run, from one machine.

    python benchmarks/step.py --out results/benchmarks/step.json

Images are random bytes: a step costs the same whatever they show. Every row is measured in this
run, the plain reference too, so that ratios between rows compare like with like.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch

from anedl.data.dataset import ArrayImages, Dataset, LabelledImages
from anedl.data.settings import get_setting
from anedl.engine.execution import Captured, Compiled, Eager
from anedl.engine.precision import Precision
from anedl.engine.problem import load_problem
from anedl.engine.results import describe_device
from anedl.engine.spec import make_spec
from anedl.engine.train import build_stepper
from anedl.methods.base import Stage
from anedl.views import View

EXECUTIONS = {"eager": Eager, "compiled": Compiled, "captured": Captured}
SETTINGS = {6: "cifar10-6/50", 55: "cifar100-55/50", 80: "cifar100-80/50"}
# What WRN-28-2 must compute for 640 images, and move if every layer is fused, at the rates measured
# on an H200: 0.82 TFLOP at 790 TFLOP/s, 4.7 GB at 4.3 TB/s.
FLOOR_MS = 1.1


def random_dataset(setting):
    """Random pixels with the setting's own counts of labels."""
    generator = np.random.default_rng(0)

    def part(counts):
        labels = np.repeat(np.arange(len(counts)), counts).astype(np.int64)
        shape = (len(labels), setting.image_size, setting.image_size, len(setting.mean))
        return LabelledImages(ArrayImages(generator.integers(0, 256, shape, np.uint8)), labels)

    names = tuple(map(str, range(setting.num_classes)))
    return Dataset(setting.dataset, names, part(setting.train_counts), part(setting.test_counts))


def stepper_for(classes, execution, precision, options, method="anedl"):
    setting = get_setting(SETTINGS[classes])
    spec = make_spec(setting.name, method, train={"epochs": 20}, options=options)
    problem = load_problem(setting, spec.fold, dataset=random_dataset(setting))
    return build_stepper(spec, problem, precision, EXECUTIONS[execution]())


def without_augmentation(stepper):
    """Every view is the plain image: what is left is index, network, losses and update."""
    augment = stepper.stream.augment
    stepper.stream.augment = lambda images, view, seed, step, slot: augment(
        images, View.PLAIN, seed, step, slot
    )


def measure(stepper, stage, steps):
    """Median over five stretches of `steps` steps, after warm-up; peak memory of all of it."""
    device = stepper.gradient.device
    selected = torch.arange(15_000) if stage is Stage.SELF_TRAIN else None
    stepper.begin_epoch(stage, 10, 0, selected)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    stepper.take_many(5)
    first = time.perf_counter() - began
    stretches = []
    for _ in range(5):
        stepper.begin_epoch(stage, 10, 0, selected)
        began = time.perf_counter()
        stepper.take_many(steps)
        stretches.append((time.perf_counter() - began) / steps)
    peak = torch.cuda.max_memory_allocated() / 2**20 if device.type == "cuda" else 0.0
    return 1e3 * float(np.median(stretches)), peak, first


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--only", nargs="*", help="names of rows")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    gpu = device.type == "cuda"
    rows = []

    def row(name, mode, stage, classes, augmentation, precision, options=None, steps=None):
        if arguments.only and name not in arguments.only:
            return
        torch._dynamo.reset()
        stepper = stepper_for(classes, mode, Precision(precision, device), options or {})
        if not augmentation:
            without_augmentation(stepper)
        ms, peak, first = measure(stepper, Stage(stage), steps or arguments.steps)
        rows.append({
            "name": name, "mode": mode, "stage": stage, "classes": classes,
            "augmentation": augmentation, "ms_per_step": round(ms, 3), "peak_mib": round(peak),
            "first_steps_s": round(first, 1), "precision": precision,
            "device": describe_device(device), "torch": torch.__version__,
        })  # fmt: skip
        print(
            f"{name:<28} {ms:9.3f} ms  {peak:7.0f} MiB  first five steps {first:.1f} s", flush=True
        )

    few = 10 if gpu else 2
    row("eager-fp32", "eager", 2, 55, True, "fp32", steps=few)
    row("eager-bf16", "eager", 2, 55, True, "bf16", steps=few)
    if gpu:
        row("compiled", "compiled", 2, 55, True, "bf16")
        row("captured", "captured", 2, 55, True, "bf16")
        row("captured-plain-views", "captured", 2, 55, False, "bf16")
        row("captured-one-pass", "captured", 2, 55, True, "bf16", {"forward_passes": "one"})
        row("captured-stage-1", "captured", 1, 55, True, "bf16")
        row("captured-6-classes", "captured", 2, 6, True, "bf16")
        row("captured-80-classes", "captured", 2, 80, True, "bf16")
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
