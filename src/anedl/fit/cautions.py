"""What makes the outcome of a fit doubtful, a sentence each, beginning with "caution: "."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from anedl.conformal import percent
from anedl.data.dataset import IntArray
from anedl.errors import counted, first_few
from anedl.evaluation.starvation import starved
from anedl.fit.choices import FOR_PHOTOGRAPHS
from anedl.pollution import ShareEstimate
from anedl.triage.verdict import Triage

POOR_ERROR = 0.15  # on held-out images, from where scores say little of strangers
FEW_STEPS = 500
FEWEST_TO_MISS = 2  # held-out images of a class, all of them wrong, that are worth a word
SOME_SKILL = 0.25  # of the way from guessing to never being wrong, classes counting alike
DISAGREE, TIMES = 0.1, 1.5  # of the pile, and times as many: from where two thresholds disagree
SHUFFLES, CHANCE = 500, 0.05  # of the answers; how often these may do as well as a model


@dataclass(frozen=True, eq=False)
class HeldOut:
    """True classes (N,) of the held-out images, and the classes that the model answers (N,)."""

    truth: IntArray
    answer: IntArray

    @property
    def wrong(self) -> npt.NDArray[np.bool_]:
        """Which images it gets wrong, (N,)."""
        wrong: npt.NDArray[np.bool_] = self.truth != self.answer
        return wrong

    @property
    def error(self) -> float:
        """The share that is wrong."""
        return float(self.wrong.mean())


def cautions(
    held_out: HeldOut, names: Sequence[str], steps: int, trained_trunk: bool = False
) -> list[str]:
    """What held-out images and the length of the training cast doubt on.

    `trained_trunk` says whether the network began with features rather than at random.
    """
    found = [*_no_better_than_guessing(held_out, names), *_missed_classes(held_out, names)]
    if held_out.error > POOR_ERROR:
        found.append(
            f"caution: the model is wrong on {percent(held_out.error)} of held-out images. One "
            f"that cannot tell the known classes apart cannot tell strangers either: few of them "
            f"may be found, and the pile may be far dirtier than the estimate and its interval say"
            f"{'' if trained_trunk else f'; for photographs try {FOR_PHOTOGRAPHS}'}"
        )
    if steps < FEW_STEPS:
        found.append(
            f"caution: training took only {counted(steps, 'step')}; "
            f"more --minutes, a smaller --image-size or a faster device would help, in a new folder"
        )
    return found


def _no_better_than_guessing(held_out: HeldOut, names: Sequence[str]) -> list[str]:
    """Whether answers given at random among the images would do about as well.

    Classes count alike, so that one which is rare cannot be forgotten at no cost. Good models are
    left in peace however few the images; of poor ones it is asked whether shuffled answers reach
    what they reach more often than once in twenty times.
    """
    there = np.unique(held_out.truth)
    guessing = 1 / len(there)
    reached = _mean_recall(held_out.truth, held_out.answer)
    if (reached - guessing) / max(1 - guessing, 1e-9) >= SOME_SKILL:
        return []
    generator = np.random.default_rng(0)
    shuffled = [
        _mean_recall(held_out.truth, generator.permutation(held_out.answer))
        for _ in range(SHUFFLES)
    ]
    if np.mean(np.array(shuffled) >= reached - 1e-12) <= CHANCE:
        return []
    counts = np.bincount(held_out.truth, minlength=len(names))
    most = counts.max() / counts.sum()
    return [
        f"caution: the model is hardly better than guessing: on average over the classes it names "
        f"{percent(reached)} of their held-out images rightly, where guessing names "
        f"{percent(guessing)}; always answering {names[int(counts.argmax())]!r} would be wrong on "
        f"{percent(1 - most)} of all, and the model is on {percent(held_out.error)}"
    ]


def _mean_recall(truth: IntArray, answer: IntArray) -> float:
    """The share of images that is named rightly, on average over the classes there are."""
    counts = np.bincount(truth)
    right = np.bincount(truth[truth == answer], minlength=len(counts))
    return float((right[counts > 0] / counts[counts > 0]).mean())


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
    which = (
        "image called unknown may be an odd one of a known class: look at it"
        if unknown == 1
        else "images called unknown may be odd ones of known classes: look at them"
    )
    return [
        f"caution: by the estimate the pile may hold no stranger at all, and the {unknown:,} "
        f"{which} before you act"
    ]


def thresholds_disagree(unknown: int, as_new: int | None, images: int) -> list[str]:
    """A caution where new images would be judged very differently from those of the pile.

    Of `images` of the pile `unknown` are called so, and `as_new` would be by the threshold for new
    images; None where there is none. No truth is needed to count either.
    """
    if as_new is None:
        return []
    more, fewer = max(unknown, as_new), min(unknown, as_new)
    if not more or more - fewer < DISAGREE * images or more < TIMES * fewer:
        return []
    many = "many more" if as_new > unknown else "far fewer"
    return [
        f"caution: the two thresholds disagree: of {images:,} images of the pile {unknown:,} are "
        f"called unknown, and {as_new:,} would be by the threshold for new images. `anedl predict` "
        f"will call {many} images unknown than the sorted pile does; label more, so that both "
        f"thresholds rest on more images"
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
