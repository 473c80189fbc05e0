"""Names in any script: where matplotlib's own font lacks a letter, others of this machine lend it.

matplotlib warns of every missing letter, in its own words and as often as it meets one. Here a
figure is drawn with what fonts there are, and the caller learns which letters none of them has.
"""

import re
import warnings
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MISSING = re.compile(r"Glyph (\d+) .*missing from font")
# It has a box for every letter of any script, and no letter.
BOXES_ONLY = "Last Resort"


def saved(figure: "Figure", **options: Any) -> tuple[bytes, str]:
    """What `Figure.savefig` writes, made in memory, and the letters that no font here has."""
    content, missing = _drawn(figure, options)
    if missing and (families := _families_with(missing)):
        _lend(figure, missing, families)
        content, missing = _drawn(figure, options)
    return content, missing


def _drawn(figure: "Figure", options: dict[str, Any]) -> tuple[bytes, str]:
    buffer = BytesIO()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        figure.savefig(buffer, **options)
    missing = set()
    for warning in caught:
        if found := MISSING.match(str(warning.message)):
            missing.add(chr(int(found[1])))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )
    return buffer.getvalue(), "".join(sorted(missing))


@cache
def _families_with(letters: str) -> tuple[str, ...]:
    """Installed families that have some of the letters, upright and of usual weight if possible."""
    from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font

    families: list[str] = []
    left = set(letters)
    for entry in sorted(
        fontManager.ttflist, key=lambda e: (e.style != "normal", e.weight != 400, e.name)
    ):
        if not left:
            break
        if entry.name.startswith(BOXES_ONLY) or entry.name in families:
            continue
        try:
            if not _lettered(get_font(entry.fname), left):
                continue
            # The file that drawing will take for the family, which may be another one of it.
            has = _lettered(get_font(findfont(FontProperties(family=entry.name))), left)
        except (OSError, RuntimeError):  # such as a font of coloured pictures
            continue
        if has:
            families.append(entry.name)
            left -= has
    return tuple(families)


def _lettered(font: Any, letters: set[str]) -> set[str]:
    return {letter for letter in letters if font.get_char_index(ord(letter))}


def _lend(figure: "Figure", letters: str, families: tuple[str, ...]) -> None:
    """Let the texts that hold some of the letters take them from these families."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        assert isinstance(text, Text)
        if not set(letters).isdisjoint(text.get_text()):
            text.set_fontfamily([*text.get_fontfamily(), *families])
