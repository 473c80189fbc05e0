"""Where the figure of an experiment goes, so that none takes the place of one that shows more."""

import hashlib
import json
import re
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from anedl.engine.differences import portable_name
from anedl.errors import counted
from anedl.files import replacing
from anedl.ledger.table import WITHOUT_EFFECT
from anedl.presets.experiment import Row
from anedl.presets.reproduce import Outcome

LONGEST_OPTIONS = 60  # characters of given options in a file's name
RUNS_NOTE = "anedl-runs"  # the name of a PNG's note on how many runs it shows
ROWS_NOTE = "anedl-rows"  # and of the one on which rows these are of


@dataclass(frozen=True)
class Drawn:
    """A figure that was written, and the one of more runs or other rows that was kept, if one was.

    `kept_runs` is None where the kept one does not say of how many runs it is.
    """

    path: Path
    runs: int
    kept: Path | None = None
    kept_runs: int | None = None

    def __str__(self) -> str:
        said = f"{self.path} (of {counted(self.runs, 'run')})"
        if self.kept is None:
            return said
        holds = "whose number of runs is unknown" if self.kept_runs is None else (
            f"of {counted(self.kept_runs, 'run')}"
        )  # fmt: skip
        return f"{said}; {self.kept}, {holds}, is kept (delete it to have it replaced)"


def keep_figure(png: bytes, outcome: Outcome, rows: list[Row]) -> Drawn:
    """Write a figure of these rows into `results/figures/`, with notes on what it is of.

    A figure of more runs, or of a row that the new one lacks, is not replaced: the new one then has
    its runs and seeds, or a mark of its rows, in its name.
    """
    terms = outcome.terms
    shown = frozenset(_row_mark(row) for row in rows)
    runs = len({digest for row in rows for digest in outcome.shown(row)})
    path = terms.results / "figures" / f"{figure_name(outcome, rows)}.png"
    drawn = Drawn(path, runs)
    if path.exists():
        before = runs_in(path)
        if before is None or before > runs:
            seeds = "-".join(map(str, terms.seeds))
            beside = path.with_name(f"{path.stem}-{runs}-runs-seeds-{seeds}.png")
            drawn = Drawn(beside, runs, path, before)
        elif not rows_in(path) <= shown:
            rows_mark = hashlib.sha256(" ".join(sorted(shown)).encode()).hexdigest()[:6]
            drawn = Drawn(path.with_name(f"{path.stem}-rows-{rows_mark}.png"), runs, path, before)
    notes = {RUNS_NOTE: str(runs), ROWS_NOTE: " ".join(sorted(shown))}
    with replacing(drawn.path) as temporary:
        temporary.write_bytes(_noted(png, notes))
    return drawn


def figure_name(outcome: Outcome, rows: list[Row]) -> str:
    """What an experiment's figure is called: by its settings, its length and the options given."""
    experiment, terms = outcome.experiment, outcome.terms
    settings = [setting.replace("/", "-") for setting in dict.fromkeys(r.setting for r in rows)]
    where = settings if len(settings) == 1 else [f"{len(settings)}-settings"]
    of = experiment.name.replace("/", "-")  # a column is called as its setting
    kinds = ["fast" if terms.budget == "fast" else "", "dev" if terms.development else ""]
    given = {
        name: value
        for name, value in {**terms.train, **experiment.given}.items()
        if name not in WITHOUT_EFFECT
    }
    words = "-".join(f"{name}-{value}" for name, value in given.items())
    words = re.sub(r"[^A-Za-z0-9.]+", "-", words).strip("-")
    if len(words) > LONGEST_OPTIONS:
        words = hashlib.sha256(words.encode()).hexdigest()[:8]
    return "-".join([*dict.fromkeys([of, *where]), *filter(None, [*kinds, words])])


def _row_mark(row: Row) -> str:
    """A few letters that stand for a row: the setting, the method, its options and the score."""
    options = json.dumps(dict(row.options), sort_keys=True, default=str)
    text = " ".join((row.setting, portable_name(row.method), options, row.score))
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def rows_in(path: Path) -> frozenset[str]:
    """The marks of a figure's rows; none where it does not say."""
    try:
        with Image.open(path) as image:
            return frozenset(str(image.info[ROWS_NOTE]).split())
    except (OSError, KeyError):
        return frozenset()


def runs_in(path: Path) -> int | None:
    """Of how many runs a figure is; None where it does not say."""
    try:
        with Image.open(path) as image:
            return int(image.info[RUNS_NOTE])
    except (OSError, KeyError, ValueError, TypeError):
        return None


def _noted(png: bytes, notes: Mapping[str, str]) -> bytes:
    """The same PNG with lines of text about its runs, right after its header."""
    header = 33  # bytes: the signature and the first chunk, which is always as long
    noted = b""
    for name, text in notes.items():
        chunk = b"tEXt" + name.encode() + b"\0" + text.encode()
        noted += struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
    return png[:header] + noted + png[header:]
