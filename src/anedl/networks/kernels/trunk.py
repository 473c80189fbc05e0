"""A wide residual network of width 2 as one operation, forward and backward written out.

Between two convolutions a tensor is written once, raw, and read by the next convolution, which
normalises and activates it on the way in; the sums that BatchNorm needs leave the convolution with
its output. Backward recomputes what it needs from the same raw tensors. Autograd, the compiler and
a CUDA graph see one operation.
"""

import math
from collections.abc import Sequence
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from anedl.networks.kernels.parts import (
    NORM_ROWS,
    BlockWeights,
    Norm,
    Trace,
    kernel_shapes,
    unpack_kernels,
)
from anedl.networks.kernels.plain_launcher import PlainLauncher


def _launcher(images: Tensor, eps: float, slope: float) -> PlainLauncher:
    if not images.is_cuda:
        return PlainLauncher(len(images), images.device, eps, slope)
    from anedl.networks.kernels.launcher import Launcher  # compiles CUDA code

    return Launcher(len(images), images.device, eps, slope)  # type: ignore[return-value]


def _blocks(kernels: list[Tensor]) -> list[BlockWeights]:
    """Kernels in the network's own order (conv1, conv2, and a shortcut where there is one)."""
    blocks: list[BlockWeights] = []
    for kernel in kernels:
        if kernel.shape[2] == 1:
            blocks[-1].shortcut = kernel
        elif blocks and blocks[-1].conv2.numel() == 0:
            blocks[-1].conv2 = kernel
        else:
            blocks.append(BlockWeights(kernel, kernel.new_empty(0), None))
    return blocks


def _norms(gammas: list[Tensor], betas: list[Tensor], states: Tensor) -> list[Norm]:
    pieces = torch.split(states, [NORM_ROWS * len(gamma) for gamma in gammas])
    return [
        Norm(gamma, beta, piece.view(NORM_ROWS, -1))
        for gamma, beta, piece in zip(gammas, betas, pieces, strict=True)
    ]


@torch.library.custom_op("anedl::wide_resnet", mutates_args=())
def wide_resnet(
    images: Tensor,
    kernels: list[Tensor],
    gammas: list[Tensor],
    betas: list[Tensor],
    eps: float,
    slope: float,
) -> list[Tensor]:
    """Features and traces of images (N, 3, 32, 32).

    `kernels` are the stem's and the blocks', `gammas` and `betas` BatchNorm's, all in the network's
    own order. Returns the features (N, 128), the states of all BatchNorms one behind the other
    (mean, 1 / standard deviation, scale, shift and unbiased variance of each), the padded images,
    all kernels in working precision as one vector, and the raw tensors: block by block its input,
    the one inside, and in a block with stride 2 the activated input; then the last.
    """
    launch = _launcher(images, eps, slope)
    # In this order: a convolution reads its kernel while the operation before it still runs.
    cast = launch.cast(kernels)
    padded = launch.pad(images.contiguous(memory_format=torch.channels_last))
    stem, *others = unpack_kernels(cast, kernels)
    states = gammas[0].new_empty(NORM_ROWS * sum(len(gamma) for gamma in gammas))
    norms = _norms(gammas, betas, states)
    z, sums = launch.stem(padded, stem)
    raw = []
    for number, weights in enumerate(_blocks(others)):
        norm1, norm2 = norms[2 * number], norms[2 * number + 1]
        raw.append(z)
        if weights.shortcut is None:
            residual = z
            hidden, hidden_sums = launch.forward(z, sums, norm1, weights.conv1, None)
            raw.append(hidden)
        elif number == 0:
            hidden, hidden_sums, residual = launch.forward_branch(
                z, sums, norm1, weights.conv1, weights.shortcut
            )
            raw.append(hidden)
        else:
            hidden, hidden_sums, residual, activated = launch.forward_down(z, sums, norm1, weights)
            raw += [hidden, activated]
        z, sums = launch.forward(hidden, hidden_sums, norm2, weights.conv2, residual)
    features = launch.pool(z, sums, norms[-1])
    return [features, states, padded, cast, *raw, z]


