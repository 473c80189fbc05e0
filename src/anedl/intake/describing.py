"""Findings in words, for a terminal; whatever may spoil the result is named with its remedy."""

from anedl.errors import counted, first_few
from anedl.intake.findings import Findings, SizeRange

IMBALANCE = 3.0  # the largest class over the smallest, from where it is worth a word
FEW = 10  # images of a class to train on, below which it is worth a word
MOSTLY = 0.5  # of the pile kept out of training, from where it is worth a loud word
IF_THEY_DIFFER = (
    "if such images do differ (a camera that never moves, say), --near-distance 0 takes only equal "
    "pixels for copies"
)
_EXAMPLES = 5
_MOST_LINES = 40  # classes that are listed one by one
_DOES = {"labelled": "train", "validation": "validate", "calibration": "calibrate"}
_LIKE = {
    "labelled": "some that train",
    "validation": "some that validate",
    "fresh": "fresh ones that calibrate",
    "decoys": "hidden ones that calibrate",
}


def describe(findings: Findings) -> str:
    """The findings in words, for a terminal; warnings come last."""
    counts = findings.class_counts
    total = sum(counts.values())
    lines = [f"labelled: {counted(total, 'image')} in {counted(len(counts), 'class', 'classes')}"]
    width = max((len(name) for name in counts), default=0)
    for name, count in list(counts.items())[:_MOST_LINES]:
        shares = [f"{findings.roles[role].get(name, 0)} {_DOES[role]}" for role in findings.roles]
        lines.append(f"  {name:<{width}}  {count:>6}" + (f"  ({', '.join(shares)})" * bool(shares)))
    if len(counts) > _MOST_LINES:
        lines.append(f"  and {len(counts) - _MOST_LINES} more classes")
    if findings.labelled_sizes is not None:
        lines.append(f"  {_sizes(findings.labelled_sizes)}")
    lines.append(f"pile: {counted(findings.pile, 'image')}")
    if findings.pile_sizes is not None:
        lines.append(f"  {_sizes(findings.pile_sizes)}")
    lines += _skipped_lines(findings)
    lines += _repeat_lines(findings)
    lines += [f"note: {warning}" for warning in warnings(findings)]
    lines += [f"WARNING: {alarm}" for alarm in alarms(findings)]
    return "\n".join(lines)


def describe_first(findings: Findings, labelled: int, pile: int) -> str:
    """What is known of so many files before those of the pile are decoded.

    The findings are those of labelled images alone, perhaps of a part of them.
    """
    classes = counted(len(findings.class_counts), "class", "classes")
    lines = [
        f"a first look: {counted(labelled, 'labelled file')} in {classes}, "
        f"{counted(pile, 'file')} in the pile, which is decoded later"
    ]
    if findings.skipped_labelled or findings.skipped_pile:
        lines += _skipped_lines(findings)
    notes = [*_contradictions(findings), *findings.remarks]
    return "\n".join([*lines, *(f"note: {note}" for note in notes)])


def warnings(findings: Findings) -> list[str]:
    """What may spoil the result, a sentence each."""
    found = []
    counts = findings.class_counts
    if counts:
        most, least = max(counts, key=lambda n: counts[n]), min(counts, key=lambda n: counts[n])
        if counts[most] > counts[least] and counts[most] >= IMBALANCE * counts[least]:
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
    found += _contradictions(findings)
    if findings.low_bits:
        bits = findings.lowest_bits
        found.append(
            f"{counted(findings.low_bits, 'file')} of 16 bits a pixel with only the lowest {bits} "
            f"in use, and so dark, {round((2**bits - 1) / 257)} of 255 at most; where they should "
            f"not look so, write them with values up to 65535"
        )
    if findings.withheld and not alarms(findings):
        found.append(
            f"{counted(findings.withheld, 'pile image')} like a validation or fresh calibration "
            "image: sorted in the end but kept out of training"
        )
    return [*found, *findings.remarks]


def alarms(findings: Findings) -> list[str]:
    """What leaves so little of the pile to learn from that it should be mended first."""
    if not findings.withheld or findings.withheld < MOSTLY * findings.pile:
        return []
    remedy = f"; {IF_THEY_DIFFER}" if findings.near_distance else ""
    return [
        f"{findings.withheld:,} of the {counted(findings.pile, 'pile image')} are like a "
        f"validation or fresh calibration image and kept out of training: little of the pile is "
        f"left to learn from{remedy}"
    ]


def _contradictions(findings: Findings) -> list[str]:
    if not findings.conflicts:
        return []
    example = " and ".join(findings.conflicts[0][:2])
    only_near = len(findings.conflicts) > findings.exact_conflicts
    return [
        f"{counted(len(findings.conflicts), 'group')} of near-duplicates under different labels, "
        f"such as {example}; one of the labels is probably wrong"
        f"{f'; {IF_THEY_DIFFER}' if only_near else ''}"
    ]


def _skipped_lines(findings: Findings) -> list[str]:
    total = findings.skipped_labelled + findings.skipped_pile
    if not total:
        return ["skipped: nothing, every file could be read"]
    where = f"{findings.skipped_labelled} labelled, {findings.skipped_pile} in the pile"
    lines = [f"skipped: {counted(total, 'file')} ({where})"]
    reasons = list(findings.skipped_reasons.items())
    # A last one takes no more room than the count of the rest would.
    shown = len(reasons) if len(reasons) == _EXAMPLES + 1 else _EXAMPLES
    lines += [f"  {count:>6}  {reason}" for reason, count in reasons[:shown]]
    if rest := sum(count for _, count in reasons[shown:]):
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
                f"{title}{included}: {counted(repeats.labelled, 'extra copy', 'extra copies')} "
                f"among the labelled, {repeats.pile} in the pile; "
                f"{counted(repeats.across, 'pile image')} also labelled"
            )
    # Near-duplicates have one role together, so every image is counted once here.
    like = [f"{n} like {_LIKE[role]}" for role, n in findings.pile_like.items() if n]
    if like:
        lines[-1] += f" ({', '.join(like)})"
    return lines or ["duplicates: none"]


def _sizes(sizes: SizeRange) -> str:
    if sizes.width[0] == sizes.width[2] and sizes.height[0] == sizes.height[2]:
        return f"all {sizes.width[0]} × {sizes.height[0]} pixels"
    return f"{_range(sizes.width)} pixels wide, {_range(sizes.height)} high"


def _range(spread: tuple[int, int, int]) -> str:
    least, median, most = spread
    return str(least) if least == most else f"{least} to {most} (median {median})"
