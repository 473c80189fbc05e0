"""The figures of a run, one function each: plain arrays in, a matplotlib figure out.

Targets are 0…K−1 for a known class and −1 for an outlier; a score is higher for inliers.
"""

from collections.abc import Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from anedl import scores as score_functions
from anedl.data.dataset import IntArray
from anedl.evaluation.metrics import OUTLIER as OUTLIER_TARGET
from anedl.evaluation.metrics import auroc, roc_curve
from anedl.report.canvas import (
    BAND,
    FAINT,
    FIRST,
    INK,
    INLIER,
    OUTLIER,
    PAGE_WIDTH,
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
CROWDED_BIN = 0.4  # a bin with such a share of its kind would press all others flat
MOST_NUMBERED_CLASSES = 12  # beyond these the numbers in a confusion matrix cannot be read
MOST_NAMED_CLASSES = 60
LINES = ((FIRST, "-"), (SECOND, "--"), (INK, ":"))


def roc_figure(
    scores: Mapping[str, Array], targets: Array, thresholds: Mapping[str, float]
) -> "Figure":
    """ROC curves of finding outliers: outliers are positive, a low score speaks for one.

    A dot marks where the score's threshold lies.
    """
    figure = new_figure(5.6, 5.2)
    axes = figure.subplots()
    axes.plot([0, 100], [0, 100], color="#BBBBBB", linewidth=1, linestyle=":", label="chance")
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
    axes.plot(
        [], [], "o", color=FAINT, markersize=7, label="threshold: 95 % of validation accepted"
    )
    axes.set(
        xlabel="inliers wrongly rejected (%)", ylabel="outliers rejected (%)",
        xlim=(-1, 101), ylim=(-1, 101), aspect="equal",
    )  # fmt: skip
    tidy(axes)
    legend(axes, loc="lower right")
    return figure


def histogram_figure(
    scores: Mapping[str, Array], targets: Array, thresholds: Mapping[str, float]
) -> "Figure":
    """How each score spreads over inliers and outliers, with its threshold; one panel a score."""
    figure = new_figure(PAGE_WIDTH, 3.5)
    panels = figure.subplots(1, len(scores), squeeze=False)[0]
    outlier = targets == OUTLIER_TARGET
    kinds = (("inliers", ~outlier, INLIER), ("outliers", outlier, OUTLIER))
    for axes, (name, values) in zip(panels, scores.items(), strict=True):
        values = values.astype(np.float64)
        logarithmic = spans_decades(values)
        edges = bin_edges(values, logarithmic)
        fullest = 0.0
        for kind, mask, colour in kinds:
            counts = np.histogram(values[mask], edges)[0]
            label = f"{mask.sum():,} {kind}"
            axes.stairs(counts, edges, fill=True, color=colour, alpha=0.45, label=label)
            axes.stairs(counts, edges, color=colour, linewidth=1.2)
            fullest = max(fullest, counts.max() / max(1, mask.sum()))
        axes.set(xlabel=name, ylabel="test images")
        if logarithmic:
            axes.set_xscale("log")
        if fullest > CROWDED_BIN:
            axes.set_yscale("log")
            axes.set_ylim(bottom=0.7)
            axes.set_ylabel("test images (log scale)")
        if name in thresholds:
            axes.axvline(
                thresholds[name], color=INK, linewidth=1.5, linestyle="--",
                label="threshold: 95 % of validation accepted",
            )  # fmt: skip
            axes.text(thresholds[name], 1.02, f"{thresholds[name]:.3g}", ha="center", fontsize=9,
                      color=INK, transform=axes.get_xaxis_transform())  # fmt: skip
        tidy(axes)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper left", ncols=3,
                  frameon=False, fontsize=9)  # fmt: skip
    return figure


def spans_decades(values: Array) -> bool:
    """Whether a logarithmic axis serves: all positive, and the ends far apart."""
    return bool(values.min() > 0 and values.max() / values.min() > 30)


def bin_edges(values: Array, logarithmic: bool) -> Array:
    """Edges of the bins that hold every value, equally wide on their axis."""
    low, high = float(values.min()), float(values.max())
    if low == high:
        low, high = low - 0.5, high + 0.5
    return (np.geomspace if logarithmic else np.linspace)(low, high, BINS + 1)


