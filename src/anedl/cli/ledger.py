"""Set finished runs beside the published numbers.

    anedl ledger
    anedl ledger --add runs/cifar100-55-50/anedl-seed0 runs/cifar100-55-50/anedl-seed1
    anedl ledger --setting cifar100-55/50 --method anedl
    anedl ledger --dev
    anedl ledger --out results/ledger.html
    anedl ledger --setting digits --budget full --picture digits.png

The ledger is a folder: RESULTS/runs/ holds one small file a run, RESULTS/published.json the
published numbers. Runs of different lengths, on development splits or with other options are never
averaged together.
"""

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from anedl.errors import ConfigError, first_few, unknown_name

if TYPE_CHECKING:
    from anedl.ledger.entry import LedgerRun
    from anedl.ledger.published import Published
    from anedl.ledger.render import Format
    from anedl.ledger.table import Ledger

SUFFIXES: "dict[str, Format]" = {".md": "markdown", ".html": "html", ".htm": "html"}


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Declare which runs, and in which form."""
    parser.add_argument(
        "--results", type=Path, default=Path("results"), metavar="FOLDER",
        help="folder of the ledger (default: results)",
    )  # fmt: skip
    parser.add_argument(
        "--add", type=Path, nargs="+", action="extend", default=[], metavar="RUN",
        help="record these finished run folders first; a run recorded twice replaces itself",
    )  # fmt: skip
    parser.add_argument("--setting", help="show this setting only")
    parser.add_argument(
        "--method", help="show this method only: a name, or path/to/file.py:ClassName"
    )
    parser.add_argument(
        "--budget", choices=("full", "fast", "custom"), help="show the runs of this budget only"
    )
    parser.add_argument(
        "--steps", type=int, nargs="+", metavar="N", help="show the runs of these lengths only"
    )
    parser.add_argument(
        "--dev", action="store_true",
        help="show the runs on development splits alone (otherwise a terminal shows all others "
        "and a file has both)",
    )  # fmt: skip
    parser.add_argument(
        "--format", choices=("terminal", "markdown", "html"),
        help="form of the tables (default: by the name of --out, else terminal)",
    )  # fmt: skip
    parser.add_argument("--out", type=Path, metavar="FILE", help="write there instead of printing")
    parser.add_argument(
        "--picture", type=Path, metavar="FILE",
        help="draw the shown runs as bars into this PNG: AUROC and error of the last models",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Record what is to be added, then show the tables."""
    from anedl.files import write_text
    from anedl.ledger.entry import read_ledger, record_run
    from anedl.ledger.published import published_file, read_published
    from anedl.ledger.render import render
    from anedl.ledger.table import build_ledger

    for folder in arguments.add:
        # On the error stream, so that `--format markdown > FILE` holds the tables alone.
        path = record_run(folder, arguments.results, _command(folder))
        print(f"recorded {path}", file=sys.stderr)
    runs, published = chosen(
        read_ledger(arguments.results),
        read_published(published_file(arguments.results)),
        arguments.setting,
        arguments.method,
    )
    of_all_lengths = runs
    runs = [run for run in runs if _has_length(run, arguments.budget, arguments.steps)]
    if of_all_lengths and not runs:
        lengths = sorted({f"{run.budget}, {run.steps:,} steps" for run in of_all_lengths})
        raise ConfigError(f"no run has that length; there are {first_few(lengths)}")
    suffix = arguments.out.suffix.lower() if arguments.out else ""
    form = arguments.format or SUFFIXES.get(suffix, "terminal")
    of_trials = [run for run in runs if run.development]
    of_tests = [run for run in runs if not run.development]
    left_out = ""
    if arguments.dev:
        runs, published = of_trials, []
        if of_tests and not of_trials:
            left_out = f"Runs on test splits: {len(of_tests)}, shown without --dev."
    elif form == "terminal":
        runs = of_tests
        if of_trials:
            left_out = f"Runs on development splits: {len(of_trials)}, shown by --dev."
    ledger = build_ledger(runs, published)
    if arguments.budget is not None or arguments.steps is not None:
        # Which published numbers we lack is a question to all runs, not to those of one length.
        ledger = replace(ledger, missing=())
    if arguments.picture is not None:
        # Trials are of other images than tests: no bar of one beside a bar of the other.
        alike = of_trials if arguments.dev else of_tests
        print(_drawn(build_ledger(alike, published), arguments.picture), file=sys.stderr)
    text = render(ledger, form, arguments.results, left_out)
    if arguments.out is None:
        print(text, end="")
    else:
        write_text(arguments.out, text)
        print(arguments.out)
    return 0


def _has_length(run: "LedgerRun", budget: str | None, steps: list[int] | None) -> bool:
    return budget in (None, run.budget) and (steps is None or run.steps in steps)


def _drawn(ledger: "Ledger", path: Path) -> Path:
    """Write the picture of a ledger.

    Raises:
        ConfigError: the file is to be anything but a PNG.
        AnedlError: there is nothing to draw, or too much.
    """
    from anedl.files import replacing
    from anedl.ledger.picture import picture_of
    from anedl.report.canvas import to_png

    if path.suffix.lower() != ".png":
        raise ConfigError(f"--picture {path}: pictures are written as PNG; call it NAME.png")
    content = to_png(picture_of(ledger))
    with replacing(path) as temporary:
        temporary.write_bytes(content)
    return path


def _command(folder: Path) -> str | None:
    """What trains the run of a folder; None where its config.json does not say."""
    from anedl.presets.experiment import command_of

    try:
        return command_of(json.loads((folder / "config.json").read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError):
        return None  # recording the run says what is wrong with it


def chosen(
    runs: "list[LedgerRun]", published: "list[Published]", setting: str | None, method: str | None
) -> "tuple[list[LedgerRun], list[Published]]":
    """What belongs to a setting and to a method, where one is named.

    Raises:
        ConfigError: neither we nor the ledger know such a name.
    """
    from anedl.data.settings import get_setting
    from anedl.engine.differences import portable_name
    from anedl.ledger.published import published_name
    from anedl.methods.catalogue import METHODS

    items: list[LedgerRun | Published] = [*runs, *published]
    if setting is not None:
        known = {item.setting for item in items}
        if setting not in known:
            setting = get_setting(setting).name
        runs = [item for item in runs if item.setting == setting]
        published = [item for item in published if item.setting == setting]
    if method is not None:
        # The ledger knows a method from a file without the folder that it lay in.
        method = portable_name(method)
        known = {*METHODS, *(item.method for item in items)}
        if method not in known:
            raise unknown_name("method", method, known)
        runs = [item for item in runs if item.method == method]
        published = [item for item in published if item.method == published_name(method)]
    return runs, published
