"""Where a second-stage step spends its time: python benchmarks/profile_step.py

On a GPU the kernels of ten compiled steps, on a CPU the operations of one eager step.
"""

import torch
from step import stepper_for
from torch.profiler import ProfilerActivity, profile

from anedl.engine.precision import Precision
from anedl.methods.base import Stage


def main():
    gpu = torch.cuda.is_available()
    mode, precision, steps = ("compiled", "bf16", 10) if gpu else ("eager", "fp32", 1)
    device = torch.device("cuda" if gpu else "cpu")
    stepper = stepper_for(55, mode, Precision(precision, device), {})
    stepper.begin_epoch(Stage.SELF_TRAIN, 10, 0, torch.arange(15_000))
    stepper.take_many(5 if gpu else 1)
    activity = ProfilerActivity.CUDA if gpu else ProfilerActivity.CPU
    with profile(activities=[activity]) as profiled:
        stepper.take_many(steps)
    spent = "self_device_time_total" if gpu else "self_cpu_time_total"
    rows = sorted(profiled.key_averages(), key=lambda row: -getattr(row, spent))
    total = sum(getattr(row, spent) for row in rows)
    print(f"{total / steps:.0f} µs a step")
    for row in rows[: 50 if gpu else 15]:
        time = getattr(row, spent)
        print(
            f"{time / steps:9.1f} µs {time / total:6.1%} {row.count / steps:6.1f} × {row.key[:100]}"
        )


if __name__ == "__main__":
    main()
