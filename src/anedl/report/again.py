"""How to run it again: the command as one would type it, and what it cannot repeat."""

import json
import shlex
from typing import Any

from anedl.engine.config import TrainConfig
from anedl.errors import AnedlError
from anedl.intake.decided import read_decided
from anedl.networks import brings_weights
from anedl.report.run_folder import Run, read_run

# What a run of `anedl fit` that does not say what was asked for may have been given besides.
NOT_RECORDED = "--option, --target-precision and --device"


def command(run: Run) -> str:
    """What trains the run again."""
    if not run.is_own:
        return f"anedl train --config {shlex.quote(str(run.folder / 'config.json'))}"
    if (whole := _whole(run)) is not None:
        return command(whole)
    fit, config = run.fit or {}, run.config
    own, train, asked = config["own"], config["train"], fit.get("asked", {})
    method = fit.get("method", config["method"])
    device = asked.get("device", "auto")
    chosen = {
        "--out": "NEW_FOLDER",
        "--seed": config["seed"],
        # The labels alone are trained by every fit: there is no such method to ask for.
        "--method": None if method == "supervised" else method,
        "--near-distance": fit.get("near_distance"),
        "--target-inlier-loss": run.calibration.level if run.calibration else None,
        "--target-precision": asked.get("target_precision"),
        "--folds": fit.get("choices", {}).get("folds", {}).get("value"),
        "--image-size": own["image_size"],
        "--augmentation": own["augmentation"],
        "--backbone": train["backbone"],
        "--feature-views": _views(train),
        "--batch-size": train["batch_size"],
        "--top-m": own["top_m"],
        "--selection-share": own["oracle_share"],
        "--epochs": train["epochs"],
        "--epoch-steps": train["epoch_steps"],
        "--device": None if device == "auto" else device,
    }
    sources = fit.get("sources", {})
    words = ["anedl", "fit", *(sources.get(name, name.upper()) for name in ("labelled", "pile"))]
    words += [str(word) for pair in chosen.items() if pair[1] is not None for word in pair]
    if brings_weights(train["backbone"]):
        words.append("--frozen" if train.get("frozen") else "--no-frozen")
    for name, value in _options(run).items():
        words += ["--option", f"{name}={_typed(value)}"]
    for path in _decision_files(run):
        words += ["--decisions", path]
    if run.triage is not None and run.triage.rules.benjamini_hochberg:
        words.append("--false-alarms")
    return shlex.join(words)


def reservations(run: Run) -> list[str]:
    """In what the command may not repeat the run, a sentence each."""
    if not run.is_own:
        return []
    if (whole := _whole(run)) is not None:
        return ["This is a part of a fit: the command trains all of it.", *reservations(whole)]
    found = []
    if "asked" not in (run.fit or {}):
        found.append(f"The run folder does not record {NOT_RECORDED}: add what was given of these.")
    if _decision_files(run):
        found.append(
            "Decisions are read as their files hold them now; those that this run was given are "
            "in decided.json."
        )
    lengths = _other_lengths(run)
    if lengths:
        found.append(
            f"Every training had its share of the time ({'; '.join(lengths)}); with this command "
            f"all take as many steps as the run itself."
        )
    return found


def _whole(run: Run) -> Run | None:
    """The fit that a run is the labels alone or a fold of."""
    if run.fit is not None or not (run.folder.parent / "fit.json").is_file():
        return None
    try:
        return read_run(run.folder.parent)
    except AnedlError:
        return None


def _options(run: Run) -> dict[str, Any]:
    """What was given with `--option`, and how steps were taken where the time decided it."""
    given: dict[str, Any] = (run.fit or {}).get("asked", {}).get("options", {})
    execution = run.config["train"].get("execution", "auto")
    return given if execution == "auto" else {"execution": execution} | given


def _views(train: dict[str, Any]) -> int | None:
    """Of how many views the features were kept, where the trunk was frozen."""
    return train.get("feature_views", TrainConfig.feature_views) if train.get("frozen") else None


def _typed(value: Any) -> str:
    """A value as `--option` reads it: a text stands for itself unless it would read as JSON."""
    if isinstance(value, str):
        try:
            json.loads(value)
        except ValueError:
            return value
    return json.dumps(value, ensure_ascii=False)


def _decision_files(run: Run) -> tuple[str, ...]:
    try:
        decided = read_decided(run.folder)
    except AnedlError:
        return ()
    return decided.files if decided is not None else ()


def _other_lengths(run: Run) -> list[str]:
    """The trainings of the same fit that took more or fewer steps, in words."""
    parts = {"supervised": "the labels alone"}
    parts |= {f"fold-{n}": f"fold {n}" for n in range(1, run.folds + 1)}
    own, found = _length(run.config), []
    for name, words in parts.items():
        try:
            config = json.loads((run.folder / name / "config.json").read_text(encoding="utf-8"))
            length = _length(config)
        except (OSError, ValueError, KeyError):
            continue
        if length != own:
            found.append(f"{words}: {length[0]:,} × {length[1]:,} steps")
    return found


def _length(config: dict[str, Any]) -> tuple[int, int]:
    return config["train"]["epochs"], config["train"]["epoch_steps"]
