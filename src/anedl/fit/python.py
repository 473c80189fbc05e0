"""`anedl fit` for notebooks and scripts: `anedl.fit("labelled", "pile").triage`."""

import tempfile
from dataclasses import fields
from pathlib import Path
from typing import Any

from anedl.errors import unknown_name
from anedl.fit.flow import Fitted
from anedl.fit.flow import fit as run_fit
from anedl.fit.wishes import Wishes


def fit(
    labelled: str | Path, pile: str | Path, out: str | Path | None = None, **wishes: Any
) -> Fitted:
    """Learn from labelled images and a pile, and sort the pile.

    Args:
        labelled: a folder with one folder a class, or a CSV or Parquet manifest.
        pile: a folder of images, a text file with a path a line, or a manifest.
        out: run folder; default: a new temporary folder.
        wishes: any field of `anedl.fit.wishes.Wishes`, such as `minutes=5`, `level=0.02`,
            `image_size=64` or `resume=True`; `quiet` is True unless it is given.

    Raises:
        ConfigError: a wish is not known or cannot be fulfilled.
        DataError: there are too few images; the message says how many are needed.
    """
    known = [a_field.name for a_field in fields(Wishes)]
    for name in wishes:
        if name not in known:
            raise unknown_name("wish", name, known)
    wanted = Wishes(**{"quiet": True, **wishes})
    folder = Path(out) if out is not None else Path(tempfile.mkdtemp(prefix="anedl-"))
    return run_fit(Path(labelled), Path(pile), folder, wanted, _silent if wanted.quiet else print)


def _silent(text: str) -> None:
    pass
