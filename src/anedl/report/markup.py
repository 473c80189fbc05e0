"""Pieces of a page made in Python: whatever is put into one is escaped."""

from collections.abc import Iterable
from html import escape
from typing import Any


class Html(str):
    """Text that is markup already; the template leaves it as it is."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(self)

    def fill(self, *values: Any) -> "Html":
        """As `str.format`, with every text among the values escaped that is not markup itself."""
        return Html(self.format(*map(_harmless, values)))


def joined(parts: Iterable[Html]) -> Html:
    """Pieces one after the other."""
    return Html("".join(parts))


def _harmless(value: Any) -> Any:
    if isinstance(value, (Html, int, float)):
        return value
    return escape(str(value), quote=True)
