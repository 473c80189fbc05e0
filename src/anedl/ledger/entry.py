"""One finished run as the ledger keeps it: one small JSON file, `runs/*.json` beside the tables."""

import json
import re
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from anedl.engine.config import CUSTOM
from anedl.engine.differences import differing_options, portable_name, recipe_hash
from anedl.errors import AnedlError
from anedl.files import write_json
from anedl.methods.catalogue import get_method, short_name
from anedl.options import convert, option_types, to_json


@dataclass(frozen=True)
class Figures:
    """What one model of a run reaches on the test images, in per cent.

    `auroc` is by the name of the score; "score" is the method's own. It is empty where the test
    holds no outliers. `unseen` is what the run says of outliers from elsewhere, as it says it (in
    fractions), and None where it says nothing.
    """

    epoch: int
    error: float
    validation_error: float
    auroc: dict[str, float]
    unseen: dict[str, Any] | None = None

    def to_json(self) -> dict[str, Any]:
        """As written; `unseen` only where there is one."""
        record = to_json(self)
        if self.unseen is None:
            del record["unseen"]
        return record


@dataclass(frozen=True)
class LedgerRun:
    """A run in the ledger: what determines it, where it ran, and what came out.

    `options` are those of the method and of the engine that differ from what the named method has
    by default under that budget: an ablation is known by them. `recipe_hash` is of everything that
    the seeds of one experiment share, defaults included, so that runs from before and after a
    change of a default are told apart. `best_val` is None where no epoch was validated.
    `method_sha256` is the hash of the file of a user's method, None for one of the package. Options
    and hash are those of when the run began: what becomes of the file later changes neither.
    """

    setting: str
    split_hash: str
    method: str
    config_hash: str
    recipe_hash: str
    seed: int
    fold: int
    budget: str
    development: bool
    pool_limit: int | None
    steps: int
    wall_s: float
    device: str
    torch: str
    version: str
    command: str | None
    options: dict[str, Any]
    last: Figures
    best_val: Figures | None
    method_sha256: str | None = None

    @property
    def file_name(self) -> str:
        """The name of its file: the same configuration always has the same one."""
        method = short_name(self.method)
        development = "dev-" if self.development else ""
        name = f"{self.setting}-{method}-{development}{self.budget}-seed{self.seed}"
        return f"{re.sub(r'[^A-Za-z0-9._-]+', '-', name)}-{self.config_hash[:8]}.json"

    def to_json(self) -> dict[str, Any]:
        """As written to the ledger."""
        record = {a_field.name: getattr(self, a_field.name) for a_field in fields(self)}
        record["last"] = self.last.to_json()
        record["best_val"] = None if self.best_val is None else self.best_val.to_json()
        if self.method_sha256 is None:
            del record["method_sha256"]
        return record


def record_run(folder: Path, ledger: Path, command: str | None = None) -> Path:
    """Write a finished run into the ledger and return its file, `ledger/runs/….json`.

    The same run recorded again replaces its own file. `command` is what started it.

    Raises:
        AnedlError: the folder holds no run, or one that has not ended.
    """
    run = read_finished(folder, command)
    path = ledger / "runs" / run.file_name
    write_json(path, run.to_json())
    return path


def read_ledger(ledger: Path) -> list[LedgerRun]:
    """Every run of the ledger, in the order of the files' names; none where there is no ledger.

    Raises:
        AnedlError: a file is not a run, or two files hold the same one; the message names them.
    """
    found: dict[str, Path] = {}
    runs = []
    for path in sorted((ledger / "runs").glob("*.json")):
        run = _read_entry(path)
        if run.config_hash in found:
            raise AnedlError(
                f"{path}: the same run as {found[run.config_hash].name}, which would count twice; "
                f"remove one of them"
            )
        found[run.config_hash] = path
        runs.append(run)
    return runs


