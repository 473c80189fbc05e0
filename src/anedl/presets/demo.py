"""The demo: what does a pool with strangers in it bring? Real digits, two methods, five seeds.

ANEDL and a supervised-only model train side by side on scikit-learn's 8×8 handwritten digits: 0–5
are known with 3 labels each, 6–9 are unknown, and everything else lies unlabelled in the pool. Both
see the same labelled images under the same augmentation for the same number of steps.

Command: `anedl demo` (or `make demo`).
"""

import json
import multiprocessing
import os
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

SETTING = "digits"
METHODS = ("anedl", "supervised")
SEEDS = (0, 1, 2, 3, 4)


def run_demo(
    folder: Path, seeds: tuple[int, ...] = SEEDS, told: Callable[[int, int], None] | None = None
) -> dict[str, list[Path]]:
    """Train every method on every seed under `folder`; finished runs there are kept.

    One process a core and one thread a process: networks this small gain nothing from threads.
    `told` is called with the number of runs that are done and of all runs. Returns the run folders
    by method, in the order of the seeds.
    """
    runs = {method: [folder / f"{method}-seed{seed}" for seed in seeds] for method in METHODS}
    # ANEDL's runs are the long ones: started first, none is left over at the end.
    jobs = [(method, seed) for method in METHODS for seed in seeds]
    workers = max(1, min(len(jobs), os.cpu_count() or 1))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context) as pool:
        futures = [pool.submit(_train_one, folder, method, seed) for method, seed in jobs]
        try:
            for done, future in enumerate(as_completed(futures), 1):
                future.result()
                if told is not None:
                    told(done, len(jobs))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
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


def _train_one(folder: Path, method: str, seed: int) -> dict[str, Any] | None:
    import torch

    from anedl.engine.spec import make_spec
    from anedl.engine.train import Surroundings, train

    run = folder / f"{method}-seed{seed}"
    if (run / "results.json").exists():
        return None
    torch.set_num_threads(1)
    surroundings = Surroundings(device="cpu", quiet=True, resume=True)
    return train(make_spec(SETTING, method, seed), run, surroundings)