def confusion_counts(
    predicted: IntArray, targets: IntArray, accepted: Array, classes: int
) -> Array:
    """Count (truth, answer) pairs, (K+1, K+1): the last row and column are "unknown".

    An image that is not accepted is answered with "unknown", whatever class was predicted.
    """
    answer = np.where(accepted, predicted, classes)
    truth = np.where(targets == OUTLIER_TARGET, classes, targets)
    counts = np.zeros((classes + 1, classes + 1), dtype=np.int64)
    np.add.at(counts, (truth, answer), 1)
    return counts


def confusion_figure(counts: Array, class_names: Sequence[str]) -> "Figure":
    """The confusion matrix, (K+1, K+1); shades are shares of a row, numbers are images."""
    names = [*class_names, "unknown"]
    numbered = len(class_names) <= MOST_NUMBERED_CLASSES
    side = 5.6 if numbered else PAGE_WIDTH
    figure = new_figure(side, 0.92 * side)
    axes = figure.subplots()
    totals = counts.sum(axis=1, keepdims=True)
    shares = 100 * counts / np.maximum(totals, 1)
    picture = axes.imshow(shares, cmap="Blues", vmin=0, vmax=100, interpolation="nearest")
    if numbered:
        for (row, column), count in np.ndenumerate(counts):
            if count:
                colour = "white" if shares[row, column] > 60 else INK
                axes.text(column, row, str(count), ha="center", va="center", fontsize=9,
                          color=colour)  # fmt: skip
    step = ceil(len(names) / MOST_NAMED_CLASSES)
    # "unknown", the last, is always named.
    places = sorted({*range(0, len(names) - step + 1, step), len(names) - 1})
    size = 9 if numbered else 6
    shown = [shortened(names[place], 16) for place in places]
    long = max(map(len, shown)) * len(shown) > 64 or not numbered
    axes.set_xticks(places, shown, fontsize=size, rotation=90 if long else 0, parse_math=False)
    axes.set_yticks(places, shown, fontsize=size, parse_math=False)
    axes.tick_params(length=0)
    axes.set(xlabel="answer", ylabel="truth")
    axes.axhline(len(class_names) - 0.5, color=FAINT, linewidth=1)
    axes.axvline(len(class_names) - 0.5, color=FAINT, linewidth=1)
    axes.spines[:].set_color("#CCCCCC")
    bar = figure.colorbar(picture, ax=axes, shrink=0.75, pad=0.02)
    bar.set_label("share of the row (%)")
    bar.outline.set_visible(False)
    return figure


def shortened(name: str, longest: int) -> str:
    """A name cut to fit, with an ellipsis where something was lost."""
    return name if len(name) <= longest else name[: longest - 1] + "…"