def read_finished(folder: Path, command: str | None = None) -> LedgerRun:
    """A finished run's folder as an entry of the ledger."""
    config_path, results_path = folder / "config.json", folder / "results.json"
    if not config_path.is_file():
        raise AnedlError(f"{folder}: there is no run here (no config.json); name a run's folder")
    if not results_path.is_file():
        raise AnedlError(
            f"{folder}: the run has not ended (no results.json); continue it with "
            f"`anedl train --config {config_path} --resume`"
        )
    config, results = _read_object(config_path), _read_object(results_path)
    try:
        for key in ("setting", "method", "seed", "fold", "development"):
            if config[key] != results[key]:
                raise AnedlError(
                    f"{folder}: config.json and results.json are of different runs "
                    f"({key}: {config[key]!r} and {results[key]!r}); train into a new folder"
                )
        best = results.get("best_val")
        return LedgerRun(
            setting=config["setting"],
            split_hash=results["split_hash"],
            method=portable_name(config["method"]),
            config_hash=results["config_hash"],
            recipe_hash=recipe_hash(config),
            seed=config["seed"],
            fold=config["fold"],
            budget=config.get("budget", CUSTOM),
            development=config["development"],
            pool_limit=config["pool_limit"],
            steps=results["steps"],
            wall_s=results["seconds"],
            device=results["device"],
            torch=results["torch"],
            version=results["anedl"],
            command=command,
            options=_stated_differences(folder, config),
            last=_figures(results["last"]),
            best_val=None if best is None else _figures(best),
            method_sha256=config.get("method_sha256"),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise AnedlError(
            f"{folder}: config.json or results.json is not what a finished run writes ({error!r})"
        ) from error


def _stated_differences(folder: Path, config: dict[str, Any]) -> dict[str, Any]:
    """What made the run another than its method's plain one, as it was when the run began.

    Runs from before this was kept are compared with the method as it is now, if it is the same.
    """
    if "differs" in config:
        return _object("differs", config["differs"])
    if config.get("method_sha256") not in (None, get_method(config["method"]).sha256):
        raise AnedlError(
            f"{folder}: the method's file {config['method'].rpartition(':')[0]} has changed since "
            f"this run, which does not say in what it differed from the method as it was: restore "
            f"the file, then record the run"
        )
    return differing_options(config)


def _figures(entry: dict[str, Any]) -> Figures:
    test = entry["test"]
    return Figures(
        epoch=entry["epoch"],
        error=_percent(test["error"]),
        validation_error=_percent(entry["validation_error"]),
        auroc={name: _percent(row["auroc"]) for name, row in test["by_score"].items()},
        unseen=entry.get("unseen") or None,
    )


def _percent(fraction: float) -> float:
    # Eight digits are more than any test set resolves, and spare the file 26.700000000000003.
    return round(100 * fraction, 8)


def _read_object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise AnedlError(f"{path}: cannot be read as JSON ({error})") from error
    if not isinstance(value, dict):
        raise AnedlError(f"{path}: should hold a JSON object, holds a {type(value).__name__}")
    return value


def _read_entry(path: Path) -> LedgerRun:
    record = _read_object(path)
    try:
        best = record["best_val"]
        return LedgerRun(
            **_plain_values(LedgerRun, record),
            options=_object("options", record["options"]),
            last=_read_figures(record["last"]),
            best_val=None if best is None else _read_figures(best),
            method_sha256=convert("method_sha256", record.get("method_sha256"), str | None),
        )
    except (AnedlError, KeyError, TypeError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise AnedlError(
            f"{path}: not an entry of the ledger ({reason}); record the run again with "
            f"`anedl ledger --add RUN`, or delete the file"
        ) from error


def _read_figures(record: dict[str, Any]) -> Figures:
    auroc = _object("auroc", record["auroc"])
    unseen = record.get("unseen")
    return Figures(
        **_plain_values(Figures, record),
        auroc={name: convert(f"auroc {name}", value, float) for name, value in auroc.items()},
        unseen=None if unseen is None else _object("unseen", unseen),
    )


def _plain_values(cls: type, record: dict[str, Any]) -> dict[str, Any]:
    """Numbers and words by name, checked; keys that a later version may add are left alone."""
    apart = ("options", "last", "best_val", "auroc", "unseen", "method_sha256")
    return {
        name: convert(name, record[name], wanted)
        for name, wanted in option_types(cls).items()
        if name not in apart
    }


def _object(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise AnedlError(f"{name}: {value!r} is not an object")
    return value
