"""A person's decisions as labels of the next round: which of them fit this pile, and what follows.

People look at the doubtful images first, so images that were decided about are no fair sample of
anything. They train, and they judge nothing: neither a validation nor a calibration image is ever
one of them, or like one of them.
"""

import unicodedata
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from anedl.data.dataset import IntArray
from anedl.errors import ConfigError, DataError, counted
from anedl.fit.wishes import Say
from anedl.intake.cache import ImageCache, open_cache
from anedl.intake.decided import DECIDED_FILE, Decided, read_decided
from anedl.intake.names import shown
from anedl.review.decisions import BEFORE, FILE_NAME, UNKNOWN, DecisionLog, read_labels

SHOWN = 3  # names that are given as examples


def decisions_for(
    run: Path, paths: Sequence[Path], cache: ImageCache, resume: bool, say: Say
) -> Decided:
    """The decisions a run is to use: those in `paths`, or its own where it goes on.

    Raises:
        ConfigError: the run that is to go on was begun without decisions.
        DataError: a file is no decisions, or those of another pile.
    """
    begun = any((run / name).exists() for name in ("config.json", "supervised"))
    own = read_decided(run) if resume else None
    if resume and begun and own is None and paths:
        raise ConfigError(
            f"{run}: this run was begun without decisions; leave --decisions out to go on with it, "
            f"or choose another folder"
        )
    if own is None or (paths and not begun):
        return match_decisions(paths, cache)
    there = [path for path in map(_file_of, paths) if path.is_file()]
    if there and match_decisions(there, cache).answers != own.answers:
        say("going on with the decisions this run began with; those made since are for the next")
    return own


def check_files(run: Path, paths: Sequence[Path], resume: bool) -> None:
    """Refuse what holds no decisions before anything takes time.

    Raises:
        DataError: there is no such file, or it holds something else.
    """
    if not (resume and (run / DECIDED_FILE).exists()):
        for path in paths:
            read_labels(_file_of(path))


def match_decisions(paths: Sequence[Path], cache: ImageCache) -> Decided:
    """Find the images of the pile that the decisions in `paths` are about; later files win.

    A file of decisions lies in the run folder it was made in. Where that still has its images, a
    picture that was replaced under the same name since is noticed.

    Raises:
        DataError: a file is no decisions, or those of another pile.
    """
    now = {
        item.name: digest
        for item, digest in zip(cache.items, cache.digests, strict=True)
        if item.label is None
    }
    answers: dict[str, str] = {}
    gone: dict[str, None] = {}
    changed: dict[str, None] = {}
    for path in map(_file_of, paths):
        said, then = read_labels(path), _pictures_of(path.parent)
        lost = [name for name in said if name not in now]
        other = [name for name in said if name in now and then.get(name, now[name]) != now[name]]
        used = len(said) - len(lost) - len(other)
        # Names such as 0001.png occur in many piles; pictures do not.
        if said and (used == 0 or len(other) > used):
            raise _of_another_pile(path, len(said), len(lost), len(other))
        gone |= dict.fromkeys(lost)
        changed |= dict.fromkeys(other)
        answers |= {name: label for name, label in said.items() if name not in {*lost, *other}}
    return Decided(
        {n: _class_name(label) for n, label in answers.items() if label != UNKNOWN},
        tuple(name for name, label in answers.items() if label == UNKNOWN),
        tuple(name for name in gone if name not in answers),
        tuple(name for name in changed if name not in answers),
        tuple(map(str, paths)),
    )


def named_answers(
    run: Path, paths: Sequence[Path], pile: Collection[str], resume: bool
) -> dict[str, str | None]:
    """What was decided about files of the `pile` (their names): the class, or None for unknown.

    That is before any of them is decoded, and so all that names tell.

    Raises:
        DataError: a file is no decisions, or not one of its files is in the pile.
    """
    if not paths:
        own = read_decided(run) if resume else None
        return {} if own is None else {n: a for n, a in own.answers.items() if n in pile}
    answers: dict[str, str | None] = {}
    for path in map(_file_of, paths):
        said = read_labels(path)
        there = {name: label for name, label in said.items() if name in pile}
        if said and not there:
            raise _of_another_pile(path, len(said), len(said), 0)
        answers |= {n: None if a == UNKNOWN else _class_name(a) for n, a in there.items()}
    return answers


