"""From two places on disk to decoded images with roles: who trains, validates, calibrates."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path

import numpy as np
import torch

from anedl.data.dataset import IntArray
from anedl.data.progress import TransferBar
from anedl.data.protocol import Split
from anedl.engine.own import OWN, labels_of
from anedl.errors import DataError
from anedl.files import write_json
from anedl.fit.choices import (
    CALIBRATION_SHARES,
    FEWEST_A_CLASS,
    VALIDATION_SHARE,
    Choice,
    choose_augmentation,
    choose_side,
)
from anedl.intake.cache import ImageCache, build_cache
from anedl.intake.duplicates import exact_groups, joined_groups, near_groups, shared_with
from anedl.intake.facts import image_sizes
from anedl.intake.findings import Findings, find, write_skipped
from anedl.intake.listing import Skipped, list_labelled, list_pile
from anedl.intake.partition import partition


@dataclass(frozen=True)
class Gathered:
    """All images of a fit and what each is for; positions index the cache.

    `fresh` and `decoys` are held out to calibrate: `fresh` stay away from training, `decoys` lie in
    the pile with their labels hidden. `pile` are the user's own pile images, all of them; those
    among them that look like an image that judges are kept out of the pool.
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


def gather(
    labelled: Path,
    pile: Path,
    run: Path,
    device: torch.device,
    level: float,
    seed: int = 0,
    image_size: int | None = None,
    workers: int = 0,
    say: Callable[[str], None] = print,
    quiet: bool = False,
    augmentation: str | None = None,
) -> Gathered:
    """List, look, decode once, find duplicates, and deal out the roles.

    Raises:
        DataError: too few images, or none at all; the message says how many are needed.
    """
    ours, theirs = list_labelled(labelled), list_pile(pile)
    items = [*ours.items, *theirs.items]
    if not ours.items:
        raise DataError(f"{labelled}: no labelled images; put some of each class into its folder")
    if not theirs.items:
        raise DataError(f"{pile}: there are no images in the pile")
    classes = tuple(sorted({item.label for item in ours.items if item.label is not None}))
    if len(classes) < 2:
        raise DataError(f"{labelled}: one class only ({classes[0]!r}); at least two are needed")
    side = choose_side(image_sizes(items), device, image_size)
    assert isinstance(side.value, int)
    # The size that views are cut from, so that no image is ever resized twice.
    cropped = choose_augmentation(side.value, augmentation).value == "imagenet"
    frame = side.value * 8 // 7 if cropped else side.value
    bar = None if quiet else TransferBar("decoding images")
    try:
        cache = build_cache(items, run / "cache", frame, workers, bar)
    finally:
        if bar is not None:
            bar.close()

    # Before any refusal, which may well be on account of them.
    skipped = (*ours.skipped, *theirs.skipped, *cache.skipped)
    write_skipped(run / "skipped.csv", skipped)
    labels = labels_of(cache, classes)
    if not (labels == len(classes)).any():
        raise DataError(
            f"{pile}: none of its {len(theirs.items):,} files can be read; "
            f"{run / 'skipped.csv'} says why"
        )
    groups = joined_groups(exact_groups(cache.digests), near_groups(cache.hashes))
    known = np.flatnonzero(labels < len(classes))
    roles = partition(
        labels[known], groups[known], VALIDATION_SHARE, calibration_share(len(known), level), seed,
        FEWEST_A_CLASS, classes,
    )  # fmt: skip
    fresh, decoys = _deal(known[roles.calibration], labels, groups, seed)
    pile_positions = np.flatnonzero(labels == len(classes))
    judges = np.concatenate([known[roles.validation], fresh])
    withheld = shared_with(groups, judges, pile_positions)
    findings = find(cache, groups, [*ours.skipped, *theirs.skipped], roles)
    # Decoys lie in the pile anyway, so what looks like one of them may train.
    findings = replace(findings, withheld=len(withheld))
    write_json(run / "intake.json", findings.to_json())
    pool = np.union1d(np.setdiff1d(pile_positions, withheld), decoys)
    split = Split(
        setting=OWN,
        fold=0,
        development=False,
        known_classes=tuple(range(len(classes))),
        known_names=classes,
        labelled=known[roles.labelled],
        validation=known[roles.validation],
        pool=pool,
        test=fresh,
        test_part="train",
    )
    return Gathered(
        cache, classes, labels, groups, split, fresh, decoys, pile_positions, findings, skipped,
        side,
    )  # fmt: skip


def calibration_share(labelled: int, level: float) -> float:
    """The share of labelled images that calibrate: enough for both thresholds, if there are enough.

    Each half must hold 1/level − 1 images to promise anything at that level.
    """
    both_halves = 2 * (ceil(1 / level) - 1)
    least, most = CALIBRATION_SHARES
    return min(most, max(least, 1.1 * both_halves / labelled))


def _deal(
    calibration: IntArray, labels: IntArray, groups: IntArray, seed: int
) -> tuple[IntArray, IntArray]:
    """Half of the calibration images stay fresh, half become decoys, class by class.

    Near-duplicates stay on one side.
    """
    generator = np.random.default_rng([seed, len(calibration)])
    order = calibration[generator.permutation(len(calibration))]
    order = order[np.argsort(labels[order], kind="stable")]
    sides: tuple[list[int], list[int]] = ([], [])
    taken: dict[int, int] = {}
    for position in order.tolist():
        group = int(groups[position])
        # Whichever side has fewer so far: of two or more units neither side stays empty.
        side = taken.get(group, int(len(sides[1]) < len(sides[0])))
        if group >= 0:
            taken[group] = side
        sides[side].append(position)
    fresh, decoys = (np.sort(np.array(side, np.int64)) for side in sides)
    return fresh, decoys
