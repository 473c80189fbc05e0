"""A run without its history: one model and what it takes to test it and to judge images by it."""

import shutil
from pathlib import Path

from anedl.engine.run_files import CALIBRATION_FILE, FAMILIARITY_FILE, MODEL_FILES
from anedl.errors import ConfigError, DataError
from anedl.export.card import card_text, read_facts
from anedl.export.description import model_of, read_calibration, read_familiarity
from anedl.files import write_json, write_text

NEEDED = ("config.json", "split.json", "results.json")


def check_vacant(folder: Path) -> None:
    """Refuse a folder for weights that holds something already.

    Raises:
        ConfigError: it does, or is a file.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder}: holds something already; name a new folder")


def write_weights(
    run: Path, folder: Path, model: str | None = None, licence: str | None = None
) -> str:
    """Copy a model of `run` with its settings, split, figures and card; returns which model.

    Checkpoints, logs, outputs and the report stay behind, and so do the names of the folders that a
    fit was made from. `folder` can then be given wherever a model is wanted; it may exist, but must
    be empty.

    Raises:
        ConfigError: the folder holds something already.
        DataError: a file of the run is missing or cannot be read.
    """
    chosen = model_of(run, model)
    files = [*NEEDED, MODEL_FILES[chosen]]
    for name in files:
        if not (run / name).is_file():
            raise DataError(f"{run / name}: there is no such file; finish the run with `--resume`")
    calibration = read_calibration(run, chosen)
    calibrating = [] if calibration is None else [CALIBRATION_FILE]
    if read_familiarity(run, calibration) is not None:
        calibrating.append(FAMILIARITY_FILE)
    check_vacant(folder)
    facts = read_facts(run, chosen)
    folder.mkdir(parents=True, exist_ok=True)
    for name in [*files, *calibrating]:
        shutil.copyfile(run / name, folder / name)
    if facts.fit:
        write_json(folder / "fit.json", {k: v for k, v in facts.fit.items() if k != "sources"})
    write_text(folder / "README.md", card_text(facts, licence))
    return chosen
