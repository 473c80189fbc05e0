"""Milliseconds and memory of one training step, in every way it can be run, from one machine.

    python benchmarks/step.py --warm --out results/benchmarks/step.json

`--warm` compiles every row first, all at once in processes of their own, so that the measured
process finds its code in the cache.

Images are random: a step costs the same whatever they show. Every row is measured in this run, the
plain reference too (operation by operation in fp32, views made by PIL in worker processes), so that
ratios between rows compare like with like. A `name` ending in `plain-views` draws and augments
nothing but an index; `fixed-batch` repeats one batch that is on the device already.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from origin import origin
from PIL import Image
from torch.utils.flop_counter import FlopCounterMode

from anedl.data.dataset import ArrayImages, Dataset, FileImages, LabelledImages
from anedl.data.settings import get_setting
from anedl.engine.execution import Captured, Compiled, Eager
from anedl.engine.precision import Precision
from anedl.engine.problem import load_problem
from anedl.engine.spec import make_spec
from anedl.engine.train import build_stepper
from anedl.methods.base import Stage
from anedl.networks import build_backbone
from anedl.views import View

EXECUTIONS = {"eager": Eager, "compiled": Compiled, "captured": Captured}
SETTINGS = {
    6: "cifar10-6/50", 55: "cifar100-55/50", 80: "cifar100-80/50",
    60: "miniimagenet-60/50", 20: "imagenet30-20/130",
}  # fmt: skip
# bf16 matrix products measured on an H200. The other limit is memory: WRN-28-2 moves 4.7 GB for 640
# images if every layer is fused, 1.1 ms at the 4.3 TB/s measured there.
FLOPS_A_SECOND = 790e12
FILES = 500  # different JPEG files behind the images of a streamed data set


def random_dataset(setting, folder):
    """Random pixels with the setting's own counts of labels; JPEG files where a run reads files."""
    generator = np.random.default_rng(0)

    def part(counts):
        labels = np.repeat(np.arange(len(counts)), counts).astype(np.int64)
        if setting.augmentation == "imagenet":
            files = [folder / f"{i}.jpg" for i in range(FILES)]
            return LabelledImages(
                FileImages([files[i % FILES] for i in range(len(labels))]), labels
            )
        shape = (len(labels), setting.image_size, setting.image_size, len(setting.mean))
        return LabelledImages(ArrayImages(generator.integers(0, 256, shape, np.uint8)), labels)

    if setting.augmentation == "imagenet":
        for i in range(FILES):
            # Coarse noise, enlarged: files of some 60 KB, like photographs of this size.
            coarse = Image.fromarray(generator.integers(0, 256, (75, 100, 3), np.uint8))
            coarse.resize((500, 375), Image.Resampling.BICUBIC).save(folder / f"{i}.jpg")
    names = tuple(map(str, range(setting.num_classes)))
    return Dataset(setting.dataset, names, part(setting.train_counts), part(setting.test_counts))


def stepper_for(classes, execution, precision, options, method="anedl", stream="auto", folder=None):
    setting = get_setting(SETTINGS[classes])
    train = {"epochs": 20, "stream": stream}
    spec = make_spec(setting.name, method, train=train, options=options)
    problem = load_problem(setting, spec.fold, dataset=random_dataset(setting, folder))
    problem = replace(problem, workers=min(16, os.cpu_count()))
    return build_stepper(spec, problem, precision, EXECUTIONS[execution]())


def plain_views(stepper):
    """Every view is the plain image: what is left is index, network, losses and update."""
    augment = stepper.stream.augment
    stepper.stream.augment = lambda images, view, seed, step, slot: augment(
        images, View.PLAIN, seed, step, slot
    )


def fixed_batch(stepper, stage, selected):
    """Every step takes the first step's batch: what is left is network, losses and update."""
    stepper.begin_epoch(stage, 10, 0, selected)
    batch = stepper.draw_batch(stepper.row, stepper.step)
    stepper.draw_batch = lambda row, step: batch


def measure(stepper, stage, steps, selected, before=0):
    """Median over five stretches of `steps` steps, after warm-up; peak memory of all of it.

    `before` is the memory (bytes) that was taken when nothing of the row had been built.
    """
    device = stepper.gradient.device
    stepper.begin_epoch(stage, 10, 0, selected)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    stepper.take_many(5)
    first = time.perf_counter() - began
    stretches = []
    for _ in range(5):
        began = time.perf_counter()
        stepper.take_many(steps)
        stretches.append((time.perf_counter() - began) / steps)
    peak = (torch.cuda.max_memory_allocated() - before) / 2**20 if device.type == "cuda" else 0.0
    return 1e3 * float(np.median(stretches)), peak, first


