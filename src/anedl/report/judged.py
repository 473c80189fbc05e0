"""The images that a page is about: those with a known truth, and the pile.

A benchmark's run has test images with inliers and outliers, and a pool whose truth is known to the
report alone. A run on a user's own images has held-out labelled images, all of them inliers, and a
pile of which nobody knows the truth. Here both look alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

import numpy as np
import torch

from anedl.conformal import benjamini_hochberg
from anedl.data.dataset import IntArray
from anedl.engine.own import find_cache
from anedl.errors import AnedlError
from anedl.evaluation.metrics import OUTLIER
from anedl.intake.names import shown
from anedl.report.images import Key
from anedl.report.run_folder import Array, FloatArray, Run
from anedl.triage.verdict import State, Triage


@dataclass(frozen=True)
class Judged:
    """What the last model says of N images of known truth: `probabilities` is (N, K).

    `what` names them, `targets` are 0…K−1 or −1 for outliers, images with a score below `cut` are
    rejected, and `keys` says where the images are.
    """

    what: str
    probabilities: FloatArray
    targets: IntArray
    score: FloatArray
    cut: float
    keys: Sequence[Key]

    @property
    def predicted(self) -> IntArray:
        """(N,) likeliest known classes."""
        answer: IntArray = self.probabilities.argmax(axis=1)
        return answer

    @property
    def accepted(self) -> Array:
        """(N,) whether each is taken for an inlier."""
        return np.asarray(self.score >= self.cut)

    @property
    def inlier(self) -> Array:
        """(N,) whether each is of a known class."""
        return np.asarray(self.targets != OUTLIER)


@dataclass(frozen=True)
class Pile:
    """What the last model says of N unlabelled images; all arrays are (N,).

    `predicted` counts in `class_names`: the `model_classes` of the model, then those that only the
    table of the sorted pile names, for a person may write any class into it. `sureness` is what
    `sure_word` says; −∞ where it is not known. A key is None where the image is gone. `truth` is
    None where nobody knows it, `state` and `cluster` where nothing was sorted, the uncertainties
    where the model has none. `decided` says which images a person, not the model, has settled.
    `group` numbers the near-duplicates, −1 for an image that is alone; None where none were looked
    for.
    """

    names: Sequence[str]
    class_names: Sequence[str]
    model_classes: int
    keys: Sequence[Key | None]
    score: FloatArray
    predicted: IntArray
    probability: FloatArray
    sureness: FloatArray
    sure_word: str
    epistemic: FloatArray | None
    aleatoric: FloatArray | None
    truth: IntArray | None
    state: Sequence[State] | None
    cluster: IntArray | None
    decided: Array
    group: IntArray | None
    cut: float

    def __len__(self) -> int:
        return len(self.names)

    def class_of(self, index: int) -> str:
        """What an image is taken for."""
        return self.class_names[int(self.predicted[index])]

    def likeness(self, index: int) -> str:
        """What an image looks like to the model, or what a person called it beyond its classes."""
        if self.predicted[index] >= self.model_classes:
            return f"called {self.class_of(index)}"
        return f"looks like {self.class_of(index)} ({100 * self.probability[index]:.0f} %)"

    @property
    def accepted(self) -> Array:
        """(N,) whether each is taken for an inlier."""
        if self.state is not None:
            return np.array([state != "unknown" for state in self.state])
        return np.asarray(self.score >= self.cut)


def read_judged(run: Run) -> Judged:
    """The test images of a benchmark's run, or all held-out images of a user's own.

    Neither validation nor fresh images had a say in the last model's weights; the threshold for new
    images is calibrated on the fresh ones.
    """
    parts = [("test" if run.split.test_part == "test" else "train", run.split.test, run.test)]
    if run.is_own and run.validation is not None:
        parts.insert(0, ("train", run.split.validation, run.validation))
    logits = np.concatenate([tensors["logits"] for _, _, tensors in parts])
    return Judged(
        what="held-out images" if run.is_own else "test images",
        probabilities=torch.from_numpy(logits).double().softmax(-1).numpy(),
        targets=np.concatenate([tensors["targets"] for _, _, tensors in parts]),
        score=np.concatenate([tensors["score"] for _, _, tensors in parts]).astype(np.float64),
        cut=own_cut(run),
        keys=[
            ("test" if part == "test" else "train", int(place))
            for part, places, _ in parts
            for place in places
        ],
    )


def own_cut(run: Run) -> float:
    """The threshold for new images: calibrated, or that which accepts 95 % of validation."""
    if run.calibration is not None:
        return run.calibration.threshold("new").value
    return float(run.results["last"]["thresholds"]["score"])


def cut_words(run: Run, judged: Judged, pile: Pile) -> str:
    """The threshold that judged images are held to, and which it is; "" where there is none.

    A run of `anedl fit` has another for its pile: told apart here, for a page shows both.
    """
    if not np.isfinite(judged.cut):
        return ""
    if run.calibration is None:
        return f"{judged.cut:.4g}, the threshold that 95 % of the validation images reach"
    words = f"{judged.cut:.4g}, the threshold for new images"
    if np.isfinite(pile.cut) and pile.cut != judged.cut:
        words += f" (not {pile.cut:.4g}, the pile's)"
    return words


def read_pile(run: Run) -> Pile:
    """The sorted pile of a user's own run, or the pool of a benchmark's."""
    pool = run.pool
    evidential = "evidence_predicted" in pool
    sureness = pool["evidence_predicted" if evidential else "probability"].astype(np.float64)
    sure_word = "evidence of the predicted class" if evidential else "softmax probability"
    if run.triage is not None:
        return _sorted_pile(run, run.triage, sureness, sure_word)
    threshold = run.calibration.threshold("pile").value if run.calibration else own_cut(run)
    measures = [
        pool[name].astype(np.float64) if name in pool else None
        for name in ("epistemic", "aleatoric")
    ]
    return Pile(
        names=_pool_names(run),
        class_names=run.class_names,
        model_classes=run.split.num_known,
        keys=[("train", int(place)) for place in run.split.pool],
        score=pool["score"].astype(np.float64),
        predicted=pool["predicted"],
        probability=pool["probability"].astype(np.float64),
        sureness=sureness,
        sure_word=sure_word,
        epistemic=measures[0],
        aleatoric=measures[1],
        truth=run.pool_truth,
        state=None,
        cluster=None,
        decided=np.zeros(len(run.split.pool), bool),
        group=None,
        cut=threshold,
    )


def _pool_names(run: Run) -> list[str]:
    """What the images of a pool are called: their files where there are any, else their places."""
    try:
        items = find_cache(run.folder).items if run.is_own else []
    except AnedlError:
        items = []
    if run.split.pool.max(initial=-1) < len(items):
        return [items[place].name for place in run.split.pool]
    return [f"image {place} of the training set" for place in run.split.pool]


def _sorted_pile(run: Run, triage: Triage, sureness: FloatArray, sure_word: str) -> Pile:
    evidence = triage.evidence
    places = _places(run, evidence.names)
    # Images too like a labelled one were kept out of training: of the pile, but not of the pool.
    in_pool = {int(place): value for place, value in zip(run.split.pool, sureness, strict=True)}
    if any(place in in_pool for place in places):
        sureness = np.array([in_pool.get(place, -inf) for place in places])
    else:
        sureness, sure_word = evidence.probability, "softmax probability"
    measured = not np.isnan(evidence.epistemic).all()
    known, answers = run.split.known_names, run.decided.answers
    new = [name for name in evidence.class_names if name not in known]
    number = {name: i for i, name in enumerate((*known, *new))}
    numbers = np.array([number[name] for name in evidence.class_names], np.int64)
    return Pile(
        names=evidence.names,
        class_names=(*run.class_names, *(f"{shown(name)} (new to the model)" for name in new)),
        model_classes=len(known),
        keys=[None if place < 0 else ("train", place) for place in places],
        score=evidence.score,
        predicted=numbers[evidence.first],
        probability=evidence.probability,
        sureness=sureness,
        sure_word=sure_word,
        epistemic=evidence.epistemic if measured else None,
        aleatoric=evidence.aleatoric if measured else None,
        truth=None,
        state=triage.state,
        cluster=triage.cluster,
        decided=np.array([name in answers for name in evidence.names], bool),
        group=evidence.duplicate_group,
        cut=pile_cut(run, triage),
    )


def pile_cut(run: Run, triage: Triage) -> float:
    """The score below which images of the pile were called unknown; −∞ where there is none.

    Where the share of false alarms was controlled instead of a level, it lies above the largest
    p-value that was flagged. Where the models of folds judged in turn, no one score decided.
    """
    if triage.rules.folds:
        return -inf
    if run.calibration is None:
        return own_cut(run)
    if not triage.rules.benjamini_hochberg:
        return run.calibration.threshold("pile").value
    p_value = triage.evidence.p_value
    flagged = benjamini_hochberg(p_value, triage.rules.level)
    if not flagged.any():
        return -inf
    kept = triage.evidence.score[p_value > p_value[flagged].max()]
    return float(kept.min() if len(kept) else np.nextafter(triage.evidence.score.max(), inf))


def _places(run: Run, names: Sequence[str]) -> list[int]:
    """Where the pile's images are in the run's image cache; −1 where they are gone."""
    try:
        cache = find_cache(run.folder)
    except AnedlError:
        return [-1] * len(names)
    # Labelled images are in the cache too, and may bear the same names below their own folder.
    rows = {item.name: row for row, item in enumerate(cache.items) if item.label is None}
    return [rows.get(name, -1) for name in names]
