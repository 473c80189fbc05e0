"""Set finished runs side by side: one page that opens anywhere, and a short table here.

    anedl compare runs/demo/anedl-plus-seed* runs/demo/supervised-seed*
    anedl compare RUN RUN -o two.html

Splits are compared first: runs of one seed on one split are paired, others are not, and the page
says so. Runs that differ by seed alone are one recipe; the first one named is what the others are
compared with.
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Declare which runs, and where the page goes."""
    parser.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN", help="folder of a finished run"
    )
    parser.add_argument(
        "-o", "--out", type=Path, default=Path("compare.html"), metavar="FILE",
        help="the page; only an earlier page of this kind is written over (default: compare.html)",
    )  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Read, print the table, write the page."""
    from anedl.report.compare import check_target, compare_text, write_compare
    from anedl.report.recipes import read_recipes

    recipes = read_recipes(arguments.runs)
    check_target(arguments.out)
    print(compare_text(recipes))
    print(f"\npage: {write_compare(recipes, arguments.out)}")
    return 0
