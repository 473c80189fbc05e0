"""ResNet-18, with the stem for large images and one for small images.

With the large stem the trunk has 11,176,512 parameters; features are 512 wide.
"""

import torch.nn.functional as F
from torch import Tensor, nn

GROUP_WIDTHS = (64, 128, 256, 512)
BLOCKS_A_GROUP = 2


class BasicBlock(nn.Module):
    """Conv, BN, ReLU, conv, BN, plus the shortcut, then ReLU."""

    def __init__(
        self, channels_in: int, channels_out: int, stride: int, bn_momentum: float
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels_in, channels_out, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels_out, momentum=bn_momentum)
        self.conv2 = nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels_out, momentum=bn_momentum)
        self.shortcut: nn.Sequential | None = None
        if channels_in != channels_out or stride != 1:
            self.shortcut = nn.Sequential(
                nn.Conv2d(channels_in, channels_out, 1, stride=stride, bias=False),
                nn.BatchNorm2d(channels_out, momentum=bn_momentum),
            )

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, channels_in, H, W) to (N, channels_out, H / stride, W / stride)."""
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = self.bn2(self.conv2(out))
        return F.relu(out + (x if self.shortcut is None else self.shortcut(x)), inplace=True)


class ResNet18(nn.Module):
    """ResNet-18 without a classifier: images in, pooled features out.

    `small_stem` False: 7×7 convolution with stride 2 and a 3×3 max-pool with stride 2, for images
    of about 224 pixels. True: one 3×3 convolution with stride 1 and no pool, for 32 to 96 pixels.
    """

    def __init__(
        self, channels: int = 3, small_stem: bool = False, bn_momentum: float = 0.1
    ) -> None:
        super().__init__()
        self.feature_width = GROUP_WIDTHS[-1]
        first = GROUP_WIDTHS[0]
        self.pool: nn.MaxPool2d | None
        if small_stem:
            self.stem = nn.Conv2d(channels, first, 3, padding=1, bias=False)
            self.pool = None
        else:
            self.stem = nn.Conv2d(channels, first, 7, stride=2, padding=3, bias=False)
            self.pool = nn.MaxPool2d(3, stride=2, padding=1)
        self.bn = nn.BatchNorm2d(first, momentum=bn_momentum)

        blocks: list[nn.Module] = []
        channels_in = first
        for group, channels_out in enumerate(GROUP_WIDTHS):
            for position in range(BLOCKS_A_GROUP):
                stride = 2 if group > 0 and position == 0 else 1
                blocks.append(BasicBlock(channels_in, channels_out, stride, bn_momentum))
                channels_in = channels_out
        self.blocks = nn.Sequential(*blocks)

        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        """Features (N, 512) of normalised images (N, channels, H, W)."""
        out = F.relu(self.bn(self.stem(images)), inplace=True)
        if self.pool is not None:
            out = self.pool(out)
        features: Tensor = self.blocks(out)
        return features.mean(dim=(2, 3))