def positions_of(decided: Decided, cache: ImageCache) -> dict[int, str | None]:
    """The class of every image decided about by its position in the cache, None for unknown."""
    answers = decided.answers
    return {
        position: answers[item.name]
        for position, item in enumerate(cache.items)
        if item.label is None and item.name in answers
    }


def require_enough(
    answers: Mapping[int, str | None], new: Sequence[str], groups: IntArray, fewest: int
) -> None:
    """Refuse `new` classes with fewer different images than any class needs.

    `answers` are by position, as `positions_of` gives them; `groups` (N,) are near-duplicates.

    Raises:
        DataError: names each such class, its count and the minimum.
    """
    short = []
    for name in new:
        of_class = groups[[position for position, label in answers.items() if label == name]]
        different = int((of_class < 0).sum()) + len(np.unique(of_class[of_class >= 0]))
        if different < fewest:
            short.append(f"{name!r} has {different}")
    if short:
        raise DataError(too_few_reviewed(short, fewest))


def too_few_reviewed(short: Sequence[str], fewest: int) -> str:
    """What to say of classes that people have named, each with how many images it has."""
    return (
        f"too few images of a class made in the review: {'; '.join(short)} (near-duplicates count "
        f"once); a class needs at least {fewest} different images, so label more of them in the "
        f"review, or call them unknown until there are enough"
    )


def describe_decided(decided: Decided, new: Sequence[str]) -> list[str]:
    """What was decided and what becomes of it, a line each; nothing where nothing was given."""
    if not decided.files:
        return []
    lines = [
        f"decisions of a person: {counted(len(decided.classes), 'image')} labelled, "
        f"{len(decided.unknown):,} called unknown"
    ]
    if decided.classes:
        lines.append(
            "  the labelled ones train only; being picked for review they are no fair sample, so "
            "they neither validate nor calibrate"
        )
    if decided.unknown:
        lines.append("  those called unknown are kept out of training and stay unknown")
    for name in new:
        count = sum(label == name for label in decided.classes.values())
        lines.append(
            f"  new class {name!r} ({counted(count, 'image')}): it has no held-out images, so "
            f"errors and the promise of the threshold are about the other classes"
        )
    for names, what in (
        (decided.gone, "no longer in the pile or not readable"),
        (decided.changed, "another picture under the same name since"),
    ):
        if names:
            examples = ", ".join(names[:SHOWN]) + (" …" if len(names) > SHOWN else "")
            lines.append(f"note: {counted(len(names), 'decision')} not used, {what}: {examples}")
    return lines


def carry_over(run: Path, decided: Decided) -> None:
    """Write the decisions used into the run's own file: its review goes on from there."""
    if not len(decided):
        return
    log = DecisionLog(run / FILE_NAME)
    by_class: dict[str, list[str]] = {}
    for name, label in decided.classes.items():
        by_class.setdefault(label, []).append(name)
    # A key is written once, so a fit that goes on repeats nothing and overrules nobody.
    for number, (label, files) in enumerate(by_class.items()):
        log.decide(files, "label", label, key=f"{BEFORE}:{number}")
    if decided.unknown:
        log.decide(decided.unknown, "unknown", key=f"{BEFORE}:unknown")


def _of_another_pile(path: Path, said: int, lost: int, other: int) -> DataError:
    return DataError(
        f"{path}: these decisions are about another pile: of {counted(said, 'file')} {lost:,} are "
        f"not in this one and {other:,} show another picture; give the decisions of a review of "
        f"this pile, or leave --decisions out"
    )


def _file_of(path: Path) -> Path:
    """The file of decisions; a run folder stands for its own."""
    return path / FILE_NAME if path.is_dir() else path


def _pictures_of(run: Path) -> dict[str, str]:
    """Digests of the pile's pictures by name as they were in a run; nothing where they are gone."""
    try:
        cache = open_cache(run / "cache")
    except DataError:
        return {}
    pairs = zip(cache.items, cache.digests, strict=True)
    return {item.name: digest for item, digest in pairs if item.label is None}


def _class_name(label: str) -> str:
    """The name as that of a class folder would read."""
    return shown(unicodedata.normalize("NFC", label))
