"""The outcome of a fit: `fit.json`, and the same in words for the terminal."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anedl import __version__
from anedl.calibration import Calibration, Origin
from anedl.conformal import CrossPValues, false_alarms_promise
from anedl.fit.cautions import (
    HeldOut,
    cautions,
    perhaps_no_strangers,
    seldom_found,
    thresholds_disagree,
    uncounted_classes,
)
from anedl.fit.choices import Choice
from anedl.fit.comparison import Comparison
from anedl.fit.gather import Gathered
from anedl.intake.describing import alarms
from anedl.methods.catalogue import short_name
from anedl.networks import brings_weights
from anedl.pollution import ShareEstimate
from anedl.triage.clusters import Cluster
from anedl.triage.confidence import Confidence
from anedl.triage.verdict import Rules, Triage

ORIGINS: tuple[Origin, ...] = ("new", "pile")


@dataclass(frozen=True)
class Outcome:
    """What the two trained models came to."""

    before: ShareEstimate
    pollution: ShareEstimate
    helped: Comparison
    held_out: HeldOut
    calibration: Calibration
    cross: CrossPValues | None
    confidence: Confidence
    triage: Triage
    clusters: list[Cluster]
    as_new: int | None  # images of the pile that the threshold for new ones would call unknown


def tell(summary: dict[str, Any]) -> list[str]:
    """The outcome in words, for the terminal."""
    lines = [*summary["summary"][:2], *summary["calibration"]["notes"], *summary["summary"][2:]]
    return lines + [f"  cluster {c['number']}: {c['sentence']}" for c in summary["clusters"][:5]]


def summarise(
    gathered: Gathered, taken: list[Choice], outcome: Outcome, run: Path, method: str
) -> dict[str, Any]:
    """Everything that was found, chosen and reached, as plain numbers and sentences."""
    calibration, confidence = outcome.calibration, outcome.confidence
    counts = outcome.triage.counts()
    called = short_name(method)
    training = {called: _training(run), "supervised": _training(run / "supervised")}
    backbone = next(str(choice.value) for choice in taken if choice.name == "backbone")
    doubts = cautions(outcome.held_out, gathered.names, training[called]["steps"],
                      brings_weights(backbone))  # fmt: skip
    doubts += seldom_found(outcome.triage)
    doubts += uncounted_classes(gathered.new_classes)
    by_model = counts["unknown"] - len(gathered.decided.unknown)
    doubts += perhaps_no_strangers(outcome.pollution, by_model)
    doubts += thresholds_disagree(by_model, outcome.as_new, int(gathered.undecided.sum()))
    doubts += [f"caution: {alarm}" for alarm in alarms(gathered.findings)]
    decided = gathered.decided
    left = int(gathered.undecided.sum())
    pile = "the rest of the pile" if len(decided) else "the pile"
    return {
        "anedl": __version__,
        "method": method,
        "classes": list(gathered.names),
        "images": {
            "labelled": len(gathered.split.labelled),
            "validation": len(gathered.split.validation),
            "fresh": len(gathered.fresh),
            "decoys": len(gathered.decoys),
            "pile": len(gathered.pile),
            "skipped": len(gathered.skipped),
        },
        "choices": {c.name: {"value": c.value, "reason": c.reason} for c in taken},
        "training": training,
        "level": calibration.level,
        "calibration": _calibration(calibration, outcome.cross, outcome.triage.rules, left),
        "decisions": {
            "labelled": len(decided.classes),
            "unknown": len(decided.unknown),
            "gone": len(decided.gone),
            "changed": len(decided.changed),
            "notes": gathered.told_of_decisions,
        },
        "pollution": outcome.pollution.to_json(),
        "pollution_before_training": outcome.before.to_json(),
        "helped": outcome.helped.to_json(),
        "confidence": {
            "threshold": confidence.threshold,
            "certified": confidence.certified,
            "sentence": confidence.sentence,
        },
        "triage": dict(counts),
        "unknown_as_new": outcome.as_new,
        "summary": [
            f"how dirty is {pile}: {outcome.pollution.describe()}",
            f"did the pile help: {outcome.helped.describe()}",
            confidence.sentence,
            "the pile: " + ", ".join(f"{count:,} {state}" for state, count in counts.items()),
            *doubts,
        ],
        "clusters": [
            {"number": c.number, "images": len(c.members), "sentence": c.sentence}
            for c in outcome.clusters
        ],
    }


def _calibration(
    calibration: Calibration, cross: CrossPValues | None, rules: Rules, judged: int
) -> dict[str, Any]:
    """What is promised, in sentences and numbers.

    By folds, and where the share of false alarms is bounded, there is no one score to compare.
    """
    notes = calibration.describe().splitlines()
    limits = {
        of: {
            "score": limit.value if np.isfinite(limit.value) else None,
            "familiarity": limit.familiarity if np.isfinite(limit.familiarity) else None,
            "certified": limit.certified,
            "images": limit.images,
            "note": limit.note,
        }
        for of, limit in ((of, calibration.threshold(of)) for of in ORIGINS)
    }
    if cross is None and rules.benjamini_hochberg:
        inliers = len(calibration.scores("pile"))
        promise = false_alarms_promise(rules.level, inliers, judged)
        limits["pile"] = {"score": None, "certified": 0.0, "images": inliers, "note": promise}
        notes[1] = f"images of the pile: {promise}"
    if cross is None:
        return {"notes": notes, "folds": 0, "thresholds": limits}
    promise = cross.describe(calibration.level)
    certified = cross.bound(calibration.level) if cross.finest <= calibration.level else 0.0
    limits["pile"] = {
        "score": None, "certified": certified, "images": cross.images, "note": promise,
    }  # fmt: skip
    notes = [notes[0], f"images of the pile: {promise}"]
    return {"notes": notes, "folds": cross.folds, "thresholds": limits}


def _training(folder: Path) -> dict[str, Any]:
    """Length and errors of a run, from its `results.json`."""
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    last = results["last"]
    return {
        "epochs": last["epoch"] + 1,
        "steps": results["steps"],
        "seconds": round(results["seconds"], 1),
        "validation_error": last["validation_error"],
        "fresh_error": last["test"]["error"],
    }
