"""Which files there are: the images to read, and whatever else lies between them, with reasons.

Folders are walked in the same order on every machine. Links to files are followed; links to folders
are not (they may lead anywhere, and back), except where a class folder itself is a link.
"""

import os
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from anedl.errors import DataError
from anedl.intake.decoding import holds_image, image_suffixes
from anedl.intake.manifest import LABEL, PATH, read_rows
from anedl.intake.names import shown

_SPLIT_NAMES = {"train", "training", "test", "val", "valid", "validation"}
OUTSIDE = "it lies outside the class folders"
_HIDDEN = "it is hidden (its name says so)"


@dataclass(frozen=True)
class Item:
    """A file to decode. `name` is what people see: relative to the source, printable, unique."""

    path: Path
    name: str
    label: str | None = None


@dataclass(frozen=True)
class Skipped:
    """A file that is not used, and one sentence why."""

    name: str
    reason: str
    labelled: bool = False  # whether it lay among the labelled images, else in the pile


@dataclass(frozen=True)
class Listing:
    """What a source holds: images to decode, and what was passed over."""

    items: list[Item] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)


def list_labelled(source: Path) -> Listing:
    """List labelled images: a folder of class folders, or a CSV / Parquet manifest.

    Items come class by class, in sorted order.

    Raises:
        DataError: there are no classes, a class folder is without images, or the manifest has
            a line without path or label, or two labels for one path.
    """
    source = source.absolute()  # the items stay right when the working folder changes
    if not _is_folder(source):
        listing = _listed_in(source, labelled=True)
        listing.items.sort(key=lambda item: (item.label or "", *_order(item.name)))
        return listing
    listing = Listing()
    classes: dict[str, list[Path]] = {}
    for entry in _entries(source):
        if _is_hidden(entry.name):
            listing.skipped.append(Skipped(shown(entry.name), _HIDDEN, labelled=True))
        elif _is_folder(entry):
            # Some disks store é as one character, some as two: the class is the same.
            label = shown(unicodedata.normalize("NFC", entry.name))
            classes.setdefault(label, []).append(entry)
        else:
            listing.skipped.append(Skipped(shown(entry.name), OUTSIDE, labelled=True))
    if not classes:
        raise DataError(
            f"{shown(str(source))}: no class folders; put the images of each class into a folder "
            "of its own, named after the class"
        )
    if {label.lower() for label in classes} <= _SPLIT_NAMES:
        raise DataError(
            f"{shown(str(source))}: its folders ({', '.join(sorted(classes))}) are parts of a data "
            "set, not classes; name the one with the labelled images"
        )
    empty = []
    for label in sorted(classes):
        before = len(listing.items)
        for folder in classes[label]:
            _walk(folder, f"{folder.name}/", label, listing)
        if len(listing.items) == before:
            empty.append(shown(str(classes[label][0])))
    if empty:
        what = "the class folder holds no images; add some or remove the folder"
        if len(empty) > 1:
            what = "these class folders hold no images; add some or remove the folders"
        raise DataError(f"{', '.join(empty)}: {what}")
    return listing


def list_pile(source: Path) -> Listing:
    """List unlabelled images: a folder tree, a text file of paths, or a CSV / Parquet manifest.

    Raises:
        DataError: the source itself is missing or cannot be read.
    """
    source = source.absolute()
    if not _is_folder(source):
        return _listed_in(source, labelled=False)
    listing = Listing()
    _entries(source)  # the folder that was asked for must be readable; those below need not be
    _walk(source, "", None, listing)
    return listing


def _walk(root: Path, prefix: str, label: str | None, listing: Listing) -> None:
    """List the tree below `root`; `prefix` goes before the names, with the label on the items."""
    start = len(listing.items)
    found: list[tuple[str, Path]] = []
    waiting = [(root, prefix)]
    while waiting:
        folder, above = waiting.pop()
        try:
            with os.scandir(folder) as scan:
                entries = list(scan)
        except OSError as error:
            reason = f"the folder cannot be read ({error.strerror or error})"
            listing.skipped.append(Skipped(shown(above), reason, label is not None))
            continue
        for entry in entries:
            name = above + entry.name
            if entry.is_dir(follow_symlinks=False) and not _is_hidden(entry.name):
                waiting.append((Path(entry.path), f"{name}/"))
            elif against := _reason_against(Path(entry.path)):
                listing.skipped.append(Skipped(shown(name), against, label is not None))
            else:
                found.append((name, Path(entry.path)))
    found.sort(key=lambda pair: _order(pair[0]))
    listing.items[start:] = [Item(path, shown(name), label) for name, path in found]
    listing.skipped.sort(key=lambda skipped: _order(skipped.name))


