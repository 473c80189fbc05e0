"""What a trained model says of the images that judge and of the pile, and what follows from it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from anedl import dirichlet
from anedl.calibration import Calibration
from anedl.conformal import CrossPValues, cross_p_values
from anedl.engine.inference import outputs_of
from anedl.engine.model import load_model
from anedl.engine.problem import Problem
from anedl.familiarity import Familiarity
from anedl.fit.gather import Gathered
from anedl.methods.base import Outputs
from anedl.pollution import ShareEstimate, estimate_outlier_share
from anedl.triage.clusters import Cluster, cluster_unknown
from anedl.triage.confidence import Confidence, choose_confidence
from anedl.triage.verdict import Labelled, Rules, Triage, judge, with_answers
from anedl.triage.verdict import gather as gather_evidence


@dataclass(frozen=True)
class Judged:
    """What the model says of some images, as arrays."""

    probabilities: np.ndarray[Any, np.dtype[np.float64]]
    score: np.ndarray[Any, np.dtype[np.float64]]
    epistemic: np.ndarray[Any, np.dtype[np.float64]]
    aleatoric: np.ndarray[Any, np.dtype[np.float64]]
    features: np.ndarray[Any, np.dtype[np.float32]]


@dataclass(frozen=True)
class FoldScores:
    """Scores by the models of the folds: of each fold, and of the whole pile."""

    folds: list[np.ndarray[Any, np.dtype[np.float64]]]
    pile: list[np.ndarray[Any, np.dtype[np.float64]]]

    def p_values(self) -> CrossPValues:
        """The pile's p-values."""
        return cross_p_values(self.folds, self.pile)


def judge_all(
    model: Path, gathered: Gathered, problem: Problem, device: str = "auto"
) -> dict[str, Judged]:
    """What the last model says of labelled images, those that judge, and the whole pile."""
    trained = load_model(model, device=device)
    parts = {
        "labelled": gathered.split.labelled,
        "validation": gathered.split.validation,
        "fresh": gathered.fresh,
        "decoys": gathered.decoys,
        "pile": gathered.pile,
    }
    return {
        name: _arrays(outputs_of(trained.method, problem.images_at(positions), trained.precision))
        if len(positions)
        else _nothing(len(gathered.names))
        for name, positions in parts.items()
    }


def calibrate(judged: dict[str, Judged], level: float) -> tuple[Calibration, Familiarity]:
    """What fresh images and decoys say of new images and of the pile.

    What is familiar labelled images say that were trained on; how familiar a known image is that
    was not, fresh ones do.
    """
    labelled, fresh = (torch.from_numpy(judged[name].features) for name in ("labelled", "fresh"))
    familiarity = Familiarity.of(labelled)
    familiar = familiarity.score(fresh).double().numpy()
    found = Calibration(judged["fresh"].score, judged["decoys"].score, level, familiar)
    return found, familiarity


def unknown_as_new(
    calibration: Calibration, familiarity: Familiarity, pile: Judged, gathered: Gathered
) -> int | None:
    """How many images of the pile the threshold for new images would call unknown, if there is one.

    Those that people have decided about are left out.
    """
    if calibration.threshold("new").note:
        return None
    left = gathered.undecided
    familiar = familiarity.score(torch.from_numpy(pile.features[left])).double().numpy()
    p_values = calibration.p_values(pile.score[left], "new", familiar)
    return int((p_values <= calibration.level).sum())


def judge_by_folds(
    models: Sequence[Path], gathered: Gathered, problem: Problem, device: str = "auto"
) -> FoldScores:
    """What the model of each fold says of that fold, which it has not seen, and of the pile."""
    found = FoldScores([], [])
    for number, folder in enumerate(models):
        trained = load_model(folder, device=device)
        for positions, scores in (
            (np.flatnonzero(gathered.fold == number), found.folds),
            (gathered.pile, found.pile),
        ):
            outputs = outputs_of(trained.method, problem.images_at(positions), trained.precision)
            scores.append(outputs.score.double().cpu().numpy())
    return found


