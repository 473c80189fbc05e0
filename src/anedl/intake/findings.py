"""What was found in the labelled images and the pile, before anything is trained."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anedl import files
from anedl.data.dataset import IntArray
from anedl.intake.cache import ImageCache
from anedl.intake.cells import shielded, unshielded
from anedl.intake.duplicates import NEAR_DISTANCE, exact_groups, shared_with
from anedl.intake.listing import Skipped
from anedl.intake.partition import Partition

LOW_BITS = 14  # a file of 16 bits that uses no more shows less than a quarter of the light
_ROLES = ("labelled", "validation", "calibration")
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class SizeRange:
    """Width and height in pixels: the smallest, the median and the largest of each."""

    width: tuple[int, int, int]
    height: tuple[int, int, int]


@dataclass(frozen=True)
class Repeats:
    """Images that occur more than once; an image counts once for each copy beyond the first."""

    labelled: int  # copies among the labelled images
    pile: int  # copies within the pile
    across: int  # pile images that occur among the labelled ones as well


@dataclass(frozen=True)
class Findings:
    """Everything known of the images before training."""

    class_counts: dict[str, int]  # readable images a class
    pile: int  # readable images
    labelled_sizes: SizeRange | None  # None without images
    pile_sizes: SizeRange | None
    skipped_labelled: int
    skipped_pile: int
    skipped_reasons: dict[str, int]  # most frequent first
    exact: Repeats
    near: Repeats  # exact copies included
    near_distance: int  # bits up to which hashes of near-duplicates differ; 0: equal pixels only
    conflicts: list[list[str]]  # near-duplicates under several labels, by name
    exact_conflicts: int  # groups of exact copies under several labels
    roles: dict[str, dict[str, int]]  # role → class → images; empty before a partition
    # Role → pile images that are near-duplicates of one of its images; of calibration images the
    # `fresh` ones and the `decoys`, which lie hidden in the pile, are apart.
    pile_like: dict[str, int]
    withheld: int  # pile images like one that validates or is fresh to calibrate: not trained on
    low_bits: int  # files of 16 bits whose values take 14 at most
    lowest_bits: int  # how many bits the greatest value of these takes
    remarks: tuple[str, ...] = ()  # what else whoever gathered the images noticed, a sentence each

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, texts and lists."""
        return asdict(self)


def find(
    cache: ImageCache,
    groups: IntArray,
    skipped: Sequence[Skipped] = (),
    roles: Partition | None = None,
    decided: Mapping[int, str] | None = None,
    near_distance: int = NEAR_DISTANCE,
    decoys: IntArray = _NONE,
) -> Findings:
    """Gather the facts of a cache of labelled images followed by the pile.

    `groups` (N,) are the duplicate groups of all its images, `skipped` what was passed over before
    the cache was built, `roles` a partition of the labelled images, in their order. `decided` are
    the classes of pile images, by position, that count among the labelled ones; `near_distance` is
    what the groups were found with. `decoys` are the positions of those calibration images that lie
    hidden in the pile and train as it does.
    """
    given = {n: item.label for n, item in enumerate(cache.items) if item.label is not None}
    given |= decided or {}
    is_labelled = np.array([n in given for n in range(len(cache.items))], np.bool_)
    ours, pile = np.flatnonzero(is_labelled), np.flatnonzero(~is_labelled)
    labels = [given[position] for position in ours.tolist()]
    # A class all of whose files are unreadable is still one that somebody wanted.
    classes = sorted({e.item.label for e in cache.entries if e.item.label is not None} | {*labels})
    passed = [*skipped, *cache.skipped]
    by_role: dict[str, dict[str, int]] = {}
    pile_like: dict[str, int] = {}
    withheld = 0
    if roles is not None:
        parts = (roles.labelled, roles.validation, roles.calibration)
        for name, part in zip(_ROLES, parts, strict=True):
            by_role[name] = _counted(labels[position] for position in part)
        train, validate, calibrate = (ours[part] for part in parts)
        fresh = np.setdiff1d(calibrate, decoys)
        pile_like = {
            name: len(shared_with(groups, positions, pile))
            for name, positions in (
                ("labelled", train),
                ("validation", validate),
                ("fresh", fresh),
                ("decoys", decoys),
            )
        }
        withheld = len(shared_with(groups, np.concatenate([validate, fresh]), pile))
    exact = exact_groups(cache.digests)
    depths = cache.depths
    low = depths[(depths > 0) & (depths <= LOW_BITS)]
    return Findings(
        class_counts=dict.fromkeys(classes, 0) | _counted(labels),
        pile=len(pile),
        labelled_sizes=_size_range(cache, ours),
        pile_sizes=_size_range(cache, pile),
        skipped_labelled=sum(entry.labelled for entry in passed),
        skipped_pile=sum(not entry.labelled for entry in passed),
        skipped_reasons=dict(Counter(entry.reason for entry in passed).most_common()),
        exact=_repeats(exact, ours, pile),
        near=_repeats(groups, ours, pile),
        near_distance=near_distance,
        conflicts=_conflicts(cache, groups[ours], ours, labels),
        exact_conflicts=len(_conflicts(cache, exact[ours], ours, labels)),
        roles=by_role,
        pile_like=pile_like,
        withheld=withheld,
        low_bits=len(low),
        lowest_bits=int(low.max(initial=0)),
    )


def write_skipped(path: Path, skipped: Sequence[Skipped]) -> None:
    """Write the files that are not used as CSV: part (labelled or pile), name, reason.

    A text that a spreadsheet would take for a formula has an apostrophe before it.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["part", "name", "reason"])
    for entry in skipped:
        part = "labelled" if entry.labelled else "pile"
        writer.writerow([part, shielded(entry.name), shielded(entry.reason)])
    files.write_text(path, text.getvalue())


def read_skipped(run: Path) -> list[Skipped]:
    """The files that a run says it did not use; none where it says nothing."""
    try:
        with (run / "skipped.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        return [
            Skipped(unshielded(row["name"]), unshielded(row["reason"]), row["part"] == "labelled")
            for row in rows
        ]
    except (OSError, ValueError, KeyError, csv.Error):
        return []


def _repeats(groups: IntArray, ours: IntArray, pile: IntArray) -> Repeats:
    return Repeats(
        labelled=_extra(groups[ours]),
        pile=_extra(groups[pile]),
        across=len(shared_with(groups, ours, pile)),
    )


def _extra(groups: IntArray) -> int:
    """Images beyond the first of every group."""
    grouped = groups[groups >= 0]
    return len(grouped) - len(np.unique(grouped))


def _conflicts(
    cache: ImageCache, groups: IntArray, ours: IntArray, labels: Sequence[str]
) -> list[list[str]]:
    """Names of labelled images that share a group but not a label: one of each label first."""
    members: dict[int, dict[str, str]] = {}
    items = cache.items
    for group, position, label in zip(groups.tolist(), ours.tolist(), labels, strict=True):
        if group >= 0:
            members.setdefault(group, {}).setdefault(label, items[position].name)
    return [list(names.values()) for names in members.values() if len(names) > 1]


def _size_range(cache: ImageCache, positions: IntArray) -> SizeRange | None:
    if not len(positions):
        return None
    return SizeRange(_spread(cache.width[positions]), _spread(cache.height[positions]))


def _spread(values: IntArray) -> tuple[int, int, int]:
    return int(values.min()), int(np.median(values)), int(values.max())


def _counted(labels: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(labels).items()))
