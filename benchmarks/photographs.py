"""Draws of CIFAR-100 as folders, sorted by `anedl fit` and set beside the truth.

    python benchmarks/photographs.py --data ROOT --runs RUNS --out FILE

Five classes with 40 labels each and a pile of 2,000 images, half of them strangers, as
docs/examples/cifar_folders.py writes them. Fits that are in RUNS already are judged as they are.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
from origin import origin

from anedl.data.sources import load_dataset
from anedl.evaluation.metrics import OUTLIER, auroc
from anedl.files import write_json
from anedl.fit.flow import Wishes, fit
from anedl.presets.example import compare_with_truth
from anedl.presets.folders import digits_folders, read_truth
from anedl.triage.table import read_table

sys.path.insert(0, str(Path(__file__).parents[1] / "docs" / "examples"))
from cifar_folders import write_folders

LOSS = 0.05


def folders_of(dataset, seed, out):
    """The folders of a draw, written where they are not there yet."""
    folders = digits_folders(out)
    if not folders.truth.exists():
        write_folders(out, dataset, 5, 40, 2000, 0.5, seed)
    return folders


def judged(folders, run, wishes):
    """A fit beside the truth; it is made where there is none."""
    if not (run / "fit.json").exists():
        fit(folders.labelled, folders.pile, run, wishes, lambda text: None)
    names = sorted(path.name for path in folders.labelled.iterdir())
    evidence, truth = read_table(run).evidence, read_truth(folders.truth)
    known = np.array([truth[name] in names for name in evidence.names])
    # What would be found by a threshold that loses exactly as many as were allowed.
    threshold = np.quantile(evidence.score[known], LOSS)
    record = json.loads((run / "fit.json").read_text())
    return {
        **compare_with_truth(run, folders.truth, names).to_json(),
        "auroc_max_softmax": auroc(evidence.probability, np.where(known, 0, OUTLIER)),
        "found_at_5_percent": float((evidence.score[~known] < threshold).mean()),
        "held_out_error": record["helped"]["error_with"],
        "held_out_error_labels_alone": record["helped"]["error_without"],
        "estimate": [record["pollution"][name] for name in ("share", "low", "high")],
        "choices": {name: choice["value"] for name, choice in record["choices"].items()},
        "seconds": record["seconds"],
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2], help="of the draws")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--backbone", help="default: what labelled images speak for")
    parser.add_argument("--data", type=Path, help="folder of CIFAR-100")
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    dataset, draws = load_dataset("cifar100", options.data), {}
    wishes = Wishes(minutes=options.minutes, backbone=options.backbone, quiet=True)
    for seed in options.seeds:
        folders = folders_of(dataset, seed, options.runs / "images" / f"cifar100-{seed}")
        run = options.runs / f"cifar100-{seed}-{options.backbone or 'chosen'}"
        draws[str(seed)] = judged(folders, run, wishes)
        print(seed, json.dumps(draws[str(seed)]))
    if options.out:
        write_json(options.out, origin() | {"draws": draws})


if __name__ == "__main__":
    main()
