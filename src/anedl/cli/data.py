"""Fetch, verify and locate the data sets.

Data sets live under --root, else under $ANEDL_DATA, else ./data if it exists, else the user's
cache.
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Declare the three actions and their options."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="fetch|verify|where")
    fetch = actions.add_parser("fetch", help="download, check and unpack a data set")
    fetch.add_argument("name", help="cifar10 or cifar100; others are explained")
    fetch.add_argument(
        "--layout",
        choices=["binary", "python"],
        default="binary",
        help="which of the official archives to take (default: binary, which holds no pickles)",
    )
    verify = actions.add_parser(
        "verify", help="compare the files of a data set with their checksums"
    )
    verify.add_argument(
        "name", nargs="*", help="data sets to check (default: all that are present)"
    )
    where = actions.add_parser("where", help="print the folder data sets are looked for in")
    for action in (fetch, verify, where):
        action.add_argument("--root", type=Path, help="the folder that holds the data sets")


def run(arguments: argparse.Namespace) -> int:
    """Carry out one action; 1 when something fails verification."""
    from anedl.data import fetch, sources

    root = sources.data_root(arguments.root)
    if arguments.action == "where":
        print(root)
        return 0
    if arguments.action == "fetch":
        folder = fetch.fetch(arguments.name, root, layout=arguments.layout)
        print(f"{arguments.name} is in {folder}")
        return 0
    return _verify(arguments.name, root)


def _verify(names: list[str], root: Path) -> int:
    from anedl.data.sources import SOURCES, is_present
    from anedl.data.verify import verify

    status = 0
    for name in names or [source for source in SOURCES if source != "folder"]:
        if not names and not is_present(name, root):
            print(f"{name}: not here")
            continue
        findings = verify(name, root)
        print(f"{name}: {'as published' if not findings else f'{len(findings)} problems'}")
        for finding in findings:
            print(f"  {finding}")
            status = 1
    return status
