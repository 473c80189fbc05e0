"""Curves of several recipes in one figure: training over steps, and ROC.

A recipe's runs are thin lines, their mean a thick one. Names stand in the page's own key, not in
the figure, so that they may be as long and as odd as they are.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from anedl.evaluation.metrics import roc_curve
from anedl.report.canvas import PAGE_WIDTH, PALE, new_figure, series_look, tidy, whole_numbers
from anedl.report.comparison import MethodRuns
from anedl.report.figures import SQUARE
from anedl.report.pictures import Picture, picture
from anedl.report.run_folder import FloatArray, Run

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Curve = dict[float, float]  # step → value
Row = Mapping[str, Any]  # a line of the log
Reader = Callable[[Run, Row], float | None]
GRID_POINTS = 401
MOST_POINTS = 300  # of a curve over training: more make the page large and nothing clearer


def _share(*path: str) -> Reader:
    """Reads a fraction below these keys of a row of the log, in per cent."""

    def read(run: Run, row: Row) -> float | None:
        value: Any = row
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        return None if value is None else 100 * float(value)

    return read


def _purity(run: Run, row: Row) -> float | None:
    # Of a user's own pile nobody knows how pure a selection is, whatever was logged.
    return None if run.is_own else _share("selection", "purity")(run, row)


PANELS: Mapping[str, Reader] = {
    "training loss": lambda run, row: row.get("loss"),
    "validation error (%)": _share("validation", "error"),
    "test AUROC (%)": _share("test", "auroc", "score"),
    "purity of selection (%)": _purity,
}


def curve(run: Run, read: Reader) -> Curve:
    """What a run logged, by step."""
    found = ((float(row["step"]), read(run, row)) for row in run.rows)
    return {step: value for step, value in found if value is not None}


def mean_curve(curves: Sequence[Curve]) -> Curve:
    """The mean at every step that all curves have."""
    steps = sorted(set.intersection(*(set(one) for one in curves))) if curves else []
    return {step: float(np.mean([one[step] for one in curves])) for step in steps}


def curve_pictures(groups: Sequence[MethodRuns]) -> list[Picture]:
    """Loss, validation error, AUROC and purity; then every term of the loss."""
    pictures = []
    panels = {name: read for name, read in PANELS.items() if _logged(groups, read)}
    if panels:
        pictures.append(
            picture(
                "curves",
                "Over training",
                "Thin lines are runs, a thick one is the mean of a recipe's runs; long curves are "
                "smoothed over neighbouring steps. Purity is the share of true inliers among the "
                "selected pool images. Test figures are recorded for this page; only validation "
                "chooses.",
                f"{', '.join(panels)} over steps, a curve a recipe: {_names(groups)}.",
                panels_figure(groups, panels, columns=1, height=1.9),
            )
        )
    terms = dict.fromkeys(
        name for group in groups for run in group.runs for row in run.rows
        for name in row.get("train", {})
    )  # fmt: skip
    if terms:
        readers = {name: _term(name) for name in terms}
        pictures.append(
            picture(
                "terms",
                "Term by term",
                "What each run logged beside its loss: the terms of it, before their weights, and "
                "what was watched with them. A recipe without a term has no line in its panel.",
                f"{len(terms)} small charts over steps, one a term: {', '.join(terms)}.",
                panels_figure(groups, readers, columns=3, height=1.55),
            )
        )
    return pictures


def panels_figure(
    groups: Sequence[MethodRuns],
    panels: Mapping[str, Reader],
    columns: int,
    height: float,
) -> "Figure":
    """A panel for each thing that can be read from the log, a colour and dash for each recipe."""
    rows = -(-len(panels) // columns)
    figure = new_figure(PAGE_WIDTH, 0.5 + height * rows)
    places = figure.subplots(rows, columns, sharex=True, squeeze=False)
    for axes, (name, read) in zip(places.flat, panels.items(), strict=False):
        for number, group in enumerate(groups):
            curves = [found for run in group.runs if (found := curve(run, read))]
            _draw(axes, number, [_points(one) for one in curves], _points(mean_curve(curves)))
        if columns == 1:
            axes.set_ylabel(name)
        else:
            axes.set_title(name, fontsize=9, parse_math=False)
            axes.tick_params(labelsize=8)
        tidy(axes)
    for axes in places.flat[len(panels) :]:
        axes.set_visible(False)
    for lowest in places.flat[max(0, len(panels) - columns) : len(panels)]:
        lowest.xaxis.set_tick_params(labelbottom=True)
        whole_numbers(lowest)
    figure.supxlabel("steps", fontsize=10)
    return figure


def roc_picture(groups: Sequence[MethodRuns], areas: Mapping[str, str]) -> Picture | None:
    """ROC curves of every recipe whose test holds outliers; `areas` is AUROC in words by recipe."""
    spoken = [
        f"{group.name} {areas[group.name]} %"
        for group in groups
        if any(run.has_outliers for run in group.runs)
    ]
    if not spoken:
        return None
    return picture(
        "roc",
        "Finding outliers (ROC)",
        "By each method's own score: for every threshold, how many outliers it rejects against how "
        "many inliers it rejects by mistake. Thin lines are runs; a thick one is their mean, taken "
        "at equal shares of rejected inliers.",
        f"ROC curves of outlier detection on the test images; AUROC: {', '.join(spoken)}.",
        roc_figure(groups),
    )


def roc_figure(groups: Sequence[MethodRuns]) -> "Figure":
    """ROC curves by the own score: outliers are positive, a low score speaks for one."""
    figure = new_figure(*SQUARE)
    axes = figure.subplots()
    axes.plot([0, 100], [0, 100], color=PALE, linewidth=1, linestyle=":")
    grid = np.linspace(0, 100, GRID_POINTS)
    for number, group in enumerate(groups):
        curves = [rejected_shares(run) for run in group.runs if run.has_outliers]
        if curves:
            mean = np.mean([np.interp(grid, x, y) for x, y in curves], axis=0)
            _draw(axes, number, curves, (grid, mean) if len(curves) > 1 else curves[0])
    axes.set(
        xlabel="inliers wrongly rejected (%)", ylabel="outliers rejected (%)",
        xlim=(-1, 101), ylim=(-1, 101), aspect="equal",
    )  # fmt: skip
    tidy(axes)
    return figure


def rejected_shares(run: Run) -> tuple[FloatArray, FloatArray]:
    """Per cent of inliers and of outliers rejected, both rising along the ROC curve."""
    found = roc_curve(run.test["score"].astype(np.float64), run.test_targets, max_points=500)
    # Rejecting is the complement of accepting, so both axes turn round.
    inliers = 100 * (1 - found.true_positive_rate)[::-1]
    outliers = 100 * (1 - found.false_positive_rate)[::-1]
    return inliers, outliers


def _draw(
    axes: "Axes",
    number: int,
    runs: Sequence[tuple[Any, Any]],
    mean: tuple[Any, Any],
) -> None:
    colour, dash = series_look(number)
    if len(runs) > 1:
        for x, y in runs:
            axes.plot(x, y, color=colour, linewidth=0.7, alpha=0.35)
    if len(mean[0]):
        marker = "." if len(mean[0]) == 1 else None
        axes.plot(*mean, color=colour, linewidth=2, dashes=dash or (None, None), marker=marker)


def _points(curve: Curve) -> tuple[FloatArray, FloatArray]:
    """Steps and values; of a long curve the means of neighbours."""
    both = np.array([list(curve), list(curve.values())], dtype=np.float64)
    if both.shape[1] > MOST_POINTS:
        parts = np.array_split(both, MOST_POINTS, axis=1)
        both = np.stack([part.mean(axis=1) for part in parts], axis=1)
    return both[0], both[1]


def _term(name: str) -> Reader:
    return lambda run, row: row.get("train", {}).get(name)


def _logged(groups: Sequence[MethodRuns], read: Reader) -> bool:
    return any(curve(run, read) for group in groups for run in group.runs)


def _names(groups: Sequence[MethodRuns]) -> str:
    return "; ".join(group.name for group in groups)
