"""Which figures a run gets, and the words that go with each."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from anedl.evaluation.metrics import auroc, expected_calibration_error, oscr, reliability
from anedl.report import figures, training_figures
from anedl.report.confusion import confusion_counts, confusion_figure
from anedl.report.drawing import to_svg
from anedl.report.judged import Judged, Pile, cut_words, read_judged, read_pile
from anedl.report.markup import Html
from anedl.report.run_folder import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Picture:
    """A figure for the page, whose drawing also says what it shows to those who cannot see it."""

    name: str
    title: str
    caption: str
    drawing: Html
    figure: "Figure"  # the same before it was made part of the page


def picture(name: str, title: str, caption: str, alt: str, figure: "Figure") -> Picture:
    """Draw a figure for the page."""
    return Picture(name, title, caption, Html(to_svg(figure, name, alt)), figure)


def run_pictures(run: Run) -> list[Picture]:
    """Every figure that there is of a run."""
    pile, judged = read_pile(run), read_judged(run)
    return [
        spread_picture(run, pile, judged),
        *(detection_pictures(run, judged) if run.has_outliers else []),
        confusion_picture(run, judged, pile),
        reliability_picture(judged),
        *training_pictures(run),
    ]


def detection_pictures(run: Run, judged: Judged) -> list[Picture]:
    """ROC, OSCR and, where there is evidence, AUROC over M; the test must hold outliers."""
    scores, targets, thresholds = run.test_scores(), run.test_targets, run.thresholds()
    areas = {name: auroc(values, targets) for name, values in scores.items()}
    rates = {name: oscr(judged.probabilities, targets, v) for name, v in scores.items()}
    pictures = [
        picture(
            "roc",
            "Finding outliers (ROC)",
            "For every threshold, how many outliers it rejects against how many inliers it "
            "rejects by mistake. The dot is the threshold that accepts 95 % of the validation "
            "images, set without a single outlier.",
            f"ROC curves of outlier detection on the test images; AUROC by {_spoken(areas)}.",
            figures.roc_figure(scores, targets, thresholds),
        ),
        picture(
            "oscr",
            "Finding outliers and naming the rest (OSCR)",
            "For every threshold, how many inliers are accepted and given their right class "
            "against how many outliers slip through.",
            f"Open-set classification rate curves; areas by {_spoken(rates)}.",
            figures.oscr_figure(judged.probabilities, targets, scores, thresholds),
        ),
    ]
    if "alpha" in run.test:
        pictures.append(
            picture(
                "top-m",
                "How much evidence to sum (M)",
                "AUROC when the score sums the M largest concentrations of the Dirichlet "
                "distribution (Eq. 9), from the largest alone (M = 1) to all of them.",
                f"AUROC over M from 1 to {run.split.num_known}"
                + (f"; this run uses M = {run.top_m}." if run.top_m else "."),
                figures.top_m_figure(run.test["alpha"], targets, run.top_m, areas["max softmax"]),
            )
        )
    return pictures


def spread_picture(run: Run, pile: Pile, judged: Judged) -> Picture:
    """Histograms: inliers against outliers of the test, or the pile against held-out inliers."""
    if run.has_outliers:
        scores, thresholds = run.test_scores(), run.thresholds()
        return picture(
            "spread",
            "How the scores separate",
            "Test images by score, higher meaning more inlier: what lies left of the dashed "
            "threshold is answered with “unknown”.",
            "Histograms of inliers and outliers over "
            + " and ".join(f"{name} with threshold {thresholds[name]:.3g}" for name in scores)
            + ".",
            figures.histogram_figure(scores, run.test_targets, thresholds),
        )
    held_out, source = _held_out_scores(run)
    label = run.own_score_label
    # By folds neither line would say what became of the pile.
    for_new = None if run.folds or run.calibration is None else judged.cut
    return picture(
        "spread",
        "How the scores separate",
        f"The pile against {source}, each in per cent of itself. Where the pile has more than its "
        f"share, on the left, lie its strangers; {_called_unknown(run, pile)}"
        f"{_by_another_line(pile.cut, for_new)}.",
        f"Histograms of {label} over {len(held_out):,} {source} and {len(pile):,} images of the "
        "pile.",
        figures.spread_figure(
            {label: {source: held_out, "images of the pile": pile.score}},
            {label: pile.cut},
            "share of images",
            against_all=True,
            for_new=for_new,
        ),
    )


def _called_unknown(run: Run, pile: Pile) -> str:
    """Which images of a user's own pile are unknown, as far as the score shows it."""
    if run.folds:
        return (
            f"no threshold is drawn, for images are not called unknown by this score: "
            f"{run.folds} further models judged the pile in turn"
        )
    if not np.isfinite(pile.cut):
        return "there is no threshold, so none of them is called unknown for its score"
    return "what is left of the dashed threshold is called unknown"


def _by_another_line(cut: float, for_new: float | None) -> str:
    """Of the line for new images, where it is drawn."""
    if not figures.differs(cut, for_new):
        return ""
    return f"; the dotted line is {for_new:.4g}, the threshold for new images"


def _held_out_scores(run: Run) -> tuple[np.ndarray, str]:
    if run.calibration is None:
        return run.test["score"], "held-out inliers"
    hidden = len(run.calibration.seen) > 0
    source = "known inliers hidden in it" if hidden else "held-out inliers"
    return run.calibration.scores("pile"), source


