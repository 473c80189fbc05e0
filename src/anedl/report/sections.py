"""What the page says of one run, in words and tables."""

import shlex
from dataclasses import fields
from pathlib import Path
from typing import Any

from anedl.engine.config import TrainConfig
from anedl.evaluation.metrics import OpenSetMetrics
from anedl.evaluation.unseen import UnseenMetrics
from anedl.methods.catalogue import METHODS
from anedl.options import field_help
from anedl.report.pictures import run_pictures
from anedl.report.run_folder import SCORE_LABELS, Run


def run_section(run: Run, data_root: Path | None = None) -> dict[str, Any]:
    """Everything the template says of one run."""
    pictures, notes = run_pictures(run, data_root)
    return {
        "lede": lede(run),
        "warnings": warnings(run),
        "headline": headline(run),
        "classes": run.class_names,
        "facts": facts(run),
        "pictures": pictures,
        "notes": notes,
        "scores": score_table(run),
        "unseen": unseen_table(run),
        "config": config_table(run.config),
        "command": command(run),
    }


def command(run: Run) -> str:
    """What trains the run again, as one would type it."""
    if run.is_own:
        return f"anedl fit LABELLED PILE --out NEW_FOLDER --seed {run.config['seed']}"
    return f"anedl train --config {shlex.quote(str(run.folder / 'config.json'))}"


def lede(run: Run) -> str:
    """What was trained on what, in a sentence or two."""
    split, pool = run.split, run.pool
    entry = METHODS.get(run.config["method"])
    method = run.config["method"] + (f" ({entry.summary})" if entry else "")
    text = (
        f"{method} was trained on {len(split.labelled):,} labelled images of {split.num_known} "
        f"known classes and {len(split.pool):,} unlabelled ones"
    )
    if "truth" in pool:
        outliers = int((pool["truth"] < 0).sum())
        share = 100 * outliers / max(1, len(split.pool))
        text += f", of which {outliers:,} ({share:.0f} %) are outliers: they show no known class"
    targets = run.test_targets
    known, unknown = int((targets >= 0).sum()), int((targets < 0).sum())
    tested = f"It was tested on {known:,} images of the known classes"
    return f"{text}. {tested}" + (f" and {unknown:,} outliers." if unknown else ".")


def warnings(run: Run) -> list[str]:
    """What keeps the figures from being compared with others."""
    config, found = run.config, []
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


def headline(run: Run) -> list[dict[str, str]]:
    """The figures a reader came for: of the last model, and of the best by validation."""
    models = {name: OpenSetMetrics.from_json(run.results[name]["test"])
              for name in ("last", "best_val") if name in run.results}  # fmt: skip
    rows = [("Test error", {name: model.error for name, model in models.items()})]
    scores = [("score", run.own_score_label)]
    if not run.softmax_is_own_score:
        scores.append(("max_softmax", SCORE_LABELS["max_softmax"]))
    for key, label in scores:
        areas = {name: m.by_score[key].auroc for name, m in models.items() if key in m.by_score}
        if areas:
            rows.append((f"AUROC by {label}", areas))
    return [
        {"name": name, **{model: f"{100 * value:.1f} %" for model, value in values.items()}}
        for name, values in rows
    ]


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
    for name, value in config.items():
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
