"""Moving the threshold: what every cut would reject, packed for the page, and a table of some cuts.

An image with a score below the cut is rejected. What that costs is judged by held-out inliers: with
n of them, k below the cut, an inlier that is exchangeable with them is rejected with a probability
of at most (k + 1)/(n + 1) on average over the draw of the n, and with one that lies in the 5 % to
95 % range of Beta(k + 1, n − k) in nine of ten draws, as everywhere for split-conformal thresholds.
"""

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import betaincinv

from anedl.conformal import percent, threshold
from anedl.report.album import Album
from anedl.report.figures import bin_edges, spans_decades
from anedl.report.judged import Judged, Pile
from anedl.report.run_folder import FloatArray, Run

NEAREST = 150  # thumbnails on either side of the run's own threshold
SPREAD = 300  # and thumbnails spread over all of the pile
LEVELS = (0.01, 0.02, 0.05, 0.1, 0.2)


@dataclass(frozen=True)
class Group:
    """Images that are counted together: `scores` ascending."""

    name: str
    scores: FloatArray
    kind: str = "all"  # or "inlier" or "outlier"

    def rejected(self, cut: float) -> int:
        """How many lie below the cut."""
        return int(np.searchsorted(self.scores, cut, side="left"))


@dataclass(frozen=True)
class Loss:
    """What a cut costs, judged by `inliers`: held-out scores, ascending; `of` says whose."""

    inliers: FloatArray
    of: str

    def bound(self, cut: float) -> float:
        """The share of true inliers rejected, at most, on average; without a cut there is none."""
        if cut == -inf:
            return 0.0
        return float(self.bounds()[np.searchsorted(self.inliers, cut, side="left")])

    def bounds(self) -> FloatArray:
        """(n + 1,) that share by how many held-out inliers lie below the cut."""
        images = len(self.inliers)
        shares: FloatArray = np.arange(1, images + 2) / (images + 1)
        return shares

    def range(self) -> tuple[FloatArray, FloatArray]:
        """Both ends, (n + 1,) each, of the share rejected in nine calibrations of ten."""
        images = len(self.inliers)
        rank = np.arange(1, images + 1)
        low, high = (betaincinv(rank, images + 1 - rank, end) for end in (0.05, 0.95))
        return np.append(low, 1.0), np.append(high, 1.0)


@dataclass(frozen=True)
class Slider:
    """Everything the threshold slider needs.

    `cut` is the run's own, −∞ where it has none: where too few images calibrate it, so that nothing
    is rejected, or where the models of `folds` judged the pile and no one score did.
    """

    cut: float
    score_name: str
    groups: Sequence[Group]
    loss: Loss | None
    low: float
    high: float
    logarithmic: bool
    folds: int = 0

    @property
    def has_cut(self) -> bool:
        """Whether the run has a threshold of its own."""
        return bool(np.isfinite(self.cut))

    @property
    def rejects_nothing(self) -> bool:
        """Whether the run's own cut rejects no image at all."""
        return not any(group.rejected(self.cut) for group in self.groups)


