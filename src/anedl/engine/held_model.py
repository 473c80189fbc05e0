"""A trained model that lives in an object and not in a run folder."""

from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load, save
from torch import Tensor

from anedl.data.dataset import UInt8Array
from anedl.engine.checkpoint import load_module
from anedl.engine.inference import outputs_of
from anedl.engine.model import build_method, choose_device
from anedl.engine.precision import Precision, precision_of
from anedl.engine.spec import make_spec
from anedl.engine.task import task_of
from anedl.familiarity import Familiarity
from anedl.methods.base import Method

FloatArray = npt.NDArray[np.float64]

# Always as many, filled up with black ones: what is said of an image then never depends on how
# many others it is asked about with.
JUDGED_AT_ONCE = 64


class Said(NamedTuple):
    """What a model says of N images."""

    logits: FloatArray  # (N, K)
    score: FloatArray  # (N,)
    features: Tensor  # (N, d)
    familiarity: FloatArray | None  # (N,)


class HeldModel:
    """Weights as bytes and the arguments of `make_spec`; the network is built when first needed.

    Images are also judged by what is familiar as soon as `familiarity` has been set.
    A pickle holds the bytes and the arguments alone, and can be read where there is another device.
    """

    def __init__(
        self, arguments: dict[str, Any], pool_size: int, weights: dict[str, Tensor], device: str
    ) -> None:
        self.arguments = arguments
        self.pool_size = pool_size
        self.weights = save(weights)
        self.device = device
        self.familiarity: Familiarity | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_built"}

    @cached_property
    def _built(self) -> tuple[Method, Precision]:
        spec = make_spec(**self.arguments)
        device = choose_device(self.device)
        task = replace(task_of(spec.terms, development=False), pool_size=self.pool_size)
        method = build_method(spec, spec.terms, task, device, load_weights=False)
        load_module(method, load(self.weights))
        return method.eval(), precision_of(spec, device)

    def judge(self, images: UInt8Array) -> Said:
        """What the model says of images (N, side, side, channels)."""
        method, precision = self._built
        count = len(images)
        lacking = -count % JUDGED_AT_ONCE if count else JUDGED_AT_ONCE
        black = np.zeros((lacking, *images.shape[1:]), np.uint8)
        pixels = torch.from_numpy(np.concatenate([images, black])).permute(0, 3, 1, 2).contiguous()
        outputs = outputs_of(method, pixels, precision, JUDGED_AT_ONCE)
        familiarity = None
        if self.familiarity is not None:
            blocks = torch.split(outputs.features, JUDGED_AT_ONCE)
            scores = torch.cat([self.familiarity.score(block) for block in blocks])
            familiarity = scores[:count].double().cpu().numpy()
        return Said(
            logits=outputs.logits[:count].double().cpu().numpy(),
            score=outputs.score[:count].double().cpu().numpy(),
            features=outputs.features[:count].float().cpu(),
            familiarity=familiarity,
        )
