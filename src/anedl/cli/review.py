"""Settle the doubtful images of a run's pile by hand, on a page in the browser.

Starts a server that only this machine can reach and prints the page's address; Ctrl-C ends it.
Every decision is saved at once in RUN/decisions.jsonl, and the next `anedl fit` can learn from
them.
"""

import argparse
import shlex
import webbrowser
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Declare which run, and where the page is served."""
    parser.add_argument("run", type=Path, help="run folder of `anedl fit`")
    parser.add_argument(
        "--port",
        type=int,
        metavar="N",
        help="port of the loopback interface (default: the one this run had before, or a free one)",
    )
    parser.add_argument("--browser", action="store_true", help="open the page in the browser")


def run(arguments: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C, then say what was settled."""
    from anedl.intake.fitted import given_to_fit
    from anedl.review.address import listen
    from anedl.review.decisions import tally
    from anedl.review.server import create_app, serve
    from anedl.review.session import Review
    from anedl.triage.verdict import STATES

    review = Review(arguments.run)
    counts = review.triage.counts()
    said = ", ".join(f"{counts[state]:,} {state}" for state in STATES)
    print(f"{arguments.run}: {len(review.names):,} images in the pile ({said})")
    if review.log.damaged:
        print(f"{review.log.path}: {review.log.damaged} lines are no decisions and are passed over")
    bound, address = listen(arguments.run, arguments.port)
    print(f"review them at {address.url}\nCtrl-C ends; every decision is saved as it is made",
          flush=True)  # fmt: skip
    if arguments.browser:
        webbrowser.open(address.url)
    serve(create_app(review, address.token, address.port), bound)
    settled = tally(review.log.refresh(), review.names)
    before = f" since the fit, and {settled.before:,} decided before it" if settled.before else ""
    print(
        f"{settled.labelled:,} images labelled, {settled.unknown:,} called unknown, "
        f"{settled.skipped:,} skipped{before}, in {review.log.path}"
    )
    if settled.labelled or settled.unknown:
        print(f"learn from them: anedl fit {given_to_fit(arguments.run)} -o NEXT "
              f"--decisions {shlex.quote(str(review.log.path))}")  # fmt: skip
    return 0
