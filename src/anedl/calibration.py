"""What a run's held-out inliers say of new images and of the pile: its calibration.

New images may have a second score, their familiarity, and are then rejected where either is low
(`anedl.blocks`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import inf, isfinite
from typing import Any, Literal

import numpy as np

from anedl import blocks
from anedl.conformal import (
    Array,
    Comparison,
    FloatArray,
    Threshold,
    check_share,
    checked_scores,
    compare,
    conditional_interval,
    finest_level,
    p_values,
    percent,
    percent_upwards,
    rank_of,
    threshold,
)
from anedl.errors import AnedlError

Origin = Literal["new", "pile"]


@dataclass(frozen=True, eq=False)
class Calibration:
    """Two sets of held-out inliers, one for new images and one for images of the pile.

    `fresh` (n,) are scores of labelled inliers which training has never seen. `seen` (m,) are those
    of decoys: labelled inliers whose labels were hidden and which lay in the pile as training went
    on. Training treats a decoy like any other inlier of the pile, so p-values from `seen` are valid
    for the pile's inliers as far as labelled images and the pile's inliers come from one
    distribution; p-values from `fresh` would not be. Without decoys (`seen` empty) the pile is
    judged by `fresh`, and `describe` says so.

    `familiar` (n,), where it is not empty, are the familiarities of the fresh images, in their
    order: new images are then judged by both. Images of the pile are not: training has seen them.

    `notes` are told of a model that was calibrated after its training, for new images alone, in
    place of what is said of the pile.
    """

    fresh: FloatArray
    seen: FloatArray
    level: float
    familiar: FloatArray = field(default_factory=lambda: np.zeros(0))
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        fresh = checked_scores(self.fresh, "fresh")
        familiar = checked_scores(self.familiar, "familiarity", empty=True)
        if len(familiar) not in (0, len(fresh)):
            raise AnedlError(
                f"{len(familiar)} familiarities of {len(fresh)} fresh images: give that of each"
            )
        order = np.argsort(fresh, kind="stable")
        ordered = {
            "fresh": fresh[order],
            "familiar": familiar[order] if len(familiar) else familiar,
            "seen": np.sort(checked_scores(self.seen, "seen", empty=True)),
        }
        for name, scores in ordered.items():
            scores.setflags(write=False)
            object.__setattr__(self, name, scores)
        check_share(self.level, "the level")

    def scores(self, of: Origin) -> FloatArray:
        """The calibration scores for images of this origin."""
        if of not in ("new", "pile"):
            raise AnedlError(f"images are of the pile or new, not {of!r}")
        return self.seen if of == "pile" and len(self.seen) else self.fresh

    @cached_property
    def limits(self) -> tuple[FloatArray, FloatArray]:
        """Thresholds of score and familiarity for new images, by how many inliers may be lost."""
        if len(self.familiar):
            return blocks.thresholds(self.fresh, self.familiar)
        return self.fresh, np.full(len(self.fresh), -inf)

    def p_values(self, scores: Array, of: Origin, familiarity: Array | None = None) -> FloatArray:
        """P-values, (M,), of images of the pile or of new ones.

        `familiarity` (M,) is wanted of new images where the calibration has that of fresh ones.
        """
        inliers = self.scores(of)
        if of == "pile" or not len(self.familiar):
            return p_values(inliers, scores)
        if familiarity is None:
            raise AnedlError("these new images are judged by their familiarity too: give it")
        first = checked_scores(scores, "image", empty=True)
        second = checked_scores(familiarity, "familiarity", empty=True)
        return blocks.p_values(self.limits, first, second)

    def threshold(self, of: Origin) -> Threshold:
        """The threshold for images of the pile or for new ones."""
        limit = threshold(self.scores(of), self.level)
        if of == "pile" or not len(self.familiar) or limit.note:
            return limit
        last = rank_of(limit.images, self.level) - 1
        value, familiarity = (float(limits[last]) for limits in self.limits)
        return replace(limit, value=value, familiarity=familiarity)

    @cached_property
    def comparison(self) -> Comparison | None:
        """Seen against fresh inliers; None without decoys."""
        return compare(self.fresh, self.seen, self.level) if len(self.seen) else None

    def describe(self) -> str:
        """What is promised for new images and for those of the pile, and how the two differ."""
        limit = self.threshold("new")
        lines = [f"new images: {_promise(limit)}"]
        if len(self.familiar) and not limit.note and not isfinite(limit.familiarity):
            lines[0] += (
                f"; these are too few for familiarity to have a threshold too: it rejects at "
                f"levels from {percent_upwards(blocks.BEGINNING * finest_level(limit.images))} on"
            )
        if self.notes:
            lines += self.notes
        elif self.comparison is None:
            lines.append(
                "images of the pile: judged by fresh inliers, for none were hidden in the pile; "
                "training has seen the pile, so the rate among its inliers may be another"
            )
        else:
            lines.append(f"images of the pile: {_promise(self.threshold('pile'))}")
            lines.append(self.comparison.describe())
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Turn into plain lists and numbers."""
        record = {"fresh": self.fresh.tolist(), "seen": self.seen.tolist(), "level": self.level}
        others = {"familiar": self.familiar.tolist(), "notes": list(self.notes)}
        return record | {name: value for name, value in others.items() if value}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Calibration":
        """Rebuild from what `to_json` returned."""
        try:
            fresh, seen, familiar = (
                np.array(scores, np.float64)
                for scores in (document["fresh"], document["seen"], document.get("familiar", []))
            )
            notes = tuple(str(note) for note in document.get("notes", []))
            return cls(fresh, seen, float(document["level"]), familiar, notes)
        except (KeyError, TypeError, ValueError) as error:
            raise AnedlError(
                f"not a calibration as `to_json` writes it ({error!r}); calibrate the run again"
            ) from error


def _promise(limit: Threshold) -> str:
    if limit.note:
        return f"nothing is rejected, for {limit.note}"
    low, high = conditional_interval(limit.images, limit.asked)
    return (
        f"{_below(limit.value, limit.familiarity)} is rejected; calibrated on {limit.images} "
        f"inliers, this "
        f"rejects at most {percent(limit.certified)} of true inliers on average over calibrations "
        f"({percent(limit.asked)} was asked for), and between {percent(low)} and {percent(high)} "
        f"in nine of ten"
    )


def _below(score: float, familiarity: float) -> str:
    unfamiliar = f", or a familiarity below {familiarity:.4g}," if isfinite(familiarity) else ""
    return f"a score below {score:.4g}{unfamiliar}"
