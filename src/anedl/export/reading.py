"""Which files to judge, and their frames: read ahead of the model, in order, in bounded memory.

Files come in chunks. Those named on the command line are one chunk; those listed on standard input
are as many as have arrived, so a slow writer gets its answers before it has finished.
"""

import os
import queue
import select
import threading
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from anedl.data.dataset import UInt8Array
from anedl.errors import ConfigError, DataError, first_few
from anedl.export.framing import Framing
from anedl.intake.listing import list_pile
from anedl.intake.names import shown
from anedl.intake.pool import examine_all

CHUNK = 4096  # paths taken from a list at once
MOST_DECODERS = 8
AHEAD = 256  # frames that wait for the model
LONGEST_NAME = 2**20  # bytes; no path is so long, so what comes is no list of paths
_QUIET_SECONDS = 0.2  # a list that is silent for so long is looked at as far as it goes
_LOOK_SECONDS = 0.2  # how often to see whether the reader is still wanted
_BLOCK = 2**16


@dataclass(frozen=True)
class Wanted:
    """A file to judge, and its name as people see it; `error` where it need not even be tried."""

    path: Path
    name: str
    error: str | None = None


@dataclass(frozen=True, eq=False)
class Frame:
    """The plain view (side, side, 3) of a file, or the reason that there is none."""

    name: str
    pixels: UInt8Array | None
    error: str | None = None


class EndOfChunk:
    """Nothing more has come for now: whoever waits should get what there is."""


END_OF_CHUNK = EndOfChunk()


@dataclass(frozen=True)
class Listed:
    """Files and folders as they were found: what to judge, and what was passed over, and why.

    `without` names the folders that gave nothing to judge.
    """

    wanted: list[Wanted]
    passed_over: list[tuple[str, str]]
    without: list[str]


def decoders(wanted: int | None) -> int:
    """How many processes decode: as many as `wanted`, else one a core, but at most eight.

    Raises:
        ConfigError: `wanted` is negative.
    """
    if wanted is None:
        usable = getattr(os, "sched_getaffinity", None)
        return min(MOST_DECODERS, len(usable(0)) if usable else os.cpu_count() or 1)
    if wanted < 0:
        raise ConfigError(f"--workers {wanted}: 0 (no processes of their own) or more")
    return wanted


def list_paths(paths: Sequence[Path]) -> Listed:
    """List files as they are, and folders with all below them; the order is kept.

    What lies in a folder and is no image is passed over; a folder that cannot be read, or a path
    that is not there, is an error of its own.
    """
    listed = Listed([], [], [])
    for path in paths:
        if not _is_folder(path):
            listed.wanted.append(Wanted(path, shown(str(path))))
            continue
        above = shown(str(path)).rstrip("/") + "/"
        try:
            listing = list_pile(path)
        except DataError as error:
            listed.wanted.append(Wanted(path, above, _reason(error, path)))
            continue
        before = len(listed.wanted)
        listed.wanted.extend(Wanted(item.path, above + item.name) for item in listing.items)
        for skipped in listing.skipped:
            if skipped.name.endswith("/"):
                name = above + skipped.name
                listed.wanted.append(Wanted(path / skipped.name, name, skipped.reason))
            else:
                listed.passed_over.append((above + skipped.name, skipped.reason))
        if len(listed.wanted) == before:
            listed.without.append(above)
    return listed


def require_there(paths: Sequence[Path]) -> None:
    """Refuse what was named and is not there.

    Raises:
        DataError: names what is missing.
    """
    if missing := [shown(str(path)) for path in paths if not _is_there(path)]:
        raise DataError(
            f"{first_few(missing)}: there is no such file or folder; name what there is"
        )


def arriving(descriptor: int, null: bool = False) -> Iterator[list[Wanted]]:
    """Paths from an open file, one a line, in chunks as they come.

    They are separated by NUL characters (`find -print0`) with `null`, or where the first block
    holds one.

    Raises:
        DataError: what comes is no list of paths.
    """
    separator = b"\0" if null else None
    rest = b""
    waiting: list[Wanted] = []
    while True:
        if len(waiting) >= CHUNK or (waiting and not _readable(descriptor)):
            yield waiting[:CHUNK]
            del waiting[:CHUNK]
            continue
        block = os.read(descriptor, _BLOCK)
        if separator is None:
            block = block.removeprefix(b"\xef\xbb\xbf")
            separator = b"\0" if b"\0" in block else b"\n"
        *names, rest = (rest + block).split(separator)
        if not block:
            names, rest = [*names, rest], b""
        if len(rest) > LONGEST_NAME:
            raise DataError(
                "standard input is not a list of paths: no line break in its first mebibyte"
            )
        for name in names:
            text = os.fsdecode(name if separator == b"\0" else name.removesuffix(b"\r"))
            if text.strip():
                waiting.append(Wanted(Path(text), shown(text)))
        if not block:
            break
    if waiting:
        yield waiting


def read_ahead(
    chunks: Iterable[Sequence[Wanted]], framing: Framing, workers: int
) -> Generator[Frame | EndOfChunk, None, None]:
    """The frames of all files, in order, and a mark after each chunk; a thread reads ahead.

    `workers` processes decode; with none, the thread does it itself.
    """
    coming: queue.Queue[Frame | EndOfChunk | BaseException | None] = queue.Queue(AHEAD)
    unwanted = threading.Event()

    def put(item: Frame | EndOfChunk | BaseException | None) -> None:
        while not unwanted.is_set():
            try:
                return coming.put(item, timeout=_LOOK_SECONDS)
            except queue.Full:
                continue
        raise _UnwantedError

    def read() -> None:
        try:
            for chunk in chunks:
                with closing(_frames(chunk, framing, workers)) as frames:
                    for frame in frames:
                        put(frame)
                put(END_OF_CHUNK)
            put(None)
        except _UnwantedError:
            return
        except BaseException as error:
            try:
                put(error)  # whoever asks for the next frame raises it
            except _UnwantedError:
                return

    # A daemon: it may be waiting for standard input when nobody wants to know any more.
    reader = threading.Thread(target=read, name="anedl-read-ahead", daemon=True)
    reader.start()
    try:
        while (item := coming.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        unwanted.set()
        reader.join(2 * _LOOK_SECONDS)


class _UnwantedError(Exception):
    """The other side has left."""


def _frames(
    chunk: Sequence[Wanted], framing: Framing, workers: int
) -> Generator[Frame, None, None]:
    paths = [wanted.path for wanted in chunk if wanted.error is None]
    examined = examine_all(paths, framing.resize, workers)
    for wanted in chunk:
        if wanted.error is not None:
            yield Frame(wanted.name, None, wanted.error)
            continue
        found = next(examined)
        if isinstance(found, str):
            yield Frame(wanted.name, None, found)
        else:
            yield Frame(wanted.name, framing.crop(found.frame))


def _readable(descriptor: int) -> bool:
    """Whether something has come, or will within a moment; at its end a file always is."""
    return bool(select.select([descriptor], [], [], _QUIET_SECONDS)[0])


def _is_there(path: Path) -> bool:
    try:
        path.stat()
    except PermissionError:
        return True  # it may be; why it cannot be read is told by whoever tries
    except (OSError, ValueError):
        return False
    return True


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False


def _reason(error: DataError, path: Path) -> str:
    """The sentence of an error without the path that it begins with."""
    return str(error).removeprefix(f"{shown(str(path.absolute()))}: ")
