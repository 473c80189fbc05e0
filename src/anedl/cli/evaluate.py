"""Test a trained run again, from its saved weights, on the setting's own test images."""

import argparse
import json
from pathlib import Path

from anedl.cli.train import add_surroundings


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Declare which run and which of its models."""
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument(
        "--model",
        choices=["last", "best"],
        default="last",
        help="the last epoch's model or the best by validation (default: last)",
    )
    parser.add_argument("--json", action="store_true", help="print every metric as JSON")
    add_surroundings(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the metrics; nothing in the run folder changes."""
    from anedl.engine.evaluate import evaluate_run

    metrics = evaluate_run(arguments.run, arguments.model, arguments.device, arguments.data)
    if arguments.json:
        print(json.dumps(metrics.to_json(), indent=2))
        return 0
    error = f"{100 * metrics.error:.2f} %"
    print(f"test error {error}   ECE {metrics.ece:.3f}   Brier {metrics.brier:.3f}")
    header = ("score", "AUROC", "AUPR in", "AUPR out", "FPR95", "OSCR", "balanced")
    print("".join(f"{word:<22}" if i == 0 else f"{word:>10}" for i, word in enumerate(header)))
    for name, row in metrics.by_score.items():
        values = (row.auroc, row.aupr_in, row.aupr_out, row.fpr95, row.oscr, row.balanced_accuracy)
        cells = ["–" if value is None else f"{100 * value:.2f}" for value in values]
        print(f"{name:<22}" + "".join(f"{cell:>10}" for cell in cells))
    return 0
