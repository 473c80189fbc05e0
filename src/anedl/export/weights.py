"""A run without its history: one model and what it takes to test it and to judge images by it."""

import shutil
from pathlib import Path

from anedl.engine.run_files import MODEL_FILES
from anedl.errors import ConfigError, DataError
from anedl.export.card import card_text, read_facts
from anedl.export.description import CALIBRATION_FILE, model_of
from anedl.files import write_text

NEEDED = ("config.json", "split.json", "results.json")
IF_THERE = (CALIBRATION_FILE,)  # not the summary of a fit: it names folders of the owner's


def write_weights(
    run: Path, folder: Path, model: str | None = None, licence: str | None = None
) -> str:
    """Copy a model of `run` with its settings, split, figures and card; returns which model.

    Checkpoints, logs, outputs and the report stay behind. `folder` can then be given wherever a run
    is wanted; it may exist, but must be empty.

    Raises:
        ConfigError: the folder holds something already.
        DataError: a file of the run is missing or cannot be read.
    """
    chosen = model_of(run, model)
    files = [*NEEDED, MODEL_FILES[chosen]]
    for name in files:
        if not (run / name).is_file():
            raise DataError(f"{run / name}: there is no such file; finish the run with `--resume`")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder}: holds something already; name a new folder")
    card = card_text(read_facts(run, chosen), licence)
    folder.mkdir(parents=True, exist_ok=True)
    for name in [*files, *(name for name in IF_THERE if (run / name).is_file())]:
        shutil.copyfile(run / name, folder / name)
    write_text(folder / "README.md", card)
    return chosen
