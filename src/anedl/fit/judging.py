"""What a trained model says of the images that judge and of the pile, and what follows from it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anedl import dirichlet
from anedl.conformal import Calibration
from anedl.engine.inference import outputs_of
from anedl.engine.model import load_model
from anedl.engine.problem import Problem
from anedl.fit.gather import Gathered
from anedl.methods.base import Outputs
from anedl.pollution import ShareEstimate, estimate_outlier_share
from anedl.triage.clusters import Cluster, cluster_unknown
from anedl.triage.confidence import Confidence, choose_confidence
from anedl.triage.verdict import Labelled, Rules, Triage, judge
from anedl.triage.verdict import gather as gather_evidence


@dataclass(frozen=True)
class Judged:
    """What the model says of some images, as arrays."""

    probabilities: np.ndarray[Any, np.dtype[np.float64]]
    score: np.ndarray[Any, np.dtype[np.float64]]
    epistemic: np.ndarray[Any, np.dtype[np.float64]]
    aleatoric: np.ndarray[Any, np.dtype[np.float64]]
    features: np.ndarray[Any, np.dtype[np.float32]]


def judge_all(
    model: Path, gathered: Gathered, problem: Problem, device: str = "auto"
) -> dict[str, Judged]:
    """What the last model says of the images that judge and of the whole pile."""
    trained = load_model(model, device=device)
    parts = {
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

    It has seen neither the pile nor any image that calibrates, so all of them are its inliers.
    """
    trained = load_model(model, device=device)
    inliers = np.concatenate([gathered.fresh, gathered.decoys])
    of_inliers, of_pile = (
        _arrays(outputs_of(trained.method, problem.images_at(positions), trained.precision)).score
        for positions in (inliers, gathered.pile)
    )
    return estimate_outlier_share(of_inliers, of_pile)


def choose_acceptance(validation: Judged, gathered: Gathered, target: float) -> Confidence:
    """The probability from which on a class is accepted, by the validation images."""
    truth = gathered.labels[gathered.split.validation]
    correct = validation.probabilities.argmax(1) == truth
    return choose_confidence(validation.probabilities.max(1), correct, target=target)


def sort_pile(
    pile: Judged,
    gathered: Gathered,
    calibration: Calibration,
    confidence: Confidence,
    benjamini_hochberg: bool = False,
) -> tuple[Triage, list[Cluster]]:
    """A verdict on every image of the pile, and groups of unknown ones that look alike."""
    items, groups = gathered.cache.items, gathered.groups
    labelled: dict[int, list[Labelled]] = {}
    for position in np.flatnonzero((gathered.labels < len(gathered.names)) & (groups >= 0)):
        item = items[position]
        labelled.setdefault(int(groups[position]), []).append(Labelled(item.name, str(item.label)))
    evidence = gather_evidence(
        [items[position].name for position in gathered.pile],
        pile.probabilities,
        pile.score,
        calibration.p_values(pile.score, "pile"),
        pile.epistemic,
        pile.aleatoric,
        groups[gathered.pile],
        gathered.names,
        labelled,
    )
    rules = Rules(calibration.level, confidence.threshold, benjamini_hochberg)
    return cluster_unknown(judge(evidence, rules), pile.features)


class PileImages:
    """The pile's frames in the order of the triage."""

    def __init__(self, gathered: Gathered) -> None:
        self._pixels = gathered.cache.images
        self._positions = gathered.pile

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, index: int, /) -> Any:
        return self._pixels[int(self._positions[index])]
