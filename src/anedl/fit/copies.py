"""Images that occur more than once: from which likeness on, and what to say where that hurts."""

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from anedl.errors import DataError
from anedl.fit.choices import Choice
from anedl.intake.describing import IF_THEY_DIFFER
from anedl.intake.duplicates import NEAR_DISTANCE
from anedl.intake.findings import Findings
from anedl.intake.fitted import AS_ASKED, near_distance_of
from anedl.intake.listing import Listing


def distance_choice(findings: Findings, asked: bool) -> list[Choice]:
    """What counts as a copy, where that matters: it was `asked` for, or there are some by it."""
    distance = findings.near_distance
    if asked or distance != NEAR_DISTANCE:
        return [Choice("near distance", distance, AS_ASKED)]
    if findings.near == findings.exact:
        return []
    why = "bits of 64 by which hashes of near-duplicates differ at most; 0: equal pixels only"
    return [Choice("near distance", distance, why)]


def recorded_distance(run: Path, resume: bool) -> int:
    """The near distance of the run that is to go on, else the usual one."""
    return near_distance_of(run) if resume else NEAR_DISTANCE


@contextmanager
def remedy_for(distance: int, otherwise: Callable[[], object]) -> Iterator[None]:
    """Add to a refusal within that it comes from near-duplicates, where it does.

    `otherwise` does the same with exact copies only.
    """
    try:
        yield
    except DataError as error:
        if distance == 0:
            raise
        try:
            otherwise()
        except DataError:
            raise error from None
        raise DataError(f"{error}; {IF_THEY_DIFFER}") from error


def same_files(labelled: Path, pile: Path, ours: Listing, theirs: Listing) -> tuple[str, ...]:
    """A sentence where files of the pile are the labelled ones themselves."""

    @functools.cache
    def real(folder: Path) -> str:
        return os.path.realpath(folder)

    known = {(real(item.path.parent), item.path.name) for item in ours.items}
    same = sum((real(item.path.parent), item.path.name) in known for item in theirs.items)
    if not same:
        return ()
    place, around = labelled.resolve(), pile.resolve()
    if place == around:
        why = "labelled images and pile are one and the same place"
    elif place.is_relative_to(around):
        why = "the labelled images lie in the pile"
    elif around.is_relative_to(place):
        why = "the pile lies among the labelled images"
    else:
        why = "the two overlap"
    return (
        f"{why}: {same:,} of the pile's {len(theirs.items):,} files are labelled images themselves "
        f"and teach nothing new; keep the two apart",
    )
