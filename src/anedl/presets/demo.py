"""The demo: what does a pool with strangers in it bring? Real digits, two methods, five seeds.

ANEDL and a supervised-only model train side by side on scikit-learn's 8×8 handwritten digits: 0–5
are known with 3 labels each, 6–9 are unknown, and everything else lies unlabelled in the pool. Both
see the same labelled images under the same augmentation for the same number of steps.

Command: `anedl demo` (or `make demo`).
"""

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
