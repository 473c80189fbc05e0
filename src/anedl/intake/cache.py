"""Decoded images on disk: every file is decoded once, and epochs read frames of one size.

A cache folder holds `pixels.npy`, (N, side, side, 3) uint8, and `index.jsonl`: a line about the
cache, then one for every file that went in, whether it is a row of the pixels or was skipped.
While a cache is being built both grow in `partial/`; an interrupted build goes on from there. When
files are added or changed, the frames of the others are copied and not decoded again.
"""

import fcntl
import io
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from anedl.data.dataset import ArrayImages, IntArray, UInt8Array
from anedl.errors import ConfigError, DataError
from anedl.intake.examined import Examined
from anedl.intake.index import Entry, Source, Stamp, header_line, read_index, stamp_of
from anedl.intake.listing import Item, Skipped
from anedl.intake.photographs import HEIC, reads_heic
from anedl.intake.pool import examine_all

SAVED_EVERY = 256  # files: what an interruption can lose
PIXELS, INDEX, PARTIAL = "pixels.npy", "index.jsonl", "partial"


@dataclass(frozen=True)
class ImageCache:
    """Decoded images in a folder; row n of everything belongs to image n."""

    folder: Path
    side: int
    entries: Sequence[Entry]

    @cached_property
    def _kept(self) -> list[Entry]:
        return [entry for entry in self.entries if not entry.reason]

    @property
    def items(self) -> list[Item]:
        """The files behind the images."""
        return [entry.item for entry in self._kept]

    @cached_property
    def images(self) -> ArrayImages:
        """The frames, read from disk when they are looked at."""
        return ArrayImages(_map_pixels(self.folder / PIXELS, len(self._kept), self.side))

    @cached_property
    def width(self) -> IntArray:
        """(N,) widths of the upright images before framing."""
        return np.array([entry.width for entry in self._kept], np.int64)

    @cached_property
    def height(self) -> IntArray:
        """(N,) heights of the upright images before framing."""
        return np.array([entry.height for entry in self._kept], np.int64)

    @property
    def digests(self) -> list[str]:
        """SHA-256 of the decoded pixels, hexadecimal: equal for exact duplicates."""
        return [entry.digest for entry in self._kept]

    @cached_property
    def hashes(self) -> npt.NDArray[np.uint64]:
        """(N,) perceptual hashes."""
        return np.array([entry.hash for entry in self._kept], np.uint64)

    @property
    def depths(self) -> IntArray:
        """(N,) bits that the values take in files of 16 bits, 0 for all other files."""
        return np.array([entry.depth for entry in self._kept], np.int64)

    @property
    def skipped(self) -> list[Skipped]:
        """The files that could not be decoded."""
        return [
            Skipped(entry.item.name, entry.reason, entry.item.label is not None)
            for entry in self.entries
            if entry.reason
        ]


def build_cache(
    items: Sequence[Item],
    folder: Path,
    side: int,
    workers: int = 0,
    progress: Callable[[int, int | None], None] | None = None,
    unread: Mapping[Path, str] = MappingProxyType({}),
) -> ImageCache:
    """Decode every item once into `folder`, or open what is there if no file has changed.

    `workers` processes decode; with 0 this one does. `progress` is told the bytes of frames so far
    and their total, files that are skipped included. Photographs that could not be read for want of
    a package are tried again once it is installed. `unread` are files to skip unseen, with why: a
    run that has begun must find the images that it began on and no others.

    Raises:
        ConfigError: `side` is below 8.
        DataError: the disk is too small, or another process is building here.
    """
    if side < 8:
        raise ConfigError(f"images must be at least 8 pixels wide, got {side}")
    sources = [(item, stamp_of(item.path)) for item in items]
    with _locked(folder):
        old = _read(folder, side)
        if (
            old is not None
            and [entry.source for entry in old.entries] == sources
            and not any(_can_be_read_now(entry, unread) for entry in old.entries)
        ):
            return old
        _require_space(folder, len(items) * side * side * 3)
        _build(sources, folder, side, workers, old, unread, progress)
    return open_cache(folder)


def open_cache(folder: Path) -> ImageCache:
    """Open a cache that was built before.

    Raises:
        DataError: there is none, or it is damaged.
    """
    cache = _read(folder)
    if cache is None:
        raise DataError(f"{folder}: no complete image cache; build it again")
    return cache


def discard_cache(folder: Path) -> None:
    """Make it as if there were none; it is built anew when it is asked for."""
    (folder / INDEX).unlink(missing_ok=True)


