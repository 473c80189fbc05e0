"""A run under review: its images in any order and choice, where they stand, and what is decided."""

import hashlib
import json
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from anedl.data.dataset import IntArray
from anedl.errors import ConfigError, DataError
from anedl.intake.decided import Decided, read_decided
from anedl.intake.fitted import open_run_cache, rows_of_pile
from anedl.intake.names import shown
from anedl.review.decisions import FILE_NAME, VERDICTS, DecisionLog, Entry
from anedl.review.decisions import UNKNOWN as UNKNOWN_LABEL
from anedl.review.estimates import OPEN, SKIPPED, UNKNOWN, effect
from anedl.review.queue import order_by_worth, random_order
from anedl.review.thumbnails import Picture, PictureCache, thumbnail, whole_image
from anedl.triage.table import read_table
from anedl.triage.verdict import STATES, State

Order = Literal["worth", "random", "score", "file"]
Show = Literal["open", "settled", "all"]

LONGEST_LABEL = 100  # characters


class ChangedError(DataError):
    """The page speaks of another pile than the one that is here now."""


@dataclass(frozen=True)
class Choice:
    """Which images to show, and in what order; None does not choose.

    `class_name` is the class an image was given, or else the model's guess; "" chooses the images
    that were called unknown by hand. `low` and `high` bound the inlier score.
    """

    states: tuple[State, ...] = STATES
    show: Show = "open"
    class_name: str | None = None
    cluster: int | None = None
    low: float | None = None
    high: float | None = None
    order: Order = "worth"

    def __post_init__(self) -> None:
        for name, values, known in (
            ("state", self.states, STATES),
            ("show", (self.show,), get_args(Show)),
            ("order", (self.order,), get_args(Order)),
        ):
            if wrong := [value for value in values if value not in known]:
                raise ConfigError(f"{name}: {wrong[0]!r} is none of {', '.join(known)}")


