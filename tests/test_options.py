"""Options: what JSON may say, what it may not, and what the reader is told."""

import json
from dataclasses import dataclass, fields
from typing import Literal

import pytest

from anedl.engine.config import TrainConfig
from anedl.errors import ConfigError, unknown_name
from anedl.methods.catalogue import METHODS
from anedl.options import (
    convert,
    field_default,
    field_help,
    from_json,
    later_defaults,
    option,
    option_types,
    to_json,
)

CONFIG_TYPES = [TrainConfig, *sorted({e.method.config_type for e in METHODS.values()}, key=str)]


@dataclass(frozen=True)
class Example:
    count: int = option(3, "how many")
    rate: float = option(0.5, "how fast")
    active: bool = option(True, "whether")
    kind: Literal["soft", "hard"] = option("soft", "which")
    limit: int | None = option(None, "at most")
    views: tuple[Literal["weak", "strong"], ...] = option(("weak",), "shown")


@dataclass(frozen=True)
class Grown(Example):
    added: float = option(0.0, "of another day", later=True)


def test_an_option_that_came_later_is_said_only_where_it_does_something():
    assert to_json(Grown()) == to_json(Example())
    assert to_json(Grown(added=2.0)) == {**to_json(Example()), "added": 2.0}
    assert from_json(Grown, to_json(Grown(added=2.0))) == Grown(added=2.0)
    assert from_json(Grown, to_json(Example())) == Grown()
    assert later_defaults(Grown) == {"added": 0.0}


def test_what_is_not_given_is_default():
    assert from_json(Example, {}) == Example()


def test_round_trip_through_a_json_file():
    example = Example(7, 1.25, False, "hard", 12, ("strong", "weak"))
    assert from_json(Example, json.loads(json.dumps(to_json(example)))) == example


@pytest.mark.parametrize("cls", CONFIG_TYPES, ids=lambda cls: cls.__name__)
def test_every_real_config_survives_json_and_explains_itself(cls):
    assert from_json(cls, json.loads(json.dumps(to_json(cls())))) == cls()
    for a_field in fields(cls):
        assert len(field_help(a_field)) > 5, a_field.name
        default = field_default(a_field)
        # A default that its own type refuses could not be written to config.json and read back.
        assert convert(a_field.name, default, option_types(cls)[a_field.name]) == default


def test_a_whole_number_serves_as_a_float_and_becomes_one():
    rate = from_json(Example, {"rate": 2}).rate
    assert rate == 2.0
    assert type(rate) is float


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("count", 1.5),
        ("count", True),
        ("count", "3"),
        ("count", None),
        ("rate", "0.5"),
        ("rate", True),
        ("rate", None),
        ("active", 1),
        ("active", "yes"),
        ("kind", "medium"),
        ("kind", None),
        ("kind", ["soft"]),
        ("limit", 1.5),
        ("limit", "none"),
        ("views", "weak"),
        ("views", ["weak", "plain"]),
        ("views", [["weak"]]),
    ],
)
def test_a_value_that_does_not_fit_names_its_option(name, value):
    with pytest.raises(ConfigError, match=f"option {name}: "):
        from_json(Example, {name: value})


def test_a_wrong_choice_lists_the_right_ones():
    with pytest.raises(ConfigError, match="soft, hard"):
        from_json(Example, {"kind": "sofd"})


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(ConfigError, match="did you mean views"):
        from_json(Example, {"view": ["weak"]})


def test_none_is_kept_where_it_is_allowed():
    assert from_json(Example, {"limit": None}).limit is None
    assert from_json(Example, {"limit": 4}).limit == 4


def test_a_field_without_default_is_no_option():
    @dataclass
    class Bare:
        size: int

    with pytest.raises(TypeError, match="size"):
        field_default(fields(Bare)[0])
    assert field_help(fields(Bare)[0]) == ""


def test_what_people_shorten_by_its_initials_is_understood():
    assert "did you mean learning_rate?" in str(
        unknown_name("option", "lr", ["kl", "learning_rate"])
    )
