"""Contact sheets of pool images: which images to show, and the sheet itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Literal

import numpy as np

from anedl.data.dataset import IntArray, UInt8Array
from anedl.report.canvas import FAINT, INK, INLIER, OUTLIER, PAGE_WIDTH, new_figure, shortened
from anedl.report.run_folder import Array

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Truth = Literal["right", "wrong", "outlier", "not known"]
# Border colour and dash by what the truth says of the predicted class.
BORDERS: dict[Truth, tuple[str, Literal["-", "--"]]] = {
    "right": (INLIER, "-"),
    "wrong": (INLIER, "--"),
    "outlier": (OUTLIER, "-"),
    "not known": ("#BBBBBB", "-"),
}
LEGEND: dict[Truth, str] = {
    "right": "inlier, predicted rightly",
    "wrong": "inlier, predicted wrongly",
    "outlier": "outlier",
}
COLUMNS = 10
LONGEST_LABEL = 14
LARGE_SIDE = 96  # pixels; such images are drawn smaller than they are, so they are smoothed
MOST_SINGLE_ROWS = 12  # beyond so many classes two share a row


@dataclass(frozen=True)
class Tile:
    """One image of a sheet: `pixels` (height, width, channels 1 or 3) uint8, and its words."""

    pixels: UInt8Array
    caption: str
    truth: Truth


@dataclass(frozen=True)
class Strip:
    """Tiles in a row, after a label that may be empty."""

    label: str
    tiles: Sequence[Tile]


def surest_of_each_class(
    sureness: Array, predicted: IntArray, classes: int, count: int
) -> list[IntArray]:
    """For each class the positions of the `count` surest images predicted as it, surest first."""
    order = np.argsort(-sureness, kind="stable")
    return [order[predicted[order] == label][:count] for label in range(classes)]


def most_outlier_like(score: Array, count: int) -> IntArray:
    """Positions of the `count` lowest scores, lowest first."""
    return np.argsort(score, kind="stable")[:count]


def most_doubtful(probability: Array, accepted: Array, count: int) -> IntArray:
    """Of the accepted images, positions of the `count` least sure of their class, lowest first."""
    order = np.argsort(probability, kind="stable")
    return order[accepted[order]][:count]


def truth_of(predicted: int, truth: int | None) -> Truth:
    """What the truth (a class, −1 for an outlier, None where nobody knows) says of a prediction."""
    if truth is None:
        return "not known"
    if truth < 0:
        return "outlier"
    return "right" if truth == predicted else "wrong"


def sheet_figure(strips: Sequence[Strip]) -> "Figure":
    """Draw the strips below one another, or two side by side where there are very many.

    Small images are enlarged pixel by pixel, so that what is seen is what the model saw.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle

    longest = max((len(strip.label) for strip in strips), default=0)
    blocks = 2 if longest and len(strips) > MOST_SINGLE_ROWS else 1
    rows = ceil(len(strips) / blocks)
    lines = max((t.caption.count("\n") + 1 for strip in strips for t in strip.tiles), default=1)
    # Everything is drawn in units of one image's side; `inches` is how long that is.
    gap, pitch, per_strip = 0.14, 1.12 + 0.22 * lines, COLUMNS // blocks
    label_inches = 0.1 + 0.085 * min(longest, LONGEST_LABEL) if longest else 0.0
    inches = (PAGE_WIDTH / blocks - label_inches) / (per_strip * (1 + gap))
    label_width = label_inches / inches
    block_width = label_width + per_strip * (1 + gap)
    width, height = blocks * block_width, rows * pitch
    figure = new_figure(PAGE_WIDTH, height * inches + 0.35)
    figure.set_layout_engine("none")
    top = 1 - 0.35 / figure.get_figheight()
    axes = figure.add_axes((0.0, 0.0, 1.0, top))
    axes.set(xlim=(0, width), ylim=(height, 0), aspect="equal")
    axes.axis("off")
    for index, strip in enumerate(strips):
        block, row = divmod(index, rows)
        left, y = block * block_width + label_width + gap / 2, row * pitch + 0.06
        if strip.label:
            label = shortened(strip.label, LONGEST_LABEL)
            axes.text(left - 0.12, y + 0.5, label, ha="right", va="center", fontsize=9, color=INK,
                      parse_math=False)  # fmt: skip
        for column, tile in enumerate(strip.tiles):
            x = left + column * (1 + gap)
            colour, dash = BORDERS[tile.truth]
            enlarged = max(tile.pixels.shape[:2]) < LARGE_SIDE
            axes.imshow(square(tile.pixels), extent=(x, x + 1, y + 1, y), cmap="gray", vmin=0,
                        vmax=255, interpolation="nearest" if enlarged else "hanning")  # fmt: skip
            # White below, so that the gaps of a dashed border show on a dark image too.
            for edge, line in (("white", "-"), (colour, dash)):
                axes.add_patch(Rectangle((x, y), 1, 1, fill=False, edgecolor=edge, linestyle=line,
                                         linewidth=2.4))  # fmt: skip
            axes.text(x + 0.5, y + 1.06, tile.caption, ha="center", va="top", fontsize=7,
                      color=INK, linespacing=1.05, parse_math=False)  # fmt: skip
    axes.set(xlim=(0, width), ylim=(height, 0))
    if any(tile.truth in LEGEND for strip in strips for tile in strip.tiles):
        keys = [
            Line2D([], [], color=BORDERS[truth][0], linestyle=BORDERS[truth][1], linewidth=2.4,
                   label=text)
            for truth, text in LEGEND.items()
        ]  # fmt: skip
        figure.legend(handles=keys, loc="upper left", ncols=3, frameon=False, fontsize=9,
                      labelcolor=FAINT, borderpad=0.2)  # fmt: skip
    return figure


def square(pixels: UInt8Array) -> UInt8Array:
    """The middle square of an image, (side, side) for grey and (side, side, 3) for colour."""
    height, width = pixels.shape[:2]
    side = min(height, width)
    y, x = (height - side) // 2, (width - side) // 2
    middle = pixels[y : y + side, x : x + side]
    return middle[..., 0] if middle.shape[2] == 1 else middle
