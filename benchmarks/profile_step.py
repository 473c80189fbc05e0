"""Which kernels a compiled step spends its time in, on a GPU: python benchmarks/profile_step.py"""

import torch
from step import stepper_for
from torch.profiler import ProfilerActivity, profile

from anedl.engine.precision import Precision
from anedl.methods.base import Stage

STEPS = 10


def main():
    stepper = stepper_for(55, "compiled", Precision("bf16", torch.device("cuda")), {})
    stepper.begin_epoch(Stage.SELF_TRAIN, 10, 0, torch.arange(15_000))
    stepper.take_many(5)
    with profile(activities=[ProfilerActivity.CUDA]) as profiled:
        stepper.take_many(STEPS)
    kernels = sorted(profiled.key_averages(), key=lambda k: -k.self_device_time_total)
    total = sum(kernel.self_device_time_total for kernel in kernels)
    print(f"{total / STEPS:.0f} µs of kernels a step")
    for kernel in kernels[:50]:
        print(
            f"{kernel.self_device_time_total / STEPS:8.1f} µs {kernel.count / STEPS:6.1f} × "
            f"{kernel.key[:110]}"
        )


if __name__ == "__main__":
    main()