def _reason_against(entry: Path) -> str | None:
    """Why an entry of a folder need not even be tried, if it need not."""
    if _is_hidden(entry.name):
        return _HIDDEN
    if _is_folder(entry):
        return "it is a link to a folder, which is not followed (list the folder itself)"
    if entry.suffix.lower() in image_suffixes() or holds_image(entry):
        return None  # what is wrong with it, if anything, decoding will say
    return "not an image by its name, nor by its content"


def _listed_in(source: Path, labelled: bool) -> Listing:
    """The items of a manifest or a text list."""
    if not source.exists():
        raise DataError(f"{shown(str(source))}: no such file or folder")
    if not source.is_file():
        raise DataError(f"{shown(str(source))}: neither a file nor a folder")
    if holds_image(source):
        raise DataError(
            f"{shown(str(source))}: a single image; name its folder, or a list of images"
        )
    listing = Listing()
    first: dict[str, tuple[str, str]] = {}
    for row in read_rows(source, (PATH, LABEL) if labelled else (PATH,)):
        label = shown(unicodedata.normalize("NFC", row.label))
        name = _as_meant(row.path, source.parent)
        cells = {PATH: name.strip(), LABEL: label} if labelled else {PATH: name.strip()}
        empty = next((column for column, text in cells.items() if not text), None)
        if empty and labelled:
            raise DataError(
                f"{source}, {row.place}, column {empty!r}: empty; fill it in or remove the row"
            )
        if empty:
            listing.skipped.append(Skipped(f"({row.place})", "the row names no file"))
        elif name in first:
            place, before = first[name]
            if before != label:
                raise DataError(
                    f"{source}, {row.place}, column {LABEL!r}: {shown(name)} is {label!r} "
                    f"here but {before!r} in {place}; keep one of them"
                )
            reason = f"it is listed twice ({place} and {row.place}) and used once"
            listing.skipped.append(Skipped(shown(name), reason, labelled))
        else:
            first[name] = (row.place, label)
            path = Path(source.parent, name)
            listing.items.append(Item(path, shown(name), label if labelled else None))
    return listing


def _as_meant(path: str, folder: Path) -> str:
    """A listed path without spaces around it, unless there is a file that is named with them."""
    bare = path.strip()
    return path if path == bare or os.path.lexists(folder / path) else bare


def require_some_there(source: Path, listing: Listing) -> None:
    """Refuse a list of which not a single file is there: its paths are meant in another way.

    Raises:
        DataError: says where the paths are taken from, and whether they would be found elsewhere.
    """
    items = listing.items
    if not items or _is_folder(source) or any(os.path.lexists(item.path) for item in items):
        return
    folder, first = source.absolute().parent, items[0].path
    meant = ""
    if first.is_relative_to(folder) and os.path.lexists(first.relative_to(folder)):
        meant = "; these are relative to the working folder"
    raise DataError(
        f"{shown(str(source))}: none of its {len(items):,} files is there, the first would be "
        f"{shown(str(first))}. Relative paths are taken from the folder of the list{meant}: put "
        f"the list where its paths begin, or write absolute ones"
    )


def _entries(folder: Path) -> Iterator[Path]:
    """The entries of a folder that must be readable, sorted."""
    try:
        return iter(sorted(folder.iterdir(), key=lambda entry: _order(entry.name)))
    except OSError as error:
        raise DataError(
            f"{shown(str(folder))}: cannot be read ({error.strerror or error}); change its "
            "permissions"
        ) from error


def _is_folder(path: Path) -> bool:
    """Whether it is a folder or a link to one; what cannot be looked at is none."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "__MACOSX"))


def _order(name: str) -> tuple[str, bytes]:
    """Sorted alike whatever Unicode form the disk returns; the bytes decide between equals."""
    return unicodedata.normalize("NFC", name), os.fsencode(name)
