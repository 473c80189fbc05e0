"""Runs a wide residual network by its own GPU kernels where they are made for it.

They are made for training WRN-n-2 on 32 × 32 images in bf16 on a Hopper GPU (compute capability
9.0). Everything else takes the network's plain forward pass, which computes the same.
"""

import warnings
from functools import cache
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from anedl.networks.kernels.nvrtc import KernelError
from anedl.networks.kernels.parts import NORM_ROWS
from anedl.networks.kernels.trunk import wide_resnet

if TYPE_CHECKING:
    from anedl.networks.wide_resnet import WideBlock, WideResNet


def enable_kernels(module: nn.Module, dtype: torch.dtype, device: torch.device) -> bool:
    """Let the wide residual networks in `module` train by their own kernels; say whether any does.

    `dtype` is the arithmetic that autocast will choose for them.
    """
    from anedl.networks.wide_resnet import WideResNet

    if device.type != "cuda" or dtype != torch.bfloat16 or not _kernels_work(device):
        return False
    fitting = [
        trunk
        for trunk in module.modules()
        if isinstance(trunk, WideResNet)
        and (trunk.stem.in_channels, trunk.stem.out_channels, trunk.feature_width) == (3, 16, 128)
    ]
    for trunk in fitting:
        trunk.own_kernels = True
    return bool(fitting)


def can_fuse(trunk: "WideResNet", images: Tensor) -> bool:
    """Whether these images, now, go through the kernels of a network that has them enabled."""
    return (
        trunk.own_kernels
        and trunk.training
        and images.shape[2:] == (32, 32)
        and images.shape[0] % 2 == 0
    )


def fused_features(trunk: "WideResNet", images: Tensor) -> Tensor:
    """Features (N, 128), float32, of normalised images; moves the running statistics as well."""
    kernels: list[Tensor] = [trunk.stem.weight]
    norms: list[Any] = []  # nn.BatchNorm2d, whose buffers are declared as optional
    for block in cast("list[WideBlock]", list(trunk.blocks)):
        kernels += [block.conv1.weight, block.conv2.weight]
        if block.shortcut is not None:
            kernels.append(block.shortcut.weight)
        norms += [block.bn1, block.bn2]
    norms.append(trunk.bn)
    gammas, betas = [norm.weight for norm in norms], [norm.bias for norm in norms]
    # Autocast would turn the float32 images, kernels and statistics into bf16 on the way in.
    with torch.autocast(images.device.type, enabled=False):
        traces: list[Tensor] = wide_resnet(
            images.to(gammas[0].dtype), kernels, gammas, betas, trunk.bn.eps, trunk.leaky_slope
        )
    track_statistics(
        [norm.running_mean for norm in norms],
        [norm.running_var for norm in norms],
        traces[1].detach(),
        norms[-1].momentum,
    )
    return traces[0]


@torch.library.custom_op("anedl::track_statistics", mutates_args=("means", "variances"))
def track_statistics(
    means: list[Tensor], variances: list[Tensor], states: Tensor, momentum: float
) -> None:
    """Move running means and variances towards those in `states` (see `wide_resnet`)."""
    pieces = torch.split(states, [NORM_ROWS * len(mean) for mean in means])
    rows = [piece.view(NORM_ROWS, -1) for piece in pieces]
    new = [row[0] for row in rows] + [row[4] for row in rows]
    torch._foreach_lerp_([*means, *variances], new, momentum)


@track_statistics.register_fake
def _(means: list[Tensor], variances: list[Tensor], states: Tensor, momentum: float) -> None:
    pass


@cache
def _kernels_work(device: torch.device) -> bool:
    """Compile them, once; a GPU they are not made for, or one that refuses them, does without."""
    if torch.cuda.get_device_capability(device) != (9, 0):
        return False
    from anedl.networks.kernels.hopper import kernel

    try:
        kernel("stem")
    except (KernelError, OSError) as error:
        warnings.warn(
            f"the network runs without its own GPU kernels, about half as fast: {error}",
            stacklevel=2,
        )
        return False
    return True
