"""Writing files so that a reader, or a crash, never meets half of one."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`; what is written there takes `path`'s place on success.

    The bytes are on disk before the name points to them, so even a power cut leaves either the old
    file or the new one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
            # Some writers make files for the owner's eyes only; ours are as public as any other.
            os.fchmod(written.fileno(), 0o666 & ~_umask())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


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


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
