"""What a run of `anedl fit` was given, to be typed again; and its images, or how to get them back.

A folder that was published or cut short does not know where its images lie; then the words of the
manual stand for them.
"""

import functools
import json
import os
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anedl.errors import DataError
from anedl.intake.cache import ImageCache, open_cache
from anedl.intake.duplicates import NEAR_DISTANCE
from anedl.intake.names import shown

# What a fit leaves that has done more than a dry run does: what a trial of two trunks said, and
# (beside the images) of how many views a frozen trunk makes features.
TRUNKS_FILE = "trunks.json"
VIEWS_FILE = "views.json"

AS_ASKED = "as asked"  # the reason of a choice that was the user's
# What decides which images have which role, with what `anedl fit` takes where nothing is given.
_OF_ROLES = {"--seed": ("seed", 0), "--target-inlier-loss": ("level", 0.05)}
_CHOSEN = {"--augmentation": "augmentation", "--folds": "folds"}


def was_cut(run: Path) -> bool:
    """Whether a fit has begun here, more than a dry run does, and not come to its own training."""
    if (run / "config.json").exists():
        return False
    left = (run / TRUNKS_FILE, run / "cache" / VIEWS_FILE, run / "supervised")
    return any(path.exists() for path in left)


def require_fitted(run: Path) -> None:
    """Refuse the folder of a dry run, or of a fit that has not come to its own training yet.

    Raises:
        DataError: says which, and what to do.
    """
    if (run / "config.json").exists() or not (run / "intake.json").is_file():
        return
    if was_cut(run):
        raise DataError(f"{run}: this fit has not ended; go on with the same command, --resume")
    raise DataError(f"{run}: only a dry run was made here: run the same command without --dry-run")


def given_to_fit(run: Path) -> str:
    """Where the fit found labelled images and pile, and what it took for copies, to be typed."""
    words = _sources(_said(run))
    if (distance := near_distance_of(run)) != NEAR_DISTANCE:
        words += ["--near-distance", str(distance)]
    return shlex.join(words)


def near_distance_of(run: Path) -> int:
    """How many bits apart a fit took, or takes, hashes of images for those of copies."""
    usual = _said(run).get("near_distance", NEAR_DISTANCE)
    return int(_said(run, "intake.json").get("near_distance", usual))


def level_of(run: Path) -> float | None:
    """The share of known images that a finished fit may lose; None where it has not ended."""
    level = _said(run).get("level")
    return None if level is None else float(level)


def command_to_decode(run: Path) -> str:
    """What decodes the images of a run anew, and neither trains nor sorts anything."""
    return shlex.join([*_fit_again(run, _sources(_said(run))), "--dry-run"])


def _fit_again(run: Path, sources: Sequence[str]) -> list[str]:
    """The words that go on with a fit, with all that decides about its images."""
    said = _said(run)
    words = ["anedl", "fit", *sources, "-o", str(run), "--resume"]
    for option, (name, usual) in _OF_ROLES.items():
        if (value := said.get(name, usual)) != usual:
            words += [option, str(value)]
    choices = said.get("choices", {})
    # The usual size depends on the device, which may be another one by now.
    if "image size" in choices:
        words += ["--image-size", str(choices["image size"]["value"])]
    for option, name in _CHOSEN.items():
        if choices.get(name, {}).get("reason") == AS_ASKED:
            words += [option, str(choices[name]["value"])]
    return words


def open_run_cache(run: Path) -> ImageCache:
    """Open the image cache of a run.

    Raises:
        DataError: there is none, or it is damaged; says what builds it again.
    """
    try:
        return open_cache(run / "cache")
    except DataError:
        raise DataError(
            f"{run / 'cache'}: no complete image cache; build it again: {command_to_decode(run)}"
        ) from None


class OwnPile:
    """The files of the pile that a run has sorted, to be recognised among others by their place.

    Nothing is recognised where the run has sorted none, or its image cache is gone; nor a file with
    letters in its path that the encoding of this process lacks.
    """

    def __init__(self, run: Path) -> None:
        self._real = functools.cache(os.path.realpath)  # of few folders with many files
        try:
            is_sorted = (run / "triage.csv").is_file()
            items = open_cache(run / "cache").items if is_sorted else []
        except DataError:
            items = []
        self._places = {self._place(item.path) for item in items if item.label is None} - {None}

    def __contains__(self, path: Path) -> bool:
        return bool(self._places) and self._place(path) in self._places

    def _place(self, path: Path) -> tuple[str, str] | None:
        try:
            return self._real(path.parent), path.name
        except UnicodeEncodeError:
            return None


def where_it_was(run: Path, files: Sequence[Path]) -> str:
    """What to do where most of a run's `files` are not where they were; empty where they are."""
    gone = [file for file in files if not file.exists()]
    if not files or 2 * len(gone) <= len(files):
        return ""
    os.fsencode(gone[0])  # fails where nothing has gone, and the locale cannot name it
    labelled, pile = _sources(_said(run))
    again = shlex.join(_fit_again(run, ("LABELLED", "PILE")))
    return (
        f"{len(gone):,} of {len(files):,} files are no longer where the run found them, such as "
        f"{shown(str(gone[0]))}; if they were moved, `{again}`, LABELLED and PILE being the new "
        f"places of {shown(labelled)} and {shown(pile)}, finds them again and trains nothing"
    )


def rows_of_pile(run: Path, cache: ImageCache, names: Sequence[str]) -> list[int]:
    """The row of the cache that holds each image of a run's table of its pile, by name.

    Raises:
        DataError: a name is not of the pile.
    """
    # Labelled images are in the cache too, and may bear the same names below their own folder.
    rows = {item.name: row for row, item in enumerate(cache.items) if item.label is None}
    if missing := [name for name in names if name not in rows]:
        files_are = "file is" if len(missing) == 1 else "files are"
        raise DataError(
            f"{run / 'triage.csv'}: {len(missing):,} {files_are} not in the pile of this run, the "
            f"first is {missing[0]!r}; restore the column `file`"
        )
    return [rows[name] for name in names]


def _said(run: Path, file: str = "fit.json") -> dict[str, Any]:
    """What `fit.json`, or another, holds; nothing where it cannot be read."""
    try:
        said = json.loads((run / file).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return said if isinstance(said, dict) else {}


def _sources(said: dict[str, Any]) -> list[str]:
    sources = said.get("sources") or {}
    return [str(sources.get(part, part.upper())) for part in ("labelled", "pile")]
