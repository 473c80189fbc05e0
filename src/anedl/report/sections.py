"""What the page says of one run, part by part; where data are missing, a line says so."""

from dataclasses import fields
from pathlib import Path
from typing import Any

from anedl.conformal import percent
from anedl.engine.config import TrainConfig
from anedl.engine.differences import portable_name
from anedl.errors import AnedlError
from anedl.evaluation.metrics import OpenSetMetrics
from anedl.evaluation.unseen import UnseenMetrics
from anedl.methods.catalogue import METHODS
from anedl.options import field_help
from anedl.report import again, pictures, top
from anedl.report.album import Album
from anedl.report.class_table import class_table
from anedl.report.confusion import MOST_TABULATED_CLASSES, confusion_counts, confusion_rows
from anedl.report.galleries import make_galleries
from anedl.report.images import RunImages, open_images
from anedl.report.judged import read_judged, read_pile
from anedl.report.plane import make_plane
from anedl.report.run_folder import SCORE_LABELS, Run
from anedl.report.slider import cut_table, make_slider, payload
from anedl.report.slider_picture import shown_groups, slider_picture


def run_section(run: Run, data_root: Path | None = None, compared: bool = False) -> dict[str, Any]:
    """Everything the template says of one run; `compared` where the page shows others too."""
    images, missing = _images(run, data_root)
    album = Album(images)
    pile, judged = read_pile(run), read_judged(run)
    galleries = make_galleries(run, pile, judged, album)
    plane = make_plane(pile, album)
    slider = make_slider(run, pile, judged)
    counts = confusion_counts(
        judged.predicted, judged.targets, judged.accepted, run.split.num_known
    )
    tabulated = run.split.num_known <= MOST_TABULATED_CLASSES
    training = pictures.training_pictures(run)
    notes = {
        "images": missing,
        "plane": "" if plane else "The method has no such uncertainties, so there is no plane.",
        "detection": ""
        if run.has_outliers
        else "There are no ROC and OSCR curves and no AUROC over M: for these some "
        f"{judged.what} must be known to be outliers.",
        "training": "" if training else "The run kept no figures of its training.",
        "selection": ""
        if not run.is_own
        else "How pure the selected images are cannot be shown: nobody knows their truth.",
    }
    return {
        "is_own": run.is_own,
        "lede": top.lede(run),
        "cards": top.cards(run, pile, judged),
        "shares": top.sorted_shares(pile),
        "decided": top.decided_words(run, pile),
        "strangers": top.strangers_words(run, pile),
        "left_out": top.left_out(run, compared),
        "warnings": warnings(run),
        "classes": run.class_names,
        "facts": facts(run),
        "slider": slider,
        "slider_groups": shown_groups(slider),
        "slider_picture": slider_picture(slider),
        "slider_data": payload(slider, pile, album),
        "own_loss": percent(slider.loss.bound(slider.cut)) if slider.loss else "",
        "cuts": cut_table(slider),
        "galleries": galleries,
        "truth_known": pile.truth is not None,
        "plane": plane,
        "pile": len(pile),
        "spread": pictures.spread_picture(run, pile, judged),
        "detection": pictures.detection_pictures(run, judged) if run.has_outliers else [],
        "confusion": confusion_rows(counts, run.class_names) if tabulated else None,
        "confusion_caption": pictures.confusion_caption(run, judged, pile),
        "confusion_picture": None if tabulated else pictures.confusion_picture(run, judged, pile),
        "reliability": pictures.reliability_picture(judged),
        "judged": judged,
        "by_class": class_table(run, pile, judged),
        "training": training,
        "notes": notes,
        "scores": score_table(run),
        "unseen": unseen_table(run),
        "config": config_table(run.config),
        "command": again.command(run),
        "reservations": again.reservations(run),
        "thumbnails": album.thumbnails(),
    }


def _images(run: Run, data_root: Path | None) -> tuple[RunImages | None, str]:
    """The run's images, or why they cannot be shown."""
    try:
        return open_images(run, data_root), ""
    except AnedlError as error:
        return None, f"The images themselves are not shown: {error}"


