"""Which pictures a run gets, and the words that go with each."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from anedl.data.augment.host import HostAugment
from anedl.data.dataset import Dataset, IntArray
from anedl.data.settings import Setting, get_setting
from anedl.data.sources import load_dataset
from anedl.engine.own import own_problem
from anedl.errors import AnedlError, DataError
from anedl.evaluation.metrics import auroc
from anedl.options import from_json
from anedl.report import contact_sheet, figures
from anedl.report.canvas import to_png, width_in_inches
from anedl.report.contact_sheet import Strip, Tile
from anedl.report.run_folder import Array, Run
from anedl.views import View

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOOSE_IMAGES = 3 * contact_sheet.COLUMNS  # on a sheet that is not sorted by class
PIXELS_PER_INCH = 108  # on the page: 10 points are then 15 pixels, as the text beside them


@dataclass(frozen=True)
class Picture:
    """A picture for the page: `alt` says what it shows to whom cannot see it."""

    title: str
    caption: str
    alt: str
    png: bytes
    width: int  # in pixels of the page


def run_pictures(run: Run, data_root: Path | None = None) -> tuple[list[Picture], list[str]]:
    """Every picture that the run's files allow, and a note for what had to be left out."""
    pictures: list[Picture] = []
    notes: list[str] = []
    if run.has_outliers:
        pictures += detection_pictures(run)
    else:
        notes.append("The test images hold no outliers, so there are no ROC curves.")
    pictures += [confusion_picture(run), *training_pictures(run)]
    try:
        pictures += pool_pictures(run, data_root)
    except AnedlError as error:
        notes.append(f"The pool images are not shown: {error}")
    return pictures, notes


def detection_pictures(run: Run) -> list[Picture]:
    """ROC, histograms of the scores, and AUROC over M where there is evidence."""
    scores, targets, thresholds = run.test_scores(), run.test_targets, run.thresholds()
    areas = {name: auroc(values, targets) for name, values in scores.items()}
    spoken = ", ".join(f"{name} {100 * area:.1f} %" for name, area in areas.items())
    pictures = [
        picture(
            "Finding outliers",
            "For every threshold, how many outliers it rejects against how many inliers it "
            "rejects by mistake; the dot is the threshold that accepts 95 % of the validation "
            "images, set without a single outlier.",
            f"ROC curves of outlier detection on the test images; AUROC by {spoken}.",
            figures.roc_figure(scores, targets, thresholds),
        ),
        picture(
            "How the scores separate",
            "Test images by score, higher meaning more inlier: what lies left of the dashed "
            "threshold is answered with “unknown”.",
            "Histograms of inliers and outliers over "
            + " and ".join(f"{name} with threshold {thresholds[name]:.3g}" for name in scores)
            + ".",
            figures.histogram_figure(scores, targets, thresholds),
        ),
    ]
    if "alpha" in run.test:
        pictures.append(
            picture(
                "How much evidence to sum",
                "AUROC when the score sums the M largest concentrations of the Dirichlet "
                "distribution (Eq. 9), from the largest alone (M = 1) to all of them.",
                f"AUROC over M from 1 to {run.split.num_known}"
                + (f"; this run uses M = {run.top_m}." if run.top_m else "."),
                figures.top_m_figure(run.test["alpha"], targets, run.top_m, areas["max softmax"]),
            )
        )
    return pictures


def confusion_picture(run: Run) -> Picture:
    """The confusion matrix of known classes and "unknown" at the 95 % threshold."""
    accepted = run.test["score"] >= run.results["last"]["thresholds"]["score"]
    predicted = run.test["logits"].argmax(axis=1)
    counts = figures.confusion_counts(predicted, run.test_targets, accepted, run.split.num_known)
    right = 100 * np.trace(counts) / counts.sum()
    numbers = (
        "numbers are test images, shades are shares of a row."
        if run.split.num_known <= figures.MOST_NUMBERED_CLASSES
        else "shades are shares of a row."
    )
    return picture(
        "What is taken for what",
        f"Truth in rows, the model's answer in columns, images below the threshold of "
        f"{run.own_score_label} answered with “unknown”; {numbers}",
        f"Confusion matrix of {run.split.num_known} known classes and unknown; "
        f"{right:.1f} % of the test images lie on its diagonal.",
        figures.confusion_figure(counts, run.class_names),
    )


def training_pictures(run: Run) -> list[Picture]:
    """Training curves, and the selection where the method selects."""
    if not any("loss" in row for row in run.rows):
        return []
    start = run.self_training_from
    config = run.config["train"]
    best = run.results.get("best_val", {}).get("epoch")
    stages = (
        f"; self-training, where pool images join, begins after {start} epochs (shaded)"
        if start is not None
        else ""
    )
    pictures = [
        picture(
            "Training",
            f"Loss, error and AUROC over epochs of {config['epoch_steps']} steps{stages}. "
            "Test figures are recorded for this page; only validation chooses.",
            f"Training curves over {config['epochs']} epochs{stages}.",
            figures.curves_figure(
                run.rows, config["epoch_steps"], run.own_score_label, start, best
            ),
        )
    ]
    # Of a user's own pile nobody knows how pure a selection is.
    selections = [row["selection"] for row in run.rows if "purity" in row.get("selection", {})]
    if selections:
        last = selections[-1]
        pictures.append(
            picture(
                "Selected for self-training",
                "Pool images that joined self-training at the start of each epoch; purity and "
                "recall come from true labels that training never sees.",
                f"Selected images over epochs; the last selection has {last['count']:,.0f} images, "
                f"purity {100 * last['purity']:.1f} %, recall {100 * last['recall']:.1f} %.",
                figures.selection_figure(run.rows),
            )
        )
    return pictures


