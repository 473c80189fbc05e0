"""The copy of a user's method that lies with its run, for when its file is another or gone."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

from anedl.engine.run_files import METHOD_FILE
from anedl.errors import ConfigError
from anedl.files import write_bytes
from anedl.methods.catalogue import Entry, file_of, get_method_from_copy

CHANGED = "has changed since this run"


@dataclass(frozen=True)
class Kept:
    """A method that was loaded from its run's copy; `why` says what became of the file."""

    entry: Entry
    copy: Path
    why: str
    changed: bool


def check_place(folder: Path, entry: Entry) -> None:
    """Refuse a run folder in which another file has the name of the copy.

    Raises:
        ConfigError: there is one, and it may be somebody's only one.
    """
    copy = folder / METHOD_FILE
    if entry.content is not None and copy.exists() and copy.read_bytes() != entry.content:
        raise ConfigError(
            f"{copy}: a run keeps the file of its method under this name, and this is another file "
            f"than {entry.source}; move it away, or choose another run folder"
        )


def keep_method(folder: Path, entry: Entry) -> None:
    """Write the very bytes that were loaded into the run folder."""
    if entry.content is not None and not (folder / METHOD_FILE).exists():
        write_bytes(folder / METHOD_FILE, entry.content)


def load_kept(folder: Path, method: str, sha256: str | None) -> Kept | None:
    """The method of a run from the copy in its folder.

    None where the file itself holds what was trained, or the run has no copy.

    Raises:
        ConfigError: the copy is not what was trained either.
    """
    source, copy = file_of(method), folder / METHOD_FILE
    if source is None or sha256 is None or not copy.is_file():
        return None
    try:
        if hashlib.sha256(source.read_bytes()).hexdigest() == sha256:
            return None
        fate = CHANGED
    except FileNotFoundError:
        fate = "is gone"
    except OSError:  # of another user, say
        fate = "cannot be read"
    entry = get_method_from_copy(method, copy, sha256)
    return Kept(entry, copy, f"{source} {fate}", changed=fate == CHANGED)
