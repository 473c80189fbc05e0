"""Write the illustrated report of a run: RUN/report.html, one file that opens anywhere.

anedl report runs/digits/anedl-plus-seed0
anedl report runs/digits/anedl-plus-seed0 --figures paper/figures --format pdf
"""

import argparse
from pathlib import Path

from anedl.cli.evaluate import say_aside

FORMATS = ("pdf", "svg", "png")


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Declare which run."""
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("--data", type=Path, metavar="ROOT", help="folder of the data sets")
    parser.add_argument(
        "--figures", type=Path, metavar="FOLDER", help="write the figures as files, not the page"
    )
    parser.add_argument(
        "--format", choices=FORMATS, default="pdf", help="of these files (default: pdf)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Draw and say where."""
    from anedl.intake.fitted import require_fitted
    from anedl.report.figure_files import write_figures
    from anedl.report.page import write_report

    require_fitted(arguments.run)
    if arguments.figures is None:
        print(write_report(arguments.run, arguments.data))
        return 0
    for path in write_figures(arguments.run, arguments.figures, arguments.format, say_aside):
        print(path)
    return 0
