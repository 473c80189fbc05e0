"""The figures of a run, one function each: plain arrays in, a matplotlib figure out.

Targets are 0…K−1 for a known class and −1 for an outlier; a score is higher for inliers.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch

from anedl import scores as score_functions
from anedl.evaluation.metrics import OUTLIER as OUTLIER_TARGET
from anedl.evaluation.metrics import ReliabilityBin, auroc, oscr, oscr_curve, roc_curve
from anedl.report.canvas import (
    FAINT,
    FIRST,
    INK,
    INLIER,
    LINES,
    OUTLIER,
    PAGE_WIDTH,
    PALE,
    SECOND,
    legend,
    new_figure,
    tidy,
    whole_numbers,
)
from anedl.report.run_folder import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BINS = 40
FEW_IMAGES = 200  # fill half as many bins
SQUARE = (5.2, 4.9)  # inches of a figure whose axes are equally long
CROWDED_BIN = 0.4  # a bin with such a share of its kind would press all others flat


def roc_figure(
    scores: Mapping[str, Array], targets: Array, thresholds: Mapping[str, float]
) -> "Figure":
    """ROC curves of finding outliers: outliers are positive, a low score speaks for one.

    A dot marks where the score's threshold lies.
    """
    figure = new_figure(*SQUARE)
    axes = figure.subplots()
    axes.plot([0, 100], [0, 100], color=PALE, linewidth=1, linestyle=":", label="chance")
    outlier = targets == OUTLIER_TARGET
    for (name, values), (colour, dash) in zip(scores.items(), LINES, strict=False):
        curve = roc_curve(values, targets, max_points=2000)
        # Rejecting is the complement of accepting, so both axes turn round.
        rejected_inliers = 100 * (1 - curve.true_positive_rate)
        rejected_outliers = 100 * (1 - curve.false_positive_rate)
        area = auroc(values, targets)
        label = f"{name}: AUROC {100 * area:.1f} %"
        axes.plot(
            rejected_inliers, rejected_outliers, color=colour, linestyle=dash, linewidth=2,
            label=label,
        )  # fmt: skip
        if name in thresholds:
            rejected = values < thresholds[name]
            axes.plot(
                100 * rejected[~outlier].mean(), 100 * rejected[outlier].mean(),
                "o", color=colour, markersize=7, markeredgecolor="white",
            )  # fmt: skip
    axes.plot([], [], "o", color=FAINT, markersize=7, label="threshold")
    _of_shares(axes, "inliers wrongly rejected (%)", "outliers rejected (%)")
    return figure


def oscr_figure(
    probabilities: Array,
    targets: Array,
    scores: Mapping[str, Array],
    thresholds: Mapping[str, float],
) -> "Figure":
    """Open-set classification rate: inliers accepted and right over outliers accepted.

    `probabilities` is (N, K). A dot marks where the score's threshold lies.
    """
    figure = new_figure(*SQUARE)
    axes = figure.subplots()
    outlier = targets == OUTLIER_TARGET
    right = probabilities.argmax(axis=1) == targets
    accuracy = 100 * right[~outlier].mean()
    axes.axhline(accuracy, color=PALE, linewidth=1, linestyle=":",
                 label=f"accuracy without rejecting: {accuracy:.1f} %")  # fmt: skip
    for (name, values), (colour, dash) in zip(scores.items(), LINES, strict=False):
        curve = oscr_curve(probabilities, targets, values)
        area = oscr(probabilities, targets, values)
        axes.plot(
            100 * curve.false_positive_rate, 100 * curve.correct_rate, color=colour,
            linestyle=dash, linewidth=2, label=f"{name}: OSCR {100 * area:.1f} %",
        )  # fmt: skip
        if name in thresholds:
            accepted = values >= thresholds[name]
            axes.plot(
                100 * accepted[outlier].mean(), 100 * (accepted & right)[~outlier].mean(),
                "o", color=colour, markersize=7, markeredgecolor="white",
            )  # fmt: skip
    _of_shares(axes, "outliers wrongly accepted (%)", "inliers accepted and named rightly (%)")
    return figure


def _of_shares(axes: "Axes", across: str, up: str) -> None:
    """Finish a square of two shares in per cent."""
    axes.set(xlabel=across, ylabel=up, xlim=(-1, 101), ylim=(-1, 101), aspect="equal")
    tidy(axes)
    legend(axes, loc="lower right")


def histogram_figure(
    scores: Mapping[str, Array], targets: Array, thresholds: Mapping[str, float]
) -> "Figure":
    """How each score spreads over inliers and outliers, with its threshold; one panel a score."""
    outlier = targets == OUTLIER_TARGET
    panels = {
        name: {"inliers": values[~outlier], "outliers": values[outlier]}
        for name, values in scores.items()
    }
    return spread_figure(panels, thresholds, "test images")


def spread_figure(
    panels: Mapping[str, Mapping[str, Array]],
    thresholds: Mapping[str, float],
    counted: str,
    against_all: bool = False,
    for_new: float | None = None,
) -> "Figure":
    """Histograms of two kinds of images, inliers first; one panel a score, with its threshold.

    `counted` names what is counted. With `against_all` the second kind is not outliers but a large
    mixture: each kind is then drawn in per cent of itself, in bins that suit the smaller one.
    `for_new` is a second threshold of the same score, for new images, drawn where it is another.
    """
    colours = (INLIER, FAINT if against_all else OUTLIER)
    figure = new_figure(PAGE_WIDTH, 3.3)
    places = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (name, kinds) in zip(places, panels.items(), strict=True):
        together = np.concatenate(list(kinds.values())).astype(np.float64)
        logarithmic = spans_decades(together)
        few = against_all and min(map(len, kinds.values())) < FEW_IMAGES
        edges = bin_edges(together, logarithmic, BINS // 2 if few else BINS)
        fullest = 0.0
        for (kind, values), colour in zip(kinds.items(), colours, strict=True):
            counts = np.histogram(values.astype(np.float64), edges)[0]
            heights = 100 * counts / max(1, len(values)) if against_all else counts
            label = f"{len(values):,} {kind}"
            axes.stairs(heights, edges, fill=True, color=colour, alpha=0.4, label=label)
            axes.stairs(heights, edges, color=colour, linewidth=1.2)
            fullest = max(fullest, counts.max() / max(1, len(values)))
        axes.set(xlabel=name, ylabel=f"{counted} (%)" if against_all else counted)
        if logarithmic:
            axes.set_xscale("log")
        if fullest > CROWDED_BIN and not against_all:
            axes.set_yscale("log")
            axes.set_ylim(bottom=0.7)
            axes.set_ylabel(f"{counted} (log scale)")
        _mark_thresholds(axes, thresholds.get(name, -np.inf), for_new)
        tidy(axes)
    figure.legend(*places[0].get_legend_handles_labels(), loc="outside upper left", ncols=3,
                  frameon=False, fontsize=9)  # fmt: skip
    return figure


def differs(threshold: float, for_new: float | None) -> bool:
    """Whether there is another threshold for new images, so that it needs a line of its own."""
    return for_new is not None and bool(np.isfinite(for_new)) and for_new != threshold


def _mark_thresholds(axes: "Axes", threshold: float, for_new: float | None) -> None:
    """A dashed line at the threshold, and a dotted one at that for new images."""
    both = np.isfinite(threshold) and differs(threshold, for_new)
    marks = [(threshold, "--", "threshold, pile" if both else "threshold")]
    if for_new is not None and differs(threshold, for_new):
        marks.append((for_new, ":", "threshold, new images"))
    marks = sorted(mark for mark in marks if np.isfinite(mark[0]))
    for (at, dash, label), side in zip(marks, ("right", "left"), strict=False):
        axes.axvline(at, color=INK, linewidth=1.5, linestyle=dash, label=label)
        # Side by side, numbers of lines that are close would lie on one another.
        axes.text(at, 1.02, f"{at:.4g}", ha=side if both else "center", fontsize=9, color=INK,
                  transform=axes.get_xaxis_transform())  # fmt: skip


def reliability_figure(bins: Sequence[ReliabilityBin]) -> "Figure":
    """How often the model is right, by how sure it says it is; below, how many images there are."""
    figure = new_figure(SQUARE[0], 5.2)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(4, 1))
    above.plot([0, 100], [0, 100], color=PALE, linewidth=1, linestyle=":", label="as sure as right")
    width = [100 * (row.high - row.low) for row in bins]
    left = [100 * row.low for row in bins]
    above.bar(left, [100 * row.accuracy for row in bins], width, align="edge", color=FIRST,
              alpha=0.35, label="how often right")  # fmt: skip
    above.plot([100 * row.confidence for row in bins], [100 * row.accuracy for row in bins], "o",
               color=FIRST, markersize=6, label="mean probability of the bin")  # fmt: skip
    above.set(ylabel="right (%)", xlim=(-1, 101), ylim=(-1, 103))
    # Bars may reach anywhere, so the legend has a place of its own above them.
    figure.legend(*above.get_legend_handles_labels(), loc="outside upper left", ncols=2,
                  frameon=False, fontsize=9)  # fmt: skip
    below.bar(left, [row.count for row in bins], width, align="edge", color=FAINT)
    below.set(xlabel="probability of the predicted class (%)", ylabel="images")
    if max(row.count for row in bins) > 50 * min(row.count for row in bins):
        below.set_yscale("log")
    for axes in (above, below):
        tidy(axes)
    return figure


def spans_decades(values: Array) -> bool:
    """Whether a logarithmic axis serves: all positive, and the ends far apart."""
    return bool(values.min() > 0 and values.max() / values.min() > 30)


def bin_edges(values: Array, logarithmic: bool, bins: int = BINS) -> Array:
    """Edges of the bins that hold every value, equally wide on their axis."""
    low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = low - 0.5, high + 0.5
    return (np.geomspace if logarithmic else np.linspace)(low, high, bins + 1)


def top_m_figure(alpha: Array, targets: Array, used: int | None, softmax_auroc: float) -> "Figure":
    """AUROC of the sum of the M largest concentrations (Eq. 9), M = 1…K, from alpha (N, K)."""
    classes = alpha.shape[1]
    concentrations = torch.from_numpy(alpha)
    sums = [
        score_functions.top_m_evidence(concentrations, m).numpy() for m in range(1, classes + 1)
    ]
    areas = [100 * auroc(values, targets) for values in sums]
    figure = new_figure(PAGE_WIDTH * 0.75, 3.2)
    axes = figure.subplots()
    axes.plot(range(1, classes + 1), areas, color=FIRST, linewidth=2, marker=".",
              label="sum of the M largest")  # fmt: skip
    if used is not None:
        axes.plot(used, areas[used - 1], "o", color=FIRST, markersize=9, linestyle="none",
                  label=f"this run: M = {used}, {areas[used - 1]:.1f} %")  # fmt: skip
    axes.axhline(100 * softmax_auroc, color=SECOND, linestyle="--", linewidth=1.6,
                 label=f"max softmax, {100 * softmax_auroc:.1f} %")  # fmt: skip
    axes.set(xlabel="M", ylabel="test AUROC (%)", xlim=(0.5, classes + 0.5))
    whole_numbers(axes)
    tidy(axes)
    figure.legend(loc="outside upper left", ncols=2, frameon=False, fontsize=9)
    return figure
