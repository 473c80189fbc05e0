"""What the decisions so far say about the model and about the pile.

*Settled* images are those that were labelled or called unknown; skipped ones are not.

The model is right about a settled image if the person said what it says: its likeliest class for
an accepted image or one for review, "unknown" for one it called unknown. An image of a class that
was made during the review is an outlier like one that was called unknown: the model could not know
the class.

The share of outliers in the pile. People settle the doubtful images first, so the share among the
settled says nothing about the rest. There is a fair sample, though: one fixed random order of the
pile, in which a person may go through it. For every state (accept, review, unknown), the images of
that state that come first in this order and are settled without a gap are a simple random sample of
the state, whichever way each of them came to be settled. Of n sampled images k being outliers, the
rate among the others is given Jeffreys' posterior Beta(k + ½, n − k + ½); the decisions outside the
sample count as what they are. The posteriors of the three states are independent, and 5 % and 95 %
of the sum bound the interval. It supposes that skipped images are like the others of their state,
and takes at least `MINIMUM` sampled images in each state that is not settled to the end.
"""

from dataclasses import dataclass

import numpy as np

from anedl.data.dataset import IntArray
from anedl.triage.verdict import STATES

OPEN, UNKNOWN, SKIPPED = -1, -2, -3  # standings; from 0 on: the number of a class
MINIMUM = 5  # sampled images of a state below which nothing is said
DRAWS = 4000


@dataclass(frozen=True)
class Share:
    """The share of the pile that is of no known class: median and 90 % interval."""

    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Effect:
    """What the decisions have changed; counts by state are in the order of `STATES`.

    Of the `labelled` images, `of_new_classes` have a class that the model does not know. `right` of
    the `settled` images were as the model said, `done` counts skipped ones as well, and
    `sorted_pile` is the triage with the decisions in place of the model's states. `outliers` is
    None until `sample_needed`, the number of images of each state still missing in the fair sample,
    is all zeros.
    """

    labelled: int
    of_new_classes: int
    unknown: int
    skipped: int
    total: tuple[int, ...]
    settled: tuple[int, ...]
    done: tuple[int, ...]
    right: tuple[int, ...]
    sorted_pile: tuple[int, ...]
    sample_needed: tuple[int, ...]
    outliers: Share | None


def effect(
    state: IntArray, guess: IntArray, standing: IntArray, order: IntArray, known: int
) -> Effect:
    """Look at where N images stand.

    Args:
        state: (N,) the model's state as a position in `STATES`.
        guess: (N,) the number of the likeliest class.
        standing: (N,) `OPEN`, `UNKNOWN`, `SKIPPED` or the number of the class it was given.
        order: (N,) the fixed random order of all images.
        known: how many classes the model knows; higher numbers are classes made since.
    """
    accept, review, unknown = range(len(STATES))
    settled = (standing >= 0) | (standing == UNKNOWN)
    said = np.where(state == unknown, UNKNOWN, guess)
    found = np.where(standing >= known, UNKNOWN, standing)
    now = np.where(standing >= 0, accept, np.where(standing == UNKNOWN, unknown, state))
    needed, share = _outliers(state, found, order)
    return Effect(
        labelled=int((standing >= 0).sum()),
        of_new_classes=int((standing >= known).sum()),
        unknown=int((standing == UNKNOWN).sum()),
        skipped=int((standing == SKIPPED).sum()),
        total=_by_state(state, np.ones(len(state), bool)),
        settled=_by_state(state, settled),
        done=_by_state(state, standing != OPEN),
        right=_by_state(state, settled & (found == said)),
        sorted_pile=tuple(int((now == number).sum()) for number in (accept, review, unknown)),
        sample_needed=needed,
        outliers=share,
    )


def _outliers(
    state: IntArray, standing: IntArray, order: IntArray
) -> tuple[tuple[int, ...], Share | None]:
    """How many sampled images each state still lacks, and the share if none lacks any."""
    generator = np.random.default_rng(0)  # the same decisions, the same numbers
    needed, total = [], np.zeros(DRAWS)
    for number in range(len(STATES)):
        members = order[state[order] == number]
        members = members[standing[members] != SKIPPED]
        given = standing[members]
        is_open = given == OPEN
        left = int(is_open.sum())
        sampled = int(is_open.argmax()) if left else len(members)
        found = int((given[:sampled] == UNKNOWN).sum())
        known_outliers = int((given == UNKNOWN).sum())
        needed.append(max(0, min(MINIMUM, len(members)) - sampled) if left else 0)
        rate = generator.beta(found + 0.5, sampled - found + 0.5, DRAWS)
        outliers = found + (len(members) - sampled) * rate
        total += np.clip(outliers, known_outliers, known_outliers + left)
    if any(needed) or not len(state):
        return tuple(needed), None
    counted = max(1, int((standing != SKIPPED).sum()))
    low, middle, high = np.quantile(total / counted, [0.05, 0.5, 0.95])
    return tuple(needed), Share(float(middle), float(low), float(high))


def _by_state(state: IntArray, chosen: np.ndarray) -> tuple[int, ...]:
    return tuple(int(((state == number) & chosen).sum()) for number in range(len(STATES)))
