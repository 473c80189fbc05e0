"""Do eager, compiled and captured steps train the same network? 50 steps from one seed, on a GPU.

    python benchmarks/agreement.py --out results/benchmarks/agreement.json

bf16 rounds differently in every fused kernel and training amplifies differences, so the yardstick
is measured too: how far two eager runs part that differ in one weight by one part in a thousand.
"""

import argparse
import json
from pathlib import Path

import torch
from origin import origin
from step import stepper_for

from anedl.engine.precision import Precision
from anedl.methods.base import Stage

STEPS = 50


def run(execution, precision, nudge=0.0):
    """Weights, averaged weights and mean terms after 50 steps of the second stage."""
    torch._dynamo.reset()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    stepper = stepper_for(55, execution, Precision(precision, device), {})
    stepper.flat.values[0] *= 1 + nudge
    stepper.begin_epoch(Stage.SELF_TRAIN, 10, 0, torch.arange(15_000))
    interval = stepper.take_many(STEPS)
    return stepper.flat.values.double(), stepper.flat_average.values.double(), interval.means


def distance(first, second):
    """Relative distance of weights and of averaged weights, and of the term that parts most."""
    weights, averages = (
        float((a - b).norm() / b.norm()) for a, b in zip(first[:2], second[:2], strict=True)
    )
    terms = {
        name: abs(value - second[2][name]) / (abs(second[2][name]) + 1e-3)
        for name, value in first[2].items()
    }
    worst = max(terms, key=lambda name: terms[name])
    return {"weights": weights, "average": averages, "worst_term": worst, "term": terms[worst]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--precision", default="bf16")
    arguments = parser.parse_args()
    modes = ["compiled", "captured"] if torch.cuda.is_available() else ["compiled"]
    eager = run("eager", arguments.precision)
    rows = {"eager, nudged": distance(run("eager", arguments.precision, 1e-3), eager)}
    rows |= {mode: distance(run(mode, arguments.precision), eager) for mode in modes}
    for name, row in rows.items():
        print(
            f"{name:<14} weights {row['weights']:.2e}  average {row['average']:.2e}  "
            f"{row['worst_term']} {row['term']:.2e}"
        )
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(origin() | rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
