"""List the training methods, or every option of one with its default and where it comes from.

anedl methods
anedl methods openmatch
anedl methods my/method.py:MyMethod
"""

import argparse
import textwrap
from dataclasses import fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anedl.methods.catalogue import Entry


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Declare which method."""
    parser.add_argument(
        "name", nargs="?", help="show the options of this one: a name, or path/to/file.py:ClassName"
    )
    parser.add_argument("--markdown", action="store_true", help="as a Markdown table")


def run(arguments: argparse.Namespace) -> int:
    """Print the catalogue or one method's options."""
    from anedl.methods.catalogue import METHODS, get_method
    from anedl.options import field_default, field_help

    if arguments.name is None:
        width = max(map(len, METHODS))
        for name, entry in METHODS.items():
            print(f"{name:<{width}}  {entry.summary}")
        return 0
    entry = get_method(arguments.name)
    if arguments.markdown:
        print(options_table(entry), end="")
        return 0
    print(f"{arguments.name}: {entry.summary}\n")
    for a_field in fields(entry.method.config_type):
        value = entry.options.get(a_field.name, field_default(a_field))
        print(f"{a_field.name} = {value}")
        print(textwrap.indent(field_help(a_field), "    "))
    if entry.engine:
        print("\nof the engine it changes:")
        _print_values(entry.engine)
    for dataset in sorted(entry.by_dataset.keys() | entry.engine_by_dataset.keys()):
        print(f"\non {dataset} it changes:")
        _print_values(entry.by_dataset.get(dataset, {}))
        _print_values(entry.engine_by_dataset.get(dataset, {}))
    if entry.frozen:
        print("\nbehind a frozen trunk it changes:")
        _print_values(entry.frozen)
    for dataset, options in sorted(entry.frozen_by_dataset.items()):
        print(f"\nbehind a frozen trunk on {dataset} it changes besides:")
        _print_values(options)
    if entry.note:
        print(f"\nnote: {entry.note}")
    if entry.in_epochs:
        print(f"\nin proportion to the length of the run: {', '.join(entry.in_epochs)}")
    return 0


def _print_values(options: "Mapping[str, Any]") -> None:
    for name, value in options.items():
        print(f"{name} = {value}")


def options_table(entry: "Entry") -> str:
    """Every option of a method as a Markdown table: flag, default, meaning."""
    from anedl.options import field_default, field_help

    lines = ["| option | default | meaning |", "|---|---|---|"]
    for a_field in fields(entry.method.config_type):
        value: Any = entry.options.get(a_field.name, field_default(a_field))
        shown = "depends" if value is None else f"`{value}`"
        flag = "--" + a_field.name.replace("_", "-")
        lines.append(f"| `{flag}` | {shown} | {field_help(a_field)} |")
    return "\n".join(lines) + "\n"
