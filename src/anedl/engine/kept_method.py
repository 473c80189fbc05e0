"""The copy of a user's method that lies with its run, for when its file is another or gone.

A run may come from somebody else, and the copy is a program. So only what was trained with on this
machine before is run, which the cache folder remembers by its hash, or what the user consents to.
"""

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from anedl.engine.run_files import METHOD_FILE
from anedl.errors import ConfigError
from anedl.files import cache_folder, write_bytes
from anedl.methods.catalogue import Entry, file_of, get_method_from_copy

CHANGED = "has changed since this run"
CONSENT = "ANEDL_RUN_METHOD"  # an environment variable with the first letters of a copy's hash
LEAST_LETTERS = 8


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
    """Write the very bytes that were loaded into the run folder, and remember them as one's own."""
    if entry.content is None or entry.sha256 is None:
        return
    if not (folder / METHOD_FILE).exists():
        write_bytes(folder / METHOD_FILE, entry.content)
    with suppress(OSError):  # without a cache, consent is asked for
        _mark(entry.sha256).parent.mkdir(parents=True, exist_ok=True)
        _mark(entry.sha256).touch()


def load_kept(folder: Path, method: str, sha256: str | None) -> Kept | None:
    """The method of a run from the copy in its folder.

    None where the file itself holds what was trained, or the run has no copy.

    Raises:
        ConfigError: the copy is not what was trained either, or it came from somewhere else.
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
    if not _may_be_run(sha256):
        raise ConfigError(
            f"{source} {fate}, and {copy}, which the run brings with it, was not trained with on "
            f"this machine: it is a program, so read it; then set {CONSENT}={sha256[:12]} for the "
            f"command to use it"
        )
    entry = get_method_from_copy(method, copy, sha256)
    return Kept(entry, copy, f"{source} {fate}", changed=fate == CHANGED)


def _may_be_run(sha256: str) -> bool:
    given = os.environ.get(CONSENT, "")
    consent = len(given) >= LEAST_LETTERS and sha256.startswith(given)
    return consent or _mark(sha256).exists()


def _mark(sha256: str) -> Path:
    """The empty file which says that a method of this hash was trained with here."""
    return cache_folder() / "methods" / sha256
