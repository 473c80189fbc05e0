"""The tables of an experiment as Markdown: means over the seeds, published numbers beside them."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import torch

from anedl import scores
from anedl.data.settings import get_setting
from anedl.engine.task import task_of
from anedl.errors import AnedlError
from anedl.evaluation.metrics import OUTLIER, auroc
from anedl.evaluation.summary import MeanStd, mean_std
from anedl.ledger.entry import LedgerRun
from anedl.ledger.published import NAMES, comparable_figure
from anedl.ledger.rows import format_figure
from anedl.ledger.table import Which
from anedl.presets.experiment import Measure, Row
from anedl.presets.reproduce import Outcome, spec_of
from anedl.report.run_folder import Run, read_run

MOST_ROWS_OVER_M = 12
CASES = 10  # images at either end of a method's order


def markdown(outcome: Outcome) -> str:
    """Everything the experiment says, ready to be printed or committed."""
    experiment = outcome.experiment
    parts = [f"## {experiment.title}", terms_line(outcome)]
    for setting in experiment.settings:
        rows = [row for row in experiment.rows if row.setting == setting]
        done = [row for row in rows if outcome.has(row)]
        parts.append(f"### {setting}")
        if not done:
            parts.append("No run is done yet.")
        elif experiment.drawing == "over-m":
            parts += [_over_m(outcome, row) for row in done]
        elif experiment.drawing == "case-study":
            parts.append(_case_study(outcome, done))
        else:
            parts.append(_rows(outcome, rows))
    return "\n\n".join(parts) + "\n"


def terms_line(outcome: Outcome) -> str:
    """What a reader must know before comparing."""
    terms = outcome.terms
    several = len(terms.seeds) > 1
    seeds = ", ".join(map(str, terms.seeds))
    over = f"mean ± deviation over the seeds {seeds}" if several else f"of the one seed {seeds}"
    budgets = sorted({run.budget for run in outcome.done.values()}) or [terms.budget]
    line = f"Per cent, {over}; budget {' and '.join(budgets)}."
    if given := {**terms.train, **outcome.experiment.given}:
        line += f" With {', '.join(f'{name} = {value}' for name, value in given.items())}."
    if terms.development:
        return f"{line} Development splits: not to be set beside published numbers."
    if budgets == ["fast"]:
        line += " Shorter than published code trains: a difference is of length, too."
    return line


def figure_of(row: Row, runs: Sequence[LedgerRun], measure: Measure, which: Which) -> list[float]:
    """One number a run, in per cent; runs without one are left out."""
    models = [run.last if which == "last" else run.best_val for run in runs]
    values = [
        model.error if measure == "error" else model.auroc.get(row.score)
        for model in models
        if model is not None
    ]
    return [value for value in values if value is not None]


def auroc_over_m(folders: Sequence[Path]) -> list[list[float]]:
    """For each run its AUROC by the M largest concentrations, M = 1 … K, in per cent."""
    curves = []
    for folder in folders:
        run = read_run(folder)
        if "alpha" not in run.test:
            raise AnedlError(
                f"{folder}: {run.method} has no evidence to sum; M is of evidential "
                f"methods (anedl, edl, iedl)"
            )
        alpha = torch.from_numpy(run.test["alpha"])
        curves.append(
            [
                100 * auroc(scores.top_m_evidence(alpha, m).double().numpy(), run.test_targets)
                for m in range(1, alpha.shape[1] + 1)
            ]
        )
    return curves


def places(run: Run) -> "np.ndarray[tuple[int], np.dtype[np.int64]]":
    """The place of each test image in the order of a method's scores; 1 is least like an inlier."""
    order = np.argsort(run.test["score"], kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(1, len(order) + 1)
    return place


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _rows(outcome: Outcome, rows: Sequence[Row]) -> str:
    """A line a row; columns for published numbers only where there is one in this setting."""
    header, columns = ["", "runs"], [[row.label for row in rows]]
    columns.append([str(len(outcome.runs_of(row))) for row in rows])
    for measure in outcome.experiment.measures:
        name = NAMES[measure]
        last = [_mean(figure_of(r, outcome.runs_of(r), measure, "last")) for r in rows]
        best = [_mean(figure_of(r, outcome.runs_of(r), measure, "best_val")) for r in rows]
        header += [f"{name}, last", f"{name}, best validation"]
        columns += [[*map(format_figure, last)], [*map(format_figure, best)]]
        published = [comparable_figure(outcome.published_of(row), measure) for row in rows]
        if any(published):
            header += [f"{name}, published", "difference"]
            columns.append([*map(format_figure, published)])
            columns.append(
                [
                    f"{ours.mean - theirs.mean:+.1f}" if ours and theirs else "–"
                    for ours, theirs in zip(last, published, strict=True)
                ]
            )
    return table(header, zip(*columns, strict=True))


def _over_m(outcome: Outcome, row: Row) -> str:
    curves = auroc_over_m(outcome.folders_of(row))
    classes = len(curves[0])
    chosen = chosen_m(outcome, row)
    step = max(1, -(-classes // (MOST_ROWS_OVER_M - 2)))
    shown = sorted({1, chosen, classes, *range(step, classes + 1, step)})
    lines = [
        [f"{m} (the setting's)" if m == chosen else f"{m} (all)" if m == classes else str(m),
         format_figure(_mean([curve[m - 1] for curve in curves]))]
        for m in shown
    ]  # fmt: skip
    return table([f"M, {row.label}", "AUROC"], lines) + "\n\nPublished as a picture only."


def chosen_m(outcome: Outcome, row: Row) -> int:
    """The M that the runs of a row use at inference."""
    options = spec_of(row, outcome.terms.seeds[0], outcome.terms).options
    top_m = getattr(options, "top_m", None)  # EDL has none of its own
    if top_m is None:
        return task_of(get_setting(row.setting), outcome.terms.development).top_m
    return int(top_m)


def _case_study(outcome: Outcome, rows: Sequence[Row]) -> str:
    """How pure both ends of each method's order are, and the images there."""
    runs = [read_run(outcome.folders_of(row)[0]) for row in rows]
    order = [places(run) for run in runs]
    sizes = (CASES, 10 * CASES)
    purity, cases = [], []
    for row, run, place in zip(rows, runs, order, strict=True):
        outlier = run.test_targets == OUTLIER
        sequence = np.argsort(place, kind="stable")
        value = 100 * auroc(run.test["score"].astype(np.float64), run.test_targets)
        lowest = [str(int(outlier[sequence[:size]].sum())) for size in sizes]
        highest = [str(int((~outlier[sequence[-size:]]).sum())) for size in sizes]
        purity.append([row.label, f"{value:.1f}", *lowest, *highest])
        for position in (*sequence[:CASES], *sequence[: -CASES - 1 : -1]):
            target = run.test_targets[position]
            truth = "outlier" if target == OUTLIER else run.class_names[target]
            score = f"{run.test['score'][position]:.3g}"
            by_each = [str(of_method[position]) for of_method in order]
            cases.append([row.label, str(run.split.test[position]), truth, score, *by_each])
    header = ["", "AUROC"]
    header += [f"outliers in the {size} lowest" for size in sizes]
    header += [f"inliers in the {size} highest" for size in sizes]
    columns = ["shown for", "test image", "truth", "score"]
    columns += [f"place by {row.label}" for row in rows]
    said = (
        f"Seed {runs[0].config['seed']}. Score, and place in the order of all test images by it, "
        f"1 being least like an inlier."
    )
    return "\n\n".join([said, table(header, purity), table(columns, cases)])


def _mean(values: Sequence[float]) -> MeanStd | None:
    return mean_std(values) if values else None
