"""Several methods on the same splits and seeds: means and paired differences."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anedl.errors import AnedlError
from anedl.evaluation.summary import (
    format_difference,
    format_percent,
    mean_std,
    paired_difference,
)
from anedl.report.canvas import FAINT, FIRST, INK, PAGE_WIDTH, PALE, new_figure, shortened, tidy
from anedl.report.pictures import Picture, picture
from anedl.report.run_folder import Run, read_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MEASURES = ("test error", "AUROC, own score", "AUROC, max softmax")


@dataclass(frozen=True)
class MethodRuns:
    """The runs of one method, one a seed in ascending order."""

    name: str
    runs: Sequence[Run]

    @property
    def seeds(self) -> list[int]:
        """The seed of each run."""
        return [run.config["seed"] for run in self.runs]

    def values(self, measure: str) -> list[float]:
        """One of `MEASURES` for each run's last model, as fractions."""
        if measure == "test error":
            return [run.results["last"]["test"]["error"] for run in self.runs]
        key = "score" if measure == "AUROC, own score" else "max_softmax"
        return [auroc_of(run, key) for run in self.runs]


def auroc_of(run: Run, key: str) -> float:
    """The last model's AUROC by the score called `key` in `results.json`."""
    by_score = run.results["last"]["test"]["by_score"]
    if key not in by_score:
        raise AnedlError(f"{run.folder}: there is no AUROC by {key}: its test holds no outliers")
    return float(by_score[key]["auroc"])


def comparison_section(methods: Sequence[MethodRuns]) -> dict[str, Any]:
    """Everything the template says of the comparison itself."""
    first = methods[0]
    return {
        "measures": MEASURES,
        "seeds": first.seeds,
        "means": mean_table(methods),
        "reference": first.name,
        "differences": difference_table(methods),
        "picture": seeds_picture(methods),
        "shown": f"{first.name}, seed {first.seeds[0]}",
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
            if one.results["split_hash"] != two.results["split_hash"]:
                raise AnedlError(
                    f"{one.folder} and {two.folder} share a seed but not a split; "
                    f"their figures cannot be paired"
                )
    return methods


def mean_table(methods: Sequence[MethodRuns]) -> list[tuple[str, list[str]]]:
    """For each method its mean ± standard deviation of each measure, in per cent."""
    return [
        (method.name, [format_percent(method.values(measure)) for measure in MEASURES])
        for method in methods
    ]


def difference_table(methods: Sequence[MethodRuns]) -> list[tuple[str, list[str]]]:
    """The first method minus each other, seed by seed, in points with a 95 % interval."""
    first, others = methods[0], methods[1:]
    return [
        (
            other.name,
            [
                format_difference(paired_difference(first.values(name), other.values(name)))
                for name in MEASURES
            ],
        )
        for other in others
    ]


def seeds_picture(methods: Sequence[MethodRuns]) -> Picture:
    """The dot plot with its words."""
    spoken = "; ".join(
        f"{name}: error {values[0]} %, AUROC {values[1]} %" for name, values in mean_table(methods)
    )
    return picture(
        "seeds",
        "Seed by seed",
        "Each dot is a run; a line joins the runs of one seed, which share their split; the bar "
        "is the mean.",
        f"Dot plots of test error and AUROC for each method and seed. {spoken}.",
        seeds_figure(methods),
    )


def seeds_figure(methods: Sequence[MethodRuns]) -> "Figure":
    """One panel a measure: methods side by side, a dot a run, a line through a seed's runs."""
    figure = new_figure(PAGE_WIDTH, 3.6)
    panels = figure.subplots(1, len(MEASURES))
    places = range(len(methods))
    for axes, measure in zip(panels, MEASURES, strict=True):
        columns = [[100 * value for value in method.values(measure)] for method in methods]
        for of_seed in zip(*columns, strict=True):
            axes.plot(places, of_seed, color=PALE, linewidth=1.2, marker="o", markersize=6,
                      markerfacecolor=FIRST, markeredgecolor="white")  # fmt: skip
        means = [mean_std(column).mean for column in columns]
        axes.hlines(means, [p - 0.22 for p in places], [p + 0.22 for p in places], color=INK,
                    linewidth=2)  # fmt: skip
        names = [shortened(method.name, 18) for method in methods]
        crowded = len(names) > 2
        axes.set_xticks(places, names, parse_math=False, rotation=35 if crowded else 0,
                        ha="right" if crowded else "center")  # fmt: skip
        axes.set_xlim(-0.5, len(methods) - 0.5)
        axes.set_title(f"{measure} (%)", fontsize=10)
        axes.tick_params(colors=FAINT)
        tidy(axes)
        axes.grid(False, axis="x")
    return figure