def pool_pictures(run: Run, data_root: Path | None = None) -> list[Picture]:
    """The three contact sheets of the pool.

    Raises:
        AnedlError: the images are not here, or are not those the run saw.
    """
    pool = run.pool
    setting, dataset = run_images(run, data_root)
    augment = HostAugment(setting.augmentation, setting.image_size)
    check_images(run, dataset)
    score, predicted, truth = pool["score"], pool["predicted"], pool.get("truth")
    accepted = score >= run.results["last"]["thresholds"]["score"]
    names = run.class_names

    def tile(position: int, caption: str) -> Tile:
        true_class = None if truth is None else int(truth[position])
        verdict = contact_sheet.truth_of(int(predicted[position]), true_class)
        image = dataset.train.images[int(run.split.pool[position])]
        # Nothing is random about the plain view, which is what the model judged.
        pixels = augment.apply(image, View.PLAIN, np.random.default_rng(0))
        return Tile(pixels, caption, verdict)

    def loose(positions: IntArray, values: Array) -> list[Strip]:
        write = number_writer(values[positions])
        captions = [
            f"{figures.shortened(names[predicted[p]], 11)}\n{write(values[p])}" for p in positions
        ]
        tiles = [tile(p, caption) for p, caption in zip(positions, captions, strict=True)]
        return contact_sheet.in_rows(tiles)

    evidential = "evidence_predicted" in pool
    sureness = pool["evidence_predicted" if evidential else "probability"]
    write = number_writer(sureness)
    surest = contact_sheet.surest_of_each_class(
        sureness, predicted, len(names), contact_sheet.tiles_a_class(len(names))
    )
    by_class = [
        Strip(name, [tile(p, write(sureness[p])) for p in positions])
        for name, positions in zip(names, surest, strict=True)
    ]
    sure_word = "evidence of the predicted class" if evidential else "softmax probability"
    borders = "" if truth is None else " Borders tell the truth, which training never saw."
    sheets = [
        (
            "The surest of each class",
            f"Pool images with the highest {sure_word}, by predicted class.",
            by_class,
        ),
        (
            "The most outlier-like",
            f"Pool images with the lowest score, here {run.own_score_label}, each with the class "
            "that would have been predicted.",
            loose(contact_sheet.most_outlier_like(score, LOOSE_IMAGES), score),
        ),
        (
            "The most doubtful",
            "Pool images that pass as inliers but whose class is least sure (softmax probability "
            "of the predicted class): those a person should look at first.",
            loose(
                contact_sheet.most_doubtful(pool["probability"], accepted, LOOSE_IMAGES),
                pool["probability"],
            ),
        ),
    ]
    return [
        picture(
            title, caption + borders, sheet_alt(caption, strips), contact_sheet.sheet_figure(strips)
        )
        for title, caption, strips in sheets
        if any(strip.tiles for strip in strips)
    ]


def run_images(run: Run, data_root: Path | None = None) -> tuple[Setting, Dataset]:
    """The terms and images of a run: a benchmark's, or a user's own as the run keeps them."""
    if run.is_own:
        problem = own_problem(from_json(Setting, run.config["own"]), run.folder)
        return problem.setting, problem.dataset
    setting = get_setting(run.config["setting"])
    return setting, load_dataset(setting.dataset, data_root)


def check_images(run: Run, dataset: Dataset) -> None:
    """Raise `DataError` unless the data set is the one the run was trained on."""
    labels, pool = dataset.train.labels, run.split.pool
    fits = len(pool) == len(run.pool["score"]) and pool.max(initial=-1) < len(labels)
    if fits and "truth" in run.pool:
        fits = np.array_equal(run.split.targets(labels[pool]), run.pool["truth"])
    if not fits:
        raise DataError(
            f"the data set {dataset.name} found here is not the one the run was trained on"
        )


def sheet_alt(caption: str, strips: list[Strip]) -> str:
    """What a contact sheet shows, with how many of its images are outliers."""
    tiles = [tile for strip in strips for tile in strip.tiles]
    outliers = sum(tile.truth == "outlier" for tile in tiles)
    known = all(tile.truth != "not known" for tile in tiles)
    return f"Contact sheet of {len(tiles)} images" + (
        f", {outliers} of them outliers. {caption}" if known else f". {caption}"
    )


def number_writer(values: Array) -> Callable[[float], str]:
    """How to write these numbers below an image: about three digits, all to the same place."""
    largest = float(np.abs(values).max(initial=0))
    digits = 2 if largest < 10 else 1 if largest < 100 else 0
    return lambda value: f"{value:.{digits}f}"


def picture(title: str, caption: str, alt: str, figure: "Figure") -> Picture:
    """Draw a figure for the page."""
    png = to_png(figure)
    return Picture(title, caption, alt, png, round(width_in_inches(png) * PIXELS_PER_INCH))