def curves_figure(
    rows: Sequence[Mapping[str, Any]],
    epoch_steps: int,
    own_score: str,
    self_training_from: int | None = None,
    best_epoch: int | None = None,
) -> "Figure":
    """Loss, errors and AUROC over epochs trained; what was not recorded has no panel.

    `own_score` names the method's score in the legend; `self_training_from` is where the second
    stage begins and `best_epoch` counts from 0, as in the results.
    """
    evaluated = [row for row in rows if "validation" in row]
    tested = [row for row in evaluated if "test" in row]
    areas = [row for row in tested if "auroc" in row["test"]]
    count = 1 + bool(evaluated) + bool(areas)
    figure = new_figure(PAGE_WIDTH, 0.6 + 1.9 * count)
    panels = list(figure.subplots(count, 1, sharex=True, squeeze=False)[:, 0])

    def draw(axes: "Axes", points: Sequence[tuple[float, float]], **look: Any) -> None:
        epochs, values = zip(*points, strict=True)
        marker = "." if len(points) <= 60 else None
        width = 1.6 if len(points) <= 500 else 0.8
        axes.plot(np.array(epochs) / epoch_steps, values, linewidth=width, marker=marker, **look)

    # A new stage adds terms to the loss: a line across the border would show a rise that is none.
    border = (self_training_from or 0) * epoch_steps
    losses = [(row["step"], row["loss"]) for row in rows if "loss" in row]
    for part in (
        [point for point in losses if point[0] <= border],
        [point for point in losses if point[0] > border],
    ):
        if part:
            draw(panels[0], part, color=INK)
    panels[0].set_ylabel("training loss")
    if evaluated:
        axes = panels[1]
        points = [(row["step"], 100 * row["validation"]["error"]) for row in evaluated]
        draw(axes, points, color=FAINT, linestyle="--", label="validation")
        if tested:
            points = [(row["step"], 100 * row["test"]["error"]) for row in tested]
            draw(axes, points, color=INK, label="test")
        best = [row for row in evaluated if row["epoch"] == best_epoch]
        if best:
            axes.plot(
                best[0]["step"] / epoch_steps, 100 * best[0]["validation"]["error"], "o",
                markersize=8, markerfacecolor="none", markeredgecolor=INK, markeredgewidth=1.4,
                label="best validation (first of equals)", linestyle="none",
            )  # fmt: skip
        axes.set_ylabel("error (%)")
        axes.set_ylim(bottom=-0.05 * axes.get_ylim()[1])  # a dot at zero is a whole dot
        legend(axes, ncols=3)
    if areas:
        axes = panels[-1]
        series = [("score", own_score, FIRST, "-")]
        if own_score != "max softmax":
            series.append(("max_softmax", "max softmax", SECOND, "--"))
        for key, label, colour, dash in series:
            points = [(row["step"], 100 * row["test"]["auroc"][key]) for row in areas]
            draw(axes, points, color=colour, linestyle=dash, label=label)
        axes.set_ylabel("test AUROC (%)")
        legend(axes, loc="lower right")
    panels[-1].set_xlabel("epochs trained")
    whole_numbers(panels[-1])
    for axes in panels:
        tidy(axes)
    mark_self_training(panels, self_training_from)
    return figure


def mark_self_training(panels: Sequence["Axes"], start: int | None) -> None:
    """Shade the epochs of self-training in every panel and name the stages above the first."""
    if start is None:
        return
    end = max(axes.dataLim.x1 for axes in panels)
    for axes in panels:
        axes.axvspan(start, end, color=BAND, zorder=0, linewidth=0)
        axes.axvline(start, color=FAINT, linewidth=1.2, zorder=1)
    panels[0].set_xlim(-0.02 * end, 1.02 * end)
    for name, side in (("pretraining ", "right"), (" self-training", "left")):
        if start > 0 or side == "left":
            panels[0].text(start, 1.03, name, ha=side, transform=panels[0].get_xaxis_transform(),
                           fontsize=9, color=FAINT)  # fmt: skip


def selection_figure(rows: Sequence[Mapping[str, Any]]) -> "Figure":
    """How many pool images were selected at the start of each epoch, and how well."""
    chosen = [(row["epoch"], row["selection"]) for row in rows if "selection" in row]
    epochs = [epoch for epoch, _ in chosen]
    figure = new_figure(PAGE_WIDTH, 3.0)
    counts, shares = figure.subplots(1, 2, sharex=True)
    marker = "." if len(chosen) <= 60 else None
    counts.plot(epochs, [s["count"] for _, s in chosen], color=INK, marker=marker)
    counts.set(xlabel="epochs trained when selected", ylabel="selected pool images")
    counts.set_ylim(bottom=0, top=1.15 * max(1.0, *(s["count"] for _, s in chosen)))
    for key, label, (colour, dash) in (
        ("purity", "purity: inliers among the selected", LINES[0]),
        ("recall", "recall: selected among the inliers", LINES[1]),
    ):
        values = [100 * s[key] for _, s in chosen]
        shares.plot(epochs, values, color=colour, linestyle=dash, marker=marker, label=label)
    shares.set(xlabel="epochs trained when selected", ylabel="share (%)", ylim=(0, 102))
    legend(shares, loc="lower right")
    for axes in (counts, shares):
        tidy(axes)
        whole_numbers(axes)
    return figure


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
