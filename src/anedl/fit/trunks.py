"""Whether a trunk that is trained already suits a user's images: tried on the labelled ones.

Behind such a trunk photographs are told apart several times better than by a network that learns
from nothing, handwriting several times worse (docs/fit.md), and sizes and counts do not tell which
of them somebody has. So each is trained for a moment on most of the labelled images and judged by
the others.
"""

import hashlib
import json
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch

from anedl.data.batches import worker_count
from anedl.data.dataset import IntArray, UInt8Array
from anedl.errors import DataError
from anedl.estimator import OpenSetClassifier
from anedl.files import write_json
from anedl.fit.choices import (
    AS_BEGUN,
    FEWEST_A_CLASS,
    LARGEST_OF_DIGITS,
    LEAST_TRAINING,
    SMALL_TRUNK,
    TRAINED_TRUNK,
    Choice,
    choose_backbone,
    choose_batch_size,
    choose_side,
)
from anedl.fit.gather import list_sources, looks_swapped, require_files
from anedl.fit.wishes import Say, Wishes
from anedl.intake.cache import ImageCache, build_cache
from anedl.intake.describing import describe_first
from anedl.intake.duplicates import NEAR_DISTANCE, duplicate_groups
from anedl.intake.facts import image_sizes
from anedl.intake.findings import find
from anedl.intake.fitted import TRUNKS_FILE
from anedl.intake.index import stamp_of
from anedl.intake.listing import Item
from anedl.intake.partition import Partition, partition
from anedl.methods.default import DEFAULT_METHOD
from anedl.networks import is_installed, trained_on

TRIAL_FOLDER = "trial"  # there, as long as it takes
MOST_IMAGES = 600  # labelled ones that take part
JUDGED_SHARE = 0.25
FEWEST_JUDGED = 20  # with fewer, chance would choose
LEAST_GAIN = 3  # images, for the same reason
# For the network from nothing: of the minutes, seconds, and these where a length is asked for.
SHARE_OF_TIME, LONGEST, OF_A_LENGTH = 0.1, 60.0, 15.0
EPOCHS, MOST_STEPS = 12, 100  # of that network; steps an epoch
TIMED_STEPS = 10
STEPS_BEHIND_TRUNK = 40  # an epoch, as in a fit


@dataclass(frozen=True)
class Tried:
    """How many of the `judged` images a network from nothing and one behind the trunk named."""

    judged: int
    from_nothing: int
    trained: int
    seconds: float  # that it took
    images: str = ""  # a digest of the labelled files

    @property
    def backbone(self) -> str | None:
        """The trained trunk if it is wrong at most half as often; None: the network from nothing.

        The latter gains more from the pile, and on pictures that are no photographs it may tell
        strangers better even where it names classes a little worse.
        """
        wrong, wrong_behind_trunk = self.judged - self.from_nothing, self.judged - self.trained
        is_clear = wrong - wrong_behind_trunk >= LEAST_GAIN and 2 * wrong_behind_trunk <= wrong
        return TRAINED_TRUNK if is_clear else None

    def minutes_left(self, minutes: float) -> float:
        """What is left of the time for everything else."""
        return max(minutes - self.seconds / 60, LEAST_TRAINING * minutes)

    @property
    def reason(self) -> str:
        """Why that one, for the list of choices."""
        taken, other = (self.trained, self.from_nothing), "a network from nothing"
        if self.backbone is None:
            taken, other = taken[::-1], f"one behind {TRAINED_TRUNK}"
        return f"names {taken[0]} of {self.judged} held-out labelled images, {other} {taken[1]}"


