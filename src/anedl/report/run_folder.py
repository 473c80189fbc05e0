"""Reading a finished run back from its folder, with everything a report says about it."""

import json
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from anedl import scores
from anedl.calibration import Calibration
from anedl.data.dataset import IntArray
from anedl.data.protocol import Split
from anedl.data.split_file import read_split
from anedl.engine.differences import portable_name
from anedl.engine.log import read_rows
from anedl.engine.own import find_cache
from anedl.engine.run_files import CALIBRATION_FILE
from anedl.errors import AnedlError
from anedl.evaluation.metrics import OUTLIER
from anedl.intake.decided import Decided, read_decided
from anedl.intake.names import shown
from anedl.triage.table import read_table
from anedl.triage.verdict import Triage

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]

SCORE_LABELS = {
    "total_evidence": "total evidence",
    "max_alpha": "largest concentration",
    "self_training": "evidence of the predicted class",
    "vacuity": "negative vacuity",
    "mutual_information": "negative mutual information",
    "differential_entropy": "negative differential entropy",
    "max_softmax": "max softmax",
    "energy": "energy",
}


@dataclass(frozen=True)
class Run:
    """A finished run: what it was asked, what it logged, and what its last model says."""

    folder: Path
    config: dict[str, Any]
    split: Split
    rows: list[dict[str, Any]]  # metrics.jsonl
    results: dict[str, Any]

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the known classes, in the model's order, printable whatever they hold.

        Those of a user's own images were made so when they were read; a second time would escape
        the escapes.
        """
        names = self.split.known_names
        return names if self.is_own else tuple(map(shown, names))

    @property
    def method(self) -> str:
        """Its name, without the folder that a user's file lies in: pages are passed on."""
        return shown(portable_name(self.config["method"]))

    @property
    def is_own(self) -> bool:
        """Whether it was trained on a user's own images, whose pile nobody has labelled."""
        return "own" in self.config

    @property
    def replicate(self) -> tuple[int, int]:
        """Seed and fold: what tells the runs of one recipe apart."""
        return self.config["seed"], self.config["fold"]

    @cached_property
    def split_hash(self) -> str | None:
        """SHA-256 of the split, and of the images themselves where they are a user's own.

        A user's split counts images of his folders, which may hold others another time. None where
        those images are gone, so that nobody can tell which they were.
        """
        split: str = self.results["split_hash"]
        if not self.is_own:
            return split
        try:
            images = find_cache(self.folder).digests
        except AnedlError:
            return None
        return sha256("\n".join([split, *images]).encode()).hexdigest()

    def shares_split(self, other: "Run") -> bool:
        """Whether both surely learnt from, and were tested on, the same images."""
        return self.split_hash is not None and self.split_hash == other.split_hash

    @cached_property
    def test(self) -> dict[str, Array]:
        """Outputs on the test images: features, logits, score, targets, and alpha where it is."""
        return _tensors(self.folder / "outputs" / "test-last.safetensors")

    @cached_property
    def pool(self) -> dict[str, Array]:
        """What the last model says of each pool image, in the order of the split's pool."""
        return _tensors(self.folder / "outputs" / "pool-last.safetensors")

    @property
    def pool_truth(self) -> IntArray | None:
        """(N,) true classes of the pool, −1 for outliers; None where nobody knows them."""
        return None if self.is_own else self.pool.get("truth")

    @cached_property
    def validation(self) -> dict[str, Array] | None:
        """Outputs on the validation images, as those on the test; None where they were not kept."""
        path = self.folder / "outputs" / "validation-last.safetensors"
        return _tensors(path) if path.is_file() else None

    @cached_property
    def fit(self) -> dict[str, Any] | None:
        """What `anedl fit` found out; None for a benchmark's run."""
        return _json(self.folder / "fit.json") if self.is_own else None

    @cached_property
    def calibration(self) -> Calibration | None:
        """The held-out inliers that calibrate the threshold of a user's own run."""
        document = _json(self.folder / CALIBRATION_FILE) if self.is_own else None
        return None if document is None else Calibration.from_json(document)

    @cached_property
    def triage(self) -> Triage | None:
        """The sorted pile of a user's own run."""
        sorted_pile = self.is_own and (self.folder / "triage.csv").is_file()
        return read_table(self.folder) if sorted_pile else None

    @cached_property
    def decided(self) -> Decided:
        """What people had said of images of the pile when the run began."""
        return read_decided(self.folder) or Decided()

    @property
    def folds(self) -> int:
        """How many further models judged the pile in turn; 0 where the last model did."""
        return 0 if self.triage is None else self.triage.rules.folds

    @property
    def test_targets(self) -> IntArray:
        """(N,) known classes of the test images, −1 for outliers."""
        return self.test["targets"]

    @property
    def has_outliers(self) -> bool:
        """Whether the test images hold both inliers and outliers, as every ROC curve needs."""
        outlier = self.test_targets == OUTLIER
        return bool(outlier.any() and not outlier.all())

    @cached_property
    def softmax_is_own_score(self) -> bool:
        """Whether the method's own score is the largest softmax probability itself."""
        return np.array_equal(self.test["score"], _max_softmax(self.test["logits"]))

    @cached_property
    def top_m(self) -> int | None:
        """M of Eq. 9, found as the M whose sums are the saved scores; None for other scores."""
        if "alpha" not in self.test:
            return None
        sums = np.cumsum(-np.sort(-self.test["alpha"].astype(np.float64), axis=1), axis=1)
        fits = np.isclose(sums, self.test["score"][:, None], rtol=1e-5).all(axis=0)
        return int(fits.argmax()) + 1 if fits.any() else None

    @property
    def own_score_label(self) -> str:
        """The name of the method's own score, for legends."""
        if self.softmax_is_own_score:
            return SCORE_LABELS["max_softmax"]
        name = self.config["options"].get("score")
        if name == "top_m_evidence" and self.top_m is not None:
            return f"top-{self.top_m} evidence (Eq.\N{NO-BREAK SPACE}9)"
        return SCORE_LABELS.get(name, f"score of {self.method}")

    def test_scores(self) -> dict[str, FloatArray]:
        """(N,) scores of the test images by label: the method's own first, then max softmax."""
        named = {self.own_score_label: self.test["score"]}
        named.setdefault(SCORE_LABELS["max_softmax"], _max_softmax(self.test["logits"]))
        return {label: values.astype(np.float64) for label, values in named.items()}

    def thresholds(self) -> dict[str, float]:
        """The thresholds that accept 95 % of the validation inliers, labelled as the scores."""
        stated = self.results["last"]["thresholds"]
        named = {self.own_score_label: stated["score"]}
        named.setdefault(SCORE_LABELS["max_softmax"], stated["max_softmax"])
        return named

    @property
    def self_training_from(self) -> int | None:
        """Epochs before self-training, where the method has one; None where nothing changes.

        A method that treats both stages alike neither selects nor gains a term of its loss.
        """
        terms: dict[int, set[str]] = {1: set(), 2: set()}
        for row in self.rows:
            if "train" in row:
                terms[row["stage"]] |= row["train"].keys() | row.keys() & {"selection"}
        changes = bool(terms[2]) and (not terms[1] or terms[1] != terms[2])
        # Runs from before networks could share one do not say it apart.
        pretraining = self.config.get("pretraining", self.config["train"]["pretrain_epochs"])
        return int(pretraining) if changes else None

    @property
    def restarts(self) -> tuple[int, ...]:
        """Epochs at whose beginning the network began anew."""
        return tuple(self.config.get("restarts", ()))


