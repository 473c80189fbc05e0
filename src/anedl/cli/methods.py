"""List the training methods, or every option of one with its default and where it comes from."""

import argparse
import textwrap
from dataclasses import fields


def add_arguments(parser: argparse.ArgumentParser, words: list[str]) -> None:
    """Declare which method."""
    parser.add_argument("name", nargs="?", help="show this method's options")


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
    print(f"{arguments.name}: {entry.summary}\n")
    for a_field in fields(entry.method.config_type):
        value = entry.options.get(a_field.name, field_default(a_field))
        print(f"{a_field.name} = {value}")
        print(textwrap.indent(field_help(a_field), "    "))
    if entry.engine:
        print("\nof the engine it changes:")
        for name, value in entry.engine.items():
            print(f"{name} = {value}")
    return 0