class Review:
    """Everything the page asks about; safe for several threads."""

    def __init__(self, run: Path) -> None:
        self.run = run
        self.triage = read_table(run)
        evidence = self.triage.evidence
        self.names = evidence.names
        self._number = {name: i for i, name in enumerate(self.names)}
        if len(self._number) < len(self.names):
            raise DataError(f"{run / 'triage.csv'}: a file is listed twice; remove one of the rows")
        self._cache = open_run_cache(run)
        self._rows = rows_of_pile(run, self._cache, self.names)
        items = self._cache.items
        self._paths = [items[row].path for row in self._rows]
        self._state = np.array([STATES.index(state) for state in self.triage.state], np.int64)
        self._random = random_order(len(self.names))
        # What was decided before this model was trained says nothing about the model.
        before = (read_decided(run) or Decided()).answers
        self._asked = np.flatnonzero([name not in before for name in self.names])
        asked_at_random = self._random[np.isin(self._random, self._asked)]
        self._asked_order = np.searchsorted(self._asked, asked_at_random)
        self._orders = {
            "worth": order_by_worth(self.triage),
            "random": self._random,
            "score": np.argsort(evidence.score, kind="stable"),
            "file": np.arange(len(self.names)),
        }
        self._pictures = PictureCache()
        self._lock = threading.RLock()
        self.log = DecisionLog(run / FILE_NAME)
        self.labels = list(evidence.class_names)
        self._standing: IntArray = np.full(len(self.names), OPEN, np.int64)
        self._seen = 0
        self.pile = hashlib.sha256("\0".join(self.names).encode()).hexdigest()[:16]
        self._follow()

    def state(self) -> dict[str, Any]:
        """All that a page needs at its start."""
        with self._lock:
            self._follow()
            score = self.triage.evidence.score
            clusters, sizes = np.unique(
                self.triage.cluster[self.triage.cluster >= 0], return_counts=True
            )
            return {
                "run": self.run.resolve().name,
                "states": list(STATES),
                "images": len(self.names),
                "clusters": [[int(c), int(n)] for c, n in zip(clusters, sizes, strict=True)],
                "scores": [float(score.min()), float(score.max())] if len(score) else [0.0, 0.0],
                "expected": self._expected(),
                "damaged": self.log.damaged,
                **self._changes(None),
            }

    def changes(self, seen: int) -> dict[str, Any]:
        """Where the images stand about which something was said after the entry `seen`."""
        with self._lock:
            self._follow()
            return self._changes(seen)

    def view(self, choice: Choice) -> IntArray:
        """Positions of the chosen images, in order."""
        with self._lock:
            self._follow()
            standing = self._standing.copy()
            labels = list(self.labels)
        evidence = self.triage.evidence
        chosen = np.isin(self._state, [STATES.index(name) for name in choice.states])
        if choice.show != "all":
            chosen &= (standing == OPEN) == (choice.show == "open")
        if choice.class_name == "":
            chosen &= standing == UNKNOWN
        elif choice.class_name is not None:
            if choice.class_name not in labels:
                raise ConfigError(f"there is no class {choice.class_name!r}")
            held = np.where(standing >= 0, standing, evidence.first)
            chosen &= (held == labels.index(choice.class_name)) & (standing != UNKNOWN)
        if choice.cluster is not None:
            chosen &= self.triage.cluster == choice.cluster
        if choice.low is not None:
            chosen &= evidence.score >= choice.low
        if choice.high is not None:
            chosen &= evidence.score <= choice.high
        order: IntArray = self._orders[choice.order]
        shown_now: IntArray = order[chosen[order]]
        return shown_now

    def items(self, numbers: Sequence[int]) -> list[dict[str, Any]]:
        """What the model says of some images."""
        self._check(numbers)
        evidence = self.triage.evidence
        return [
            {
                "at": i,
                "file": self.names[i],
                "state": self.triage.state[i],
                "guess": int(evidence.first[i]),
                "probability": float(evidence.probability[i]),
                "second": int(evidence.second[i]),
                "secondProbability": float(evidence.second_probability[i]),
                "score": float(evidence.score[i]),
                "p": float(evidence.p_value[i]),
                "epistemic": _number_or_none(float(evidence.epistemic[i])),
                "aleatoric": _number_or_none(float(evidence.aleatoric[i])),
                "cluster": _member(int(self.triage.cluster[i])),
                "alike": _member(int(evidence.duplicate_group[i])),
                "reason": self.triage.reason[i],
                "width": int(self._cache.width[self._rows[i]]),
                "height": int(self._cache.height[self._rows[i]]),
            }
            for i in numbers
        ]

    def thumbnail(self, number: int) -> Picture:
        """The small picture of an image."""
        self._check([number])
        picture = self._pictures.get(number)
        if picture is None:
            picture = thumbnail(self._cache.images[self._rows[number]])
            self._pictures.put(number, picture)
        return picture

    def whole_image(self, number: int) -> Picture:
        """The image itself, from its file."""
        self._check([number])
        return whole_image(self._paths[number])

    def decide(
        self, pile: str, numbers: Sequence[int], do: str, label: str | None, key: str, seen: int
    ) -> dict[str, Any]:
        """Save a verdict about images; return it with all changes since `seen`."""
        self._check_pile(pile)
        if not numbers:
            raise ConfigError("a decision is about at least one image")
        self._check(numbers)
        if do not in VERDICTS:
            raise ConfigError(f"a decision is one of {', '.join(VERDICTS)}, not {do!r}")
        with self._lock:
            if do == "label":
                label = self._checked_label(label)
            files = [self.names[i] for i in numbers]
            entry = self.log.decide(files, do, label if do == "label" else None, key)
            self._follow()
            return {"entry": self._said(entry), **self._changes(seen)}

    def undo(self, pile: str, key: str, seen: int, again: bool) -> dict[str, Any]:
        """Take the last decision back (or put it back); return what it was, and the changes."""
        self._check_pile(pile)
        with self._lock:
            entry = self.log.undo(key, again)
            self._follow()
            said = None if entry is None else self._said(self.log.replay.decision(entry))
            return {"entry": said, **self._changes(seen)}

    def _follow(self) -> None:
        """Bring the standings up to what the file says now."""
        replay = self.log.refresh()
        if replay.last_id < self._seen:  # the file was replaced
            self._standing[:] = OPEN
            self._seen = 0
        for name in replay.touched_since(self._seen):
            if name in self._number:  # a pile may have changed since
                self._standing[self._number[name]] = self._code(replay.current(name))
        self._seen = replay.last_id

    def _code(self, entry: Entry | None) -> int:
        if entry is None:
            return OPEN
        if entry.label is None:
            return UNKNOWN if entry.do == "unknown" else SKIPPED
        if entry.label not in self.labels:
            self.labels.append(entry.label)
        return self.labels.index(entry.label)

    def _changes(self, seen: int | None) -> dict[str, Any]:
        """Standings that differ from what a page knows; all of them where it knows nothing."""
        if seen is None or seen > self._seen:
            changed = np.flatnonzero(self._standing != OPEN).tolist()
        else:
            touched = self.log.replay.touched_since(seen)
            changed = [self._number[name] for name in touched if name in self._number]
        evidence, asked = self.triage.evidence, self._asked
        known = len(evidence.class_names)
        result = effect(
            self._state[asked],
            evidence.first[asked],
            self._standing[asked],
            self._asked_order,
            known,
        )
        return {
            "pile": self.pile,
            "whole": seen is None or seen > self._seen,
            "seen": self._seen,
            "labels": self.labels,
            "standings": [[i, int(self._standing[i])] for i in changed],
            "effect": asdict(result),
        }

    def _said(self, entry: Entry) -> dict[str, Any]:
        numbers = [self._number[name] for name in entry.files if name in self._number]
        return {"id": entry.id, "do": entry.do, "label": entry.label, "at": numbers}

    def _expected(self) -> dict[str, float] | None:
        """What the fit said about the share of outliers, if it did."""
        try:
            told = json.loads((self.run / "fit.json").read_text(encoding="utf-8"))["pollution"]
            return {name: float(told[name]) for name in ("share", "low", "high")}
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _checked_label(self, label: str | None) -> str:
        text = (label or "").strip() if label not in self.labels else label
        if not text:
            raise ConfigError("a class needs a name")
        if text in self.triage.evidence.class_names and text != UNKNOWN_LABEL:
            return text
        if text.casefold() == UNKNOWN_LABEL:
            raise ConfigError('"unknown" is no class: press u for images of no known class')
        if len(text) > LONGEST_LABEL or text != shown(text):
            raise ConfigError(
                f"the name of a class is one line of at most {LONGEST_LABEL} characters"
            )
        return text

    def _check(self, numbers: Sequence[int]) -> None:
        if any(not 0 <= number < len(self.names) for number in numbers):
            raise ConfigError("there is no such image in the run")

    def _check_pile(self, pile: str) -> None:
        if pile != self.pile:
            raise ChangedError("the pile of this run has changed; load the page again")


def _number_or_none(value: float) -> float | None:
    return None if np.isnan(value) else value


def _member(number: int) -> int | None:
    return None if number < 0 else number
