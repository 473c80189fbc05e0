"""What people decided: `decisions.jsonl`, a file that only ever grows.

One JSON object a line; nothing is changed or taken away once it is written:

    {"id": 1, "time": "2026-01-31T09:30:00Z", "key": "k3f9:1", "do": "label", "files": ["a.png"],
     "label": "cat"}
    {"id": 2, "time": …, "key": "k3f9:2", "do": "unknown", "files": ["b.png", "c.png"]}
    {"id": 3, "time": …, "key": "k3f9:3", "do": "skip", "files": ["d.png"]}
    {"id": 4, "time": …, "key": "k3f9:4", "do": "undo", "decision": 2}
    {"id": 5, "time": …, "key": "k3f9:5", "do": "redo", "decision": 2}

`id` grows from line to line. `files` are names as in the column `file` of `triage.csv`; `label` is
a class of the run or a new one. `skip` says that a person looked and could not tell. `undo` takes
the decision with that id back, `redo` puts it in force again. What holds for a file is the last
decision about it that is in force. `key` is the page's name for what it asked: the part before the
colon is the tab, and a request that is repeated, because no answer came, is written once.

A line is on the disk before anyone is told that it was saved. Writers take turns by a lock on the
file, so tabs, servers and programs may write at the same time. A line that a crash cut short was
never confirmed; it is passed over, and counted.
"""

import fcntl
import json
import os
import threading
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, get_args

from anedl.errors import DataError
from anedl.files import naming

