"""What was found in the labelled images and the pile, told before anything is trained."""

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
from anedl.intake.duplicates import exact_groups, shared_with
from anedl.intake.listing import Skipped
from anedl.intake.partition import Partition

IMBALANCE = 3.0  # the largest class over the smallest, from where it is worth a word
FEW = 10  # images of a class to train on, below which it is worth a word
_EXAMPLES = 5
_MOST_LINES = 40  # classes that are listed one by one
_ROLES = ("labelled", "validation", "calibration")


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
    conflicts: list[list[str]]  # near-duplicates under several labels, by name
    roles: dict[str, dict[str, int]]  # role → class → images; empty before a partition
    pile_like: dict[str, int]  # role → pile images that are near-duplicates of one of its images
    withheld: int  # pile images like one that validates or calibrates, so not trained on

    def to_json(self) -> dict[str, Any]:
        """Plain numbers, texts and lists."""
        return asdict(self)


def find(
    cache: ImageCache,
    groups: IntArray,
    skipped: Sequence[Skipped] = (),
    roles: Partition | None = None,
    decided: Mapping[int, str] | None = None,
) -> Findings:
    """Gather the facts of a cache of labelled images followed by the pile.

    `groups` (N,) are the duplicate groups of all its images, `skipped` what was passed over before
    the cache was built, `roles` a partition of the labelled images, in their order. `decided` are
    the classes of pile images, by position, that count among the labelled ones.
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
            pile_like[name] = len(shared_with(groups, ours[part], pile))
        judges = ours[np.concatenate([roles.validation, roles.calibration])]
        withheld = len(shared_with(groups, judges, pile))
    return Findings(
        class_counts=dict.fromkeys(classes, 0) | _counted(labels),
        pile=len(pile),
        labelled_sizes=_size_range(cache, ours),
        pile_sizes=_size_range(cache, pile),
        skipped_labelled=sum(entry.labelled for entry in passed),
        skipped_pile=sum(not entry.labelled for entry in passed),
        skipped_reasons=dict(Counter(entry.reason for entry in passed).most_common()),
        exact=_repeats(exact_groups(cache.digests), ours, pile),
        near=_repeats(groups, ours, pile),
        conflicts=_conflicts(cache, groups[ours], ours, labels),
        roles=by_role,
        pile_like=pile_like,
        withheld=withheld,
    )


def describe(findings: Findings) -> str:
    """The findings in words, for a terminal; warnings come last."""
    counts = findings.class_counts
    total = sum(counts.values())
    lines = [f"labelled: {_number(total, 'image')} in {_number(len(counts), 'class', 'classes')}"]
    width = max((len(name) for name in counts), default=0)
    for name, count in list(counts.items())[:_MOST_LINES]:
        shares = [f"{findings.roles[role].get(name, 0)} {_DOES[role]}" for role in findings.roles]
        lines.append(f"  {name:<{width}}  {count:>6}" + (f"  ({', '.join(shares)})" * bool(shares)))
    if len(counts) > _MOST_LINES:
        lines.append(f"  and {len(counts) - _MOST_LINES} more classes")
    if findings.labelled_sizes is not None:
        lines.append(f"  {_sizes(findings.labelled_sizes)}")
    lines.append(f"pile: {_number(findings.pile, 'image')}")
    if findings.pile_sizes is not None:
        lines.append(f"  {_sizes(findings.pile_sizes)}")
    lines += _skipped_lines(findings)
    lines += _repeat_lines(findings)
    lines += [f"note: {warning}" for warning in warnings(findings)]
    return "\n".join(lines)


def warnings(findings: Findings) -> list[str]:
    """What may spoil the result, a sentence each."""
    found = []
    counts = findings.class_counts
    if counts:
        most, least = max(counts, key=lambda n: counts[n]), min(counts, key=lambda n: counts[n])
        if counts[most] >= IMBALANCE * counts[least]:
            found.append(
                f"the classes are uneven: {most!r} has {counts[most]} images, {least!r} "
                f"{counts[least]}; accuracy on {least!r} is measured least well"
            )
    trained = findings.roles.get("labelled", counts)
    few = [f"{name!r} ({count})" for name, count in trained.items() if count < FEW]
    if few:
        found.append(
            f"fewer than {FEW} images to train on: {first_few(few)}; a few more labels there "
            "help more than anything else"
        )
    if findings.conflicts:
        example = " and ".join(findings.conflicts[0][:2])
        found.append(
            f"{_number(len(findings.conflicts), 'group')} of near-duplicates under different "
            f"labels, such as {example}; one of the labels is probably wrong"
        )
    if findings.withheld:
        found.append(
            f"{_number(findings.withheld, 'pile image')} like a validation or calibration image: "
            "sorted in the end but kept out of training"
        )
    return found


def first_few(texts: Sequence[str]) -> str:
    """The first of them with commas between, and how many more there are."""
    more = len(texts) - _EXAMPLES
    return ", ".join(texts[:_EXAMPLES]) + (f" and {more} more" if more > 0 else "")


def write_skipped(path: Path, skipped: Sequence[Skipped]) -> None:
    """Write the files that are not used as CSV: part (labelled or pile), name, reason."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["part", "name", "reason"])
    for entry in skipped:
        writer.writerow(["labelled" if entry.labelled else "pile", entry.name, entry.reason])
    files.write_text(path, text.getvalue())


_DOES = {"labelled": "train", "validation": "validate", "calibration": "calibrate"}


def _skipped_lines(findings: Findings) -> list[str]:
    total = findings.skipped_labelled + findings.skipped_pile
    if not total:
        return ["skipped: nothing, every file could be read"]
    where = f"{findings.skipped_labelled} labelled, {findings.skipped_pile} in the pile"
    lines = [f"skipped: {_number(total, 'file')} ({where})"]
    reasons = list(findings.skipped_reasons.items())
    lines += [f"  {count:>6}  {reason}" for reason, count in reasons[:_EXAMPLES]]
    if rest := sum(count for _, count in reasons[_EXAMPLES:]):
        lines.append(f"  {rest:>6}  for other reasons")
    return lines


def _repeat_lines(findings: Findings) -> list[str]:
    lines: list[str] = []
    for title, repeats in (
        ("exact duplicates", findings.exact),
        ("near-duplicates", findings.near),
    ):
        if repeats.labelled or repeats.pile or repeats.across:
            included = ", these included" if lines else ""
            lines.append(
                f"{title}{included}: {_number(repeats.labelled, 'extra copy', 'extra copies')} "
                f"among the labelled, {repeats.pile} in the pile; "
                f"{_number(repeats.across, 'pile image')} also labelled"
            )
    # Near-duplicates have one role together, so every image is counted once here.
    like = [f"{n} like some that {_DOES[role]}" for role, n in findings.pile_like.items() if n]
    if like:
        lines[-1] += f" ({', '.join(like)})"
    return lines or ["duplicates: none"]


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


def _sizes(sizes: SizeRange) -> str:
    if sizes.width[0] == sizes.width[2] and sizes.height[0] == sizes.height[2]:
        return f"all {sizes.width[0]} × {sizes.height[0]} pixels"
    return f"{_range(sizes.width)} pixels wide, {_range(sizes.height)} high"


def _range(spread: tuple[int, int, int]) -> str:
    least, median, most = spread
    return str(least) if least == most else f"{least} to {most} (median {median})"


def _counted(labels: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(labels).items()))


def _number(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"
