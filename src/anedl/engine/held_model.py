"""A trained model that lives in an object and not in a run folder."""

from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load, save
from torch import Tensor

from anedl.data.dataset import UInt8Array
from anedl.engine.checkpoint import load_module
from anedl.engine.inference import outputs_of
from anedl.engine.model import build_method, choose_device
from anedl.engine.precision import Precision, choose_precision
from anedl.engine.spec import make_spec
from anedl.engine.task import task_of
from anedl.methods.base import Method

FloatArray = npt.NDArray[np.float64]

# Always as many, filled up with black ones: what is said of an image then never depends on how
# many others it is asked about with.
JUDGED_AT_ONCE = 64


class HeldModel:
    """Weights as bytes and the arguments of `make_spec`; the network is built when first needed.

    A pickle holds the bytes and the arguments alone, and can be read where there is another device.
    """

    def __init__(
        self, arguments: dict[str, Any], pool_size: int, weights: dict[str, Tensor], device: str
    ) -> None:
        self.arguments = arguments
        self.pool_size = pool_size
        self.weights = save(weights)
        self.device = device

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_built"}

    @cached_property
    def _built(self) -> tuple[Method, Precision]:
        spec = make_spec(**self.arguments)
        device = choose_device(self.device)
        task = replace(task_of(spec.terms, development=False), pool_size=self.pool_size)
        method = build_method(spec, spec.terms, task, device, load_weights=False)
        load_module(method, load(self.weights))
        return method.eval(), Precision(choose_precision(spec.train.precision, device), device)

    def judge(self, images: UInt8Array) -> tuple[FloatArray, FloatArray]:
        """Logits (N, K) and inlier scores (N,) of images (N, side, side, channels)."""
        method, precision = self._built
        count = len(images)
        if count == 0:
            return np.zeros((0, method.task.classes)), np.zeros(0)
        black = np.zeros((-count % JUDGED_AT_ONCE, *images.shape[1:]), np.uint8)
        pixels = torch.from_numpy(np.concatenate([images, black])).permute(0, 3, 1, 2).contiguous()
        outputs = outputs_of(method, pixels, precision, JUDGED_AT_ONCE)
        logits: FloatArray = outputs.logits[:count].double().cpu().numpy()
        score: FloatArray = outputs.score[:count].double().cpu().numpy()
        return logits, score
