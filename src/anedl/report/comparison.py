"""Several methods or recipes, each run with several seeds: means and paired differences."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anedl.errors import AnedlError
from anedl.evaluation.summary import (
    format_difference,
    format_percent,
    mean_std,
    paired_difference,
)
from anedl.report.canvas import FAINT, FIRST, INK, PAGE_WIDTH, PALE, new_figure, tidy, two_lines
from anedl.report.judged import read_judged
from anedl.report.pictures import Picture, picture
from anedl.report.run_folder import Run, read_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def _error(run: Run) -> float:
    if not run.is_own:
        return float(run.results["last"]["test"]["error"])
    judged = read_judged(run)  # as the run's own report: every held-out image counts
    return float((judged.predicted != judged.targets)[judged.inlier].mean())


def _auroc(score: str) -> Callable[[Run], float | None]:
    def read(run: Run) -> float | None:
        by_score = run.results["last"]["test"]["by_score"]
        return float(by_score[score]["auroc"]) if score in by_score else None

    return read


MEASURES: Mapping[str, Callable[[Run], float | None]] = {
    "test error": _error,
    "AUROC, own score": _auroc("score"),
    "AUROC, max softmax": _auroc("max_softmax"),
}
"""What is compared, of a run's last model and as fractions; None where the run has none."""
ALL = tuple(MEASURES)


@dataclass(frozen=True)
class MethodRuns:
    """The runs of one method or recipe, one a seed in ascending order."""

    name: str
    runs: Sequence[Run]

    @property
    def seeds(self) -> list[int]:
        """The seed of each run."""
        return [run.config["seed"] for run in self.runs]

    def values(self, measure: str) -> list[float] | None:
        """One of `MEASURES` for each run; None where some run has none."""
        found = [MEASURES[measure](run) for run in self.runs]
        values = [value for value in found if value is not None]
        return values if values and len(values) == len(found) else None


def comparison_section(methods: Sequence[MethodRuns]) -> dict[str, Any]:
    """Everything the template says of the comparison itself."""
    measures = measures_of(methods)
    return {
        "measures": measures,
        "means": mean_table(methods, measures),
        "reference": methods[0].name,
        "differences": difference_table(methods, measures),
        "picture": seeds_picture(methods, measures),
    }


def read_methods(runs: Mapping[str, Sequence[Path]]) -> list[MethodRuns]:
    """Read all runs and make sure that they can be paired."""
    if not runs or not all(runs.values()):
        raise AnedlError("a comparison needs at least one run of each method")
    methods = [
        MethodRuns(name, sorted(map(read_run, folders), key=lambda run: run.config["seed"]))
        for name, folders in runs.items()
    ]
    first = methods[0]
    if len(set(first.seeds)) < len(first.seeds):
        raise AnedlError(f"{first.name}: a seed occurs twice ({first.seeds}); give each run once")
    for other in methods[1:]:
        if other.seeds != first.seeds:
            raise AnedlError(
                f"{other.name} was run with the seeds {other.seeds}, {first.name} with "
                f"{first.seeds}; give the same seeds for all"
            )
        for one, two in zip(first.runs, other.runs, strict=True):
            if not one.shares_split(two):
                raise AnedlError(
                    f"{one.folder} and {two.folder} share a seed but not a split; "
                    f"their figures cannot be paired"
                )
    return methods


def measures_of(methods: Sequence[MethodRuns]) -> list[str]:
    """The measures that at least one of the methods has of all its runs."""
    return [name for name in MEASURES if any(method.values(name) for method in methods)]


def pairs(first: MethodRuns, second: MethodRuns) -> list[tuple[Run, Run]]:
    """Runs of the same seed on the same split, one of each."""
    return [
        (one, two)
        for one in first.runs
        for two in second.runs
        if one.replicate == two.replicate and one.shares_split(two)
    ]


def mean_table(
    methods: Sequence[MethodRuns], measures: Sequence[str] = ALL
) -> list[tuple[str, list[str]]]:
    """For each method its seeds, then mean ± standard deviation of each measure in per cent."""
    return [
        (
            method.name,
            [
                listed(method.seeds),
                *(
                    "–" if (values := method.values(name)) is None else format_percent(values)
                    for name in measures
                ),
            ],
        )
        for method in methods
    ]


def difference_table(
    methods: Sequence[MethodRuns], measures: Sequence[str] = ALL
) -> list[tuple[str, list[str]]]:
    """The first method minus each other that has pairs with it, with a 95 % interval.

    After the seeds that were paired, a cell a measure: run by run and in points.
    """
    table = []
    for other in methods[1:]:
        paired = pairs(methods[0], other)
        if not paired:
            continue
        ours, theirs = (MethodRuns("", runs) for runs in zip(*paired, strict=True))
        cells = [listed(ours.seeds)]
        for name in measures:
            left, right = ours.values(name), theirs.values(name)
            comparable = left is not None and right is not None
            cells.append(
                format_difference(paired_difference(left or [], right or [])) if comparable else "–"
            )
        table.append((other.name, cells))
    return table


def listed(seeds: Sequence[int]) -> str:
    """Seeds in words: 0–4, or 0, 2, 5."""
    ordered = sorted(seeds)
    if len(ordered) > 2 and ordered == list(range(ordered[0], ordered[-1] + 1)):
        return f"{ordered[0]}–{ordered[-1]}"
    return ", ".join(map(str, ordered))


def seeds_picture(methods: Sequence[MethodRuns], measures: Sequence[str] = ALL) -> Picture:
    """The dot plot with its words."""
    spoken = "; ".join(
        f"{name}: " + ", ".join(f"{m} {v}" for m, v in zip(measures, values, strict=True))
        for name, (_, *values) in mean_table(methods, measures)
    )
    return picture(
        "seeds",
        "Seed by seed",
        "Each dot is a run; a line joins runs of one seed on the same split; the bar is the mean.",
        f"Dot plots in per cent for each method and seed. {spoken}.",
        seeds_figure(methods, measures),
    )


def seeds_figure(methods: Sequence[MethodRuns], measures: Sequence[str] = ALL) -> "Figure":
    """One panel a measure, one row a method: a dot a run, lines between the runs of a seed."""
    figure = new_figure(PAGE_WIDTH, 0.9 + 0.52 * len(methods))
    panels = figure.subplots(1, len(measures), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, measures, strict=True):
        for row, (upper, lower) in enumerate(pairwise(methods)):
            for one, two in pairs(upper, lower):
                ends = [MEASURES[name](run) for run in (one, two)]
                if None not in ends:
                    axes.plot([100 * (end or 0) for end in ends], [row, row + 1], color=PALE,
                              linewidth=1.2)  # fmt: skip
        for row, method in enumerate(methods):
            if (values := method.values(name)) is None:
                continue
            axes.plot([100 * value for value in values], [row] * len(values), "o", color=FIRST,
                      markersize=6, markeredgecolor="white", linestyle="none")  # fmt: skip
            if len(values) > 1:
                mean = 100 * mean_std(values).mean
                axes.vlines(mean, row - 0.28, row + 0.28, color=INK, linewidth=2)
        axes.set_title(f"{name} (%)", fontsize=10)
        axes.tick_params(colors=FAINT)
        tidy(axes)
        axes.grid(False, axis="y")
    names = [two_lines(method.name, 24) for method in methods]
    panels[0].set_yticks(range(len(methods)), names, parse_math=False, color=INK, fontsize=9)
    panels[0].set_ylim(len(methods) - 0.5, -0.5)  # the first on top
    return figure
