"""Copies or links of images in folders: where each goes, decided first, and putting it there."""

import os
import shutil
import stat
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath

from anedl.data.dataset import IntArray
from anedl.errors import DataError
from anedl.files import DISK_FAULTS
from anedl.triage.sheets import cluster_name
from anedl.triage.verdict import Triage

LONGEST_NAME = 200  # bytes; file systems allow 255
LONGEST_SUFFIX = 12
PARTIAL = ".anedl-partial"
# Characters and names that some file system or shell reads as something else.
NOT_IN_NAMES = frozenset('<>:"/\\|?*')
DEVICES = {"CON", "PRN", "AUX", "NUL", *(f"{d}{n}" for d in ("COM", "LPT") for n in range(1, 10))}


@dataclass(frozen=True)
class Place:
    """Image number `index`: the file it comes from, and where it goes below the layout."""

    index: int
    source: Path
    target: PurePath


Plan = list[Place]


def plan_places(triage: Triage, source_paths: Sequence[Path], chosen: IntArray) -> Plan:
    """Decide where each chosen image goes; the same images always go to the same places."""
    classes = Names()
    used: dict[PurePath, Names] = {}
    folder_of_class = {name: classes.unused(name) for name in triage.evidence.class_names}
    plan = []
    for index in chosen.tolist():
        folder = _folder(triage, index, folder_of_class)
        source = source_paths[index].absolute()
        name = used.setdefault(folder, Names()).unused(source.name)
        plan.append(Place(index, source, folder / name))
    return plan


def place_files(
    plan: Plan,
    out: Path,
    linked: bool,
    objection: Callable[[int], str | None] = lambda index: None,
    say: Callable[[int, int | None], None] | None = None,
) -> tuple[int, list[tuple[int, str]]]:
    """Copy or link every image to its place; nothing that is there is replaced.

    Gives back how many were there already, and who was left out and why: for the `objection` to it
    or because it cannot be copied. A copy that is there stands whatever has become of its source; a
    link shows what its source does now.
    """
    already = 0
    left_out: list[tuple[int, str]] = []
    inside: set[PurePath] = set()
    for done, place in enumerate(plan, start=1):
        target = out / place.target
        if place.target.parent not in inside:
            _make_folder(target.parent, out)
            inside.add(place.target.parent)
        there = os.path.lexists(target)
        reason = None if there and not linked else objection(place.index)
        if reason is None and not there:
            reason = _link(place.source, target) if linked else _copy(place.source, target, out)
        if reason is not None:
            left_out.append((place.index, f"{reason}; a link to it is there" if there else reason))
        else:
            already += there
        if say is not None:
            say(done, len(plan))
    return already, left_out


class Names:
    """Names in one folder: harmless ones, no two of which any file system takes for the same."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def unused(self, wanted: str) -> str:
        """A harmless name like the wanted one; `cat.jpg` becomes `cat-2.jpg` the second time."""
        safe = safe_name(wanted)
        name, number = safe, self._next.get(_alike(safe), 2)
        while _alike(name) in self._taken:
            stem, suffix = _split(safe)
            name, number = f"{stem}-{number}{suffix}", number + 1
        self._next[_alike(safe)] = number
        self._taken.add(_alike(name))
        return name


def safe_name(text: str) -> str:
    """A name for a file or folder that any file system takes and that leads nowhere else."""
    name = "".join("_" if c in NOT_IN_NAMES or not c.isprintable() else c for c in text)
    name = name.strip(" .") or "_"
    stem, suffix = _split(name)
    room = LONGEST_NAME - len(suffix.encode())
    if len(stem.encode()) > room:
        stem = stem.encode()[:room].decode(errors="ignore").rstrip(" .")
    if stem.split(".")[0].upper() in DEVICES:
        stem = f"_{stem}"
    return stem + suffix


def _split(name: str) -> tuple[str, str]:
    suffix = PurePath(name).suffix
    if not suffix or len(suffix) > LONGEST_SUFFIX:
        return name, ""
    return name[: -len(suffix)], suffix


def _alike(name: str) -> str:
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _folder(triage: Triage, index: int, folder_of_class: dict[str, str]) -> PurePath:
    state = triage.state[index]
    if state == "accept":
        return PurePath("accept", folder_of_class[triage.evidence.class_of(index)])
    if state == "review":
        return PurePath("review")
    number = int(triage.cluster[index])
    return PurePath("unknown", cluster_name(number) if number >= 0 else "no-cluster")


def _make_folder(folder: Path, out: Path) -> None:
    """Make a folder of the layout, and make sure that no link leads it out of there."""
    folder.mkdir(parents=True, exist_ok=True)
    if not folder.resolve().is_relative_to(out.resolve()):
        raise DataError(f"{folder}: leads out of the layout; remove that link")


def _copy(source: Path, target: Path, out: Path) -> str | None:
    """Copy a file; the reason if it cannot be. A copy appears whole or not at all."""
    partial = out / PARTIAL
    try:
        status = source.stat()
        if not stat.S_ISREG(status.st_mode):
            return "is no file any more"
        partial.unlink(missing_ok=True)
        shutil.copyfile(source, partial)
        os.utime(partial, ns=(status.st_atime_ns, status.st_mtime_ns))
        partial.rename(target)
    except OSError as error:
        if error.errno in DISK_FAULTS:
            raise
        return f"cannot be copied ({error.strerror or error})"
    finally:
        partial.unlink(missing_ok=True)
    return None


def _link(source: Path, target: Path) -> str | None:
    if not source.is_file():
        return "is no file any more"
    target.symlink_to(source)
    return None