def _arrays(outputs: Outputs) -> Judged:
    unknown = np.full(len(outputs.score), np.nan)
    epistemic, aleatoric = unknown, unknown
    if outputs.alpha is not None:
        epistemic = dirichlet.mutual_information(outputs.alpha).double().cpu().numpy()
        aleatoric = dirichlet.expected_entropy(outputs.alpha).double().cpu().numpy()
    return Judged(
        outputs.logits.double().softmax(-1).cpu().numpy(),
        outputs.score.double().cpu().numpy(),
        epistemic,
        aleatoric,
        outputs.features.float().cpu().numpy(),
    )


def _nothing(classes: int) -> Judged:
    none = np.zeros(0)
    return Judged(np.zeros((0, classes)), none, none, none, np.zeros((0, 1), np.float32))


def estimate_before(
    model: Path, gathered: Gathered, problem: Problem, device: str = "auto"
) -> ShareEstimate:
    """The pile's outlier share by the model of the labels alone.

    Its inliers are the validation images. Those that calibrate would do as well, but O follows from
    this, and with it the training that they are to judge.
    """
    trained = load_model(model, device=device)
    of_inliers, of_pile = (
        _arrays(outputs_of(trained.method, problem.images_at(positions), trained.precision)).score
        for positions in (gathered.split.validation, gathered.pile)
    )
    return estimate_outlier_share(of_inliers, of_pile[gathered.undecided])


def estimate_after(
    calibration: Calibration, pile: Judged, by_folds: FoldScores | None, gathered: Gathered
) -> ShareEstimate:
    """The outlier share of what nobody has decided about, by the models that saw the pile.

    With folds the interval is that which holds those of all folds: it errs no more often than any
    of them.
    """
    left = gathered.undecided
    if by_folds is None:
        return estimate_outlier_share(calibration.scores("pile"), pile.score[left])
    found = [
        estimate_outlier_share(inliers, scores[left])
        for inliers, scores in zip(by_folds.folds, by_folds.pile, strict=True)
    ]
    return replace(
        found[0],
        share=float(np.mean([one.share for one in found])),
        low=min(one.low for one in found),
        high=max(one.high for one in found),
        inliers=sum(one.inliers for one in found),
        doubtful=any(one.doubtful for one in found),
    )


def choose_acceptance(validation: Judged, gathered: Gathered, target: float) -> Confidence:
    """The probability from which on a class is accepted, by the validation images."""
    truth = gathered.labels[gathered.split.validation]
    correct = validation.probabilities.argmax(1) == truth
    return choose_confidence(validation.probabilities.max(1), correct, target=target)


def sort_pile(
    pile: Judged, p_value: npt.ArrayLike, gathered: Gathered, rules: Rules
) -> tuple[Triage, list[Cluster]]:
    """A verdict on every image of the pile, and groups of unknown ones that look alike."""
    items, groups = gathered.cache.items, gathered.groups
    labelled: dict[int, list[Labelled]] = {}
    told = gathered.labels < len(gathered.names)
    told[list(gathered.answers)] = True  # those called unknown as well
    for position in np.flatnonzero(told & (groups >= 0)):
        name = (*gathered.names, "")[gathered.labels[position]]
        twin = Labelled(items[position].name, name)
        labelled.setdefault(int(groups[position]), []).append(twin)
    evidence = gather_evidence(
        [items[position].name for position in gathered.pile],
        pile.probabilities,
        pile.score,
        p_value,
        pile.epistemic,
        pile.aleatoric,
        groups[gathered.pile],
        gathered.names,
        labelled,
    )
    rows = {position: row for row, position in enumerate(gathered.pile.tolist())}
    answers = {rows[position]: answer for position, answer in gathered.answers.items()}
    evidence = with_answers(evidence, pile.probabilities, answers)
    return cluster_unknown(judge(evidence, rules, answers), pile.features)


class PileImages:
    """The pile's frames in the order of the triage."""

    def __init__(self, gathered: Gathered) -> None:
        self._pixels = gathered.cache.images
        self._positions = gathered.pile

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, index: int, /) -> Any:
        return self._pixels[int(self._positions[index])]
