"""The demo: what does a pool with strangers in it bring? Real digits, two methods, five seeds.

ANEDL and a supervised-only model train side by side on scikit-learn's 8×8 handwritten digits: 0–5
are known with 3 labels each, 6–9 are unknown, and everything else lies unlabelled in the pool. Both
see the same labelled images under the same augmentation for the same number of steps.

Command: `anedl demo` (or `make demo`).
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from anedl.errors import AnedlError
from anedl.methods.default import DEFAULT_METHOD
from anedl.presets.jobs import Done, Job, Place, train_jobs

SETTING = "digits"
METHODS = (DEFAULT_METHOD, "supervised")
SEEDS = (0, 1, 2, 3, 4)


def run_demo(
    folder: Path, seeds: tuple[int, ...] = SEEDS, told: Callable[[int, int], None] | None = None
) -> dict[str, list[Path]]:
    """Train every method on every seed under `folder`; finished runs there are kept.

    `told` is called with the number of runs that are done and of all runs. Returns the run folders
    by method, in the order of the seeds.

    Raises:
        AnedlError: a run failed; the others are kept.
    """
    runs = {method: [folder / f"{method}-seed{seed}" for seed in seeds] for method in METHODS}
    # ANEDL's runs are the long ones: started first, none is left over at the end.
    jobs = [
        Job(run, {"setting": SETTING, "method": method, "seed": seed})
        for method in METHODS
        for seed, run in zip(seeds, runs[method], strict=True)
    ]
    ended = 0

    def count(done: Done) -> None:
        nonlocal ended
        ended += 1
        if told is not None:
            told(ended, len(jobs))

    for done in train_jobs(jobs, Place(device="cpu"), count):
        if done.error is not None:
            raise AnedlError(f"{done.job.folder}: {done.error}")
    return runs


def demo_table(runs: dict[str, list[Path]]) -> str:
    """Error and AUROC of the methods over the seeds, with paired differences, as text.

    AUROC by each method's own score, and by the largest softmax probability beside it: part of what
    the pool brings is a better classifier, and that column shows it apart from the evidence.
    """
    from anedl.evaluation.summary import format_difference, format_percent, paired_difference

    tests = {
        method: [json.loads((run / "results.json").read_text())["last"]["test"] for run in folders]
        for method, folders in runs.items()
    }
    columns: dict[str, Callable[[dict[str, Any]], float]] = {
        "error": lambda test: float(test["error"]),
        "AUROC": lambda test: float(test["by_score"]["score"]["auroc"]),
        "AUROC by max softmax": lambda test: float(test["by_score"]["max_softmax"]["auroc"]),
    }
    values = {
        method: [[read(test) for test in of_method] for read in columns.values()]
        for method, of_method in tests.items()
    }
    rows = [["", *columns]]
    rows += [[method, *map(format_percent, figures)] for method, figures in values.items()]
    first, second = (values[method] for method in METHODS)
    differences = [paired_difference(a, b) for a, b in zip(first, second, strict=True)]
    rows.append(["difference, 95 % interval", *map(format_difference, differences)])
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    )