Verdict = Literal["label", "unknown", "skip"]
Deed = Literal["label", "unknown", "skip", "undo", "redo"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

FILE_NAME = "decisions.jsonl"
UNKNOWN = "unknown"  # what `read_labels` gives for an image of no known class
BEFORE = "before"  # the tab of decisions that the run was trained with and took over


@dataclass(frozen=True)
class Entry:
    """One line: a verdict about `files`, or the taking back (or renewal) of a `decision`."""

    id: int
    time: str
    key: str
    do: Deed
    files: tuple[str, ...] = ()
    label: str | None = None
    decision: int | None = None

    @property
    def tab(self) -> str:
        """Where it was made."""
        return self.key.partition(":")[0]

    def to_json(self) -> str:
        """The line, without its end."""
        line: dict[str, Any] = {"id": self.id, "time": self.time, "key": self.key, "do": self.do}
        if self.do in VERDICTS:
            line["files"] = list(self.files)
        if self.label is not None:
            line["label"] = self.label
        if self.decision is not None:
            line["decision"] = self.decision
        return json.dumps(line)

    @classmethod
    def from_json(cls, text: str) -> "Entry":
        """Read what `to_json` wrote.

        Raises:
            ValueError: it is not an entry.
        """
        line = json.loads(text)
        if not isinstance(line, dict):
            raise ValueError("not an object")
        do: Any = line.get("do")
        files = line.get("files", [])
        label, decision = line.get("label"), line.get("decision")
        is_verdict = do in VERDICTS
        whole = (
            do in get_args(Deed)
            and _is_number(line.get("id"))
            and isinstance(files, list)
            and all(isinstance(name, str) for name in files)
            and (not is_verdict or bool(files))
            and (is_verdict or _is_number(decision))
            and (do != "label" or (isinstance(label, str) and bool(label)))
        )
        if not whole:
            raise ValueError("not a decision")
        return cls(
            id=line["id"],
            time=str(line.get("time", "")),
            key=str(line.get("key", "")),
            do=do,
            files=tuple(files),
            label=label if do == "label" else None,
            decision=None if is_verdict else decision,
        )


@dataclass
class Replay:
    """What holds after the entries so far."""

    entries: list[Entry] = field(default_factory=list)
    by_key: dict[str, Entry] = field(default_factory=dict)
    _decisions: dict[int, Entry] = field(default_factory=dict)
    _taken_back: set[int] = field(default_factory=set)
    _about: dict[str, list[int]] = field(default_factory=dict)

    @property
    def last_id(self) -> int:
        """The id of the last entry, 0 before the first."""
        return self.entries[-1].id if self.entries else 0

    def add(self, entry: Entry) -> None:
        """Take the next entry in.

        Raises:
            ValueError: it cannot follow: its id does not grow, or it refers to no decision.
        """
        if entry.id <= self.last_id:
            raise ValueError("the id does not grow")
        if entry.decision is not None:
            if entry.decision not in self._decisions:
                raise ValueError("it refers to no decision")
            change = self._taken_back.add if entry.do == "undo" else self._taken_back.discard
            change(entry.decision)
        else:
            self._decisions[entry.id] = entry
            for name in entry.files:
                self._about.setdefault(name, []).append(entry.id)
        self.entries.append(entry)
        if entry.key:
            self.by_key[entry.key] = entry

    def current(self, name: str) -> Entry | None:
        """The decision that holds for a file."""
        for number in reversed(self._about.get(name, ())):
            if number not in self._taken_back:
                return self._decisions[number]
        return None

    def files(self) -> Iterator[str]:
        """Every file that was ever decided about."""
        return iter(self._about)

    def decision(self, entry: Entry) -> Entry:
        """The decision that an entry makes, takes back or renews."""
        return entry if entry.decision is None else self._decisions[entry.decision]

    def touched_since(self, number: int) -> set[str]:
        """The files about which entries after this id say something."""
        start = bisect_right(self.entries, number, key=lambda entry: entry.id)
        return {name for entry in self.entries[start:] for name in self.decision(entry).files}

    def to_undo(self, tab: str) -> Entry | None:
        """The last decision in force made in this tab; else the last made anywhere."""
        in_force = [
            entry
            for entry in reversed(self.entries)
            if entry.decision is None and entry.id not in self._taken_back
        ]
        return next((entry for entry in in_force if entry.tab == tab), next(iter(in_force), None))

    def to_redo(self, tab: str) -> Entry | None:
        """The decision this tab took back last, unless it has decided something since."""
        for entry in reversed(self.entries):
            if entry.tab != tab:
                continue
            if entry.decision is None:
                return None
            if entry.do == "undo" and entry.decision in self._taken_back:
                return self._decisions[entry.decision]
        return None


@dataclass(frozen=True)
class Tally:
    """How many files were labelled, called unknown and skipped since the fit.

    `before` counts those for which still holds what was decided before it.
    """

    labelled: int
    unknown: int
    skipped: int
    before: int


def tally(replay: Replay, names: Iterable[str]) -> Tally:
    """Count what holds for these files."""
    held = [entry for name in names if (entry := replay.current(name)) is not None]
    since = Counter(entry.do for entry in held if entry.tab != BEFORE)
    return Tally(since["label"], since["unknown"], since["skip"], len(held) - since.total())


class DecisionLog:
    """The file of a run, followed as it grows; safe for several threads and processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.replay = Replay()
        self.damaged = 0  # lines that are no entries: cut short by a crash, or edited
        self._read_to = 0
        self._lock = threading.RLock()
        self.refresh()

    def refresh(self) -> Replay:
        """Take in what others have written meanwhile."""
        with self._lock:
            try:
                with self.path.open("rb") as file:
                    self._catch_up(file.fileno())
            except FileNotFoundError:
                self._start_over()
            return self.replay

    def decide(
        self, files: Sequence[str], do: Verdict, label: str | None = None, key: str = ""
    ) -> Entry:
        """Save a verdict about files and return it once it is on the disk."""
        with self._locked() as descriptor:
            if key in self.replay.by_key:
                return self.replay.by_key[key]
            entry = self._next(key, do, files=tuple(files), label=label)
            self._write(descriptor, entry)
            return entry

    def undo(self, key: str = "", again: bool = False) -> Entry | None:
        """Take back the last decision of the key's tab (else of anyone); None if there is none.

        With `again` put back what was taken back last.
        """
        with self._locked() as descriptor:
            if key in self.replay.by_key:
                return self.replay.by_key[key]
            tab = key.partition(":")[0]
            decision = self.replay.to_redo(tab) if again else self.replay.to_undo(tab)
            if decision is None:
                return None
            entry = self._next(key, "redo" if again else "undo", decision=decision.id)
            self._write(descriptor, entry)
            return entry

    def _next(self, key: str, do: Deed, **what: Any) -> Entry:
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return Entry(self.replay.last_id + 1, now, key, do, **what)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """The file open for writing, up to date, and no one else's until the end."""
        with self._lock:
            is_new = not self.path.exists()
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                if is_new:
                    _save_name(self.path.parent)
                self._catch_up(descriptor)
                self._end_last_line(descriptor)
                yield descriptor
            finally:
                os.close(descriptor)  # and the lock goes with it

    def _catch_up(self, descriptor: int) -> None:
        """Read the lines that are complete and not yet known."""
        size = os.fstat(descriptor).st_size
        if size < self._read_to:  # someone put another file in its place
            self._start_over()
        data = os.pread(descriptor, size - self._read_to, self._read_to)
        whole = data[: data.rfind(b"\n") + 1]
        self._read_to += len(whole)
        for line in whole.splitlines():
            if not line.strip():
                continue
            try:
                self.replay.add(Entry.from_json(line.decode()))
            except ValueError:
                self.damaged += 1

    def _end_last_line(self, descriptor: int) -> None:
        """Part what a crash cut short from what comes next; no writer is at work meanwhile."""
        if os.fstat(descriptor).st_size > self._read_to:
            os.write(descriptor, b"\n")
            self._catch_up(descriptor)

    def _write(self, descriptor: int, entry: Entry) -> None:
        before = os.fstat(descriptor).st_size
        rest = memoryview(entry.to_json().encode() + b"\n")
        try:
            with naming(self.path):
                while rest:
                    rest = rest[os.write(descriptor, rest) :]
                os.fsync(descriptor)
        except OSError:
            os.ftruncate(descriptor, before)  # on a full disk: all of a line or nothing
            raise
        self._catch_up(descriptor)

    def _start_over(self) -> None:
        self.replay, self.damaged, self._read_to = Replay(), 0, 0


def read_labels(path: Path) -> dict[str, str]:
    """What the people decided: file → class, or "unknown" for an image of no known class.

    Skipped files and decisions taken back are left out. A last line without an end counts if it is
    whole.

    Raises:
        DataError: there is no such file, it holds no decisions but something else, or a class is
            itself called "unknown".
    """
    if not path.is_file():
        raise DataError(f"{path}: no such file; `anedl review` writes one")
    replay, damaged = Replay(), 0
    for line in path.read_bytes().splitlines():
        if not line.strip():
            continue
        try:
            replay.add(Entry.from_json(line.decode()))
        except ValueError:
            damaged += 1
    if damaged and not replay.entries:
        raise DataError(f"{path}: none of its lines is a decision; name a file of `anedl review`")
    labels: dict[str, str] = {}
    for name in replay.files():
        entry = replay.current(name)
        if entry is None or entry.do == "skip":
            continue
        if entry.label == UNKNOWN:
            raise DataError(
                f"{path}: the decision {entry.id} labels {name!r} with a class called "
                f'"{UNKNOWN}", which means an image of no known class; give it another name'
            )
        labels[name] = entry.label or UNKNOWN
    return labels


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _save_name(folder: Path) -> None:
    """Make sure that a file that was just created is found after a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
