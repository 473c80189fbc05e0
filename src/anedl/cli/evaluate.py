"""Test a trained run again, from its saved weights, on the setting's own test images.

Outliers from elsewhere are reported apart: the test's own outliers are of classes that the pool
held, these are not.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from anedl.cli.options import add_which_model
from anedl.cli.train import add_surroundings


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Declare which run, which of its models, and which outliers."""
    parser.add_argument("run", type=Path, help="run folder")
    add_which_model(parser)
    parser.add_argument(
        "--unseen",
        nargs="+",
        metavar="SET",
        help="outliers from elsewhere: cifar10, cifar100, uniform-noise, gaussian-noise, "
        "folder:PATH, or none (default: both kinds of noise, and the other CIFAR if it is there)",
    )
    parser.add_argument("--json", action="store_true", help="print every metric as JSON")
    add_surroundings(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the metrics; nothing in the run folder changes."""
    from anedl.engine.evaluate import Evaluation, evaluate_run
    from anedl.engine.judge import silent
    from anedl.export.description import model_of
    from anedl.intake.fitted import require_fitted

    require_fitted(arguments.run)
    model = model_of(arguments.run, arguments.model)
    evaluation: Evaluation = evaluate_run(
        arguments.run, model, arguments.device, arguments.data, arguments.unseen,
        silent if arguments.quiet else say_aside,
    )  # fmt: skip
    if arguments.json:
        print(json.dumps(evaluation.to_json(), indent=2))
        return 0
    test = evaluation.test
    error = f"{100 * test.error:.2f} %"
    print(f"test error {error}   ECE {test.ece:.3f}   Brier {test.brier:.3f}")
    if test.by_score:  # a test without outliers has no such figures
        print_row("score", ("AUROC", "AUPR in", "AUPR out", "FPR95", "OSCR", "balanced"))
    for name, row in test.by_score.items():
        values = (row.auroc, row.aupr_in, row.aupr_out, row.fpr95, row.oscr, row.balanced_accuracy)
        print_row(name, ["–" if value is None else f"{100 * value:.2f}" for value in values])
    if evaluation.unseen:
        print("\noutliers from elsewhere, against the same test inliers")
    for name, metrics in evaluation.unseen.items():
        print(f"\n{name}, {metrics.images:,} images")
        print_row("score", ("AUROC", "AUPR in", "AUPR out", "FPR95", "rejected"))
        for score, of in metrics.by_score.items():
            shares = (of.auroc, of.aupr_in, of.aupr_out, of.fpr95, of.rejected)
            print_row(score, [f"{100 * share:.2f}" for share in shares])
    return 0


def print_row(name: str, cells: Sequence[str]) -> None:
    """A line of a table."""
    print(f"{name:<22}" + "".join(f"{cell:>10}" for cell in cells))


def say_aside(text: str) -> None:
    """Say what is being done where it does not mix with the figures."""
    print(text, file=sys.stderr)
