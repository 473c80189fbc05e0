"""What the forward and the backward pass of a wide residual network hand to each other."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

NORM_ROWS = 5  # mean, 1 / standard deviation, scale, shift, unbiased variance


@dataclass
class Norm:
    """A BatchNorm's parameters and, once its input is known, its state (5, C)."""

    gamma: Tensor
    beta: Tensor
    state: Tensor


@dataclass
class BlockWeights:
    """The kernels of a block, or their gradients."""

    conv1: Tensor
    conv2: Tensor
    shortcut: Tensor | None


@dataclass
class Trace:
    """What backward needs of a block: its raw input, the raw tensor inside, the activated input."""

    z: Tensor
    hidden: Tensor
    activated: Tensor | None  # only of a block that halves the image


def kernel_shapes(kernels: Sequence[Tensor]) -> list[tuple[int, int, int, int]]:
    """(outputs, height, width, inputs) of each; the first, the stem's, with 8 inputs for its 3."""
    shapes = [(k.shape[0], k.shape[2], k.shape[3], k.shape[1]) for k in kernels]
    return [(*shapes[0][:3], 8), *shapes[1:]]


def unpack_kernels(flat: Tensor, kernels: Sequence[Tensor]) -> list[Tensor]:
    """Views of `flat`, which holds kernels shaped like `kernels` in channels-last order."""
    shapes = kernel_shapes(kernels)
    pieces = torch.split(flat, [math.prod(shape) for shape in shapes])
    return [p.view(shape).permute(0, 3, 1, 2) for p, shape in zip(pieces, shapes, strict=True)]
