"""Whether a file still holds the picture that was read from it."""

from anedl.intake.examined import examine
from anedl.intake.index import Entry, stamp_of

_SIDE = 8  # of a frame that nobody looks at


def why_another(entry: Entry) -> str | None:
    """Why a file is not, or not any more, the picture that its entry is about; None if it is.

    Only a file whose size, date or permissions are others is decoded again: it may have been
    copied, touched or written anew, and show the same all the while.
    """
    if entry.stamp is not None and stamp_of(entry.item.path) == entry.stamp:
        return None
    found = examine(entry.item.path, _SIDE)
    if isinstance(found, str):
        return f"cannot be read any more: {found}"
    if found.digest.hex() != entry.digest:
        return "shows another picture than the one that was judged"
    return None
