"""The index of an image cache: a line about the cache, then one for every file that went in."""

import json
from dataclasses import dataclass
from pathlib import Path

from anedl.intake.listing import Item

VERSION = 1

Stamp = tuple[int, int, int]
"""Size, time of change and permissions of a file: another stamp, another file."""

Source = tuple[Item, Stamp | None]
"""What an entry is made of; the stamp is None where there is no file to look at."""


@dataclass(frozen=True)
class Header:
    """The first line: the side of the frames, and how many files went in."""

    side: int
    files: int


@dataclass(frozen=True)
class Entry:
    """A file that went in: a row of the pixels, or skipped for a reason."""

    item: Item
    stamp: Stamp | None
    width: int = 0
    height: int = 0
    digest: str = ""
    hash: int = 0
    reason: str = ""  # empty for an image
    depth: int = 0  # bits that the values take in a file of 16 bits; 0 for all other files

    @property
    def source(self) -> Source:
        """What it was made of; an entry of the same source need not be made again."""
        return self.item, self.stamp

    def to_json(self) -> str:
        """One line; names of any bytes survive, as JSON escapes."""
        item = [str(self.item.path), self.item.name, self.item.label]
        hash_ = f"{self.hash:016x}"
        facts = [self.width, self.height, self.digest, hash_, self.reason, self.depth]
        return json.dumps([*item, self.stamp, *facts], separators=(",", ":"))

    @classmethod
    def from_json(cls, line: str) -> "Entry":
        """Read what `to_json` wrote."""
        # An index that was written before the depth was looked at has none.
        path, name, label, stamp, width, height, digest, hash_, reason, *depth = json.loads(line)
        item = Item(Path(path), name, label)
        made = None if stamp is None else (stamp[0], stamp[1], stamp[2])
        return cls(item, made, width, height, digest, int(hash_, 16), reason, *depth)


def header_line(side: int, files: int) -> str:
    """The first line of an index."""
    return json.dumps({"version": VERSION, "side": side, "files": files}) + "\n"


def read_index(path: Path) -> tuple[Header, list[Entry]]:
    """The header and the entries up to the first line that was not written to its end.

    Raises:
        OSError: there is no index.
        ValueError: it is not an index of this version.
    """
    with path.open(encoding="ascii") as file:
        first = json.loads(file.readline())
        if not isinstance(first, dict) or first.pop("version", None) != VERSION:
            raise ValueError(f"{path}: not an index of version {VERSION}")
        entries = []
        for line in file:
            try:
                entries.append(Entry.from_json(line))
            except (ValueError, TypeError):
                break
    return Header(int(first["side"]), int(first["files"])), entries


def stamp_of(path: Path) -> Stamp | None:
    """The stamp of a file as it is now, None where there is none to look at."""
    try:
        status = path.stat()
    except (OSError, ValueError):
        return None
    return status.st_size, status.st_mtime_ns, status.st_mode