@dataclass(frozen=True)
class TrunkSoFar:
    """What is known of the trunk before the images are decoded for it.

    `begun` is the one that the run has begun to train with, if it has, and `tried` what a trial
    said; `to_be_tried`: there was none yet, and a fit would make one where it can.
    """

    begun: str | None
    tried: Tried | None
    to_be_tried: bool = False

    def name(self, wishes: Wishes) -> str | None:
        """Which it is to be; None: what is usual for such images."""
        return self.begun or (wishes.backbone if self.tried is None else self.tried.backbone)

    def choice(self, wishes: Wishes, device: torch.device, side: int, labelled: int) -> Choice:
        """Which it is for so many labelled images of that `side`, and why."""
        to_be_tried = self.to_be_tried and can_be_tried(wishes, device, side, labelled)
        trunk = choose_backbone(side, device, self.name(wishes), to_be_tried)
        if self.tried is not None:
            return replace(trunk, reason=self.tried.reason)
        if self.begun is None or wishes.backbone is not None:
            return trunk
        usual = choose_backbone(side, device)
        return usual if usual.value == self.begun else replace(trunk, reason=AS_BEGUN)


def can_be_tried(wishes: Wishes, device: torch.device, side: int, labelled: int) -> bool:
    """Whether both can be had and judged, and nobody has chosen.

    `side` is that of the network from nothing, `labelled` the number of labelled images.
    """
    if JUDGED_SHARE * labelled < FEWEST_JUDGED:
        return False
    is_open = wishes.backbone is None and wishes.frozen is None
    # Other methods, and options of this one, may not be had with a frozen trunk.
    is_plain = wishes.method == DEFAULT_METHOD and not wishes.options
    is_here = device.type == "cpu" and side > LARGEST_OF_DIGITS and is_installed(TRAINED_TRUNK)
    return is_open and is_plain and is_here


