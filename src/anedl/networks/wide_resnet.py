"""Wide residual networks for small images, as semi-supervised learning trains them.

WRN-d-k has (d − 4) / 6 blocks in each of three groups, 16k, 32k and 64k channels wide; the second
and the third halve the image. No convolution has a bias; the activation is LeakyReLU with slope
0.1. WRN-28-2 has 1,466,320 parameters and gives features 128 wide.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from anedl.errors import ConfigError
from anedl.networks.kernels import can_fuse, fused_features


def _conv3x3(channels_in: int, channels_out: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels_in, channels_out, 3, stride=stride, padding=1, bias=False)


class WideBlock(nn.Module):
    """Pre-activation block: BN, LeakyReLU, conv, BN, LeakyReLU, conv, plus the shortcut.

    Where the shape changes, the shortcut is a 1×1 convolution. Its input is the activated one if
    `activate_before_residual`, otherwise the raw one; the first convolution always reads the
    activated input.
    """

    def __init__(
        self,
        channels_in: int,
        channels_out: int,
        stride: int,
        leaky_slope: float,
        bn_momentum: float,
        activate_before_residual: bool,
    ) -> None:
        super().__init__()
        self.leaky_slope = leaky_slope
        self.activate_before_residual = activate_before_residual
        self.bn1 = nn.BatchNorm2d(channels_in, momentum=bn_momentum)
        self.conv1 = _conv3x3(channels_in, channels_out, stride)
        self.bn2 = nn.BatchNorm2d(channels_out, momentum=bn_momentum)
        self.conv2 = _conv3x3(channels_out, channels_out)
        self.shortcut: nn.Conv2d | None = None
        if channels_in != channels_out or stride != 1:
            self.shortcut = nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, channels_in, H, W) to (N, channels_out, H / stride, W / stride)."""
        activated = F.leaky_relu(self.bn1(x), self.leaky_slope, inplace=True)
        hidden = F.leaky_relu(self.bn2(self.conv1(activated)), self.leaky_slope, inplace=True)
        out: Tensor = self.conv2(hidden)
        if self.shortcut is None:
            return out + x
        return out + self._across(activated if self.activate_before_residual else x, self.shortcut)

    def _across(self, x: Tensor, shortcut: nn.Conv2d) -> Tensor:
        """The shortcut of `x`; where torch's own gradient fails, of the pixels alone that it reads.

        On a CPU with AVX-512, torch 2.13 writes beside its memory in the gradient of a 1×1
        convolution that strides over eight channels, last in memory, of images of 64 pixels and
        more, and the process dies. Below that it is right, and results stay as they were.
        """
        step = shortcut.stride[0]
        reads: Tensor
        if x.device.type == "cpu" and step > 1 and x.shape[1] < 16 and x.shape[-1] > 48:
            reads = F.conv2d(x[:, :, ::step, ::step], shortcut.weight)
        else:
            reads = shortcut(x)
        return reads


class WideResNet(nn.Module):
    """WRN-`depth`-`width` without a classifier: images in, pooled features out.

    The shortcut of the very first block reads the activated input; the first blocks of groups 2 and
    3 hand the raw input to their shortcuts, and the activated one to their first convolutions. (The
    code this family of methods was published with computes that activation and then drops it; here
    it is used.) The groups are 1, 2 and 4 times `base_width`·`width` wide. `bn_momentum` follows
    PyTorch: running = (1 − momentum)·old + momentum·new.
    """

    def __init__(
        self,
        depth: int,
        width: int,
        channels: int = 3,
        leaky_slope: float = 0.1,
        bn_momentum: float = 0.001,
        base_width: int = 16,
    ) -> None:
        super().__init__()
        if depth < 10 or (depth - 4) % 6 != 0 or width < 1:
            raise ConfigError(
                f"there is no WRN-{depth}-{width}: the depth must be 6·n + 4 with n ≥ 1 "
                f"(10, 16, 22, 28, …) and the width at least 1"
            )
        self.leaky_slope = leaky_slope
        self.own_kernels = False  # see `enable_kernels`; the layers below compute the same
        self.feature_width = 4 * base_width * width
        blocks_a_group = (depth - 4) // 6

        self.stem = _conv3x3(channels, base_width)
        blocks: list[nn.Module] = []
        channels_in = base_width
        for group in range(3):
            channels_out = base_width * width * 2**group
            for position in range(blocks_a_group):
                blocks.append(
                    WideBlock(
                        channels_in,
                        channels_out,
                        stride=2 if group > 0 and position == 0 else 1,
                        leaky_slope=leaky_slope,
                        bn_momentum=bn_momentum,
                        activate_before_residual=group == 0 and position == 0,
                    )
                )
                channels_in = channels_out
        self.blocks = nn.Sequential(*blocks)
        self.bn = nn.BatchNorm2d(channels_in, momentum=bn_momentum)

        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                # Gain √2: the published recipe leaves the slope out of the gain (0.5 % more).
                nn.init.kaiming_normal_(
                    module.weight, a=0.0, mode="fan_out", nonlinearity="leaky_relu"
                )

    def forward(self, images: Tensor) -> Tensor:
        """Features (N, feature_width) of normalised images (N, channels, H, W)."""
        if can_fuse(self, images):
            return fused_features(self, images)
        out = self.blocks(self.stem(images))
        out = F.leaky_relu(self.bn(out), self.leaky_slope, inplace=True)
        return out.mean(dim=(2, 3))
