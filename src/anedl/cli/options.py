"""Command-line flags made from dataclasses of options: one flag a field, its help beside it."""

import argparse
from collections.abc import Mapping
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from anedl.options import field_default, field_help, option_types

NONE_WORDS = ("none", "auto")


def add_options(
    parser: argparse.ArgumentParser,
    cls: type,
    title: str,
    prefix: str,
    defaults: Mapping[str, Any] | None = None,
) -> None:
    """Add a flag for every field of `cls`; what is not given stays out of the namespace.

    Flags fill namespace entries called `prefix.field`, which `given_options` collects again. Their
    help states the default of `cls`, or the one in `defaults`.
    """
    group = parser.add_argument_group(title)
    types = option_types(cls)
    for a_field in fields(cls):
        flag = "--" + a_field.name.replace("_", "-")
        shown = _shown((defaults or {}).get(a_field.name, field_default(a_field)))
        common: dict[str, Any] = {
            "dest": f"{prefix}.{a_field.name}",
            "default": argparse.SUPPRESS,
            "help": f"{field_help(a_field)} (default: {shown})".replace("%", "%%"),
        }
        group.add_argument(flag, **common, **_argument(types[a_field.name]))


def add_which_model(parser: argparse.ArgumentParser) -> None:
    """Declare which of a run's two models is meant."""
    parser.add_argument(
        "--model",
        choices=["last", "best"],
        help="the last epoch's model or the best by validation (default: the calibrated one, else "
        "the last)",
    )


def given_options(arguments: argparse.Namespace, prefix: str) -> dict[str, Any]:
    """The options that were given on the command line, by field name."""
    start = f"{prefix}."
    return {
        name.removeprefix(start): value
        for name, value in vars(arguments).items()
        if name.startswith(start)
    }


def _argument(wanted: Any) -> dict[str, Any]:
    """How argparse should read a value of the type `wanted`."""
    origin = get_origin(wanted)
    if wanted is bool:
        return {"action": argparse.BooleanOptionalAction}
    if origin is Literal:
        return {"choices": get_args(wanted)}
    if origin is tuple:
        return {"nargs": "*", **_argument(get_args(wanted)[0])}
    if origin in (Union, UnionType):
        (inner,) = [arg for arg in get_args(wanted) if arg is not NoneType]
        if get_origin(inner) is tuple:
            return _argument(inner)  # who wants the default leaves the flag out
        return {"type": _or_none(inner), "metavar": inner.__name__.upper()}
    return {"type": wanted, "metavar": wanted.__name__.upper()}


def _or_none(inner: type) -> Any:
    def read(text: str) -> Any:
        return None if text.lower() in NONE_WORDS else inner(text)

    read.__name__ = inner.__name__  # argparse names the type in its error
    return read


def _shown(default: Any) -> str:
    if default is None:
        return "auto"
    if isinstance(default, tuple):
        return " ".join(map(str, default))
    return str(default)
