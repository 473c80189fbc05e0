"""What is taken for what: the confusion matrix with "unknown", as a table or as a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from anedl.data.dataset import IntArray
from anedl.evaluation.metrics import OUTLIER
from anedl.report.canvas import FAINT, INK, INLIER, PAGE_WIDTH, new_figure, shortened
from anedl.report.run_folder import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNKNOWN = "unknown"
MOST_TABULATED_CLASSES = 16  # beyond these a table does not fit the page
MOST_NAMED_CLASSES = 60
SHADES = 9  # steps of shading in the table, beyond none


@dataclass(frozen=True)
class Cell:
    """Images of one truth that got one answer; `shade` (0…9) is their share of the row."""

    count: int
    shade: int
    right: bool


def confusion_counts(
    predicted: IntArray, targets: IntArray, accepted: Array, classes: int
) -> Array:
    """Count (truth, answer) pairs, (K+1, K+1): the last row and column are "unknown".

    An image that is not accepted is answered with "unknown", whatever class was predicted.
    """
    answer = np.where(accepted, predicted, classes)
    truth = np.where(targets == OUTLIER, classes, targets)
    counts = np.zeros((classes + 1, classes + 1), dtype=np.int64)
    np.add.at(counts, (truth, answer), 1)
    return counts


def confusion_rows(counts: Array, class_names: Sequence[str]) -> list[tuple[str, list[Cell]]]:
    """The matrix as rows of a table; a truth that no image has, has no row."""
    rows = []
    for truth, (name, row) in enumerate(zip([*class_names, UNKNOWN], counts, strict=True)):
        total = int(row.sum())
        if total:
            cells = [
                Cell(int(count), ceil(SHADES * count / total), truth == answer)
                for answer, count in enumerate(row)
            ]
            rows.append((name, cells))
    return rows


MOST_COUNTED_NAMES = 12  # whose counts have room in their cells
FEW_NAMES = 25  # that have room for letters of the usual size


def confusion_figure(counts: Array, class_names: Sequence[str]) -> "Figure":
    """The confusion matrix, (K+1, K+1), for many classes: shades are shares of a row.

    Where no image is unknown in truth there is no such row.
    """
    from matplotlib.colors import LinearSegmentedColormap, to_rgb

    names = [*class_names, UNKNOWN]
    truths = len(names) if counts[-1].any() else len(class_names)
    counts = counts[:truths]
    figure = new_figure(PAGE_WIDTH, 0.92 * PAGE_WIDTH)
    axes = figure.subplots()
    shares = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    # Shades are more or less of one colour, whatever lies behind: paper or a dark page.
    colour = to_rgb(INLIER)
    shades = LinearSegmentedColormap.from_list("shades", [(*colour, 0.0), (*colour, 1.0)])
    picture = axes.imshow(shares, cmap=shades, vmin=0, vmax=100, interpolation="nearest")
    if len(names) <= MOST_COUNTED_NAMES:
        for (truth, answer), share in np.ndenumerate(shares):
            ink = "white" if share > 60 else INK
            axes.text(
                answer, truth, f"{counts[truth, answer]:,}", ha="center", va="center", color=ink
            )
    step = ceil(len(names) / MOST_NAMED_CLASSES)
    # "unknown", the last, is always named.
    places = sorted({*range(0, len(names) - step + 1, step), len(names) - 1})
    shown = [shortened(names[place], 16) for place in places]
    size = 6 if len(shown) > FEW_NAMES else 9
    axes.set_xticks(places, shown, fontsize=size, rotation=90, parse_math=False)
    rows = sum(place < truths for place in places)
    axes.set_yticks(places[:rows], shown[:rows], fontsize=size, parse_math=False)
    axes.tick_params(length=0)
    axes.set(xlabel="answer", ylabel="truth")
    if truths > len(class_names):
        axes.axhline(len(class_names) - 0.5, color=FAINT, linewidth=1)
    axes.axvline(len(class_names) - 0.5, color=FAINT, linewidth=1)
    axes.spines[:].set_color(FAINT)
    bar = figure.colorbar(picture, ax=axes, shrink=0.75, pad=0.02)
    bar.set_label("share of the row (%)")
    bar.outline.set_visible(False)
    return figure
