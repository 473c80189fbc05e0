"""How dirty is the pile, and are the promised rates kept? Measured on models trained on digits.

    python benchmarks/pollution.py --out results/studies/pollution.json

The method of `anedl fit` trains on piles of 500 images with 0, 10, 30, 50 and 80 % outliers,
together with 60 decoys. Training treats every inlier of the pile alike, so which of them play the
decoys can be drawn again and again afterwards, and so can the 60 calibration images among the 360
test inliers, which no training has seen. Over these draws the study counts how often the interval
of the outlier share holds the truth, and how many inliers are rejected: fresh ones and those of the
pile.

The number of images that join self-training is not told the share: it stays at the 41 % of the pile
that the digits setting has. Runs that are finished in `--runs` are kept; one takes a minute.
"""

import argparse
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from origin import origin
from safetensors.numpy import load_file

from anedl.calibration import Calibration
from anedl.conformal import benjamini_hochberg, compare, conditional_interval
from anedl.data.protocol import UNKNOWN, hash_order
from anedl.data.settings import get_setting
from anedl.engine.problem import load_problem
from anedl.engine.spec import make_spec
from anedl.engine.train import Surroundings, train
from anedl.files import write_json
from anedl.methods.default import DEFAULT_METHOD
from anedl.pollution import estimate_outlier_share

SHARES = (0.0, 0.1, 0.3, 0.5, 0.8)
PILE, DECOYS, FRESH = 500, 60, 60
LEVEL, FALSE_FLAGS = 0.05, 0.2
DRAWS = 200


def polluted_problem(seed, share):
    """The digits problem of a seed, its pool cut to `PILE` images and `DECOYS` inliers more."""
    problem = load_problem(get_setting("digits"), seed)
    outlier = problem.pool_truth() == UNKNOWN
    outliers = round(share * PILE)
    drawn = []
    for which, count in ((outlier, outliers), (~outlier, PILE - outliers + DECOYS)):
        members = problem.split.pool[which].tolist()
        drawn += hash_order(members, f"digits/pollution/{seed}")[:count]
    assert len(drawn) == PILE + DECOYS
    return replace(problem, split=replace(problem.split, pool=np.array(sorted(drawn))))


def train_on(seed, share, epochs, folder):
    if not (folder / "results.json").exists():
        lengths = {} if epochs is None else {"epochs": epochs}
        settings = {"test_while_training": False, **lengths}
        spec = make_spec("digits", DEFAULT_METHOD, seed, train=settings)
        surroundings = Surroundings(device="cpu", quiet=True, resume=True)
        train(spec, folder, surroundings, polluted_problem(seed, share))


def scores_of(folder):
    """Scores of inliers and outliers of the pile, of fresh inliers, and the classes of the first.

    The classes serve to count, not to calibrate.
    """
    pool = load_file(folder / "outputs" / "pool-last.safetensors")
    test = load_file(folder / "outputs" / "test-last.safetensors")
    outlier, fresh = pool["truth"] == UNKNOWN, test["targets"] != UNKNOWN
    scores = pool["score"]
    return scores[~outlier], scores[outlier], test["score"][fresh], pool["truth"][~outlier]


def one_draw(inliers, outliers, fresh, classes, generator):
    """Draw decoys and calibration images; every figure of this draw by name."""
    order, fresh = generator.permutation(len(inliers)), generator.permutation(fresh)
    inliers, classes = inliers[order], classes[order][DECOYS:]
    calibration = Calibration(fresh[:FRESH], inliers[:DECOYS], LEVEL)
    fresh, inliers = fresh[FRESH:], inliers[DECOYS:]
    pile = np.concatenate([inliers, outliers])
    truth = len(outliers) / len(pile)
    limits = {of: calibration.threshold(of).value for of in ("new", "pile")}
    figures = {
        "fresh_rejected": (fresh < limits["new"]).mean(),
        "pile_rejected": (inliers < limits["pile"]).mean(),
        "pile_rejected_uncorrected": (inliers < limits["new"]).mean(),
        "said_to_differ": calibration.comparison.differ,
    }
    low, high = conditional_interval(FRESH, LEVEL)
    figures["fresh_rejected_in_interval"] = low <= figures["fresh_rejected"] <= high
    for name, scores in (("decoys", calibration.seen), ("fresh", calibration.fresh)):
        estimate = estimate_outlier_share(scores, pile)
        figures |= {f"{name}_{end}": getattr(estimate, end) for end in ("low", "share", "high")}
        figures[f"{name}_low_holds"] = estimate.low <= truth + 1e-9
        figures[f"{name}_high_holds"] = estimate.high >= truth - 1e-9
        figures[f"{name}_covers"] = estimate.low - 1e-9 <= truth <= estimate.high + 1e-9
    rejected = inliers < limits["pile"]
    for known in range(6):
        if (classes == known).any():
            figures[f"class_{known}_rejected"] = rejected[classes == known].mean()
    # What if the pile holds but three of the known classes, and the decoys all six?
    skewed = inliers[np.isin(classes, generator.permutation(6)[:3])]
    strangers = generator.permutation(outliers)[: round(truth / (1 - truth) * len(skewed))]
    estimate = estimate_outlier_share(calibration.seen, np.concatenate([skewed, strangers]))
    skewed_truth = len(strangers) / (len(skewed) + len(strangers))
    figures["skewed_covers"] = estimate.low - 1e-9 <= skewed_truth <= estimate.high + 1e-9
    flagged = benjamini_hochberg(calibration.p_values(pile, "pile"), FALSE_FLAGS)
    figures["false_flags"] = flagged[: len(inliers)].sum() / max(1, flagged.sum())
    if len(outliers):
        figures["outliers_flagged"] = flagged[len(inliers) :].mean()
        figures["outliers_rejected"] = (outliers < limits["pile"]).mean()
        figures["outliers_above_median"] = (outliers > np.median(calibration.seen)).mean()
    return figures