def make_slider(run: Run, pile: Pile, judged: Judged) -> Slider:
    """Which images are counted, what a cut costs, and where the slider begins and ends."""
    groups = [Group("the pile" if run.is_own else "the pool", np.sort(pile.score))]
    loss = None
    if pile.truth is not None:
        for name, kind, chosen in (
            ("the pool's inliers", "inlier", pile.truth >= 0),
            ("the pool's outliers", "outlier", pile.truth < 0),
        ):
            groups.append(Group(name, np.sort(pile.score[chosen]), kind))
    if run.calibration is not None:
        inliers = run.calibration.scores("pile")
        hidden = len(run.calibration.seen) > 0
        loss = Loss(inliers, "inliers hidden in the pile" if hidden else "fresh inliers")
        groups.append(Group(f"held-out {loss.of}", inliers, "inlier"))
    elif not run.is_own:
        if run.validation is not None and len(run.validation["score"]):
            inliers = np.sort(run.validation["score"].astype(np.float64))
            loss = Loss(inliers, "validation images")
        groups.append(Group("the test's inliers", np.sort(judged.score[judged.inlier]), "inlier"))
        if not judged.inlier.all():
            outliers = np.sort(judged.score[~judged.inlier])
            groups.append(Group("the test's outliers", outliers, "outlier"))
    everything = np.concatenate([group.scores for group in groups])
    everything = everything[np.isfinite(everything)]
    edges = bin_edges(everything, spans_decades(everything))
    return Slider(
        cut=pile.cut,
        score_name=run.own_score_label,
        groups=[group for group in groups if len(group.scores)],
        loss=loss,
        low=float(edges[0]),
        high=float(edges[-1]),
        logarithmic=spans_decades(everything),
        folds=run.folds,
    )


def cut_table(slider: Slider) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Columns, and a row for the run's own cut and for some levels of expected loss.

    A run whose pile was judged by folds has no row of its own: it rejects by no cut.
    """
    cuts = [] if slider.folds else [("this run", slider.cut)]
    if slider.loss is not None:
        for level in LEVELS:
            limit = threshold(slider.loss.inliers, level)
            if np.isfinite(limit.value):
                cuts.append((f"at most {percent(level)} lost", limit.value))
    rows = []
    for name, cut in cuts:
        cells = [f"{cut:.4g}" if np.isfinite(cut) else "none"]
        if slider.loss is not None:
            cells.append(percent(slider.loss.bound(cut)))
        for group in slider.groups:
            rejected = group.rejected(cut)
            cells.append(f"{rejected:,} ({100 * rejected / len(group.scores):.1f} %)")
        rows.append((name, cells))
    columns = ["cut", *(["inlier loss, at most"] if slider.loss else [])]
    return [*columns, *(f"below the cut, of {group.name}" for group in slider.groups)], rows


def sample(pile: Pile, cut: float) -> npt.NDArray[np.int64]:
    """Positions of the images to have at hand, by ascending score: near the cut, and everywhere."""
    order = np.argsort(pile.score, kind="stable")
    middle = int(np.searchsorted(pile.score[order], cut, side="left"))
    near = np.arange(max(0, middle - NEAREST), min(len(order), middle + NEAREST))
    spread = np.linspace(0, len(order) - 1, min(SPREAD, len(order))).round().astype(np.int64)
    return order[np.union1d(near, spread)]


def payload(slider: Slider, pile: Pile, album: Album) -> dict[str, Any]:
    """What the page's script reads: numbers packed as base64 of little-endian floats."""
    shown = [
        [name, float(pile.score[i]), pile.names[i], pile.class_of(i), pile.likeness(i)]
        for i in sample(pile, slider.cut)
        if (name := album.add(pile.keys[i])) is not None
    ]
    document: dict[str, Any] = {
        "cut": slider.cut if slider.has_cut else None,
        "low": slider.low,
        "high": slider.high,
        "logarithmic": slider.logarithmic,
        "groups": [{"name": g.name, "scores": packed(g.scores)} for g in slider.groups],
        "shown": shown,
    }
    if slider.loss is not None:
        low, high = slider.loss.range()
        document["loss"] = {
            "inliers": packed(slider.loss.inliers),
            "bounds": packed(slider.loss.bounds()),
            "low": packed(low),
            "high": packed(high),
        }
    return document


def packed(values: FloatArray) -> str:
    """Numbers as base64: of float32 where that loses nothing, as for most scores, else of float64.

    The first character tells which: 4 or 8 bytes a number.
    """
    with np.errstate(over="ignore"):
        single = values.astype("<f4")
    exact = np.array_equal(single.astype(np.float64), values)
    raw = single if exact else values.astype("<f8")
    return ("4" if exact else "8") + b64encode(raw.tobytes()).decode("ascii")