def _build(
    sources: Sequence[Source],
    folder: Path,
    side: int,
    workers: int,
    old: ImageCache | None,
    unread: Mapping[Path, str],
    progress: Callable[[int, int | None], None] | None,
) -> None:
    """Write `pixels.npy` and `index.jsonl` in `partial/`, then put them in their place."""
    partial = folder / PARTIAL
    partial.mkdir(exist_ok=True)
    entries = _resumable(partial, side, sources, unread)
    kept = sum(not entry.reason for entry in entries)
    frame_bytes = side * side * 3
    try:
        with (
            _open_rows(partial / PIXELS, side, kept) as pixels,
            (partial / INDEX).open("w", encoding="ascii") as index,
        ):
            index.write(header_line(side, len(sources)))
            index.writelines(entry.to_json() + "\n" for entry in entries)
            unsaved: list[Entry] = []
            done = len(entries)
            for entry, frame in _examined(sources[done:], side, workers, old, unread):
                if frame is not None:
                    pixels.write(frame.tobytes())
                    kept += 1
                unsaved.append(entry)
                done += 1
                if len(unsaved) == SAVED_EVERY or done == len(sources):
                    # The index never speaks of pixels that are not on disk yet.
                    _to_disk(pixels)
                    index.writelines(entry.to_json() + "\n" for entry in unsaved)
                    index.flush()
                    unsaved = []
                if progress is not None:
                    progress(done * frame_bytes, len(sources) * frame_bytes)
            pixels.seek(0)
            _write_header(pixels, kept, side)
            _to_disk(pixels)
            index.flush()
            os.fsync(index.fileno())
    except OSError as error:
        raise DataError(
            f"{folder}: the image cache cannot be written ({error.strerror or error}); "
            "free some space or name another folder"
        ) from error
    # Without an index there is no cache, so no moment has an index beside the wrong pixels.
    (folder / INDEX).unlink(missing_ok=True)
    (partial / PIXELS).replace(folder / PIXELS)
    (partial / INDEX).replace(folder / INDEX)
    partial.rmdir()


def _examined(
    sources: Sequence[Source],
    side: int,
    workers: int,
    old: ImageCache | None,
    unread: Mapping[Path, str],
) -> Iterator[tuple[Entry, UInt8Array | None]]:
    """Entry and frame of every source in order: from the old cache where the file is the same."""
    known: dict[tuple[Path, Stamp], tuple[int, Entry]] = {}
    if old is not None:
        rows = (entry for entry in old.entries if not entry.reason)
        for row, entry in enumerate(rows):
            if entry.stamp is not None:
                known[entry.item.path, entry.stamp] = row, entry
    new = [
        item.path
        for item, stamp in sources
        if item.path not in unread and (stamp is None or (item.path, stamp) not in known)
    ]
    answers = examine_all(new, side, workers)
    for item, stamp in sources:
        if item.path in unread:
            yield Entry(item, stamp, reason=unread[item.path]), None
            continue
        copied = None if stamp is None else known.get((item.path, stamp))
        if copied is not None and old is not None:
            row, entry = copied
            yield replace(entry, item=item, stamp=stamp), old.images[row]
            continue
        answer = next(answers)
        if isinstance(answer, Examined):
            facts = answer.width, answer.height, answer.digest.hex(), answer.hash
            yield Entry(item, stamp, *facts, depth=answer.depth), answer.frame
        else:
            yield Entry(item, stamp, reason=answer), None


def _resumable(
    partial: Path, side: int, sources: Sequence[Source], unread: Mapping[Path, str]
) -> list[Entry]:
    """The entries of an interrupted build that are still right and whose pixels are there."""
    entries: list[Entry] = []
    try:
        header, found = read_index(partial / INDEX)
        rows = ((partial / PIXELS).stat().st_size - _header_bytes(side)) // (side * side * 3)
    except (OSError, ValueError):
        return entries
    if header.side != side:
        return entries
    for entry, source in zip(found, sources, strict=False):
        rows -= not entry.reason
        if entry.source != source or rows < 0 or _can_be_read_now(entry, unread):
            break
        entries.append(entry)
    return entries


def _can_be_read_now(entry: Entry, unread: Mapping[Path, str]) -> bool:
    """Whether a photograph was skipped for want of a package that is there by now."""
    return entry.reason == HEIC and entry.item.path not in unread and reads_heic()


def _read(folder: Path, side: int | None = None) -> ImageCache | None:
    """The complete cache in a folder, if there is one (of the given side)."""
    try:
        header, entries = read_index(folder / INDEX)
        size = (folder / PIXELS).stat().st_size
    except (OSError, ValueError):
        return None
    kept = sum(not entry.reason for entry in entries)
    whole = size == _header_bytes(header.side) + kept * header.side**2 * 3
    if not whole or header.files != len(entries) or side not in (None, header.side):
        return None
    return ImageCache(folder, header.side, entries)


def _map_pixels(path: Path, count: int, side: int) -> UInt8Array:
    if count == 0:  # nothing cannot be mapped
        return np.zeros((0, side, side, 3), np.uint8)
    pixels: UInt8Array = np.load(path, mmap_mode="r")
    return pixels


def _open_rows(path: Path, side: int, kept: int) -> BinaryIO:
    """A pixel file with its first `kept` rows, open for those that follow."""
    path.touch()
    file = path.open("r+b")
    _write_header(file, kept, side)
    file.truncate(file.tell() + kept * side * side * 3)
    file.seek(0, os.SEEK_END)
    return file


def _write_header(file: BinaryIO, count: int, side: int) -> None:
    # NumPy leaves room for the first number to grow, so the header may be written again.
    shape = (count, side, side, 3)
    header = {"descr": "|u1", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, header)


def _header_bytes(side: int) -> int:
    file = io.BytesIO()
    _write_header(file, 0, side)
    return file.tell()


def _to_disk(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


def _require_space(folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DataError(
            f"{folder}: the image cache takes up to {needed / 1e9:.1f} GB but {free / 1e9:.1f} GB "
            "are free; free some space, name another folder or take smaller images"
        )


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other builders out of the folder; the lock goes with the process, however it ends."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise DataError(
                f"{folder}: another process is building this image cache; wait for it"
            ) from error
        yield
