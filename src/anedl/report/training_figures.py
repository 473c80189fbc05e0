"""Figures of the training itself, over epochs: loss, error, AUROC and the selection."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from anedl.report.canvas import (
    BAND,
    FAINT,
    FIRST,
    INK,
    LINES,
    PAGE_WIDTH,
    SECOND,
    legend,
    new_figure,
    tidy,
    whole_numbers,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def curves_figure(
    rows: Sequence[Mapping[str, Any]],
    epoch_steps: int,
    own_score: str,
    self_training_from: int | None = None,
    best_epoch: int | None = None,
    restarts: Sequence[int] = (),
) -> "Figure":
    """Loss, errors and AUROC over epochs trained; what was not recorded has no panel.

    `own_score` names the method's score in the legend; `self_training_from` is where the second
    stage begins, `restarts` are the epochs where the network began anew, and `best_epoch` counts
    from 0, as in the results.
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
    # A fresh network begins where it begins, and goes through both stages too.
    starts = [first + later for first in (0, *restarts) for later in (0, self_training_from or 0)]
    borders = [*(epoch * epoch_steps for epoch in starts), np.inf]
    losses = [(row["step"], row["loss"]) for row in rows if "loss" in row]
    for begin, end in pairwise(borders):
        part = [point for point in losses if begin < point[0] <= end]
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
        top = axes.get_ylim()[1]
        axes.set_ylim(-0.05 * top, 1.05 * top)  # a dot at either end is a whole dot
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
    mark_self_training(panels, self_training_from, restarts)
    mark_restarts(panels, restarts)
    return figure


def mark_self_training(
    panels: Sequence["Axes"], start: int | None, restarts: Sequence[int] = ()
) -> None:
    """Shade the epochs of self-training in every panel and name the stages above the first.

    They begin `start` epochs after each network does, the first one and those at `restarts`.
    """
    if start is None:
        return
    end = max(axes.dataLim.x1 for axes in panels)
    for axes in panels:
        for network, its_end in pairwise((0, *restarts, end)):
            if network + start < its_end:
                axes.axvspan(network + start, its_end, color=BAND, zorder=0, linewidth=0)
        axes.axvline(start, color=FAINT, linewidth=1.2, zorder=1)
    panels[0].set_xlim(-0.02 * end, 1.02 * end)
    for name, side in (
        ("pretraining\N{NO-BREAK SPACE}", "right"),
        ("\N{NO-BREAK SPACE}self-training", "left"),
    ):
        if start > 0 or side == "left":
            panels[0].text(start, 1.03, name, ha=side, transform=panels[0].get_xaxis_transform(),
                           fontsize=9, color=FAINT)  # fmt: skip


def mark_restarts(panels: Sequence["Axes"], restarts: Sequence[int]) -> None:
    """Draw a line where the network began anew, and name it above the first panel."""
    for epoch in restarts:
        for axes in panels:
            axes.axvline(epoch, color=FAINT, linewidth=1.2, linestyle=":", zorder=1)
        panels[0].text(epoch, 1.03, "fresh network", ha="center", fontsize=9, color=FAINT,
                       transform=panels[0].get_xaxis_transform())  # fmt: skip


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
        ("precision", "precision: of the class they are taken for", LINES[2]),
        ("recall", "recall: selected among the inliers", LINES[1]),
    ):
        if not all(key in s for _, s in chosen):
            continue  # runs of before it was recorded
        values = [100 * s[key] for _, s in chosen]
        shares.plot(epochs, values, color=colour, linestyle=dash, marker=marker, label=label)
    shares.set(xlabel="epochs trained when selected", ylabel="share (%)", ylim=(0, 102))
    legend(shares, loc="lower right")
    for axes in (counts, shares):
        tidy(axes)
        whole_numbers(axes)
    return figure
