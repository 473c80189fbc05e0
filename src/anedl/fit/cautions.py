"""What makes the outcome of a fit doubtful, a sentence each, beginning with "caution: "."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anedl.conformal import percent
from anedl.data.dataset import IntArray
from anedl.errors import first_few
from anedl.evaluation.starvation import starved
from anedl.pollution import ShareEstimate
from anedl.triage.verdict import Triage

POOR_ERROR = 0.15  # on held-out images, from where scores say little of strangers
FEW_STEPS = 500
FEWEST_TO_MISS = 2  # held-out images of a class, all of them wrong, that are worth a word
CHANCE = 0.05  # a model as good as guessing looks better than this only in one case of twenty


@dataclass(frozen=True, eq=False)
class HeldOut:
    """True classes (N,) of the held-out images, and which of them the model gets wrong (N,)."""

    truth: IntArray
    wrong: npt.NDArray[np.bool_]

    @property
    def error(self) -> float:
        """The share that is wrong."""
        return float(self.wrong.mean())


def cautions(held_out: HeldOut, names: Sequence[str], steps: int) -> list[str]:
    """What held-out images and the length of the training cast doubt on."""
    found = [*_no_better_than_guessing(held_out, names), *_missed_classes(held_out, names)]
    if held_out.error > POOR_ERROR:
        found.append(
            f"caution: the model is wrong on {percent(held_out.error)} of held-out images. One "
            f"that cannot tell the known classes apart cannot tell strangers either: few of them "
            f"are found, and the pile may be far dirtier than the estimate and its interval say"
        )
    if steps < FEW_STEPS:
        found.append(
            f"caution: training took only {steps:,} steps; "
            f"more --minutes, a smaller --image-size or a faster device would help, in a new folder"
        )
    return found


def _no_better_than_guessing(held_out: HeldOut, names: Sequence[str]) -> list[str]:
    """Whether always naming the most frequent class would do as well, or nearly."""
    from scipy.stats import binom

    counts = np.bincount(held_out.truth, minlength=len(names))
    images, most = len(held_out.truth), int(counts.max())
    right = int((~held_out.wrong).sum())
    by_chance = binom.sf(right - 1, images, most / images)
    poor = held_out.error > POOR_ERROR and by_chance > CHANCE
    if right > most and not poor:
        return []
    return [
        f"caution: the model is hardly better than guessing: always answering "
        f"{names[int(counts.argmax())]!r} would be wrong on {percent(1 - most / images)} of "
        f"held-out images, where the model is on {percent(held_out.error)}"
    ]


def _missed_classes(held_out: HeldOut, names: Sequence[str]) -> list[str]:
    """Classes of which no held-out image is named rightly; a small error may hide them."""
    counts = np.bincount(held_out.truth, minlength=len(names))
    wrong = np.bincount(held_out.truth[held_out.wrong], minlength=len(names))
    missed = np.flatnonzero((wrong == counts) & (counts >= FEWEST_TO_MISS))
    if not len(missed):
        return []
    shown = first_few([f"{names[k]!r} ({counts[k]:,})" for k in missed.tolist()])
    return [
        f"caution: not one held-out image of {shown} is named rightly: the model does not know "
        f"{'this class' if len(missed) == 1 else 'these classes'}; label more images of "
        f"{'it' if len(missed) == 1 else 'them'}"
    ]


def seldom_found(triage: Triage) -> list[str]:
    """A caution where hardly any image of the pile is taken for some of the classes.

    Self-training learns from what it finds, so a class that is not found falls further behind.
    """
    names = triage.evidence.class_names
    taken = triage.evidence.first[triage.where("accept", "review")]
    seldom = [repr(names[k]) for k in np.flatnonzero(starved(taken, len(names)))]
    if not seldom:
        return []
    return [
        f"caution: hardly any image of the pile is taken for {first_few(seldom)}; if you know that "
        f"there are some, label more of them: a class that is not found is not learnt either"
    ]


def perhaps_no_strangers(share: ShareEstimate, unknown: int) -> list[str]:
    """A caution where images are called unknown of a pile that may hold no stranger at all."""
    if share.low > 0 or not unknown:
        return []
    return [
        f"caution: by the estimate the pile may hold no stranger at all, and the {unknown:,} "
        f"images called unknown may be odd ones of known classes: look at them before you act"
    ]


def uncounted_classes(new: Sequence[str]) -> list[str]:
    """A caution where classes have no held-out images, as those that people have named."""
    if not new:
        return []
    return [
        f"caution: no held-out image is of {first_few([repr(name) for name in new])}: images of "
        f"such a class may be counted among those of no known class, at the low end as well, and "
        f"be called unknown more often than is promised"
    ]
