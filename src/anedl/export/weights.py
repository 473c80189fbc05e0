"""A run without its history: one model and what it takes to test it and to judge images by it."""

import shutil
from pathlib import Path

from safetensors.torch import save

from anedl.calibration import Calibration
from anedl.engine.run_files import CALIBRATION_FILE, FAMILIARITY_FILE, METHOD_FILE, MODEL_FILES
from anedl.errors import ConfigError, DataError
from anedl.export.card import CARD, card_text, licence_on, read_facts
from anedl.export.description import model_of, read_calibration, read_familiarity
from anedl.familiarity import Familiarity
from anedl.files import write_bytes, write_json, write_text

NEEDED = ("config.json", "split.json", "results.json")


def check_vacant(folder: Path) -> None:
    """Refuse a folder for weights that holds something already.

    Raises:
        ConfigError: it does, or is a file.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder}: holds something already; name a new folder")
    if any(above.is_file() for above in folder.parents):
        raise ConfigError(f"{folder}: lies below a file; name another folder")


def write_weights(
    run: Path,
    folder: Path,
    model: str | None = None,
    licence: str | None = None,
    calibrated: tuple[Calibration, Familiarity | None] | None = None,
) -> str:
    """Copy a model of `run` with its settings, split, figures and card; returns which model.

    Checkpoints, logs, outputs and the report stay behind, and so do the names of the folders that a
    fit was made from. `folder` can then be given wherever a model is wanted; it may exist, but must
    be empty. `calibrated` takes the place of the run's own calibration and of what is familiar;
    without a `licence` the one that the run's card states goes along.

    Raises:
        ConfigError: the folder holds something already.
        DataError: a file of the run is missing or cannot be read.
    """
    chosen = model_of(run, model)
    files = [*NEEDED, MODEL_FILES[chosen]]
    for name in files:
        if not (run / name).is_file():
            raise DataError(f"{run / name}: there is no such file; finish the run with `--resume`")
    left_behind = {"sources"}
    if calibrated is None:
        calibration = read_calibration(run, chosen)
        files += [] if calibration is None else [CALIBRATION_FILE]
        files += [] if read_familiarity(run, calibration) is None else [FAMILIARITY_FILE]
    else:
        left_behind.add("calibration")  # what the fit said of its own
    files += [METHOD_FILE] if (run / METHOD_FILE).is_file() else []
    check_vacant(folder)
    fit = read_facts(run, chosen).fit
    folder.mkdir(parents=True, exist_ok=True)
    for name in files:
        shutil.copyfile(run / name, folder / name)
    if calibrated is not None:
        calibration, familiarity = calibrated
        write_json(folder / CALIBRATION_FILE, calibration.to_json() | {"model": chosen})
        if familiarity is not None:
            write_bytes(folder / FAMILIARITY_FILE, save(familiarity.tensors()))
    if said := {key: value for key, value in fit.items() if key not in left_behind}:
        write_json(folder / "fit.json", said)
    stated = licence or licence_on(run / CARD)
    write_text(folder / CARD, card_text(read_facts(folder, chosen), stated))
    return chosen
