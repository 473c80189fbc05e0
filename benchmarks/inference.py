"""Images a second scored by a trained network, and the time of one selection and one evaluation.

python benchmarks/inference.py --out results/benchmarks/inference.json
"""

import argparse
import json
import time
from pathlib import Path

import torch
from origin import origin

from anedl.engine.inference import outputs_of
from anedl.engine.precision import resolved
from anedl.methods.anedl import Anedl
from anedl.methods.anedl_config import AnedlConfig
from anedl.methods.base import Task
from anedl.networks.encoder import ImageEncoder

TASK = Task(classes=55, top_m=25, inlier_share=0.35)


def method_for(backbone, device):
    encoder = ImageEncoder(backbone, (0.5,) * 3, (0.25,) * 3, bn_momentum=0.001)
    return Anedl(AnedlConfig(), encoder, TASK).to(device).eval()


def seconds_for(method, images, precision):
    """The better of two passes over the images, after a warm-up."""
    outputs_of(method, images[:2000], precision)
    passes = []
    for _ in range(2):
        if precision.device.type == "cuda":
            torch.cuda.synchronize()
        began = time.perf_counter()
        outputs_of(method, images, precision).score.sum().item()
        passes.append(time.perf_counter() - began)
    return min(passes)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    gpu = device.type == "cuda"
    precision = resolved("auto", device, 32)
    torch.backends.cudnn.benchmark = gpu
    cases = [
        ("selection", "wrn-28-2", 32, 44_500 if gpu else 600),
        ("evaluation", "wrn-28-2", 32, 10_000 if gpu else 600),
        ("resnet18-84", "resnet18", 84, 10_000 if gpu else 300),
        ("resnet18-224", "resnet18", 224, 4_000 if gpu else 60),
    ]
    rows = []
    for name, backbone, size, count in cases:
        images = torch.randint(0, 256, (count, 3, size, size), dtype=torch.uint8, device=device)
        seconds = seconds_for(method_for(backbone, device), images, precision)
        rows.append({
            "name": name, "backbone": backbone, "pixels": size, "images": count,
            "seconds": round(seconds, 3), "images_per_second": round(count / seconds),
            "precision": precision.name, **origin(device),
        })  # fmt: skip
        print(f"{name:<14} {count:>6} images {seconds:7.3f} s {count / seconds:10,.0f} images/s")
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
