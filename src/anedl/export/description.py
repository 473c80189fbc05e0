"""What a model says of itself wherever it goes: classes, preprocessing, threshold and its promise.

It travels as JSON in the metadata of an ONNX graph, under the key `anedl`.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anedl import __version__
from anedl.calibration import Calibration
from anedl.conformal import askable, finest_level, percent, shortfall
from anedl.engine.run_files import CALIBRATION_FILE, FAMILIARITY_FILE, MODEL_FILES
from anedl.errors import AnedlError, ConfigError, DataError
from anedl.export.framing import Framing

if TYPE_CHECKING:
    from anedl.engine.model import TrainedModel
    from anedl.familiarity import Familiarity

FORMAT = 2  # since scores that were probabilities became log-odds
METADATA_KEY = "anedl"
LICENCE = (
    "Made with anedl, whose code is licensed under Apache-2.0; the terms of these weights are for "
    "those to state who trained them."
)
ON_VALIDATION = 0.95  # share of the validation images that a run's own thresholds accept
RESULT_KEYS = {"last": "last", "best": "best_val"}


@dataclass(frozen=True)
class Rejection:
    """When an image is called unknown: its score is below `threshold`.

    Or its familiarity is below `familiarity`, which is −∞ for models that have none. `level` is the
    share of true inliers that this rejects at most, on average, as certified by `images` held-out
    inliers; None where the threshold comes with no such promise.
    """

    threshold: float
    promise: str
    level: float | None = None
    images: int = 0
    familiarity: float = float("-inf")

    @classmethod
    def calibrated(cls, calibration: Calibration) -> "Rejection":
        """The threshold for new images of a calibrated run."""
        limit = calibration.threshold("new")
        promise = calibration.describe().splitlines()[0].removeprefix("new images: ")
        # By whom a model was calibrated after its training goes wherever the promise does.
        promise = "; ".join([promise, *calibration.notes[:1]])
        return cls(limit.value, promise, limit.asked, limit.images, limit.familiarity)

    @classmethod
    def of_validation(cls, threshold: float) -> "Rejection":
        """The threshold that a benchmark run sets on its validation images."""
        return cls(
            threshold,
            f"a score below {threshold:.4g} is rejected, which accepts "
            f"{percent(ON_VALIDATION)} of the validation images; they also chose the best "
            "checkpoint, so nothing is certified",
        )

    def shortfall(self, level: float | None = None) -> str:
        """Why nothing is rejected at this level (default: the run's own), and what to do about it.

        Empty where images can be rejected.
        """
        if self.level is None:
            return ""
        reason = shortfall(self.images, self.level if level is None else level)
        if not reason:
            return ""
        return (
            f"nothing is rejected, for {reason}; take a level of "
            f"{askable(finest_level(self.images)):g} or more, fit with more labelled images, or "
            "calibrate it with more known ones (`anedl calibrate`)"
        )

    def to_json(self) -> dict[str, Any]:
        """Plain numbers and text; a threshold of −∞, which rejects nothing, is null."""
        return {
            "threshold": self.threshold if isfinite(self.threshold) else None,
            "familiarity": self.familiarity if isfinite(self.familiarity) else None,
            "level": self.level,
            "images": self.images,
            "promise": self.promise,
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Rejection":
        """Rebuild from what `to_json` returned."""
        # Models that were exported before there was a familiarity do not mention it.
        threshold, familiarity = (
            float("-inf") if value is None else float(value)
            for value in (document["threshold"], document.get("familiarity"))
        )
        return cls(
            threshold,
            str(document["promise"]),
            document["level"],
            int(document["images"]),
            familiarity,
        )


@dataclass(frozen=True)
class Description:
    """Everything that a user of a model needs beside its weights."""

    class_names: tuple[str, ...]
    framing: Framing
    rejection: Rejection | None
    method: str = ""
    setting: str = ""
    source: str = ""  # digest of the files that it was made from
    versions: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        trained: "TrainedModel",
        calibration: Calibration | None,
        threshold: float | None = None,
        source: str = "",
    ) -> "Description":
        """Describe a trained model; without a calibration, `threshold` is that of validation."""
        from anedl.methods.catalogue import short_name

        rejection = None
        if calibration is not None:
            rejection = Rejection.calibrated(calibration)
        elif threshold is not None:
            rejection = Rejection.of_validation(threshold)
        return cls(
            class_names=trained.class_names,
            framing=Framing.of(trained),
            rejection=rejection,
            method=short_name(trained.spec.method),
            setting=trained.spec.setting,
            source=source,
            versions={"anedl": __version__},
        )

    def with_versions(self, **versions: str) -> "Description":
        """The same, naming more of the software it was made with."""
        return replace(self, versions={**self.versions, **versions})

    def to_json(self) -> dict[str, Any]:
        """Plain lists, numbers and text."""
        return {
            "format": FORMAT,
            "versions": self.versions,
            "licence": LICENCE,
            "method": self.method,
            "setting": self.setting,
            "source": self.source,
            "class_names": list(self.class_names),
            "preprocessing": self.framing.to_json(),
            "unknown": None if self.rejection is None else self.rejection.to_json(),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Description":
        """Rebuild from what `to_json` returned.

        Raises:
            DataError: it is of another format.
        """
        try:
            if document["format"] != FORMAT:
                raise DataError(
                    f"a model of format {document['format']!r}, this version of anedl reads "
                    f"{FORMAT}: export it again"
                )
            unknown = document["unknown"]
            return cls(
                class_names=tuple(document["class_names"]),
                framing=Framing.from_json(document["preprocessing"]),
                rejection=None if unknown is None else Rejection.from_json(unknown),
                method=document["method"],
                setting=document["setting"],
                source=document["source"],
                versions=dict(document["versions"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"not a description of a model ({error!r}): export it again") from error


def model_of(folder: Path, model: str | None) -> str:
    """Which model of a run to take: the one asked for, else the calibrated one, else the last.

    A finished run that holds the best one alone means that; an unfinished one has no last yet.
    """
    if model is None:
        last, best, results = (
            (folder / name).exists()
            for name in (MODEL_FILES["last"], MODEL_FILES["best"], "results.json")
        )
        alone = "best" if best and results and not last else "last"
        return _calibrated_model(_calibration_record(folder)) or alone
    if model not in RESULT_KEYS:
        raise ConfigError(f"model {model!r}: a run has a `last` and a `best` one")
    return model


def read_calibration(folder: Path, model: str) -> Calibration | None:
    """The calibration of a run's model; None where there is none, or it is that of the other model.

    `calibration.json` may name in `model` whose scores it holds ("last" where it does not).
    """
    record = _calibration_record(folder)
    if record is None or (_calibrated_model(record) or "last") != model:
        return None
    try:
        return Calibration.from_json(record)
    except AnedlError as error:
        raise DataError(f"{folder / CALIBRATION_FILE}: {error}") from error


def read_familiarity(folder: Path, calibration: Calibration | None) -> "Familiarity | None":
    """What the calibrated model of a run finds familiar; None where it does not judge by that.

    Raises:
        DataError: it does, but the file is missing or damaged.
    """
    if calibration is None or not len(calibration.familiar):
        return None
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from anedl.familiarity import Familiarity

    path = folder / FAMILIARITY_FILE
    try:
        return Familiarity.from_tensors(load_file(path))
    except FileNotFoundError as error:
        raise DataError(
            f"{path}: is missing, and {CALIBRATION_FILE} needs it; copy it from where the run was "
            "made, or hand runs on by `anedl export RUN --weights FOLDER`"
        ) from error
    except (SafetensorError, KeyError) as error:
        raise DataError(f"{path}: cannot be read ({error!r}); take a sound copy of it") from error


def calibrated_instead(folder: Path, model: str) -> str | None:
    """Which other model of the run is calibrated where this one is not; None where none is."""
    other = model_of(folder, None)
    if other == model or read_calibration(folder, other) is None:
        return None
    return other


def validation_threshold(folder: Path, model: str) -> float | None:
    """The threshold of the method's own score that accepts 95 % of a run's validation images."""
    try:
        results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        value = results[RESULT_KEYS[model]]["thresholds"]["score"]
        return float(value)
    except (OSError, ValueError, KeyError, TypeError):
        return None  # a run without figures still predicts, it only rejects nothing


def source_digest(weights: Path, calibration: Calibration | None, threshold: float | None) -> str:
    """SHA-256 of what a model is made from, to tell whether an exported one is still up to date."""
    with weights.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    scores = None if calibration is None else calibration.to_json()
    digest.update(json.dumps([FORMAT, __version__, scores, threshold]).encode())
    return digest.hexdigest()


def _calibration_record(folder: Path) -> dict[str, Any] | None:
    path = folder / CALIBRATION_FILE
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise DataError(f"{path}: cannot be read as JSON ({error}); calibrate again") from error
    if not isinstance(record, dict):
        raise DataError(f"{path}: not a calibration; calibrate the run again")
    return record


def _calibrated_model(record: dict[str, Any] | None) -> str | None:
    model = None if record is None else record.get("model")
    return model if model in RESULT_KEYS else None
