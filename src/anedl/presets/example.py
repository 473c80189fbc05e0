"""The worked example of `anedl fit`: folders of real digits, sorted, and set beside the truth."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anedl.conformal import clopper_pearson, percent
from anedl.evaluation.metrics import OUTLIER, auroc
from anedl.presets.folders import KNOWN, read_truth
from anedl.triage.table import read_table

# 8×8 digits: a fixed length instead of minutes, so that every machine does the same work.
CHOICES: dict[str, Any] = {"augmentation": "digits", "epochs": 20, "epoch_steps": 50}


@dataclass(frozen=True)
class Share:
    """A count of a total, written with its exact 90 % interval."""

    count: int
    total: int

    @property
    def value(self) -> float | None:
        """The share; None of nothing."""
        return self.count / self.total if self.total else None

    def describe(self) -> str:
        """Such as "95.1 % (39 of 41; 90 % interval 85.5 % to 99.1 %)"."""
        if not self.total:
            return "– (there are none)"
        low, high = clopper_pearson(self.count, self.total, 0.9)
        return (
            f"{percent(self.count / self.total)} ({self.count:,} of {self.total:,}; "
            f"90 % interval {percent(low)} to {percent(high)})"
        )


@dataclass(frozen=True)
class Verdicts:
    """How the sorted pile compares with the truth; every share is of images that could be read."""

    precision: Share  # of the images called unknown, those that are of no known class
    recall: Share  # of the images of no known class, those called unknown
    accepted_right: Share  # of the accepted images, those of the class they were accepted as
    accepted_known: Share  # the same among accepted images of a known class
    inlier_loss: Share  # of the images of known classes, those called unknown
    strangers: Share  # of all images, those of no known class
    error: Share  # of the images of known classes, those whose likeliest class is another
    auroc: float | None  # known against strangers by the inlier score; None if one kind is missing

    def to_json(self) -> dict[str, Any]:
        """Every share with its counts, and the AUROC."""
        shares = {name: share for name, share in vars(self).items() if isinstance(share, Share)}
        return {
            name: {"count": share.count, "of": share.total, "share": share.value}
            for name, share in shares.items()
        } | {"auroc": self.auroc}


def compare_with_truth(run: Path, truth: Path, known: Sequence[str] = KNOWN) -> Verdicts:
    """Set `triage.csv` of a run beside the table of what each file truly is.

    What is not among the `known` classes is a stranger.
    """
    triage, true = read_table(run), read_truth(truth)
    evidence = triage.evidence
    rows = [
        (state, evidence.class_names[first], true[name])
        for name, state, first in zip(
            evidence.names, triage.state, evidence.first.tolist(), strict=True
        )
    ]
    unknown = [answer in known for state, _, answer in rows if state == "unknown"]
    states_of_strangers = [state for state, _, answer in rows if answer not in known]
    states_of_inliers = [state for state, _, answer in rows if answer in known]
    accepted = [(given, answer) for state, given, answer in rows if state == "accept"]
    of_known = [(given, answer) for given, answer in accepted if answer in known]
    targets = np.array([0 if answer in known else OUTLIER for _, _, answer in rows])
    wrong = [given != answer for _, given, answer in rows if answer in known]
    return Verdicts(
        precision=Share(len(unknown) - sum(unknown), len(unknown)),
        recall=Share(states_of_strangers.count("unknown"), len(states_of_strangers)),
        accepted_right=Share(sum(g == answer for g, answer in accepted), len(accepted)),
        accepted_known=Share(sum(g == answer for g, answer in of_known), len(of_known)),
        inlier_loss=Share(states_of_inliers.count("unknown"), len(states_of_inliers)),
        strangers=Share(len(states_of_strangers), len(rows)),
        error=Share(sum(wrong), len(wrong)),
        auroc=auroc(evidence.score, targets) if 0 < len(wrong) < len(rows) else None,
    )


def describe(verdicts: Verdicts, run: Path) -> str:
    """The comparison, line by line, each measured share beside what was promised or estimated."""
    summary = json.loads((run / "fit.json").read_text(encoding="utf-8"))
    estimate = summary["pollution"]
    area = "–" if verdicts.auroc is None else f"{100 * verdicts.auroc:.1f}"
    lines = [
        ("error on known images", verdicts.error.describe()),
        ("AUROC, known or not", area),
        ("unknown: precision", verdicts.precision.describe()),
        ("unknown: recall", verdicts.recall.describe()),
        ("accept: right", verdicts.accepted_right.describe()),
        ("  of known classes", verdicts.accepted_known.describe()),
        ("inliers lost", f"{verdicts.inlier_loss.describe()}, target {percent(summary['level'])}"),
        (
            "strangers in the pile",
            f"{verdicts.strangers.describe()}, estimated {percent(estimate['share'])} "
            f"({percent(estimate['low'])} to {percent(estimate['high'])})",
        ),
    ]
    return "\n".join(f"  {name:<22} {text}" for name, text in lines)
