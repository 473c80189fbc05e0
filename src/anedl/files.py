"""Writing files so that a reader, or a crash, never meets half of one."""

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# The disk is at fault, not what is written: there is no use in trying the next file.
DISK_FAULTS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}

# The folder in which a process writes a file: `.`, its name, the process, `.tmp`.
_TEMPORARY = re.compile(r"\..+\.\d+\.tmp")
# How libraries written in Rust, safetensors among them, quote an error of the system.
_QUOTED_ERROR = re.compile(r"\(os error (\d+)\)")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path near `path`; what is written there takes `path`'s place on success.

    The bytes are on disk before the name points to them, so even a power cut leaves either the old
    file or the new one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # A folder, since some writers have temporary files of their own beside what they write.
    place = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    temporary = place / path.name
    try:
        with naming(path):
            place.mkdir(exist_ok=True)
            yield temporary
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
                # Some writers make files for the owner's eyes only; ours are as public as any.
                os.fchmod(written.fileno(), 0o666 & ~_umask())
            temporary.replace(path)
    finally:
        shutil.rmtree(place, ignore_errors=True)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Let a fault of the disk while `path` is written say so: the system does not name the file.

    Raises:
        OSError: the disk is full or may not be written to, whatever the writer made of it.
    """
    try:
        yield
    except Exception as error:
        fault = _disk_fault(error)
        if fault is None:
            raise
        raise OSError(fault, os.strerror(fault), str(path)) from error


def sweep(folder: Path) -> None:
    """Remove what processes that were killed while writing left in `folder` and below it.

    Only for a folder in which nobody else is writing.
    """
    for found in list(folder.rglob(".*.tmp")):
        if not _TEMPORARY.fullmatch(found.name):
            continue
        if found.is_dir():
            shutil.rmtree(found, ignore_errors=True)
        else:  # earlier versions wrote into a file of that name
            found.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a whole file at once."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write a whole text file at once."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_json(path: Path, value: Any) -> None:
    """Write a value as indented JSON at once."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def cache_folder() -> Path:
    """Where compiled code is kept between runs: `ANEDL_CACHE`, or the user's cache folder."""
    if named := os.environ.get("ANEDL_CACHE"):
        return Path(named).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "anedl"


def _disk_fault(error: Exception) -> int | None:
    """The number of a fault of the disk, unless the error names a file of its own."""
    if isinstance(error, OSError):
        number, named = error.errno, error.filename
    else:
        quoted = _QUOTED_ERROR.search(str(error))
        number, named = int(quoted[1]) if quoted else None, None
    if number not in DISK_FAULTS:
        return None
    if named is None:
        return number
    place = Path(os.fsdecode(named))
    is_ours = any(_TEMPORARY.fullmatch(name) for name in (place.name, place.parent.name))
    return number if is_ours else None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