def recorded_trial(run: Path, wishes: Wishes, begun: str | None = None) -> Tried | None:
    """What was tried before, for a call that goes on and names no trunk.

    `begun` is the trunk that the run has begun to train with, if it has; a trial that spoke for
    another is of no account then.
    """
    if wishes.backbone is not None or not wishes.resume:
        return None
    try:
        tried = Tried(**json.loads((run / TRUNKS_FILE).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return tried if begun in (None, tried.backbone or SMALL_TRUNK) else None


def try_trunks(
    labelled: Path, pile: Path, run: Path, wishes: Wishes, device: torch.device, say: Say
) -> Tried | None:
    """Try both, unless the run has done so; None: there is no choice, or too little to judge by.

    Raises:
        DataError: there are no images, or too few classes.
    """
    ours, theirs, classes = list_sources(labelled, pile)
    require_files(run, wishes, ours, theirs, classes)
    sizes = image_sizes([*ours.items, *theirs.items])
    side = choose_side(sizes, device, wishes.image_size).value
    trained_side = choose_side(sizes, device, wishes.image_size, trained_on(TRAINED_TRUNK)).value
    assert isinstance(side, int)
    assert isinstance(trained_side, int)
    if not can_be_tried(wishes, device, side, len(ours.items)):
        return None
    images = _digest(ours.items)
    before = recorded_trial(run, wishes)
    if before is not None and before.images == images:
        return before
    began = time.monotonic()
    is_timed = wishes.epochs is None
    seconds = min(SHARE_OF_TIME * 60 * wishes.minutes, LONGEST) if is_timed else OF_A_LENGTH
    if (run / TRIAL_FOLDER).exists():
        say("a trial of two networks was cut off here before it came to anything: it begins anew")
    with _place(run / TRIAL_FOLDER) as folder:
        sample = _sample(ours.items, wishes.seed)
        small, large = (
            build_cache(sample, folder / str(pixels), pixels, worker_count(wishes.workers))
            for pixels in (side, trained_side)
        )
        distance = NEAR_DISTANCE if wishes.near_distance is None else wishes.near_distance
        groups = duplicate_groups(small.digests, small.hashes, distance)
        trial = _Trial.of(small, groups, wishes, device)
        if trial is None or len(trial.parts.validation) < FEWEST_JUDGED:
            return None
        # The trial takes minutes, in which a wrong label or a broken file could have been mended.
        passed = [*ours.skipped, *theirs.skipped]
        first = find(small, groups, passed, near_distance=distance)
        first = replace(first, remarks=looks_swapped(ours, theirs))
        say(describe_first(first, len(ours.items), len(theirs.items)))
        say(
            f"trying a network from nothing and one behind {TRAINED_TRUNK} on {len(small.items):,} "
            f"labelled images: {seconds:.0f} seconds for the first, the second looks at each thrice"
        )
        from_nothing = trial.rightly_named(small, **trial.length_within(seconds, small))
        judged = len(trial.parts.validation)
        say(f"the first names {from_nothing} of {judged} held-out labelled images rightly")
        trained = trial.rightly_named(
            large, epochs=EPOCHS, epoch_steps=STEPS_BEHIND_TRUNK,
            options={"backbone": TRAINED_TRUNK, "frozen": True, "feature_views": 1},
        )  # fmt: skip
    took = round(time.monotonic() - began, 1)
    tried = Tried(len(trial.parts.validation), from_nothing, trained, took, images)
    write_json(run / TRUNKS_FILE, asdict(tried))
    return tried


@contextmanager
def _place(folder: Path) -> Iterator[Path]:
    """A folder of its own that is gone afterwards, and what a killed call left there before."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _digest(items: Sequence[Item]) -> str:
    """What tells these files from others, by their names, classes and stamps."""
    facts = [(item.name, item.label, stamp_of(item.path)) for item in items]
    return hashlib.sha256(repr(facts).encode()).hexdigest()


@dataclass(frozen=True)
class _Trial:
    """What both are tried on."""

    labels: IntArray  # (N,)
    parts: Partition
    wishes: Wishes
    device: torch.device

    @classmethod
    def of(
        cls, cache: ImageCache, groups: IntArray, wishes: Wishes, device: torch.device
    ) -> Self | None:
        """Divide the images, with their near-duplicates in `groups` (N,).

        None where a class has too few, which a fit will say.
        """
        names, labels = np.unique([item.label or "" for item in cache.items], return_inverse=True)
        try:
            parts = partition(labels, groups, JUDGED_SHARE, 0.0, wishes.seed, FEWEST_A_CLASS)
        except DataError:
            return None
        # Files that cannot be read may have been all of a class.
        return cls(labels, parts, wishes, device) if len(names) > 1 else None

    def rightly_named(self, cache: ImageCache, **how: Any) -> int:
        """How many of the images held out a network names that has learnt the others."""
        frames, judged = cache.images.pixels, self.parts.validation
        model = self._fitted(frames, cache.side, **how)
        return round(model.score(frames[judged], self.labels[judged]) * len(judged))

    def length_within(self, seconds: float, cache: ImageCache) -> dict[str, int]:
        """Epochs and their steps that take about so long, by the time of a few."""
        began = time.monotonic()
        self._fitted(cache.images.pixels, cache.side, epochs=1, epoch_steps=TIMED_STEPS)
        a_step = (time.monotonic() - began) / TIMED_STEPS
        steps = int(seconds / a_step / EPOCHS)
        return {"epochs": EPOCHS, "epoch_steps": max(1, min(steps, MOST_STEPS))}

    def _fitted(self, frames: UInt8Array, side: int, **how: Any) -> OpenSetClassifier:
        learnt = self.parts.labelled
        batch = choose_batch_size(len(learnt), self.wishes.batch_size).value
        assert isinstance(batch, int)
        how.setdefault("options", {"backbone": choose_backbone(side, self.device).value})
        model = OpenSetClassifier(
            "supervised", batch_size=batch, image_size=side, validation_share=0,
            calibration_share=0, random_state=self.wishes.seed, device=str(self.device),
            augmentation="digits" if self.wishes.augmentation == "digits" else "small", **how,
        )  # fmt: skip
        return model.fit(frames[learnt], self.labels[learnt])


def _sample(items: Sequence[Item], seed: int) -> list[Item]:
    """So many of every class, drawn by the seed, that all together are not too many."""
    classes: dict[str, list[Item]] = {}
    for item in items:
        classes.setdefault(item.label or "", []).append(item)
    most = max(FEWEST_A_CLASS, MOST_IMAGES // len(classes))
    rng = np.random.default_rng(seed)
    return [
        of_class[place]
        for of_class in classes.values()
        for place in np.sort(rng.permutation(len(of_class))[:most])
    ]
