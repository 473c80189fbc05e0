"""One process at a time in a folder: where two would overwrite each other, or do the same work."""

import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from anedl.errors import ConfigError

_TAKEN = (errno.EACCES, errno.EAGAIN)


@contextmanager
def sole_training(folder: Path) -> Iterator[None]:
    """Keep other processes from training in `folder`; the lock ends with this one, however it ends.

    Raises:
        ConfigError: another process trains there.
    """
    path = folder / "state" / "lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        try:
            # Not `flock`: that lock would live on in worker processes that outlive a killed run.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _TAKEN:
                raise _refusal(folder, file) from error
            # A file system without locks: nothing can be known of others.
        file.truncate(0)
        file.write(f"{os.getpid()}\n")
        file.flush()
        try:
            yield
        finally:
            if not (folder / "config.json").exists():  # refused: the folder stays free
                path.unlink(missing_ok=True)
                with suppress(OSError):
                    path.parent.rmdir()


def require_free(folder: Path) -> None:
    """Refuse a folder in which another process trains, long before it is time to train there.

    Raises:
        ConfigError: another process trains there.
    """
    try:
        file = (folder / "state" / "lock").open("r+", encoding="utf-8")
    except OSError:  # nobody has trained there, or nobody may
        return
    with file:  # whose end is that of the lock
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in _TAKEN:
                raise _refusal(folder, file) from error


def _refusal(folder: Path, file: IO[str]) -> ConfigError:
    file.seek(0)
    return ConfigError(
        f"{folder}: process {file.read().strip() or '?'} is training in this folder; wait for it "
        f"or stop it, or choose another folder"
    )


@contextmanager
def one_after_another(folder: Path, waits: Callable[[], None] = lambda: None) -> Iterator[bool]:
    """Wait until no other process is in this place for `folder`, which is made if need be.

    `waits` is called where there is one to wait for. Yields whether this process is known to be
    alone there; on a file system without locks it is not, and at worst work is done twice.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("a+") as file:
        alone = is_taken = False
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except OSError as error:
            is_taken = error.errno in _TAKEN
        if is_taken:
            waits()
            with suppress(OSError):
                fcntl.lockf(file, fcntl.LOCK_EX)
                alone = True
        yield alone
