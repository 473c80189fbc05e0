"""One interface to a trained model, whether PyTorch or onnxruntime computes it.

    predictor = load("runs/mine")
    predictions = predictor.predict(images)            # paths, Pillow images, arrays of any size

Whoever has frames of the model's own size already (uint8, N × side × side × 3) calls `judge`.
"""

import importlib
import json
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from anedl.calibration import Calibration
from anedl.data.dataset import IntArray, UInt8Array
from anedl.engine.run_files import MODEL_FILES
from anedl.errors import ConfigError, DataError, unknown_name
from anedl.export.description import (
    METADATA_KEY,
    Description,
    model_of,
    read_calibration,
    read_familiarity,
    source_digest,
    validation_threshold,
)
from anedl.intake.fitted import require_fitted

if TYPE_CHECKING:
    from anedl.engine.model import TrainedModel
    from anedl.export.images import AnImage
    from anedl.familiarity import Familiarity
    from anedl.methods.base import Outputs

Floats = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

BATCH = 256
MOST_PIXELS = 2**23  # a batch; 167 images of 224 × 224
RUNTIMES = ("torch", "onnx")
INSTALL = 'pip install "anedl[onnx]"'


@dataclass(frozen=True, eq=False)
class Predictions:
    """What a model says of N images.

    `class_index` and `probability` are the likeliest known class, whatever `unknown` says. What a
    model has no measure of is None: p-values without a calibration, familiarity without one that
    uses it, the two uncertainties (in nats) for methods without evidence, the flag for runs without
    a threshold.
    """

    class_index: IntArray  # (N,)
    probability: Floats  # (N,)
    probabilities: Floats  # (N, K)
    inlier_score: Floats  # (N,)
    familiarity: Floats | None  # (N,)
    p_value: Floats | None  # (N,)
    unknown: BoolArray | None  # (N,)
    epistemic: Floats | None  # (N,)
    aleatoric: Floats | None  # (N,)

    def __len__(self) -> int:
        return len(self.class_index)

    def __getitem__(self, part: slice) -> "Predictions":
        """The predictions of a part of the images."""

        def column(name: str) -> Any:
            values = getattr(self, name)
            return None if values is None else values[part]

        return Predictions(**{field.name: column(field.name) for field in fields(self)})

    @classmethod
    def joined(cls, pieces: Sequence["Predictions"]) -> "Predictions":
        """The predictions of several batches as one."""

        def column(name: str) -> Any:
            values = [getattr(piece, name) for piece in pieces]
            return None if values[0] is None else np.concatenate(values)

        return cls(**{field.name: column(field.name) for field in fields(cls)})


@dataclass(frozen=True, eq=False)
class Raw:
    """What a runtime returns of N images."""

    probabilities: npt.NDArray[np.floating]  # (N, K)
    score: npt.NDArray[np.floating]  # (N,)
    alpha: npt.NDArray[np.floating] | None = None  # (N, K)
    familiarity: npt.NDArray[np.floating] | None = None  # (N,)
    p_value: Floats | None = None  # (N,)
    unknown: BoolArray | None = None  # (N,)


