"""Lay the sorted pile of a run out: as folders, as links, for Label Studio or for FiftyOne.

Reads RUN/triage.csv, changes made to its states by hand included. The files of the pile stay where
they are, as they are; an interrupted call goes on where it stopped when it is repeated. An image
that is gone, or that shows another picture than the one that was judged, is left out.
"""

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

from anedl.errors import ConfigError

FORMS = ("folders", "links", "label-studio", "fiftyone")
SHOWN = 10  # images left out that are named on the screen


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Declare which run, which form, and which images."""
    parser.add_argument("run", type=Path, help="run folder of `anedl fit`")
    parser.add_argument(
        "--as",
        dest="form",
        choices=FORMS,
        help="copies in folders, symbolic links in folders, tasks for Label Studio, or a data set "
        "for FiftyOne",
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="where to (default: RUN/triage/FORM)"
    )
    parser.add_argument(
        "--state",
        nargs="+",
        choices=["accept", "review", "unknown"],
        default=["accept", "review", "unknown"],
        help="only images in these states (default: all)",
    )
    parser.add_argument(
        "--bh",
        type=float,
        metavar="LEVEL",
        help="judge again: call unknown what Benjamini-Hochberg flags, so that at most this share "
        "of the unknown is expected to be of a known class (states changed by hand do not count)",
    )
    parser.add_argument(
        "--url-prefix",
        default="/data/local-files/?d=",
        metavar="URL",
        help="where Label Studio finds the images (default: its own local files)",
    )
    parser.add_argument(
        "--document-root",
        type=Path,
        default=Path("/"),
        metavar="DIR",
        help="the folder Label Studio serves local files from (default: /)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Lay out, say what is where, and end with 1 if an image had to be left out."""
    from anedl.intake.decided import Decided, read_decided
    from anedl.intake.fitted import open_run_cache, rows_of_pile, where_it_was
    from anedl.intake.unchanged import why_another
    from anedl.triage.exports import fiftyone_call
    from anedl.triage.layouts import lay_out
    from anedl.triage.table import is_edited, read_table
    from anedl.triage.verdict import judge

    triage = read_table(arguments.run)
    if arguments.form is None:
        raise ConfigError(
            f"say in which form, for example --as links, which copies nothing; there are "
            f"{', '.join(FORMS)}"
        )
    if arguments.bh is not None:
        rules = replace(triage.rules, level=arguments.bh, benjamini_hochberg=True)
        decided = read_decided(arguments.run) or Decided()
        answers = {
            row: decided.answers[name]
            for row, name in enumerate(triage.evidence.names)
            if name in decided.answers
        }
        cluster, triage = triage.cluster, judge(triage.evidence, rules, answers)
        cluster[triage.where("accept", "review")] = -1
        triage = triage.with_clusters(cluster)
        if is_edited(arguments.run):
            print(
                f"{arguments.run / 'triage.csv'} was changed by hand: it stays as it is, but with "
                f"--bh its states do not count"
            )
        tell_promise(arguments.run, arguments.bh, len(triage) - len(answers))
    out = arguments.out or arguments.run / "triage" / arguments.form
    cache = open_run_cache(arguments.run)
    readable = [entry for entry in cache.entries if not entry.reason]
    rows = rows_of_pile(arguments.run, cache, triage.evidence.names)
    pile = [readable[row] for row in rows]
    if moved := where_it_was(arguments.run, [entry.item.path for entry in pile]):
        print(f"anedl: {moved}", file=sys.stderr)
    progress = ImagesBar()
    layout = lay_out(
        triage,
        [entry.item.path for entry in pile],
        out,
        arguments.form,
        states=arguments.state,
        url_prefix=arguments.url_prefix,
        document_root=arguments.document_root,
        objection=lambda index: why_another(pile[index]),
        progress=progress,
    )
    progress.close()
    laid = layout.placed + layout.already
    said = ", ".join(f"{layout.counts[state]:,} {state}" for state in arguments.state)
    were = "was" if layout.already == 1 else "were"
    before = f" ({layout.already:,} {were} there already)" if layout.already else ""
    print(f"{laid:,} {'image' if laid == 1 else 'images'} in {layout.out}: {said}{before}")
    if arguments.form == "fiftyone":
        print(f"read it by: {fiftyone_call(layout.out.absolute())}")
    if not layout.left_out:
        return 0
    images_are = "image is" if len(layout.left_out) == 1 else "images are"
    print(f"{len(layout.left_out):,} {images_are} left out:", file=sys.stderr)
    for name, reason in layout.left_out[:SHOWN]:
        print(f"  {name}: {reason}", file=sys.stderr)
    if len(layout.left_out) > SHOWN:
        print(f"  and {len(layout.left_out) - SHOWN:,} more", file=sys.stderr)
    return 1


def tell_promise(run: Path, level: float, judged: int) -> None:
    """Say what Benjamini–Hochberg promises of so many images, and what it takes to call any."""
    from anedl.conformal import false_alarms_promise
    from anedl.export.description import model_of, read_calibration

    calibration = read_calibration(run, model_of(run, None))
    if calibration is not None:
        print(false_alarms_promise(level, len(calibration.scores("pile")), judged))


class ImagesBar:
    """How many images are done, redrawn on a terminal; silent elsewhere."""

    def __init__(self) -> None:
        self._shown_at = float("-inf")

    def __call__(self, done: int, total: int | None) -> None:
        """Show the state, unless it was shown a moment ago."""
        now = time.monotonic()
        if sys.stderr.isatty() and (now - self._shown_at > 0.1 or done == total):
            self._shown_at = now
            print(f"\r{done:,} of {total:,} images", end="", file=sys.stderr, flush=True)

    def close(self) -> None:
        """End the line."""
        if self._shown_at > float("-inf"):
            print(file=sys.stderr)
