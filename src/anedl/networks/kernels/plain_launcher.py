# mypy: disable-error-code="no-untyped-call, no-any-return"
"""The twin of `Launcher` in plain PyTorch: any device, any precision, one method for one method."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.grad import conv2d_input, conv2d_weight

from anedl.networks.kernels.parts import BlockWeights, Norm, Trace

CHANNEL = (1, -1, 1, 1)
AVERAGED = (0, 2, 3)


class PlainLauncher:
    """Computes what `Launcher` computes. Sums come as one part: (1, 2, C)."""

    def __init__(self, images: int, device: torch.device, eps: float, slope: float) -> None:
        self.images = images
        self.eps = eps
        self.slope = slope

    def pad(self, images: Tensor) -> Tensor:
        """Images with 8 channels, 5 of them zero."""
        return F.pad(images, (0, 0, 0, 0, 0, 5))

    def cast(self, kernels: list[Tensor]) -> Tensor:
        """Kernels as they are, one behind the other: see `unpack_kernels`."""
        padded = [F.pad(kernels[0], (0, 0, 0, 0, 0, 5)), *kernels[1:]]
        return torch.cat([kernel.permute(0, 2, 3, 1).reshape(-1) for kernel in padded])

    def sums(self, x: Tensor) -> Tensor:
        """Sums of x and of its square."""
        return torch.stack([x.sum(AVERAGED), (x * x).sum(AVERAGED)])[None]

    def _normalise(self, x: Tensor, sums: Tensor, norm: Norm) -> Tensor:
        """LeakyReLU(BatchNorm(x)); fills the norm's state from the sums."""
        count = x.numel() // x.shape[1]
        first, second = sums.sum(0)
        mean = first / count
        variance = (second / count - mean * mean).clamp(min=0)
        rstd = torch.rsqrt(variance + self.eps)
        scale = norm.gamma * rstd
        unbiased = variance * count / max(count - 1, 1)
        norm.state.copy_(torch.stack([mean, rstd, scale, norm.beta - mean * scale, unbiased]))
        return F.leaky_relu(self._before(x, norm), self.slope)

    def _before(self, z: Tensor, norm: Norm) -> Tensor:
        return z * norm.state[2].view(CHANNEL) + norm.state[3].view(CHANNEL)

    def _activated(self, z: Tensor, norm: Norm) -> Tensor:
        return F.leaky_relu(self._before(z, norm), self.slope)

    def _behind(self, gradient: Tensor, z: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
        """The gradient before LeakyReLU from the one behind it, and its sums."""
        g = torch.where(self._before(z, norm) > 0, gradient, self.slope * gradient)
        return g, torch.stack([g.sum(AVERAGED), (g * z).sum(AVERAGED)])[None]

    def pool(self, z: Tensor, sums: Tensor, norm: Norm) -> Tensor:
        """Mean over pixels of LeakyReLU(BatchNorm(z)), (N, C)."""
        return self._normalise(z, sums, norm).mean(dim=(2, 3))

    def pool_gradient(self, gradient: Tensor, z: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
        """From the features' gradient (N, C) to that before the activation, and sums."""
        pixels = z.shape[2] * z.shape[3]
        return self._behind(gradient[:, :, None, None].expand_as(z) / pixels, z, norm)

    def stem(self, images: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The first convolution of padded images, and its sums."""
        out = F.conv2d(images, weight, padding=1)
        return out, self.sums(out)

    def forward(
        self, x: Tensor, sums: Tensor, norm: Norm, weight: Tensor, residual: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """conv(LeakyReLU(BatchNorm(x))) (+ residual) and its sums; fills the state."""
        out = F.conv2d(self._normalise(x, sums, norm), weight, padding=1)
        if residual is not None:
            out = out + residual
        return out, self.sums(out)

    def forward_branch(
        self, x: Tensor, sums: Tensor, norm: Norm, weight: Tensor, branch_weight: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The same, and a 1×1 convolution of the same activated tensor."""
        activated = self._normalise(x, sums, norm)
        out = F.conv2d(activated, weight, padding=1)
        return out, self.sums(out), F.conv2d(activated, branch_weight)

    def forward_down(
        self, z: Tensor, sums: Tensor, norm: Norm, weights: BlockWeights
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """A first convolution with stride 2: output, sums, shortcut, and the activated z."""
        assert weights.shortcut is not None
        activated = self._normalise(z, sums, norm)
        hidden = F.conv2d(activated, weights.conv1, stride=2, padding=1)
        return hidden, self.sums(hidden), F.conv2d(z, weights.shortcut, stride=2), activated

    def gradient(
        self, gradient: Tensor, weight: Tensor, z: Tensor, norm: Norm
    ) -> tuple[Tensor, Tensor]:
        """Gradient at BatchNorm's output, before the activation, and its sums."""
        return self._behind(conv2d_input(z.shape, weight, gradient, padding=1), z, norm)

    def gradient_branch(
        self, gradient: Tensor, branch: Tensor, weights: BlockWeights, z: Tensor, norm: Norm
    ) -> tuple[Tensor, Tensor]:
        """The same through a 3×3 and a 1×1 convolution of the same activated tensor."""
        assert weights.shortcut is not None
        da = conv2d_input(z.shape, weights.conv1, gradient, padding=1)
        return self._behind(da + conv2d_input(z.shape, weights.shortcut, branch), z, norm)

    def gradient_down(
        self, dh: Tensor, dz: Tensor, trace: Trace, weights: BlockWeights, norm: Norm
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Backward of `forward_down`.

        Returns the gradient before the activation, its sums, the shortcut's gradient of z, and the
        gradients of both kernels.
        """
        assert weights.shortcut is not None
        z, activated = trace.z, self._activated(trace.z, norm)
        da = conv2d_input(z.shape, weights.conv1, dh, stride=2, padding=1)
        g, sums = self._behind(da, z, norm)
        residual = conv2d_input(z.shape, weights.shortcut, dz, stride=2)
        of_conv1 = conv2d_weight(activated, weights.conv1.shape, dh, stride=2, padding=1)
        of_shortcut = conv2d_weight(z, weights.shortcut.shape, dz, stride=2)
        return g, sums, residual, of_conv1, of_shortcut

    def weights(self, z: Tensor, gradient: Tensor, norm: Norm) -> Tensor:
        """Gradient of a 3×3 kernel, (C, C, 3, 3)."""
        shape = (gradient.shape[1], z.shape[1], 3, 3)
        return conv2d_weight(self._activated(z, norm), shape, gradient, padding=1)

    def branch_weights(
        self, z: Tensor, gradient: Tensor, branch: Tensor, norm: Norm
    ) -> tuple[Tensor, Tensor]:
        """Gradients of the 3×3 and the 1×1 kernel of `gradient_branch`."""
        shape = (branch.shape[1], z.shape[1], 1, 1)
        of_branch = conv2d_weight(self._activated(z, norm), shape, branch)
        return self.weights(z, gradient, norm), of_branch

    def stem_weights(self, images: Tensor, gradient: Tensor) -> Tensor:
        """Gradient of the first kernel, (C, 3, 3, 3), from padded images."""
        return conv2d_weight(images[:, :3], (gradient.shape[1], 3, 3, 3), gradient, padding=1)

    def norm_gradient(
        self, gradient: Tensor, sums: Tensor, z: Tensor, norm: Norm, residual: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """BatchNorm's gradient (+ residual), and those of gamma and beta."""
        count = z.numel() // z.shape[1]
        mean, rstd, scale = norm.state[:3]
        of_beta, with_z = sums.sum(0)
        of_gamma = rstd * (with_z - mean * of_beta)
        by_z = -scale * rstd * of_gamma / count
        constant = -scale * of_beta / count - by_z * mean
        out = gradient * scale.view(CHANNEL) + z * by_z.view(CHANNEL) + constant.view(CHANNEL)
        return out if residual is None else out + residual, of_gamma, of_beta
