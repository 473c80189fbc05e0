"""Text from files and class names, made harmless in Markdown and in YAML."""

import re
from collections.abc import Iterator, Mapping, Sequence

from anedl.intake.names import shown

# Everywhere; at the start of a line; and what would become a link all by itself.
_MARKS = re.compile(r"([\\`*_{}\[\]#|~$^!@])")
_AT_START = re.compile(r"^(\d*)([-+=]|[.)](?=\s|$))")
_LINKS = re.compile(r"(?<=www)\.|:(?=//)", re.IGNORECASE)

Value = str | float | int | bool | Sequence["Value"] | Mapping[str, "Value"]


def printable(text: str) -> str:
    """A text without line breaks and what else cannot be shown.

    Backslashes stay as they are: names in the files of a run are escaped already, and a second time
    would make other names of them.
    """
    return "\\".join(map(shown, text.split("\\")))


def markdown(text: str) -> str:
    """A text that Markdown shows as it is: on one line, without format, link or HTML."""
    plain = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    escaped = _LINKS.sub(lambda found: "\\" + found[0], _MARKS.sub(r"\\\1", plain))
    spaces = len(escaped) - len(escaped.lstrip(" "))  # they would begin a block of code
    return "&#32;" * spaces + _AT_START.sub(r"\1\\\2", escaped[spaces:])


def code(text: str) -> str:
    """A text as inline code, in as many backticks as it takes."""
    plain = printable(text)
    longest = max((len(run) for run in re.findall("`+", plain)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if "`" in plain or plain != plain.strip() or not plain else ""
    return f"{fence}{pad}{plain}{pad}{fence}"


def yaml_scalar(value: str | float | int | bool) -> str:
    """A value as YAML reads it; every text is quoted, so none is taken for something else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    return '"' + "".join(_yaml_character(character) for character in printable(value)) + '"'


def yaml(value: Mapping[str, Value], indent: int = 0) -> Iterator[str]:
    """The lines of a YAML block; keys are plain words."""
    for key, entry in value.items():
        margin = " " * indent
        if isinstance(entry, str | int | float):
            yield f"{margin}{key}: {yaml_scalar(entry)}"
        elif isinstance(entry, Mapping):
            yield f"{margin}{key}:"
            yield from yaml(entry, indent + 2)
        else:
            yield f"{margin}{key}:"
            yield from _yaml_items(entry, indent)


def _yaml_items(items: Sequence[Value], indent: int) -> Iterator[str]:
    margin = " " * indent
    for item in items:
        if isinstance(item, Mapping):
            first, *rest = yaml(item, indent + 2)
            yield f"{margin}- {first.lstrip()}"
            yield from rest
        elif isinstance(item, str | int | float):
            yield f"{margin}- {yaml_scalar(item)}"
        else:
            raise TypeError("a list in a list has no place in a card")


def _yaml_character(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character == " " or character.isprintable():
        return character
    code_point = ord(character)
    return f"\\u{code_point:04x}" if code_point < 0x10000 else f"\\U{code_point:08x}"
