"""The figure of an experiment: bars, AUROC over M, or the images at both ends of an order."""

from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np

from anedl.data.augment.host import HostAugment
from anedl.errors import AnedlError
from anedl.ledger.published import NAMES, comparable_figure
from anedl.presets.cells import ANEDL
from anedl.presets.experiment import Row
from anedl.presets.figure_files import Drawn, keep_figure
from anedl.presets.reproduce import Outcome
from anedl.presets.tables import (
    CASES,
    auroc_over_m,
    chosen_m,
    figure_of,
    places,
)
from anedl.report.bars import Bar, Panel, bars_figure
from anedl.report.canvas import (
    FIRST,
    PAGE_WIDTH,
    SECOND,
    legend,
    new_figure,
    shortened,
    tidy,
    to_png,
)
from anedl.report.contact_sheet import Strip, Tile, sheet_figure, truth_of
from anedl.report.images import run_images
from anedl.report.run_folder import Run, read_run
from anedl.views import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LONGEST_LABEL = 44
LONGEST_REMARK = 120  # characters of a line


def save_figure(outcome: Outcome, data_root: Path | None = None) -> Drawn:
    """Draw what the experiment came to into `results/figures/`.

    Where it goes if there is one already, `keep_figure` decides.

    Raises:
        AnedlError: no run is done, the packages to draw with are missing, or the images are.
    """
    experiment = outcome.experiment
    rows = [row for row in experiment.rows if outcome.has(row)]
    if not rows:
        raise AnedlError(f"{experiment.name}: no run is done, so there is nothing to draw")
    if experiment.drawing == "over-m":
        figure = over_m_figure(outcome, rows)
    elif experiment.drawing == "case-study":
        figure = case_figure(outcome, rows, data_root)
    else:
        figure = outcome_figure(outcome, rows)
    return keep_figure(to_png(figure), outcome, rows)


def outcome_figure(outcome: Outcome, rows: list[Row]) -> "Figure":
    """A row of panels for each setting, a panel for each measure."""
    experiment = outcome.experiment
    settings = dict.fromkeys(row.setting for row in rows)
    given = {**outcome.terms.train, **experiment.given}
    remark = ", ".join(f"{name} = {value}" for name, value in given.items())
    return bars_figure(
        [
            [
                _panel(outcome, [row for row in rows if row.setting == setting], across)
                for across in range(len(experiment.measures))
            ]
            for setting in settings
        ],
        "\n".join(wrap(remark, LONGEST_REMARK)),
    )


def _panel(outcome: Outcome, rows: list[Row], across: int) -> Panel:
    measure = outcome.experiment.measures[across]
    bars = [
        Bar(
            shortened(row.label, LONGEST_LABEL),
            figure_of(row, outcome.runs_of(row), measure, "last"),
            comparable_figure(outcome.published_of(row), measure),
            stressed=row.method == ANEDL,
        )
        for row in rows
    ]
    return Panel(f"{rows[0].setting}: {NAMES[measure]} (%)", bars)


def over_m_figure(outcome: Outcome, rows: list[Row]) -> "Figure":
    """AUROC against M, a panel a setting: a thin line a run, a thick one their mean."""
    figure = new_figure(PAGE_WIDTH, 3.4 * len(rows))
    panels = figure.subplots(len(rows), 1, squeeze=False)
    for (axes,), row in zip(panels, rows, strict=True):
        curves = np.array(auroc_over_m(outcome.folders_of(row)))
        m = np.arange(1, curves.shape[1] + 1)
        for curve in curves:
            axes.plot(m, curve, color="#BBBBBB", linewidth=1)
        label = "the run" if len(curves) == 1 else f"mean of {len(curves)} runs"
        style = {"linewidth": 2.2, "marker": "o", "markersize": 3}
        axes.plot(m, curves.mean(0), color=FIRST, label=label, **style)
        chosen = chosen_m(outcome, row)
        axes.axvline(chosen, color=SECOND, linestyle="--", label=f"M = {chosen}, the setting's")
        axes.set_xlabel("M, number of largest concentrations in the score (Eq. 9)")
        axes.set_ylabel("AUROC (%)")
        axes.set_title(f"{row.setting}: {row.label}", fontsize=10, parse_math=False)
        tidy(axes)
        legend(axes)
    return figure


def case_figure(outcome: Outcome, rows: list[Row], data_root: Path | None = None) -> "Figure":
    """The test images that each method finds least (low) and most (top) like the known classes.

    Below an image stand its score and its place in the order of this method | of the next one.
    """
    strips = []
    for setting in dict.fromkeys(row.setting for row in rows):
        of_setting = [row for row in rows if row.setting == setting]
        runs = [read_run(outcome.folders_of(row)[0]) for row in of_setting]
        order = [places(run) for run in runs]
        for index, (row, run) in enumerate(zip(of_setting, runs, strict=True)):
            sequence = np.argsort(order[index], kind="stable")
            other = order[(index + 1) % len(order)]
            for end, positions in (("low", sequence[:CASES]), ("top", sequence[: -CASES - 1 : -1])):
                captions = [
                    f"{run.test['score'][p]:.3g}\n{order[index][p]} | {other[p]}" for p in positions
                ]
                tiles = _tiles(run, positions.tolist(), captions, data_root)
                strips.append(Strip(f"{shortened(row.label, 9)}: {end}", tiles))
    return sheet_figure(strips)


def _tiles(
    run: Run, positions: list[int], captions: list[str], data_root: Path | None
) -> list[Tile]:
    setting, dataset = run_images(run, data_root)
    part = dataset.train if run.split.test_part == "train" else dataset.test
    augment = HostAugment(setting.augmentation, setting.image_size)
    predicted = run.test["logits"].argmax(1)
    tiles = []
    for position, caption in zip(positions, captions, strict=True):
        image = part.images[int(run.split.test[position])]
        # Nothing is random about the plain view, which is what the model judged.
        pixels = augment.apply(image, View.PLAIN, np.random.default_rng(0))
        verdict = truth_of(int(predicted[position]), int(run.test_targets[position]))
        tiles.append(Tile(pixels, caption, verdict))
    return tiles
