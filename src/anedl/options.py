"""Options as frozen dataclasses: a field with its explanation, and its way to and from JSON."""

import math
from dataclasses import MISSING, Field, asdict, field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from anedl.errors import ConfigError, unknown_name

T = TypeVar("T")


def option(default: Any, help: str, later: bool = False) -> Any:
    """Declare a dataclass field with a default and the sentence the command line shows for it.

    One that came `later` is left out of records where it has its default, so that runs from before
    there was such an option keep their digest.
    """
    return field(default=default, metadata={"help": help, "later": later})


def field_help(a_field: "Field[Any]") -> str:
    """The explanation given to `option`, or nothing."""
    return str(a_field.metadata.get("help", ""))


def field_default(a_field: "Field[Any]") -> Any:
    """The field's default; every option has one."""
    if a_field.default is MISSING:
        raise TypeError(f"option {a_field.name} has no default")
    return a_field.default


def option_types(cls: type) -> dict[str, Any]:
    """The resolved type of every field of a dataclass."""
    hints = get_type_hints(cls)
    return {a_field.name: hints[a_field.name] for a_field in fields(cls)}


def to_json(options: Any) -> dict[str, Any]:
    """A dataclass of options as plain JSON values, less what came later and has its default."""
    assert is_dataclass(options)
    assert not isinstance(options, type)
    unsaid = later_defaults(type(options))
    return {
        name: value
        for name, value in asdict(options).items()
        if name not in unsaid or value != unsaid[name]
    }


def later_defaults(cls: type) -> dict[str, Any]:
    """What a record means that leaves out options which came later."""
    return {a.name: a.default for a in fields(cls) if a.metadata.get("later")}


def from_json(cls: type[T], values: dict[str, Any]) -> T:
    """Build options from JSON values; names and types are checked, what is missing is default."""
    types = option_types(cls)
    for name in values:
        if name not in types:
            raise unknown_name("option", name, types)
    return cls(**{name: convert(name, value, types[name]) for name, value in values.items()})


def convert(name: str, value: Any, wanted: Any) -> Any:
    """Check and convert one JSON value to the type an option wants.

    Raises:
        ConfigError: the value does not fit; the message names the option and what it takes.
    """
    origin = get_origin(wanted)
    if origin is Literal:
        if value not in get_args(wanted):
            choices = ", ".join(map(str, get_args(wanted)))
            raise ConfigError(f"option {name}: {value!r} is not one of {choices}")
        return value
    if origin in (Union, UnionType):
        if value is None and NoneType in get_args(wanted):
            return None
        (inner,) = [arg for arg in get_args(wanted) if arg is not NoneType]
        return convert(name, value, inner)
    if origin is tuple:
        inner = get_args(wanted)[0]
        if not isinstance(value, list | tuple):
            raise ConfigError(f"option {name}: {value!r} is not a list")
        return tuple(convert(name, item, inner) for item in value)
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"option {name}: {value} is not a finite number")
    if not isinstance(value, wanted) or (wanted is int and isinstance(value, bool)):
        raise ConfigError(f"option {name}: {value!r} is not of type {wanted.__name__}")
    return value