def reliability_picture(judged: Judged) -> Picture:
    """How often the model is right by how sure it is; inliers only."""
    bins = reliability(judged.probabilities, judged.targets)
    error = expected_calibration_error(judged.probabilities, judged.targets)
    images = int(judged.inlier.sum())
    return picture(
        "reliability",
        "Is it as sure as it is right?",
        f"The {images:,} {judged.what} of known classes by the probability of the predicted class. "
        f"Bars below the dotted line: surer than right. The mean gap (expected calibration error, "
        f"15 bins) is {100 * error:.1f} %.",
        f"Reliability diagram; expected calibration error {100 * error:.1f} %.",
        figures.reliability_figure(bins),
    )


def confusion_caption(run: Run, judged: Judged, pile: Pile) -> str:
    """How a confusion matrix is read, and which images it has answered with "unknown"."""
    if not np.isfinite(judged.cut):
        return (
            f"Truth in rows, the model's answer in columns. None of the {judged.what} is answered "
            f"with “unknown”, for there is no threshold for new images: too few calibrate it."
        )
    asked = run.calibration is not None and np.isfinite(
        run.calibration.threshold("new").familiarity
    )
    unasked = (
        " (familiarity, by which new images are judged too, is not asked here)" if asked else ""
    )
    themselves = " Some of these images themselves have set that threshold." if run.is_own else ""
    wrong = judged.inlier & (judged.predicted != judged.targets)
    away = int((wrong & ~judged.accepted).sum())
    among = (
        f" Of the {int(wrong.sum()):,} that the error counts, whose likeliest class is wrong, "
        f"{away:,} {'stands' if away == 1 else 'stand'} under “unknown”."
        if away
        else ""
    )
    return (
        f"Truth in rows, the model's answer in columns, {judged.what} with a score below "
        f"{cut_words(run, judged, pile)}, answered with “unknown”{unasked}.{themselves}{among}"
    )


def confusion_picture(run: Run, judged: Judged, pile: Pile) -> Picture:
    """The confusion matrix of many classes as a picture."""
    counts = confusion_counts(
        judged.predicted, judged.targets, judged.accepted, run.split.num_known
    )
    right = 100 * np.trace(counts) / counts.sum()
    return picture(
        "confusion",
        "What is taken for what",
        f"{confusion_caption(run, judged, pile)} Shades are shares of a row.",
        f"Confusion matrix of {run.split.num_known} known classes and unknown; "
        f"{right:.1f} % of the {judged.what} lie on its diagonal.",
        confusion_figure(counts, run.class_names),
    )


def training_pictures(run: Run) -> list[Picture]:
    """Training curves, and the selection where the method selects."""
    if not any("loss" in row for row in run.rows):
        return []
    start = run.self_training_from
    config = run.config["train"]
    best = run.results.get("best_val", {}).get("epoch")
    stages = (
        f"; self-training, where pool images join, begins after {_counted(start, 'epoch')} (shaded)"
        if start is not None
        else ""
    )
    if run.restarts:
        *before, last = map(str, run.restarts)
        anew = f"{', '.join(before)} and {last}" if before else last
        stages += (
            f"; after {anew} {'epoch' if anew == '1' else 'epochs'} a fresh network takes over, "
            f"which begins like the first and judges together with those before it"
        )
    tested = any("test" in row for row in run.rows)
    pictures = [
        picture(
            "curves",
            "Training",
            f"{'Loss, error and AUROC' if tested else 'Loss and error'} over epochs of "
            f"{_counted(config['epoch_steps'], 'step')}{stages}."
            + (" Test figures are recorded for this page; only validation chooses." * tested),
            f"Training curves over {_counted(config['epochs'], 'epoch')}{stages}.",
            training_figures.curves_figure(
                run.rows, config["epoch_steps"], run.own_score_label, start, best, run.restarts
            ),
        )
    ]
    # Of a user's own pile nobody knows how pure a selection is.
    selections = [row["selection"] for row in run.rows if "purity" in row.get("selection", {})]
    if selections and not run.is_own:
        last = selections[-1]
        pictures.append(
            picture(
                "selection",
                "Selected for self-training",
                "Pool images that joined self-training at the start of each epoch: purity is the "
                "share of true inliers among them, precision the share whose true class is the one "
                "the model takes them for. All come from true labels that training never sees."
                + _named_rightly(run)
                + _left_behind(run, last),
                f"Selected images over epochs; the last selection has {last['count']:,.0f} images, "
                f"purity {100 * last['purity']:.1f} %, recall {100 * last['recall']:.1f} %.",
                training_figures.selection_figure(run.rows),
            )
        )
    return pictures


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"


def _left_behind(run: Run, last: dict[str, Any]) -> str:
    """How many classes the last selection has hardly an image of."""
    starved = int(last.get("starved", 0))
    if not starved:
        return ""
    of_all = f"{starved} of the {len(run.class_names)} classes"
    return (
        f" Less than a tenth of an even share of the last selection is taken for {of_all}: "
        "self-training leaves these behind."
    )


def _named_rightly(run: Run) -> str:
    """How many of the last selection have the class that the last model says."""
    if "selected" not in run.pool or run.pool_truth is None or not len(run.pool["selected"]):
        return ""
    chosen = run.pool["selected"]
    right = (run.pool["predicted"][chosen] == run.pool_truth[chosen]).mean()
    return f" Of the last selection, {100 * right:.1f} % bear their true class as pseudo-label."


def _spoken(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {100 * value:.1f} %" for name, value in values.items())
