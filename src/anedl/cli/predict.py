"""Judge new images with a trained run: one row an image, in the order given.

Writes file, class, probability, unknown, inlier_score, familiarity, p_value, epistemic, aleatoric
and error. A file that cannot be read has a row that says why; the exit status is then 1, as where a
folder holds no image. `class` is the likeliest known class even where the image is `unknown`.

    anedl predict runs/mine photos/ > predictions.csv
    find photos -name '*.jpg' -print0 | anedl predict runs/mine - --format jsonl
"""

import argparse
import io
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import groupby
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from anedl.cli.options import add_which_model
from anedl.errors import ConfigError, first_few

if TYPE_CHECKING:
    from anedl.export.predictor import BasePredictor
    from anedl.export.reading import Wanted
    from anedl.export.tables import TableWriter
    from anedl.intake.fitted import OwnPile

STDIN = "-"
_REDRAW_SECONDS = 0.1
_LINE_SECONDS = 30.0


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Declare which run, which images, and what comes out where."""
    parser.add_argument("run", type=Path, help="run folder, or a file of `anedl export --onnx`")
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PATH",
        help="image files, folders (with all below them), or - for a list of paths on standard "
        "input, separated by line breaks or NUL characters",
    )
    parser.add_argument(
        "--format",
        choices=["csv", "jsonl", "parquet"],
        help="default: what the name of --out ends in, else csv",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help="write here: a file all at once when done, a pipe as it comes (default: standard "
        "output, as it comes)",
    )
    parser.add_argument(
        "--runtime",
        choices=["torch", "onnx"],
        default="torch",
        help="what computes the model; onnx exports it into the run folder once (default: torch)",
    )
    add_which_model(parser)
    parser.add_argument(
        "--level",
        type=float,
        metavar="SHARE",
        help="call unknown what has a p-value of at most this (default: the run's own level); "
        "where too few images were held out for it nothing is called so, and a line says so",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="processes that decode images; 0: none beside the main one (default: one a core, at "
        "most 8)",
    )
    parser.add_argument(
        "--null", action="store_true", help="paths on standard input end in NUL characters"
    )
    parser.add_argument("--quiet", action="store_true", help="show no progress")


def run(arguments: argparse.Namespace) -> int:
    """Write a row an image; 1 if any could not be read, or a folder held none."""
    from anedl.export.predictor import open_predictor
    from anedl.export.reading import decoders, read_ahead
    from anedl.export.tables import format_of, judged
    from anedl.intake.fitted import OwnPile

    out = None if arguments.out is None or str(arguments.out) == STDIN else arguments.out
    form = format_of(arguments.format, out)
    if out is not None and out.is_dir():
        raise ConfigError(f"--out {out}: a folder; name a file")
    workers = decoders(arguments.workers)
    predictor = open_predictor(
        arguments.run, arguments.runtime, arguments.device, arguments.model, arguments.level
    )
    if predictor.shortfall:
        print(f"anedl: {predictor.shortfall}", file=sys.stderr)
    if not predictor.certified:
        print(f"anedl: {without_calibration(predictor, arguments)}", file=sys.stderr)
    sources = Sources(arguments.paths, arguments.null, OwnPile(arguments.run))
    tell_passed_over(sources.passed_over)
    progress = ImagesProgress(sources.total, arguments.quiet)
    read = unread = 0
    try:
        with (
            opened(form, out) as writer,
            closing(read_ahead(sources.chunks(), predictor.framing, workers)) as frames,
        ):
            for rows in judged(frames, predictor):
                writer.write(rows)
                read += len(rows)
                unread += sum(row["error"] is not None for row in rows)
                progress.add(len(rows))
    except BrokenPipeError:
        # The reader (`| head`) has left; nothing may try to write there again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    finally:
        progress.close()
    if sources.without or not read:
        where = first_few(sources.without) or "what was named"
        empty = "" if read else "; the table is empty"
        print(f"anedl: there are no images in {where}{empty}", file=sys.stderr)
    if sources.of_pile:
        what = "image is" if sources.of_pile == 1 else "images are"
        print(
            f"anedl: {sources.of_pile:,} {what} of the pile that this run has sorted, and judged "
            f"here as new: triage.csv has what the fit says of them",
            file=sys.stderr,
        )
    if unread:
        what = "image was" if unread == 1 else "images were"
        print(f"anedl: {unread:,} {what} not read: see the column `error`", file=sys.stderr)
    return 1 if unread or sources.without else 0


def without_calibration(predictor: "BasePredictor", arguments: argparse.Namespace) -> str:
    """What `unknown` rests on where no held-out images certify it, and what to do about it."""
    from anedl.export.description import calibrated_instead

    run, model = arguments.run, arguments.model
    other = calibrated_instead(run, model) if model else None
    which = (
        f"of this run the {other} model is calibrated, not the {model} one"
        if other
        else "this model is not calibrated"
    )
    rests = (
        "nothing says what is unknown"
        if predictor.description.rejection is None
        else "a threshold of its validation images, which certifies nothing, says what is unknown"
    )
    choice = f" --model {model}" if model else ""
    return (
        f"{which}: there are no p-values and no familiarity, and {rests}; `anedl calibrate RUN "
        f"KNOWN/ -o FOLDER{choice}` sets a certified threshold"
    )


class Sources:
    """What was named on the command line, in its order; folders are listed at once.

    `of_pile` counts the files so far that are of the run's own pile.
    """

    def __init__(self, paths: Sequence[str], null: bool, own_pile: "OwnPile") -> None:
        from anedl.export.reading import list_paths

        self._own_pile = own_pile
        self.of_pile = 0
        self._null = null
        groups = groupby(paths, key=lambda path: path == STDIN)
        self._parts = [
            None if from_stdin else list_paths([Path(path) for path in group])
            for from_stdin, group in groups
        ]

    @property
    def total(self) -> int | None:
        """How many files there are; None where standard input will tell."""
        counts = [None if part is None else len(part.wanted) for part in self._parts]
        return None if None in counts else sum(count or 0 for count in counts)

    @property
    def without(self) -> list[str]:
        """The folders that hold no image."""
        return [name for part in self._parts if part is not None for name in part.without]

    @property
    def passed_over(self) -> list[tuple[str, str]]:
        """What lies in the folders and is no image: names and reasons."""
        return [entry for part in self._parts if part is not None for entry in part.passed_over]

    def chunks(self) -> "Iterator[Sequence[Wanted]]":
        """The files, those from standard input as they come."""
        for chunk in self._chunks():
            self.of_pile += sum(wanted.path in self._own_pile for wanted in chunk)
            yield chunk

    def _chunks(self) -> "Iterator[Sequence[Wanted]]":
        from anedl.export.reading import arriving

        for part in self._parts:
            if part is None and sys.stdin is None:
                raise ConfigError("there is no standard input to read paths from")
            if part is None:
                yield from arriving(sys.stdin.fileno(), self._null)
            elif part.wanted:
                yield part.wanted


def tell_passed_over(entries: Sequence[tuple[str, str]]) -> None:
    """Say how many files were no images, and why."""
    for reason, count in Counter(reason for _, reason in entries).most_common():
        files = "file is" if count == 1 else "files are"
        print(f"anedl: {count:,} {files} passed over: {reason}", file=sys.stderr)


@contextmanager
def opened(form: str, out: Path | None) -> "Iterator[TableWriter]":
    """A writer to standard output or a pipe, or to a file that appears when all is written."""
    from anedl.export.tables import table_writer
    from anedl.files import replacing

    binary = form == "parquet"
    with ExitStack() as stack:
        file: IO[Any]
        if out is None and sys.stdout is None:
            raise ConfigError("there is no standard output to write to: name a file by --out FILE")
        if out is None:
            if isinstance(sys.stdout, io.TextIOWrapper):
                sys.stdout.reconfigure(encoding="utf-8")  # a table is data, whatever the terminal
            file = sys.stdout.buffer if binary else sys.stdout
        else:
            # A pipe or a device is written to as it is: nothing can take its place. That is asked
            # before links are followed, for a pipe behind /dev/stdout has no path of its own.
            special = out.exists() and not out.is_file()
            path = out if special else stack.enter_context(replacing(out.resolve()))
            file = path.open("wb") if binary else path.open("w", encoding="utf-8", newline="")
            stack.enter_context(file)
        if binary and file.isatty():
            raise ConfigError(
                "Parquet is not for a screen to show: redirect the output (> FILE or a pipe), or "
                "name a file by --out FILE"
            )
        writer = table_writer(form, file)
        try:
            yield writer
            writer.close()
        except BaseException:
            writer.abandon()
            raise


class ImagesProgress:
    """How many images are done and how long the rest will take, on standard error.

    A terminal sees it redrawn, anything else a line now and then.
    """

    def __init__(self, total: int | None, quiet: bool = False) -> None:
        self._total = total
        self._quiet = quiet
        self._done = 0
        self._began = self._shown_at = time.monotonic()
        self._redraws = sys.stderr.isatty()
        self._width = 0

    def add(self, images: int) -> None:
        """Count images, and show the state unless it was shown a moment ago."""
        self._done += images
        now = time.monotonic()
        pause = _REDRAW_SECONDS if self._redraws else _LINE_SECONDS
        if self._quiet or now - self._shown_at < pause:
            return
        self._shown_at = now
        text = self.text(now)
        if self._redraws:
            print("\r" + text.ljust(self._width), end="", file=sys.stderr, flush=True)
            self._width = len(text)
        else:
            print(text, file=sys.stderr, flush=True)

    def text(self, now: float) -> str:
        """The state in a line."""
        rate = self._done / max(now - self._began, 1e-9)
        if self._total is None:
            return f"{self._done:,} images  {rate:,.1f} a second"
        minutes, seconds = divmod(round((self._total - self._done) / max(rate, 1e-9)), 60)
        hours, minutes = divmod(minutes, 60)
        left = f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
        share = self._done / max(1, self._total)
        return (
            f"{share:4.0%}  {self._done:,} of {self._total:,} images  {rate:,.1f} a second  "
            f"{left} left"
        )

    def close(self) -> None:
        """End the line."""
        if self._width:
            print(file=sys.stderr)
            self._width = 0