@torch.library.custom_op("anedl::wide_resnet_backward", mutates_args=())
def wide_resnet_backward(
    gradient: Tensor,
    traces: list[Tensor],
    kernels: list[Tensor],
    gammas: list[Tensor],
    betas: list[Tensor],
    eps: float,
    slope: float,
) -> list[Tensor]:
    """Gradients of the kernels, then of the gammas, then of the betas, from that of the features.

    `traces` is what `wide_resnet` returned behind the features.
    """
    states, padded, cast, *raw = traces
    blocks = _blocks(unpack_kernels(cast, kernels)[1:])
    norms = _norms(gammas, betas, states)
    launch = _launcher(padded, eps, slope)

    def norm_gradient(number: int, z: Tensor, residual: Tensor | None) -> Tensor:
        out, of_gammas[number], of_betas[number] = launch.norm_gradient(
            g, sums, z, norms[number], residual
        )
        return out

    of_gammas, of_betas = list(gammas), list(betas)
    of_kernels: list[Tensor] = []  # from the last to the first
    last = raw.pop()
    g, sums = launch.pool_gradient(gradient.contiguous(), last, norms[-1])
    dz = norm_gradient(len(norms) - 1, last, None)
    for number in reversed(range(len(blocks))):
        weights = blocks[number]
        norm1, norm2 = norms[2 * number], norms[2 * number + 1]
        down = weights.shortcut is not None and number > 0
        activated = raw.pop() if down else None
        hidden, z = raw.pop(), raw.pop()
        g, sums = launch.gradient(dz, weights.conv2, hidden, norm2)
        of_conv2 = launch.weights(hidden, dz, norm2)
        dh = norm_gradient(2 * number + 1, hidden, None)
        residual: Tensor | None = dz
        if down:
            trace = Trace(z, hidden, activated)
            g, sums, residual, of_conv1, of_shortcut = launch.gradient_down(
                dh, dz, trace, weights, norm1
            )
            of_kernels += [of_shortcut, of_conv2, of_conv1]
        elif number == 0:
            g, sums = launch.gradient_branch(dh, dz, weights, z, norm1)
            of_conv1, of_shortcut = launch.branch_weights(z, dh, dz, norm1)
            of_kernels += [of_shortcut, of_conv2, of_conv1]
            residual = None
        else:
            g, sums = launch.gradient(dh, weights.conv1, z, norm1)
            of_kernels += [of_conv2, launch.weights(z, dh, norm1)]
        dz = norm_gradient(2 * number, z, residual)
    of_kernels.append(launch.stem_weights(padded, dz))
    return [*reversed(of_kernels), *of_gammas, *of_betas]


def _plane(like: Tensor, channels: int, size: int) -> Tensor:
    return like.new_empty(len(like), channels, size, size).contiguous(
        memory_format=torch.channels_last
    )


@wide_resnet.register_fake
def _(
    images: Tensor,
    kernels: list[Tensor],
    gammas: list[Tensor],
    betas: list[Tensor],
    eps: float,
    slope: float,
) -> list[Tensor]:
    half = torch.bfloat16 if images.is_cuda else images.dtype
    like = images.new_empty(len(images), dtype=half)
    size = images.shape[2]
    cast = like.new_empty(sum(math.prod(shape) for shape in kernel_shapes(kernels)))
    raw = []
    for number, weights in enumerate(_blocks(kernels[1:])):
        outputs, inputs = weights.conv1.shape[:2]
        down = weights.shortcut is not None and number > 0
        raw.append(_plane(like, inputs, size))
        raw.append(_plane(like, outputs, size // 2 if down else size))
        if down:
            raw.append(_plane(like, inputs, size))
            size //= 2
    states = gammas[0].new_empty(NORM_ROWS * sum(len(gamma) for gamma in gammas))
    features = images.new_empty(len(images), len(gammas[-1]), dtype=gammas[0].dtype)
    last = _plane(like, len(gammas[-1]), size)
    return [features, states, _plane(like, 8, images.shape[2]), cast, *raw, last]


@wide_resnet_backward.register_fake
def _(
    gradient: Tensor,
    traces: list[Tensor],
    kernels: list[Tensor],
    gammas: list[Tensor],
    betas: list[Tensor],
    eps: float,
    slope: float,
) -> list[Tensor]:
    of_kernels = []
    for kernel in kernels:
        outputs, inputs, height, width = kernel.shape
        new = gammas[0].new_empty(outputs, height, width, inputs)
        of_kernels.append(new.permute(0, 3, 1, 2))
    return [*of_kernels, *map(torch.empty_like, gammas), *map(torch.empty_like, betas)]


def _setup_context(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    _, kernels, gammas, betas, eps, slope = inputs
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*output[1:], *kernels, *gammas, *betas)
    ctx.counts = (len(output) - 1, len(kernels), len(gammas), len(betas))
    ctx.constants = eps, slope


def _backward(ctx, gradients):  # type: ignore[no-untyped-def]
    lists = _cut(ctx.saved_tensors, ctx.counts)
    found = wide_resnet_backward(gradients[0], *lists, *ctx.constants)
    return None, *_cut(found, ctx.counts[1:]), None, None


def _cut(items: Sequence[Tensor], counts: Sequence[int]) -> list[list[Tensor]]:
    ends = [0, *accumulate(counts)]
    return [list(items[a:b]) for a, b in pairwise(ends)]


wide_resnet.register_autograd(_backward, setup_context=_setup_context)
