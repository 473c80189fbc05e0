"""From two places on disk to decoded images with roles: who trains, validates, calibrates."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from anedl.data.batches import worker_count
from anedl.data.dataset import IntArray
from anedl.data.progress import TransferBar
from anedl.data.protocol import Split
from anedl.engine.own import OWN, labels_of
from anedl.errors import ConfigError, DataError
from anedl.files import write_json
from anedl.fit.begun import (
    has_begun,
    require_same_frames,
    require_same_roles,
    unread_to_the_end,
)
from anedl.fit.choices import FEWEST_A_CLASS, Choice, choose_augmentation, choose_side
from anedl.fit.copies import recorded_distance, remedy_for, same_files
from anedl.fit.decisions import (
    check_files,
    decisions_for,
    describe_decided,
    named_answers,
    positions_of,
    require_enough,
    too_few_reviewed,
)
from anedl.fit.roles import Roles, deal_roles
from anedl.fit.wishes import Say, Wishes
from anedl.intake.cache import INDEX, ImageCache, build_cache, discard_cache
from anedl.intake.decided import Decided, write_decided
from anedl.intake.describing import describe
from anedl.intake.duplicates import duplicate_groups, exact_groups, shared_with
from anedl.intake.facts import image_sizes
from anedl.intake.findings import Findings, find, write_skipped
from anedl.intake.index import stamp_of
from anedl.intake.listing import (
    OUTSIDE,
    Listing,
    Skipped,
    list_labelled,
    list_pile,
    require_some_there,
)
from anedl.intake.partition import too_few
from anedl.networks import TrainedOn
from anedl.review.decisions import UNKNOWN

OUTNUMBER = 3  # labelled files for each of the pile, from where the two may have been swapped
MANY_OUTSIDE = 0.25  # of the labelled files lie in no class folder: likewise


@dataclass(frozen=True)
class Gathered:
    """All images of a fit and what each is for; positions index the cache.

    `fresh` and `decoys` are held out to calibrate: `fresh` stay away from training, `decoys` lie in
    the pile with their labels hidden. `pile` are the user's own pile images, all of them; those
    among them that look like a validation or a fresh image are kept out of the pool, and so are
    those that people have decided about, whose `answers` are by position (None: unknown). `fold`
    numbers the labelled images that fold models judge by, −1 for all other images.
    """

    cache: ImageCache
    names: tuple[str, ...]
    labels: IntArray  # (N,) known classes, K for the pile
    groups: IntArray  # (N,) near-duplicates, −1 alone
    split: Split
    fresh: IntArray
    decoys: IntArray
    pile: IntArray
    findings: Findings
    skipped: tuple[Skipped, ...]
    side: Choice
    decided: Decided
    answers: Mapping[int, str | None]
    folds: Choice
    fold: IntArray  # (N,)

    @property
    def undecided(self) -> npt.NDArray[np.bool_]:
        """Which images of the pile (in its order) nobody has decided about."""
        return ~np.isin(self.pile, list(self.answers))

    @property
    def new_classes(self) -> list[str]:
        """Classes that people have named, of which no labelled image was given."""
        of_folders = {item.label for item in self.cache.items}
        return [name for name in self.names if name not in of_folders]

    @property
    def told_of_decisions(self) -> list[str]:
        """What is to be said of the decisions, a line each."""
        return describe_decided(self.decided, self.new_classes)


def list_sources(labelled: Path, pile: Path) -> tuple[Listing, Listing, tuple[str, ...]]:
    """What lies in either place, and the names of the classes; no image is opened.

    Raises:
        DataError: one of them is empty, there are too few classes, or one has a name of ours.
    """
    ours, theirs = list_labelled(labelled), list_pile(pile)
    if not ours.items:
        raise DataError(f"{labelled}: no labelled images; put some of each class into its folder")
    if not theirs.items:
        raise DataError(f"{pile}: there are no images in the pile")
    require_some_there(labelled, ours)
    require_some_there(pile, theirs)
    classes = tuple(sorted({item.label for item in ours.items if item.label is not None}))
    if len(classes) < 2:
        raise DataError(f"{labelled}: one class only ({classes[0]!r}); at least two are needed")
    if nameless := [name for name in classes if name.casefold() == UNKNOWN]:
        raise DataError(
            f"{labelled}: a class called {nameless[0]!r}, as anedl calls images of no known class; "
            f"known strangers teach it nothing, so take them away, or give the class another name "
            f"if it is one"
        )
    return ours, theirs, classes


def looks_swapped(ours: Listing, theirs: Listing) -> tuple[str, ...]:
    """A sentence where labelled images and pile may have been given in the wrong order."""
    labelled, pile = len(ours.items), len(theirs.items)
    outside = sum(skipped.reason == OUTSIDE for skipped in ours.skipped)
    found = []
    if labelled >= OUTNUMBER * pile:
        found.append(f"there are {labelled:,} labelled files and only {pile:,} in the pile")
    if outside >= MANY_OUTSIDE * (labelled + outside):
        found.append(f"{outside:,} of {labelled + outside:,} labelled files lie in no class folder")
    if not found:
        return ()
    return (
        f"{', and '.join(found)}: did you swap them? Labelled images come first, the pile second",
    )


def require_files(
    run: Path, wishes: Wishes, ours: Listing, theirs: Listing, classes: Sequence[str]
) -> None:
    """Refuse what names and counts of files tell already, before any of them is decoded.

    What cannot be read, and copies, may leave fewer images; that is checked once they are known.

    Raises:
        DataError: names every class with too few files; or decisions are about another pile.
    """
    if has_begun(run):
        return
    pile = {item.name for item in theirs.items}
    answers = named_answers(run, wishes.decision_files, pile, wishes.resume)
    counts = Counter(item.label for item in ours.items)
    counts.update(label for label in answers.values() if label is not None)
    few = {n: c for n, c in counts.items() if n is not None and c < FEWEST_A_CLASS}
    faults = []
    if short := [f"{name!r} has {few[name]}" for name in classes if name in few]:
        faults.append(too_few(short, FEWEST_A_CLASS))
    if new := [f"{name!r} has {few[name]}" for name in sorted({*few} - {*classes})]:
        faults.append(too_few_reviewed(new, FEWEST_A_CLASS))
    if faults:
        raise DataError("; ".join(faults))


def gather(
    labelled: Path,
    pile: Path,
    run: Path,
    wishes: Wishes,
    device: torch.device,
    say: Say,
    trained: TrainedOn | None = None,
) -> Gathered:
    """List, look, decode once, find duplicates, and deal out the roles.

    `trained` says how a backbone that was trained before has seen images.

    Raises:
        ConfigError: decisions for a run that was begun without, or a run that is to go on was
            begun on other images; nothing of it has been changed then.
        DataError: too few images, or none at all; the message says how many are needed. Or the
            decisions are about another pile.
    """
    check_files(run, wishes.decision_files, wishes.resume)
    ours, theirs, classes = list_sources(labelled, pile)
    require_files(run, wishes, ours, theirs, classes)
    items = [*ours.items, *theirs.items]
    unread = unread_to_the_end(run, items) if has_begun(run) else {}
    side = choose_side(image_sizes(items), device, wishes.image_size, trained)
    assert isinstance(side.value, int)
    way = choose_augmentation(side.value, wishes.augmentation).value
    require_same_frames(run, side.value, str(way))
    # The size that views are cut from, so that no image is ever resized twice.
    cropped = way == "imagenet"
    frame = side.value * 8 // 7 if cropped else side.value
    bar = None if wishes.quiet else TransferBar("decoding images")
    before = stamp_of(run / "cache" / INDEX)
    try:
        workers = worker_count(wishes.workers)
        cache = build_cache(items, run / "cache", frame, workers, bar, unread)
    finally:
        if bar is not None:
            bar.close()

    # Before any refusal, which may well be on account of them.
    skipped = (*ours.skipped, *theirs.skipped, *cache.skipped)
    write_skipped(run / "skipped.csv", skipped)
    if not any(item.label is None for item in cache.items):
        raise DataError(
            f"{pile}: none of its {len(theirs.items):,} files can be read; "
            f"{run / 'skipped.csv'} says why"
        )
    distance = wishes.near_distance
    if distance is None:
        distance = recorded_distance(run, wishes.resume)
    groups = duplicate_groups(cache.digests, cache.hashes, distance)
    decided = decisions_for(run, wishes.decision_files, cache, wishes.resume, say)
    answers = positions_of(decided, cache)
    new = tuple(sorted({*decided.classes.values()} - {*classes}))
    exact = exact_groups(cache.digests)
    with remedy_for(distance, lambda: require_enough(answers, new, exact, FEWEST_A_CLASS)):
        require_enough(answers, new, groups, FEWEST_A_CLASS)
    write_decided(run, decided)
    classes += new  # after the others, whose numbers stay as they were
    labels = labels_of(cache, classes, decided.classes)
    pile_positions = np.array([n for n, item in enumerate(cache.items) if item.label is None])
    left = np.setdiff1d(pile_positions, list(answers))
    if not len(left):
        raise DataError(f"{pile}: every image of it has been decided about; nothing is left to do")
    labelled_by_people = {n: label for n, label in answers.items() if label is not None}
    passed = [*ours.skipped, *theirs.skipped]
    findings = find(cache, groups, passed, None, labelled_by_people, distance)
    findings = replace(
        findings,
        remarks=(
            *looks_swapped(ours, theirs),
            *same_files(labelled, pile, ours, theirs),
        ),
    )

    def dealt(alike: IntArray) -> tuple[Roles, IntArray]:
        """The roles, and the images of the pile that are left to train on."""
        roles = deal_roles(
            labels, alike, classes, answers, wishes.level, wishes.seed, wishes.folds_wanted
        )
        judges = np.concatenate([roles.validation, roles.fresh])
        # What looks like a decoy trains, without a label, as the decoy itself does. The pile's own
        # copies of one another train as well, and decoys stand for the pile's images only as long
        # as both are treated alike.
        trains = np.setdiff1d(left, shared_with(alike, judges, left))
        if not len(trains):
            raise DataError(
                f"{pile}: all its images ({len(left):,}) are like ones that validate or "
                f"calibrate, so none is left to train on; add others"
            )
        return roles, trains

    try:
        with remedy_for(distance, lambda: dealt(exact)):
            roles, trains = dealt(groups)
    except DataError:
        # Who is refused still wants to see what there is, copies and broken files among it.
        say(describe(findings))
        raise
    elsewhere = ", in a new folder" if has_begun(run) else ""
    findings = replace(
        find(cache, groups, passed, roles.partition, labelled_by_people, distance, roles.decoys),
        remarks=(*findings.remarks, *(f"{remark}{elsewhere}" for remark in roles.remarks)),
    )
    pool = np.union1d(trains, roles.decoys)
    split = Split(
        setting=OWN,
        fold=0,
        development=False,
        known_classes=tuple(range(len(classes))),
        known_names=classes,
        labelled=roles.labelled,
        validation=roles.validation,
        pool=pool,
        test=roles.fresh,
        test_part="train",
    )
    asked = {
        "--seed": wishes.seed, "--near-distance": distance, "--target-inlier-loss": wishes.level,
    }  # fmt: skip
    try:
        for folder in (run, run / "supervised"):
            require_same_roles(folder, split, asked)
    except ConfigError:
        if stamp_of(run / "cache" / INDEX) != before:
            # It may hold others than the run began on, which nobody should take for these.
            discard_cache(run / "cache")
        raise
    write_json(run / "intake.json", findings.to_json())
    return Gathered(
        cache, classes, labels, groups, split, roles.fresh, roles.decoys, pile_positions, findings,
        skipped, side, decided, answers, roles.folds, roles.fold,
    )  # fmt: skip


def fold_split(gathered: Gathered, number: int) -> Split:
    """The split of a fold's model: the fold lies in the pile, its labels hidden; the rest trains.

    The fold also takes the places of validation and test. It chooses nothing there, for the model
    that judges is the last one.
    """
    hidden = np.flatnonzero(gathered.fold == number)
    known = np.flatnonzero(gathered.labels < len(gathered.names))
    left = gathered.pile[gathered.undecided]
    return replace(
        gathered.split,
        fold=number,
        labelled=np.setdiff1d(known, hidden),
        validation=hidden,
        test=hidden,
        pool=np.union1d(left, hidden),
    )
