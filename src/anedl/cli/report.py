"""Write the illustrated report of a run: RUN/report.html, one file that opens anywhere."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Declare which run."""
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("--data", type=Path, metavar="ROOT", help="folder of the data sets")


def run(arguments: argparse.Namespace) -> int:
    """Draw and say where."""
    from anedl.report.page import write_report

    print(write_report(arguments.run, arguments.data))
    return 0