def read_run(folder: Path) -> Run:
    """Read a finished run.

    Raises:
        AnedlError: there is no run, or it has not ended.
    """
    config_path, results_path = folder / "config.json", folder / "results.json"
    if not config_path.is_file():
        raise AnedlError(f"{folder}: there is no run here (no config.json); name a run's folder")
    if not results_path.is_file():
        raise AnedlError(
            f"{folder}: the run has not ended (no results.json); continue it with "
            f"`anedl train --config {config_path} --resume`"
        )
    try:
        config = json.loads(config_path.read_text(encoding="utf-8"))
        results = json.loads(results_path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise AnedlError(f"{folder}: config.json or results.json is damaged ({error})") from error
    metrics_path = folder / "metrics.jsonl"
    rows = read_rows(metrics_path) if metrics_path.is_file() else []
    return Run(folder, config, read_split(folder / "split.json"), rows, results)


def _json(path: Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise AnedlError(f"{path}: is damaged ({error})") from error
    return document


def _tensors(path: Path) -> dict[str, Array]:
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        loaded: dict[str, Array] = load_file(path)
    except FileNotFoundError as error:
        raise AnedlError(
            f"{path}: the run's outputs are missing; train it to its end with --resume (a folder "
            f"of weights has none to report on: take the run that they are from)"
        ) from error
    except SafetensorError as error:
        raise AnedlError(f"{path}: the run's outputs are damaged ({error})") from error
    return loaded


def _max_softmax(logits: Array) -> Array:
    # The engine's own function: ties in float32 then fall as they did in results.json.
    values: Array = scores.max_softmax(torch.from_numpy(logits)).numpy()
    return values