def study(seed, share, folder):
    """Means over the draws of one run."""
    scores = scores_of(folder)
    generator = np.random.default_rng([seed, round(100 * share)])
    draws = [one_draw(*scores, generator) for _ in range(DRAWS)]
    means = {
        name: float(np.mean([draw[name] for draw in draws if name in draw])) for name in draws[0]
    }
    classes = [means.pop(name) for name in list(means) if name.startswith("class_")]
    means |= {"best_class_rejected": min(classes), "worst_class_rejected": max(classes)}
    # All fresh inliers against all inliers of the pile: what 60 against 60 are too few to see.
    whole = compare(scores[2], scores[0], LEVEL)
    means |= {"whole_p_value": whole.p_value, "whole_difference": whole.difference}
    return {"seed": seed, "outlier_share": share, **means}


def over_seeds(rows):
    """Mean, least and greatest over the seeds, for each share and figure."""
    summary = []
    for share in sorted({row["outlier_share"] for row in rows}):
        of_share = [row for row in rows if row["outlier_share"] == share]
        figures = {}
        for name in of_share[0].keys() - {"seed", "outlier_share"}:
            values = [row[name] for row in of_share]
            figures[name] = {"mean": float(np.mean(values)), "min": min(values), "max": max(values)}
        summary.append({"outlier_share": share, **dict(sorted(figures.items()))})
    return summary


def print_table(summary):
    columns = {
        "low": "decoys_low", "share": "decoys_share", "high": "decoys_high",
        "covers": "decoys_covers", "by fresh": "fresh_covers", "above median":
        "outliers_above_median", "fresh rej.": "fresh_rejected", "pile rej.": "pile_rejected",
        "uncorr.": "pile_rejected_uncorrected", "worst class": "worst_class_rejected",
        "skewed": "skewed_covers", "differ": "said_to_differ",
        "outliers rej.": "outliers_rejected", "BH false": "false_flags", "BH found":
        "outliers_flagged",
    }  # fmt: skip
    print("  ".join(["truth", *(f"{name:>12}" for name in columns)]))
    for row in summary:
        cells = [f"{row['outlier_share']:5.0%}"]
        for name in columns.values():
            figure = row.get(name)
            cells.append(f"{figure['mean']:12.1%}" if figure else " " * 12)
        print("  ".join(cells))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--runs", type=Path, default=Path("runs/pollution"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3])
    parser.add_argument("--shares", type=float, nargs="+", default=SHARES)
    parser.add_argument("--epochs", type=int, help="default: the digits setting's 12")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for seed in arguments.seeds:
        for share in arguments.shares:
            kind = "" if arguments.epochs is None else f"-epochs{arguments.epochs}"
            folder = arguments.runs / f"share{round(100 * share)}{kind}-seed{seed}"
            train_on(seed, share, arguments.epochs, folder)
            rows.append(study(seed, share, folder))
    summary = over_seeds(rows)
    print_table(summary)
    if arguments.out:
        document = origin("cpu") | {
            "method": DEFAULT_METHOD, "pile": PILE, "decoys": DECOYS, "fresh": FRESH,
            "level": LEVEL, "draws": DRAWS, "false_flags_level": FALSE_FLAGS,
            "seeds": arguments.seeds, "epochs": arguments.epochs, "summary": summary, "runs": rows,
        }  # fmt: skip
        write_json(arguments.out, document)


if __name__ == "__main__":
    main()
