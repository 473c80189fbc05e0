"""A verdict for every image of the pile: accept it as a class, review it, or call it unknown.

What a person has said of an image stands. For all others the rules, in order; the first that holds
decides:

1. A near-duplicate of a labelled image that seems to be of another class, or of no known class, is
   for `review`: either the label or the model is wrong, and only a person can say which. So is a
   near-duplicate of an image that a person called unknown, if it seems to be of a known class.
2. An image whose p-value is at most the level is `unknown`. Where the share of false alarms is to
   be controlled instead, the images that Benjamini–Hochberg flags at the level are `unknown`.
3. An image whose likeliest class has at least the wanted probability is `accept`ed as that class.
4. Everything else is for `review`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from anedl.conformal import benjamini_hochberg
from anedl.data.dataset import IntArray
from anedl.errors import ConfigError, DataError

State = Literal["accept", "review", "unknown"]
STATES: tuple[State, ...] = get_args(State)
Floats = npt.NDArray[np.float64]

CLOSE_SECOND = 0.1  # from this probability on, a reason for review names the second class as well


@dataclass(frozen=True)
class Rules:
    """What decides: `level` for p-values, `confidence` for accepting.

    Without `benjamini_hochberg`, at most `level` of the true inliers are called unknown (twice that
    where p-values are from `folds`); with it, at most `level` of those called unknown are inliers;
    all on average.
    """

    level: float = 0.05
    confidence: float = 0.95
    benjamini_hochberg: bool = False
    folds: int = 0  # that the p-values are averaged over; 0: they are those of one model

    def __post_init__(self) -> None:
        if self.benjamini_hochberg and self.folds:
            raise ConfigError(
                "p-values from folds promise nothing about the share of false alarms: give up "
                "Benjamini-Hochberg, or fit with --folds 0"
            )
        for name, value in (("level", self.level), ("confidence", self.confidence)):
            if not 0 <= value <= 1:
                raise ConfigError(f"the {name} of a triage is a share from 0 to 1, got {value}")


@dataclass(frozen=True)
class Labelled:
    """A labelled image: its name and the class it was given, "" where a person said unknown."""

    name: str
    class_name: str


@dataclass(frozen=True)
class Evidence:
    """What the rules look at, one entry an image; all arrays are (N,).

    `first` and `second` index `class_names` (`second` is −1 where there is one class only).
    `duplicate_group` is −1 for an image that is alone, `twin` the labelled near-duplicate that
    speaks loudest: one that contradicts the predicted class if there is any. `epistemic` and
    `aleatoric` are NaN where the model has no such measure.
    """

    names: tuple[str, ...]
    class_names: tuple[str, ...]
    first: IntArray
    probability: Floats
    second: IntArray
    second_probability: Floats
    score: Floats
    p_value: Floats
    epistemic: Floats
    aleatoric: Floats
    duplicate_group: IntArray
    twin: tuple[Labelled | None, ...]

    def __len__(self) -> int:
        return len(self.names)

    def class_of(self, index: int) -> str:
        """Name of the likeliest known class of an image, whatever its state."""
        return self.class_names[int(self.first[index])]


def gather(
    names: Sequence[str],
    probabilities: npt.ArrayLike,
    score: npt.ArrayLike,
    p_value: npt.ArrayLike,
    epistemic: npt.ArrayLike,
    aleatoric: npt.ArrayLike,
    duplicate_group: npt.ArrayLike,
    class_names: Sequence[str],
    labelled_in_group: Mapping[int, Sequence[Labelled]] | None = None,
) -> Evidence:
    """Check and keep what a model says of N images and K classes.

    `probabilities` is (N, K), everything else (N,). `labelled_in_group` holds the labelled images
    of every duplicate group that has some.
    """
    table = np.asarray(probabilities, dtype=np.float64)
    count, classes = len(names), len(class_names)
    if table.shape != (count, classes) or classes == 0:
        raise DataError(
            f"{count} images and {classes} classes need probabilities ({count}, {classes}), "
            f"got {table.shape}"
        )
    columns = {
        name: np.asarray(column, dtype=np.float64)
        for name, column in (
            ("score", score),
            ("p_value", p_value),
            ("epistemic", epistemic),
            ("aleatoric", aleatoric),
        )
    }
    groups = np.asarray(duplicate_group, dtype=np.int64)
    for name, column in (*columns.items(), ("duplicate_group", groups)):
        if column.shape != (count,):
            raise DataError(f"{count} images need a {name} each, got {column.shape}")
    finite = np.isfinite(table).all(axis=1)
    finite &= np.isfinite(columns["score"]) & np.isfinite(columns["p_value"])
    if not finite.all():
        bad = names[int(np.argmin(finite))]
        raise DataError(
            f"{count - int(finite.sum())} images have a probability, score or p-value that is not "
            f"a finite number, the first is {bad!r}: the model has diverged; train it again"
        )
    if len(set(class_names)) < classes or "" in class_names:
        raise DataError(f"class names must differ and not be empty, got {list(class_names)}")
    for text in (*names, *class_names):
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(
                f"{text!r} is not a text that a table can hold; escape the odd bytes of its name"
            ) from error
    order = np.argsort(-table, axis=1, kind="stable")[:, :2]
    rows = np.arange(count)
    first = order[:, 0].astype(np.int64)
    second = order[:, 1].astype(np.int64) if classes > 1 else np.full(count, -1)
    return Evidence(
        names=tuple(names),
        class_names=tuple(class_names),
        first=first,
        probability=table[rows, first],
        second=second,
        second_probability=table[rows, second] if classes > 1 else np.zeros(count),
        duplicate_group=groups,
        twin=tuple(
            _loudest_twin((labelled_in_group or {}).get(int(group), ()), class_names[label])
            for group, label in zip(groups, first, strict=True)
        ),
        **columns,
    )


Answers = Mapping[int, str | None]
"""What people said of images, by row: a class, or None for an image of no known class."""


def with_answers(evidence: Evidence, probabilities: npt.ArrayLike, answers: Answers) -> Evidence:
    """The same evidence with the classes people gave in place of the likeliest ones.

    `probabilities` is (N, K). Where the model thinks otherwise, its own choice comes second.
    """
    table = np.asarray(probabilities, dtype=np.float64)
    first, second = evidence.first.copy(), evidence.second.copy()
    twin = list(evidence.twin)
    for row, name in answers.items():
        twin[row] = None  # it may well be the image itself, which is labelled by now
        if name is not None and name != evidence.class_of(row):
            first[row], second[row] = evidence.class_names.index(name), first[row]
    rows = np.arange(len(evidence))
    return replace(
        evidence,
        first=first,
        probability=table[rows, first],
        second=second,
        second_probability=np.where(second >= 0, table[rows, second], 0.0),
        twin=tuple(twin),
    )


@dataclass(frozen=True)
class Triage:
    """The verdict: a state and a one-line reason for every image, and the rules that gave them.

    `cluster` is the number of the cluster that an unknown image is in, −1 for none.
    """

    evidence: Evidence
    rules: Rules
    state: tuple[State, ...]
    reason: tuple[str, ...]
    cluster: IntArray

    def __len__(self) -> int:
        return len(self.state)

    def where(self, *states: State) -> IntArray:
        """Positions of the images in these states."""
        return np.flatnonzero([state in states for state in self.state])

    def counts(self) -> dict[State, int]:
        """How many images are in each state."""
        return {state: self.state.count(state) for state in STATES}

    def with_clusters(self, cluster: IntArray) -> "Triage":
        """The same verdict, with the number of a cluster for every image, −1 for none."""
        if cluster.shape != (len(self),):
            raise DataError(f"{len(self)} images need a cluster each, got {cluster.shape}")
        return replace(self, cluster=cluster)


def judge(evidence: Evidence, rules: Rules, answers: Answers | None = None) -> Triage:
    """Apply the rules at the top of this file to every image; `answers` stand as they are."""
    said = answers or {}
    unknown = evidence.p_value <= rules.level
    if rules.benjamini_hochberg:
        judged = np.setdiff1d(np.arange(len(evidence)), list(said))
        unknown = np.zeros(len(evidence), bool)
        unknown[judged] = benjamini_hochberg(evidence.p_value[judged], rules.level)
    verdicts = [
        _answered(evidence, i, said[i]) if i in said else _verdict(evidence, i, unknown[i], rules)
        for i in range(len(evidence))
    ]
    return Triage(
        evidence=evidence,
        rules=rules,
        state=tuple(state for state, _ in verdicts),
        reason=tuple(reason for _, reason in verdicts),
        cluster=np.full(len(evidence), -1, dtype=np.int64),
    )


def percent(share: float) -> str:
    """A share in words: three figures at most, and never 0 % or 100 % for what is not."""
    value = 100 * share
    if 0 < value < 0.01:
        return "under 0.01 %"
    if 99.9 < value < 100:
        return "over 99.9 %"
    if value < 0.1:
        return f"{value:.2g} %"
    near_an_end = value < 9.95 or 99 < value < 100
    return f"{value:.1f} %".replace(".0 %", " %") if near_an_end else f"{value:.0f} %"


def _answered(evidence: Evidence, i: int, answer: str | None) -> tuple[State, str]:
    if answer is None:
        return "unknown", "unknown: a person said so"
    reason = f"a person said {one_line(answer)}"
    if evidence.second_probability[i] > evidence.probability[i]:
        other = evidence.class_names[evidence.second[i]]
        reason += f"; looks like {one_line(other)} "
        reason += f"({percent(float(evidence.second_probability[i]))})"
    return "accept", reason


def _verdict(evidence: Evidence, i: int, unknown: np.bool_, rules: Rules) -> tuple[State, str]:
    likeliest, probability = evidence.class_of(i), float(evidence.probability[i])
    p_value, twin = float(evidence.p_value[i]), evidence.twin[i]
    less_known = f"{percent(p_value)} of held-out known images look less known"
    if twin is not None and not twin.class_name:
        like = f"near-duplicate of {one_line(twin.name)}, which a person called unknown"
        if unknown:
            return "unknown", f"unknown: {like}"
        return "review", (
            f"review: {like}, but this looks like {one_line(likeliest)} ({percent(probability)})"
        )
    if twin is not None and twin.class_name != likeliest:
        return "review", (
            f"review: near-duplicate of {one_line(twin.name)}, which is labelled "
            f"{one_line(twin.class_name)}, but this looks like {one_line(likeliest)} "
            f"({percent(probability)})"
        )
    if twin is not None and unknown:
        return "review", (
            f"review: near-duplicate of {one_line(twin.name)}, which is labelled "
            f"{one_line(twin.class_name)}, but at most {less_known}"
        )
    if unknown:
        return "unknown", f"unknown: at most {less_known}"
    if probability >= rules.confidence:
        return "accept", (
            f"looks like {one_line(likeliest)} ({percent(probability)}), more typical of the known "
            f"classes than {percent(p_value)} of held-out images"
        )
    if evidence.second[i] >= 0 and evidence.second_probability[i] >= CLOSE_SECOND:
        other = evidence.class_names[evidence.second[i]]
        return "review", (
            f"review: {one_line(likeliest)} {percent(probability)} or "
            f"{one_line(other)} {percent(float(evidence.second_probability[i]))}"
        )
    return "review", (
        f"review: {one_line(likeliest)} {percent(probability)}, "
        f"accepted from {percent(rules.confidence)} on"
    )


def one_line(text: str) -> str:
    """A name as it can stand within a sentence: line breaks and control characters escaped."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)


def _loudest_twin(twins: Sequence[Labelled], predicted: str) -> Labelled | None:
    contradicting = [twin for twin in twins if twin.class_name != predicted]
    return next(iter((*contradicting, *twins)), None)