def warnings(run: Run) -> list[str]:
    """What a reader must know before believing a figure or comparing it with others."""
    config, found = run.config, _cautions(run)
    if config["development"]:
        found.append(
            "Development split: some known classes play unknown and no official test image is "
            "used. The figures are for choosing a recipe, not for a table of results."
        )
    if config["pool_limit"] is not None:
        found.append(
            f"The pool was limited to {config['pool_limit']:,} images, which is not the setting's "
            "protocol."
        )
    options = config["options"]
    follows_setting = (
        not run.is_own
        and "selection_share" in options
        and not (options["selection_share"] or options.get("selection_count"))
    )
    if follows_setting and any("selection" in row for row in run.rows):
        found.append(
            "How many pool images are selected follows from the pool's true share of inliers, "
            "which the setting states: oracle knowledge that a real pool does not come with."
        )
    return found


def _cautions(run: Run) -> list[str]:
    """What `anedl fit` warned of."""
    fit = run.fit or {}
    found = [
        _sentence(line.removeprefix("caution: "))
        for line in fit.get("summary", [])
        if line.startswith("caution: ")
    ]
    if fit.get("helped", {}).get("hurt"):
        found.append(_sentence(fit["helped"]["note"].removeprefix("WARNING, ")))
    confidence = fit.get("confidence")
    if confidence and not confidence["certified"]:
        found.append(
            f"{_sentence(confidence['sentence'])} This is about known classes mixed up alone: no "
            "validation image is a stranger, but some of the accepted may be."
        )
    # By folds neither the hidden nor the fresh inliers judge the pile.
    if run.calibration is not None and not run.folds:
        comparison = run.calibration.comparison
        if comparison is not None and comparison.differ:
            found.append(_sentence(comparison.describe()))
    return found


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "."


def facts(run: Run) -> list[tuple[str, str]]:
    """Where the run comes from: name and value."""
    results, config = run.results, run.config
    epochs = [f"last: epoch {results['last']['epoch'] + 1}"]
    if "best_val" in results:
        best = results["best_val"]
        epochs.append(
            f"best validation: epoch {best['epoch'] + 1} "
            f"(validation error {100 * best['validation_error']:.1f} %)"
        )
    return [
        ("seed", f"{config['seed']} (fold {config['fold']})"),
        ("models", "; ".join(epochs)),
        ("split SHA-256", results["split_hash"]),
        ("configuration SHA-256", results["config_hash"]),
        ("time", f"{duration(results['seconds'])} for {results['steps']:,} steps"),
        ("device", results["device"]),
        ("versions", f"anedl {results['anedl']}, torch {results['torch']}"),
    ]


def duration(seconds: float) -> str:
    """A time as a person says it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def score_table(run: Run) -> list[tuple[str, list[str]]]:
    """Every score of the last model: its name and AUROC, AUPR, FPR95, OSCR, balanced accuracy."""
    by_score = OpenSetMetrics.from_json(run.results["last"]["test"]).by_score
    labels = {**SCORE_LABELS, "score": f"own score: {run.own_score_label}",
              "top_m_evidence": "top-M evidence (Eq.\N{NO-BREAK SPACE}9)"}  # fmt: skip
    return [
        (
            labels.get(name, name),
            [
                "–" if value is None else f"{100 * value:.1f}"
                for value in (
                    m.auroc, m.aupr_in, m.aupr_out, m.fpr95, m.oscr, m.balanced_accuracy
                )
            ],
        )
        for name, m in by_score.items()
    ]  # fmt: skip


def unseen_table(run: Run) -> list[tuple[str, list[str]]]:
    """Sets of outliers from elsewhere: name, and how the last model's own score tells them."""
    table = []
    for name, document in run.results["last"].get("unseen", {}).items():
        metrics = UnseenMetrics.from_json(document)
        if of := metrics.by_score.get("score"):
            shares = (of.auroc, of.aupr_in, of.aupr_out, of.fpr95, of.rejected)
            cells = [f"{metrics.images:,}", *(f"{100 * share:.1f}" for share in shares)]
            table.append((name, cells))
    return table


def config_table(config: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Every option as name, value and explanation."""
    entry = METHODS.get(config["method"])
    explained = {"train": TrainConfig, "options": entry.method.config_type if entry else None}
    table = []
    for name, value in (config | {"method": portable_name(config["method"])}).items():
        if not isinstance(value, dict):
            table.append((name, written(value), ""))
            continue
        known = explained.get(name)
        helps = {f.name: field_help(f) for f in fields(known)} if known else {}
        table += [
            (f"{name}.{key}", written(inner), helps.get(key, "")) for key, inner in value.items()
        ]
    return table


def written(value: Any) -> str:
    """A value of a configuration in words."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(written, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
