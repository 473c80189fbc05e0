"""`anedl fit` for notebooks and scripts: `anedl.fit("labelled", "pile").triage`."""

import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

from anedl.errors import ConfigError, unknown_name
from anedl.fit.flow import Fitted
from anedl.fit.flow import fit as run_fit
from anedl.fit.wishes import Wishes

# Keywords are the options of the command; these two stand for wishes of another name.
OF_THE_COMMAND = {"target_inlier_loss": "level", "false_alarms": "benjamini_hochberg"}


def keywords() -> dict[str, str]:
    """What `fit` takes beside the images and the run folder, and the wish each stands for."""
    own = {a_field.name: a_field.name for a_field in fields(Wishes)}
    for keyword, wish in OF_THE_COMMAND.items():
        own[keyword] = own.pop(wish)
    return own


def fit(
    labelled: str | Path, pile: str | Path, out: str | Path | None = None, **wishes: Any
) -> Fitted:
    """Learn from labelled images and a pile, and sort the pile.

    Args:
        labelled: a folder with one folder a class, or a CSV or Parquet manifest.
        pile: a folder of images, a text file with a path a line, or a manifest.
        out: run folder; default: a new temporary folder.
        wishes: any option of `anedl fit` but `--dry-run`, such as `minutes=5`,
            `target_inlier_loss=0.02`, `image_size=64` or `resume=True`. `options` maps names to
            values, `decisions` is a path or several; `quiet` is True unless it is given.

    Raises:
        ConfigError: a wish is not known or cannot be fulfilled.
        DataError: there are too few images; the message says how many are needed.
    """
    wish_of = keywords()
    for name in wishes:
        _check(name, wish_of)
    wanted = Wishes(**{"quiet": True} | {wish_of[name]: value for name, value in wishes.items()})
    folder = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="anedl-"))
    return run_fit(Path(labelled), Path(pile), folder, wanted, _silent if wanted.quiet else print)


def _check(name: str, wish_of: dict[str, str]) -> None:
    if name in wish_of:
        return
    if name == "dry_run":
        raise ConfigError(
            "a dry run is for the command: `anedl fit LABELLED PILE -o RUN --dry-run`"
        )
    for keyword, wish in OF_THE_COMMAND.items():
        if name == wish:
            raise ConfigError(f"unknown option {name!r}: it is called {keyword}, as in the command")
    raise unknown_name("option", name, wish_of)


def _silent(text: str) -> None:
    pass