def floor_ms(stepper, size):
    """Time that the trunk's multiplications alone would take at the rate above."""
    views = sum(want.passed for want in stepper.stream.wants.values())
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        trunk = build_backbone(stepper.config.backbone, 3, 0.001)
        trunk(torch.empty(2, 3, size, size)).sum().backward()
    flops_an_image = counter.get_total_flops() / 2
    return 1e3 * flops_an_image * views * stepper.config.batch_size / FLOPS_A_SECOND


FEW = 12  # steps a stretch where a step takes long
ROWS = {
    "reference": {"mode": "eager", "precision": "fp32", "steps": FEW, "stream": "disk"},
    "eager-fp32": {"mode": "eager", "precision": "fp32", "steps": FEW},
    "eager-bf16": {"mode": "eager", "steps": FEW},
    "compiled": {"mode": "compiled"},
    "captured": {},
    "captured-plain-views": {"augmentation": False},
    "captured-one-pass": {"options": {"forward_passes": "one"}},
    "captured-stage-1": {"stage": 1},
    "captured-6-classes": {"classes": 6},
    "captured-80-classes": {"classes": 80},
    "resnet18-84": {"classes": 60},
    "resnet18-84-plain-views": {"classes": 60, "augmentation": False},
    "resnet18-224": {"mode": "compiled", "classes": 20, "steps": FEW},
    "resnet18-224-fixed-batch": {"mode": "compiled", "classes": 20, "augmentation": False},
}


def forget(device):
    """Let go of what was measured before; the bytes that stay, captured graphs keep theirs."""
    torch._dynamo.reset()
    gc.collect()
    if device.type != "cuda":
        return 0
    torch.cuda.empty_cache()
    return torch.cuda.memory_allocated()


def measure_row(
    name, device, default_steps, folder, mode="captured", stage=2, classes=55, augmentation=True,
    precision="bf16", options=None, steps=None, stream="auto",
):  # fmt: skip
    """One row of the file."""
    before = forget(device)
    stepper = stepper_for(
        classes, mode, Precision(precision, device), options or {}, "anedl", stream, folder
    )
    selected = torch.arange(10_000) if stage == 2 else None
    if name.endswith("fixed-batch"):
        fixed_batch(stepper, Stage(stage), selected)
    elif not augmentation:
        plain_views(stepper)
    steps = min(steps or default_steps, default_steps)
    ms, peak, first = measure(stepper, Stage(stage), steps, selected, before)
    floor = floor_ms(stepper, get_setting(SETTINGS[classes]).image_size)
    stepper.stream.close()
    return {
        "name": name, "mode": mode, "stage": stage, "classes": classes,
        "backbone": stepper.config.backbone, "augmentation": augmentation,
        "precision": precision, "ms_per_step": round(ms, 3), "peak_mib": round(peak),
        "first_steps_s": round(first, 1), "floor_ms": round(floor, 3),
        **origin(device),
    }  # fmt: skip


def warm(names):
    """Compile the rows that are compiled, each in a process of its own, all at once."""
    compiled = [name for name in names if ROWS[name].get("mode") != "eager"]
    began = time.perf_counter()
    command = [sys.executable, __file__, "--steps", "1", "--only"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    processes = [subprocess.Popen([*command, name], **quiet) for name in compiled]
    failed = [n for n, process in zip(compiled, processes, strict=True) if process.wait()]
    print(f"compiled {len(compiled)} rows in {time.perf_counter() - began:.0f} s", flush=True)
    if failed:
        print(f"these failed, and are tried again below: {', '.join(failed)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--steps", type=int, default=100, help="steps a stretch at most")
    parser.add_argument("--only", nargs="*", choices=ROWS, help="names of rows", metavar="ROW")
    parser.add_argument("--warm", action="store_true", help="compile all rows at once before")
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    names = arguments.only or list(ROWS)
    default_steps = arguments.steps
    if device.type != "cuda":
        # Nothing is captured without a GPU, and a step takes ten seconds.
        names = [name for name in names if ROWS[name].get("mode") == "eager"]
        default_steps = min(default_steps, 2)
    if arguments.warm:
        warm(names)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            row = measure_row(name, device, default_steps, Path(folder), **ROWS[name])
            rows.append(row)
            # Other networks on other images do other work: no ratio.
            if rows[0]["name"] == "reference" and row["backbone"] == rows[0]["backbone"]:
                ratio = rows[0]["ms_per_step"] / row["ms_per_step"]
                row["times_faster_than_reference"] = round(ratio, 2)
            print(
                f"{name:<28} {row['ms_per_step']:9.3f} ms {row['peak_mib']:7d} MiB  first "
                f"{row['first_steps_s']:5.1f} s {row.get('times_faster_than_reference', '')}",
                flush=True,
            )
            if arguments.out:
                arguments.out.parent.mkdir(parents=True, exist_ok=True)
                arguments.out.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
