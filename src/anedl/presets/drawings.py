"""The figure of an experiment: bars, AUROC over M, or the images at both ends of an order."""

import hashlib
import json
import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from anedl.data.augment.host import HostAugment
from anedl.engine.differences import portable_name
from anedl.errors import AnedlError
from anedl.files import replacing
from anedl.ledger.table import WITHOUT_EFFECT
from anedl.presets.cells import ANEDL
from anedl.presets.experiment import Row
from anedl.presets.reproduce import Outcome
from anedl.presets.tables import (
    CASES,
    NAMES,
    auroc_over_m,
    chosen_m,
    figure_of,
    places,
    published_figure,
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
LONGEST_OPTIONS = 60  # characters of given options in a file's name
RUNS_NOTE = "anedl-runs"  # the name of a PNG's note on how many runs it shows
ROWS_NOTE = "anedl-rows"  # and of the one on which rows these are of


@dataclass(frozen=True)
class Drawn:
    """A figure that was written, and the one of more runs or other rows that was kept, if one was.

    `kept_runs` is None where the kept one does not say of how many runs it is.
    """

    path: Path
    runs: int
    kept: Path | None = None
    kept_runs: int | None = None

    def __str__(self) -> str:
        said = f"{self.path} (of {_runs(self.runs)})"
        if self.kept is None:
            return said
        holds = "whose number of runs is unknown" if self.kept_runs is None else (
            f"of {_runs(self.kept_runs)}"
        )  # fmt: skip
        return f"{said}; {self.kept}, {holds}, is kept (delete it to have it replaced)"


def save_figure(outcome: Outcome, data_root: Path | None = None) -> Drawn:
    """Draw what the experiment came to into `results/figures/`.

    A figure of more runs, or of a row that the new one lacks, is not replaced: the new one then has
    its runs and seeds, or a mark of its rows, in its name.

    Raises:
        AnedlError: no run is done, the packages to draw with are missing, or the images are.
    """
    experiment, terms = outcome.experiment, outcome.terms
    rows = [row for row in experiment.rows if outcome.has(row)]
    if not rows:
        raise AnedlError(f"{experiment.name}: no run is done, so there is nothing to draw")
    if experiment.drawing == "over-m":
        figure = over_m_figure(outcome, rows)
    elif experiment.drawing == "case-study":
        figure = case_figure(outcome, rows, data_root)
    else:
        figure = outcome_figure(outcome, rows)
    shown = frozenset(_row_mark(row) for row in rows)
    runs = len({digest for row in rows for digest in outcome.shown(row)})
    path = terms.results / "figures" / f"{figure_name(outcome, rows)}.png"
    drawn = Drawn(path, runs)
    if path.exists():
        before = runs_in(path)
        if before is None or before > runs:
            seeds = "-".join(map(str, terms.seeds))
            beside = path.with_name(f"{path.stem}-{runs}-runs-seeds-{seeds}.png")
            drawn = Drawn(beside, runs, path, before)
        elif not rows_in(path) <= shown:
            rows_mark = hashlib.sha256(" ".join(sorted(shown)).encode()).hexdigest()[:6]
            drawn = Drawn(path.with_name(f"{path.stem}-rows-{rows_mark}.png"), runs, path, before)
    notes = {RUNS_NOTE: str(runs), ROWS_NOTE: " ".join(sorted(shown))}
    with replacing(drawn.path) as temporary:
        temporary.write_bytes(_noted(to_png(figure), notes))
    return drawn


def figure_name(outcome: Outcome, rows: list[Row]) -> str:
    """What an experiment's figure is called: by its settings, its length and the options given."""
    experiment, terms = outcome.experiment, outcome.terms
    settings = [setting.replace("/", "-") for setting in dict.fromkeys(r.setting for r in rows)]
    where = settings if len(settings) == 1 else [f"{len(settings)}-settings"]
    of = experiment.name.replace("/", "-")  # a column is called as its setting
    kinds = ["fast" if terms.budget == "fast" else "", "dev" if terms.development else ""]
    given = {
        name: value
        for name, value in {**terms.train, **experiment.given}.items()
        if name not in WITHOUT_EFFECT
    }
    words = "-".join(f"{name}-{value}" for name, value in given.items())
    words = re.sub(r"[^A-Za-z0-9.]+", "-", words).strip("-")
    if len(words) > LONGEST_OPTIONS:
        words = hashlib.sha256(words.encode()).hexdigest()[:8]
    return "-".join([*dict.fromkeys([of, *where]), *filter(None, [*kinds, words])])


def _row_mark(row: Row) -> str:
    """A few letters that stand for a row: the setting, the method, its options and the score."""
    options = json.dumps(dict(row.options), sort_keys=True, default=str)
    text = " ".join((row.setting, portable_name(row.method), options, row.score))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def rows_in(path: Path) -> frozenset[str]:
    """The marks of a figure's rows; none where it does not say."""
    try:
        with Image.open(path) as image:
            return frozenset(str(image.info[ROWS_NOTE]).split())
    except (OSError, KeyError):
        return frozenset()


def runs_in(path: Path) -> int | None:
    """Of how many runs a figure is; None where it does not say."""
    try:
        with Image.open(path) as image:
            return int(image.info[RUNS_NOTE])
    except (OSError, KeyError, ValueError, TypeError):
        return None


def _noted(png: bytes, notes: Mapping[str, str]) -> bytes:
    """The same PNG with lines of text about its runs, right after its header."""
    header = 33  # bytes: the signature and the first chunk, which is always as long
    noted = b""
    for name, text in notes.items():
        chunk = b"tEXt" + name.encode() + b"\0" + text.encode()
        noted += struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return png[:header] + noted + png[header:]


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


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
            published_figure(outcome.published_of(row), measure),
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
