"""Do folds keep what they promise? `anedl fit` on labelled sets too small to hold images out.

    python benchmarks/folds.py --out results/studies/folds.json

For every seed and number of labelled images a class, real folders of digits are written as the
worked example writes them, and `anedl fit` sorts the pile with its automatic choice of folds. The
truth, which no fit reads, then says how many images of known classes have a p-value at or below the
level; other levels are counted on the same p-values. Runs that are finished in `--runs`
are kept; one takes a minute or two on one core.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from origin import origin

from anedl.files import write_json
from anedl.fit.flow import Wishes, fit
from anedl.methods.default import DEFAULT_METHOD
from anedl.presets.folders import KNOWN, read_truth, write_digits_folders
from anedl.triage.table import read_table

LEVELS = (0.05, 0.1, 0.2)
LENGTH = {"epochs": 12, "epoch_steps": 30}


def fitted(folder, labelled, seed):
    """The run of a seed; the number of folds is left to `anedl fit`."""
    if not (folder / "truth.csv").exists():
        write_digits_folders(folder, labelled, seed)
    wishes = Wishes(
        seed=seed, level=LEVELS[0], augmentation="digits", device="cpu", workers=0, quiet=True,
        resume=True, **LENGTH,
    )  # fmt: skip
    return fit(folder / "labelled", folder / "pile", folder / "run", wishes, lambda text: None)


def study(folder, labelled, seed):
    """What the p-values of one pile come to, beside the truth."""
    run = fitted(folder, labelled, seed)
    triage, truth = read_table(run.folder), read_truth(folder / "truth.csv")
    known = np.array([truth[name] in KNOWN for name in triage.evidence.names])
    p_value = triage.evidence.p_value
    promised = run.summary["calibration"]["thresholds"]["pile"]
    return {
        "labelled_per_class": labelled,
        "seed": seed,
        "folds": run.summary["calibration"]["folds"],
        "images": promised["images"],
        "known": int(known.sum()),
        "strangers": int((~known).sum()),
        "validation_error": run.summary["training"][run.summary["method"]]["validation_error"],
        "known_lost": {str(level): int((p_value[known] <= level).sum()) for level in LEVELS},
        "strangers_found": {str(level): int((p_value[~known] <= level).sum()) for level in LEVELS},
    }


def over_seeds(rows):
    """For each size and level: the mean loss over seeds, the greatest, and the bound."""
    summary = []
    for labelled in sorted({row["labelled_per_class"] for row in rows}):
        of_size = [row for row in rows if row["labelled_per_class"] == labelled]
        for level in LEVELS:
            lost = [row["known_lost"][str(level)] / row["known"] for row in of_size]
            found = [row["strangers_found"][str(level)] / row["strangers"] for row in of_size]
            summary.append(
                {
                    "labelled": len(KNOWN) * labelled,
                    "folds": sorted({row["folds"] for row in of_size}),
                    "level": level,
                    "bound": 2 * level,
                    "seeds": len(of_size),
                    "known_lost": {"mean": float(np.mean(lost)), "deviation": float(np.std(lost)),
                                   "max": max(lost)},
                    "strangers_found": {"mean": float(np.mean(found)), "min": min(found),
                                        "max": max(found)},
                }
            )  # fmt: skip
    return summary


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/folds"))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(8)))
    parser.add_argument("--labelled", type=int, nargs="+", default=[10, 15])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for labelled in arguments.labelled:
        for seed in arguments.seeds:
            folder = arguments.runs / f"labelled{labelled}-seed{seed}"
            rows.append(study(folder, labelled, seed))
            print(rows[-1], flush=True)
    summary = over_seeds(rows)
    for row in summary:
        print(row)
    if arguments.out:
        write_json(
            arguments.out,
            origin("cpu")
            | {
                "method": DEFAULT_METHOD, "levels": LEVELS,
                "length": LENGTH, "seeds": arguments.seeds, "summary": summary, "runs": rows,
            },
        )  # fmt: skip


if __name__ == "__main__":
    main()
