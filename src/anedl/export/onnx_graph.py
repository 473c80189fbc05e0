"""A trained model as one ONNX graph that needs neither torch nor anedl to run.

Input `images` (N, C, H, W) uint8, the plain view that the metadata describe; normalisation is
inside. Outputs, N of each:

- `probabilities` (N, K) float, of the known classes;
- `alpha` (N, K) float, Dirichlet parameters, where the method has them;
- `inlier_score` (N,) float, higher for inliers;
- `familiarity` (N,) float, higher for what resembles labelled images, where the run judges by it;
- `p_value` (N,) double, of "this is an inlier" for a new image, where the run is calibrated;
- `unknown` (N,) bool, at the run's level (or its validation threshold), where it has one.

Everything is computed in float32, whatever precision the run was trained in. Scores that a run
calibrated in bfloat16 therefore differ from the graph's by that type's rounding.
"""

import copy
import importlib
import json
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from anedl.calibration import Calibration
from anedl.engine.model import TrainedModel, load_model
from anedl.engine.run_files import MODEL_FILES
from anedl.errors import ConfigError
from anedl.export.description import (
    METADATA_KEY,
    Description,
    read_calibration,
    read_familiarity,
    source_digest,
    validation_threshold,
)
from anedl.familiarity import Familiarity
from anedl.files import replacing
from anedl.methods.base import Method

INSTALL = 'pip install "anedl[onnx]"'


def export_onnx(
    trained: TrainedModel,
    calibration: Calibration | None,
    path: Path,
    *,
    threshold: float | None = None,
    source: str = "",
    familiarity: Familiarity | None = None,
) -> Description:
    """Write the model as a single ONNX file, and return what its metadata say.

    Without a `calibration` there are no p-values, and `threshold` (of the validation images, if
    given) decides what is unknown. `source` is kept in the metadata. A calibration that judges new
    images by their `familiarity` needs it.

    Raises:
        ConfigError: onnx or onnxscript is not installed; says how to install it.
    """
    onnx = _import("onnx")
    _import("onnxscript")
    description = Description.of(trained, calibration, threshold, source).with_versions(
        torch=str(torch.__version__), onnx=onnx.__version__
    )
    graph = OpenSetGraph(trained.method, calibration, description, familiarity)
    framing = description.framing
    # Two images: an exporter that meets a single one takes the batch for a constant.
    example = torch.zeros((2, framing.channels, framing.side, framing.side), dtype=torch.uint8)
    try:
        with torch.no_grad(), _quiet():
            program = torch.onnx.export(
                graph,
                (example,),
                input_names=["images"],
                output_names=list(graph.output_names),
                dynamic_shapes={"images": {0: torch.export.Dim("batch", min=1)}},
                dynamo=True,
                verbose=False,
            )
            assert program is not None
            model = program.model_proto
    except torch.onnx.OnnxExporterError as error:
        raise ConfigError(
            f"the method {description.method} cannot be exported: its `outputs` do something that "
            f"ONNX has no operation for ({str(error).splitlines()[0]})"
        ) from error
    _strip(model)
    model.doc_string = (
        f"Open-set classifier of {len(description.class_names)} classes, made with anedl. "
        f"The metadata property `{METADATA_KEY}` describes input and outputs as JSON."
    )
    entry = model.metadata_props.add()
    entry.key = METADATA_KEY
    entry.value = json.dumps(description.to_json(), ensure_ascii=False, allow_nan=False)
    onnx.checker.check_model(model)
    with replacing(path) as temporary:
        temporary.write_bytes(model.SerializeToString(deterministic=True))
    return description


def export_run(folder: Path, path: Path, model: str = "last") -> Description:
    """Export a model of the run in `folder`, with its calibration or its validation threshold."""
    trained = load_model(folder, model, "cpu")
    calibration = read_calibration(folder, model)
    threshold = validation_threshold(folder, model)
    source = source_digest(folder / MODEL_FILES[model], calibration, threshold)
    familiarity = read_familiarity(folder, calibration)
    return export_onnx(
        trained, calibration, path, threshold=threshold, source=source, familiarity=familiarity
    )


class OpenSetGraph(nn.Module):
    """From (N, C, H, W) uint8 images to all that is said of them, in the order of `output_names`.

    The method is copied to the CPU in float32; the original stays as it is.
    """

    limits: Tensor
    centre: Tensor
    still: Tensor

    def __init__(
        self,
        method: Method,
        calibration: Calibration | None,
        description: Description,
        familiarity: Familiarity | None = None,
    ) -> None:
        super().__init__()
        self.method = copy.deepcopy(method).cpu().float().eval()
        limits = np.zeros((2, 0)) if calibration is None else np.stack(calibration.limits)
        # In float64, as p-values are computed elsewhere: a tie must stay a tie.
        self.register_buffer("limits", torch.from_numpy(limits))
        self.rejection = description.rejection
        self.has_familiarity = familiarity is not None
        if familiarity is not None:
            for name, tensor in familiarity.tensors().items():
                self.register_buffer(name, tensor)
        framing = description.framing
        with torch.no_grad():
            outputs = self.method.outputs(
                torch.zeros((1, framing.channels, framing.side, framing.side), dtype=torch.uint8)
            )
        self.evidential = outputs.alpha is not None

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of what `forward` returns."""
        present = {
            "probabilities": True,
            "alpha": self.evidential,
            "inlier_score": True,
            "familiarity": self.has_familiarity,
            "p_value": self.limits.shape[1] > 0,
            "unknown": self.rejection is not None,
        }
        return tuple(name for name, there in present.items() if there)

    def forward(self, images: Tensor) -> tuple[Tensor, ...]:
        """What is said of N images."""
        outputs = self.method.outputs(images)
        score = outputs.score.float()
        judged = [score.double()]
        found = {
            "probabilities": outputs.logits.float().softmax(-1),
            "alpha": outputs.alpha,
            "inlier_score": score,
        }
        if self.has_familiarity:
            familiarity = Familiarity(self.centre, self.still).score(outputs.features.float())
            found["familiarity"] = familiarity
            judged.append(familiarity.double())
        if self.limits.shape[1]:
            # Counted by comparison: ONNX has no search in a sorted array.
            below = [
                (exact[:, None] >= limits[None]).sum(-1, dtype=torch.int32)
                for exact, limits in zip(judged, self.limits, strict=False)
            ]
            least = below[0] if len(below) == 1 else torch.minimum(*below)
            found["p_value"] = (1.0 + least.double()) / (self.limits.shape[1] + 1)
        if self.rejection is not None:
            # Not "score < threshold": what is no number must not pass for known.
            known = judged[0] >= self.rejection.threshold
            if self.has_familiarity:
                known = known & (judged[1] >= self.rejection.familiarity)
            found["unknown"] = ~known
        return tuple(value for name in self.output_names if (value := found[name]) is not None)


def _import(name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"exporting to ONNX needs {name}, which is not installed: {INSTALL}"
        ) from error


def _strip(model: Any) -> None:
    """Take out the exporter's notes: they hold paths of this machine."""
    graphs = [model.graph, *model.functions]
    for graph in graphs:
        del graph.metadata_props[:]
        for node in graph.node:
            del node.metadata_props[:]
            node.doc_string = ""
        for value in graph.value_info:
            del value.metadata_props[:]
    for values in (model.graph.input, model.graph.output, model.graph.initializer):
        for value in values:
            del value.metadata_props[:]


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the exporter, which warns of its own internals and of packages we do not need."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