class BasePredictor(ABC):
    """A model with its classes, its way to frame images, and its threshold.

    `level` takes the place of the run's own: images with a p-value of at most it are unknown.
    """

    def __init__(self, description: Description, level: float | None = None) -> None:
        self.description = description
        self.framing = description.framing
        self.class_names = description.class_names
        self.level = level
        if level is None:
            return
        if not 0 < level < 1:
            raise ConfigError(f"level {level}: a share between 0 and 1")
        if not self.certified:
            raise ConfigError(
                f"level {level:g} needs p-values, but this model was not calibrated: `anedl "
                "calibrate` does it"
            )

    @property
    def shortfall(self) -> str:
        """Why no image will be called unknown at this level; empty where some can be."""
        rejection = self.description.rejection
        return "" if rejection is None else rejection.shortfall(self.level)

    @property
    def certified(self) -> bool:
        """Whether held-out images certify what is unknown: not by a threshold of validation."""
        rejection = self.description.rejection
        return rejection is not None and rejection.level is not None

    @property
    def batch_size(self) -> int:
        """How many images are computed at once."""
        return min(BATCH, max(1, MOST_PIXELS // self.framing.side**2))

    def predict(self, images: "AnImage | Iterable[AnImage]") -> Predictions:
        """Judge images of any size: paths, Pillow images and uint8 arrays, or one of them alone.

        Raises:
            DataError: a file holds no image that can be read, or an array is not an image.
        """
        from anedl.export.images import classify

        return classify(self, images)

    def outputs(self, images: "AnImage | Iterable[AnImage]") -> dict[str, Floats]:
        """What the method computes of images beside its predictions; a run's own model has it.

        Raises:
            ConfigError: the model was exported, and its graph gives predictions only.
        """
        raise ConfigError(
            "an ONNX model gives predictions only: for outputs load the folder of its run, with "
            'runtime "torch"'
        )

    def judge(self, frames: UInt8Array) -> Predictions:
        """Judge frames (N, side, side, 3) uint8, as `framing.frame` makes them."""
        size = self.batch_size
        starts = range(0, max(1, len(frames)), size)
        return Predictions.joined([self._batch(frames[at : at + size]) for at in starts])

    def _batch(self, frames: UInt8Array) -> Predictions:
        if len(frames) == 0:
            # What is said of no images: of a black one, and then forgotten.
            side = self.framing.side
            return self._batch(np.zeros((1, side, side, 3), np.uint8))[:0]
        raw = self._run(self.framing.batch(frames))
        probabilities = raw.probabilities.astype(np.float64)
        predicted = probabilities.argmax(1)
        unknown = raw.unknown
        if self.level is not None and raw.p_value is not None:
            unknown = raw.p_value <= self.level
        epistemic, aleatoric = (None, None) if raw.alpha is None else uncertainties(raw.alpha)
        return Predictions(
            class_index=predicted,
            probability=np.take_along_axis(probabilities, predicted[:, None], 1)[:, 0],
            probabilities=probabilities,
            inlier_score=raw.score.astype(np.float64),
            familiarity=None if raw.familiarity is None else raw.familiarity.astype(np.float64),
            p_value=raw.p_value,
            unknown=unknown,
            epistemic=epistemic,
            aleatoric=aleatoric,
        )

    @abstractmethod
    def _run(self, images: UInt8Array) -> Raw:
        """Compute (N, C, H, W) uint8 images, N ≥ 1."""


class Predictor(BasePredictor):
    """A trained model computed by PyTorch, on the device and in the precision it was loaded for.

    Without a `calibration` there are no p-values; `threshold`, that of the validation images, then
    says what is unknown. A calibration that judges new images by their `familiarity` needs it.
    """

    def __init__(
        self,
        trained: "TrainedModel",
        calibration: Calibration | None = None,
        threshold: float | None = None,
        level: float | None = None,
        familiarity: "Familiarity | None" = None,
    ) -> None:
        super().__init__(Description.of(trained, calibration, threshold), level)
        self.trained = trained
        self.calibration = calibration
        self.familiarity = familiarity

    def outputs(self, images: "AnImage | Iterable[AnImage]") -> dict[str, Floats]:
        """What the method computes of images, taken as `predict` takes them, for research.

        "features" (N, d), "logits" (N, K), "alpha" (N, K) of methods with evidence, and every
        inlier score by its name in the ledger, (N,) each; "score" is the method's own.

        Raises:
            DataError: there is no image, a file holds none that can be read, or an array is none.
        """
        from anedl.engine.judge import scores_of
        from anedl.export.images import framed

        found: dict[str, list[Floats]] = {}
        for frames in framed(self, images):
            if len(frames) == 0:
                raise DataError("there is no image to compute the outputs of")
            outputs = self._outputs(self.framing.batch(frames))
            parts = {"features": outputs.features, "logits": outputs.logits, "alpha": outputs.alpha}
            values = {
                name: part.double().cpu().numpy()
                for name, part in parts.items()
                if part is not None
            } | scores_of(outputs, self.trained.method.task.top_m)
            for name, value in values.items():
                found.setdefault(name, []).append(value)
        return {name: np.concatenate(pieces) for name, pieces in found.items()}

    def _outputs(self, images: UInt8Array) -> "Outputs":
        import torch

        from anedl.engine.inference import outputs_of

        return outputs_of(
            self.trained.method, torch.from_numpy(images), self.trained.precision, len(images)
        )

    def _run(self, images: UInt8Array) -> Raw:
        outputs = self._outputs(images)
        score = outputs.score.double().cpu().numpy()
        familiar = None
        if self.familiarity is not None:
            familiar = self.familiarity.score(outputs.features).double().cpu().numpy()
        p_value = None
        if self.calibration is not None:
            p_value = self.calibration.p_values(score, "new", familiar)
        return Raw(
            probabilities=outputs.logits.softmax(-1).cpu().numpy(),
            score=score,
            alpha=None if outputs.alpha is None else outputs.alpha.double().cpu().numpy(),
            familiarity=familiar,
            p_value=p_value,
            unknown=self._unknown(score, familiar),
        )

    def _unknown(self, score: Floats, familiar: Floats | None) -> BoolArray | None:
        rejection = self.description.rejection
        if rejection is None:
            return None
        # Not "score < threshold": what is no number must not pass for known.
        known = score >= rejection.threshold
        return ~known if familiar is None else ~(known & (familiar >= rejection.familiarity))


class OnnxPredictor(BasePredictor):
    """An exported model computed by onnxruntime, without torch."""

    def __init__(self, path: Path, level: float | None = None, device: str = "cpu") -> None:
        runtime = import_runtime()
        if not path.is_file():
            raise DataError(f"{path}: there is no such model; make it by `anedl export RUN --onnx`")
        available = runtime.get_available_providers()
        wanted = ["CUDAExecutionProvider"] if device.startswith(("cuda", "auto")) else []
        if device.startswith("cuda") and wanted[0] not in available:
            raise ConfigError(
                f"device {device!r}: this onnxruntime computes on the CPU only; install "
                "onnxruntime-gpu, or take --device cpu"
            )
        wanted = [name for name in [*wanted, "CPUExecutionProvider"] if name in available]
        try:
            self._session = runtime.InferenceSession(str(path), providers=wanted)
        except Exception as error:  # the runtime's errors share no class of their own
            raise DataError(f"{path}: not a model that onnxruntime reads ({error})") from error
        super().__init__(read_description(self._session, path), level)
        self._names = [output.name for output in self._session.get_outputs()]

    def _run(self, images: UInt8Array) -> Raw:
        found = dict(zip(self._names, self._session.run(None, {"images": images}), strict=True))
        return Raw(
            probabilities=found["probabilities"],
            score=found["inlier_score"],
            alpha=found.get("alpha"),
            familiarity=found.get("familiarity"),
            p_value=found.get("p_value"),
            unknown=found.get("unknown"),
        )


def load(
    run: str | Path,
    runtime: str = "torch",
    device: str = "auto",
    model: str | None = None,
    level: float | None = None,
) -> BasePredictor:
    """The predictor of a run folder, or of an exported `.onnx` file.

    Args:
        run: run folder, or an ONNX file that `anedl export` wrote.
        runtime: "torch" or "onnx"; the latter exports the model into the run folder (`model.onnx`,
            `best.onnx`) unless that is there and up to date. An ONNX file is always run by "onnx".
        device: "auto", "cpu" or "cuda".
        model: "last" or "best" by validation; by default the one that was calibrated, else "last".
        level: call unknown what has a p-value of at most this, in place of the run's own level.

    Raises:
        DataError: there is no such run or model.
        ConfigError: a name or the level is not one we can use, or onnxruntime is missing.

    Warns:
        UserWarning: too few images were held out for the level, so none will be called unknown.
    """
    predictor = open_predictor(run, runtime, device, model, level)
    if predictor.shortfall:
        warnings.warn(predictor.shortfall, stacklevel=2)
    return predictor


def open_predictor(
    run: str | Path, runtime: str, device: str, model: str | None, level: float | None
) -> BasePredictor:
    """What `load` gives, for callers who tell of its `shortfall` themselves."""
    folder = Path(run)
    if runtime not in RUNTIMES:
        raise unknown_name("runtime", runtime, RUNTIMES)
    if folder.suffix == ".onnx" and not folder.is_dir():
        if model is not None:
            raise ConfigError(f"{folder}: a file holds one model; leave out model {model!r}")
        return OnnxPredictor(folder, level, device)
    require_run(folder)
    chosen = model_of(folder, model)
    calibration = read_calibration(folder, chosen)
    threshold = validation_threshold(folder, chosen)
    if runtime == "onnx":
        import_runtime()  # before the time of an export is spent
        return OnnxPredictor(exported(folder, chosen, calibration, threshold), level, device)
    from anedl.engine.model import load_model

    familiarity = read_familiarity(folder, calibration)
    trained = load_model(folder, chosen, device)
    return Predictor(trained, calibration, threshold, level, familiarity)


def require_run(folder: Path) -> None:
    """Refuse what is no run folder, or that of a fit which has not come to its own training yet.

    Raises:
        DataError: says which.
    """
    if (folder / "config.json").is_file():
        return
    require_fitted(folder)
    if folder.is_file():
        raise DataError(f"{folder}: a file, not the folder of a run")
    raise DataError(f"{folder}: not the folder of a run, there is no config.json")


def exported(
    folder: Path, model: str, calibration: Calibration | None, threshold: float | None
) -> Path:
    """The run's model as an ONNX file beside it, written anew where it is missing or out of date.

    Raises:
        DataError: the model is not there, or the run folder may not be written.
    """
    weights = folder / MODEL_FILES[model]
    path = weights.with_suffix(".onnx")
    if not weights.exists():
        from anedl.engine.model import how_to_get

        raise DataError(f"{weights}: there is no such model; {how_to_get(folder, model)}")
    if path.exists() and _source_of(path) == source_digest(weights, calibration, threshold):
        return path
    from anedl.export.onnx_graph import export_run

    try:
        export_run(folder, path, model)
    except PermissionError as error:
        raise DataError(
            f"{path}: may not be written; export elsewhere by `anedl export RUN --onnx FILE`, and "
            "name FILE in place of the run"
        ) from error
    return path


def _source_of(path: Path) -> str | None:
    """What an exported model was made from; None where it is damaged or of an older format."""
    try:
        return OnnxPredictor(path).description.source
    except DataError:
        return None


def import_runtime() -> Any:
    """`onnxruntime`, which only those who use it need to have installed."""
    try:
        return importlib.import_module("onnxruntime")
    except ImportError as error:
        raise ConfigError(
            f"the runtime onnx needs onnxruntime, which is not installed: {INSTALL}"
        ) from error


def read_description(session: Any, path: Path) -> Description:
    """What an exported model says of itself."""
    text = session.get_modelmeta().custom_metadata_map.get(METADATA_KEY)
    if text is None:
        raise DataError(f"{path}: an ONNX model, but none that `anedl export` wrote")
    try:
        return Description.from_json(json.loads(text))
    except (DataError, ValueError) as error:
        raise DataError(f"{path}: {error}") from error


def uncertainties(alpha: npt.NDArray[np.floating]) -> tuple[Floats, Floats]:
    """Epistemic and aleatoric uncertainty in nats, (N,) each, of Dirichlet parameters (N, K).

    The epistemic part is the mutual information between label and class probabilities, the
    aleatoric part their expected entropy; together they are the entropy of the mean.
    """
    from scipy.special import digamma

    exact = alpha.astype(np.float64)
    total = exact.sum(1, keepdims=True)
    mean = exact / total
    aleatoric: Floats = (mean * (digamma(total + 1) - digamma(exact + 1))).sum(1)
    entropy: Floats = -(mean * np.log(mean)).sum(1)
    return entropy - aleatoric, aleatoric
