"""Errors a user can act on: each says what is wrong, where, and what to do."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

_EXAMPLES = 5  # that a message names before it only counts


class AnedlError(Exception):
    """An error whose message is meant for the person at the keyboard."""


class DataError(AnedlError):
    """A file or a folder of images is not what it should be."""


class ConfigError(AnedlError):
    """A setting, method, option or value is not one we know or can use."""


class Notice(UserWarning):
    """What the person at the keyboard should know; the command says it in one line."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> ConfigError:
    """Build the error for a name we do not know, with the nearest ones that we do."""
    choices = sorted(known)
    near = [choice for choice in choices if name and name.lower() == _initials(choice)]
    near = near or get_close_matches(name, choices, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(choices)}"
    return ConfigError(f"unknown {kind} {name!r}: {hint}")


def _initials(name: str) -> str:
    """The first letters of its words, if there are several: "lr" for "learning_rate"."""
    words = name.replace("-", "_").split("_")
    return "".join(word[:1] for word in words) if len(words) > 1 else ""


def counted(number: int, one: str, many: str = "") -> str:
    """How many there are of it: "1 image", "2,000 images", "3 classes"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def first_few(texts: Sequence[str]) -> str:
    """The first of them with commas between, and how many more there are."""
    more = len(texts) - _EXAMPLES
    return ", ".join(texts[:_EXAMPLES]) + (f" and {more} more" if more > 0 else "")
