"""The picture above the threshold slider: how scores spread, one kind up and the other down."""

import numpy as np

from anedl.report.axis import Axis
from anedl.report.figures import BINS
from anedl.report.markup import Html, joined
from anedl.report.run_folder import FloatArray
from anedl.report.slider import Group, Slider

WIDTH, HALF, LABELS = 820.0, 96.0, 26.0  # pixels: the whole, either half, and the axis below


def shown_groups(slider: Slider) -> tuple[Group, Group | None]:
    """What is drawn up and what down: inliers and outliers, or the pile and held-out inliers."""
    inliers = [group for group in slider.groups if group.kind == "inlier"]
    outliers = [group for group in slider.groups if group.kind == "outlier"]
    if inliers and outliers:
        return inliers[0], outliers[0]
    return slider.groups[0], inliers[0] if inliers else None


def slider_axis(slider: Slider) -> Axis:
    """Where a score lies in the picture, and on the slider below it."""
    return Axis(slider.low, slider.high, 0.0, WIDTH, slider.logarithmic)


def slider_picture(slider: Slider) -> Html:
    """The picture as `<svg>`; the script moves its line and its shade."""
    above, below = shown_groups(slider)
    axis = slider_axis(slider)
    height = 2 * HALF + LABELS if below else HALF + LABELS
    floor = height - LABELS
    place = axis.place(slider.cut) if slider.has_cut else 0.0
    place = min(max(place, 0.0), WIDTH)
    up_class, down_class = ("inlier", "outlier") if above.kind == "inlier" else ("pile", "inlier")
    parts = [_stairs(above.scores, axis, -1, up_class)]
    words = f"above: {above.name}"
    if below:
        parts.append(_stairs(below.scores, axis, 1, down_class))
        words += f"; below: {below.name}"
    for at, label in axis.ticks():
        anchor = "start" if at < 12 else "end" if at > WIDTH - 12 else "middle"
        parts.append(
            Html('<line class="tick" x1="{0:.1f}" x2="{0:.1f}" y1="{1}" y2="{2}"/>'
                   '<text x="{0:.1f}" y="{3}" text-anchor="{4}">{5}</text>').fill(
                at, floor, floor + 4, floor + 19, anchor, label)
        )  # fmt: skip
    own = '<line class="own" x1="{0:.2f}" x2="{0:.2f}" y1="0" y2="{1}"/>' if slider.has_cut else ""
    cut = Html(
        '<rect id="cut-shade" class="shade" x="0" y="0" width="{0:.2f}" height="{1}"/>'
        + own
        + '<line id="cut-line" class="cut" x1="{0:.2f}" x2="{0:.2f}" y1="0" y2="{1}"/>'
    ).fill(place, floor)
    return Html(
        '<svg class="spread" viewBox="0 0 {0} {1}" role="img" aria-label="{2}">'
        '<line class="axis" x1="0" x2="{0}" y1="{3}" y2="{3}"/>{4}{5}</svg>'
    ).fill(
        f"{WIDTH:.0f}", f"{height:.0f}", f"How {slider.score_name} spreads; {words}.",
        HALF, joined(parts), cut,
    )  # fmt: skip


def _stairs(scores: FloatArray, axis: Axis, direction: int, kind: str) -> Html:
    """A histogram from the middle line up (−1) or down (1), the fullest bin as high as can be."""
    spaced = np.geomspace if axis.logarithmic else np.linspace
    edges = spaced(axis.low, axis.high, 2 * BINS + 1)
    # Rounding may put the last edge a hair inside the last score.
    edges[0], edges[-1] = axis.low, axis.high
    counts = np.histogram(scores.clip(axis.low, axis.high), edges)[0]
    heights = direction * (HALF - 6) * counts / max(1, counts.max())
    step = WIDTH / len(counts)
    steps = "".join(
        f"V{HALF + height:.1f}H{(i + 1) * step:.2f}" for i, height in enumerate(heights)
    )
    return Html('<path class="stairs {0}" d="M0 {1}{2}V{1}Z"/>').fill(kind, HALF, steps)
