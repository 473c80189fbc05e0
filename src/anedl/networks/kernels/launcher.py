"""Launches the Hopper kernels: one method for each thing a wide residual network does."""

import ctypes
import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from anedl.networks.kernels.hopper import kernel
from anedl.networks.kernels.parts import BlockWeights, Norm, Trace, kernel_shapes

THREADS = {"stem": 768, "forward_branch": 640, "gradient_branch": 512}
THREADS |= {f"{kind}_32": 640 for kind in ("forward", "forward_add", "gradient")}
THREADS |= {
    f"{kind}_{c}": 384 for kind in ("forward", "forward_add", "gradient") for c in (64, 128)
}
MOST_KERNELS = 64  # of a network, as many as the table of `cast_weights` holds
SPLITS = {128: 2}  # blocks that share a tile's output channels
WEIGHT_SPLITS = {128: 4}  # the same for a weight gradient's two sides
_FLOATS = {"stem": 12 * 128, "branch": 24 * 256, "32": 48 * 256, "64": 96 * 384, "128": 96 * 384}


def _structure(name: str, **fields: type) -> type[ctypes.Structure]:
    return type(name, (ctypes.Structure,), {"_fields_": list(fields.items())})


_P, _F, _I = ctypes.c_void_p, ctypes.c_float, ctypes.c_int
_ConvArguments = _structure(
    "_ConvArguments", x=_P, weight=_P, beside=_P, branch_weight=_P, out=_P, branch=_P, sums_in=_P,
    parts_in=_I, gamma=_P, beta=_P, norm=_P, eps=_F, slope=_F, sums_out=_P, images=_I,
)  # fmt: skip
_WeightArguments = _structure(
    "_WeightArguments", z=_P, gradient=_P, branch_gradient=_P, norm=_P, slope=_F, parts=_P,
    images=_I,
)  # fmt: skip


class _CastTable(ctypes.Structure):
    _fields_ = (("source", ctypes.c_void_p * MOST_KERNELS), ("begin", _I * (MOST_KERNELS + 1)))


def _filled(structure: type[ctypes.Structure], **values: Tensor | int | float | None) -> Any:
    pointers = {k: v.data_ptr() if isinstance(v, Tensor) else v for k, v in values.items()}
    return structure(**pointers)


class Launcher:
    """Launches kernels for `images` images with fixed BatchNorm and LeakyReLU constants."""

    def __init__(self, images: int, device: torch.device, eps: float, slope: float) -> None:
        self.images = images
        self.device = device
        self.eps = eps
        self.slope = slope
        self.processors = torch.cuda.get_device_properties(device).multi_processor_count

    def _empty(self, *shape: int) -> Tensor:
        return torch.empty(shape, device=self.device)

    def _like(self, x: Tensor, channels: int) -> Tensor:
        shape = (x.shape[0], channels, *x.shape[2:])
        return torch.empty(shape, dtype=x.dtype, device=x.device, memory_format=torch.channels_last)

    def pad(self, images: Tensor) -> Tensor:
        """Float32 images (N, 3, H, W), channels-last, in bf16 with 8 channels, 5 of them zero."""
        out = torch.empty(
            (images.shape[0], 8, *images.shape[2:]), dtype=torch.bfloat16, device=images.device,
            memory_format=torch.channels_last,
        )  # fmt: skip
        pixels = images.numel() // 3
        kernel("pad_images")(4 * self.processors, 256, images, out, pixels)
        return out

    def cast(self, kernels: list[Tensor]) -> Tensor:
        """Float32 kernels in bf16, one behind the other: see `unpack_kernels`."""
        kernels = [kernel.contiguous(memory_format=torch.channels_last) for kernel in kernels]
        sizes = [math.prod(shape) for shape in kernel_shapes(kernels)]
        out = torch.empty(sum(sizes), dtype=torch.bfloat16, device=self.device)
        table = _CastTable()
        for i, source in enumerate(kernels):
            table.source[i] = source.data_ptr()
            table.begin[i + 1] = table.begin[i] + sizes[i] // 8
        kernel("cast_weights")(sum(sizes) // 8 // 256 + 1, 256, table, out, len(kernels))
        return out

    def sums(self, x: Tensor) -> Tensor:
        """Partial sums (parts, 2, C) of x and of its square."""
        channels, blocks = x.shape[1], 2 * self.processors
        out = self._empty(blocks, 2, channels)
        kernel(f"sum_{channels}")(blocks, 512, x, out, x.numel() // 8)
        return out

    def activate(self, x: Tensor, sums: Tensor, norm: Norm) -> Tensor:
        """LeakyReLU(BatchNorm(x)); fills the norm's state."""
        out = torch.empty_like(x)
        kernel(f"activate_{x.shape[1]}")(
            2 * self.processors, 512, x, out, sums, sums.shape[0], norm.gamma, norm.beta,
            norm.state, self.eps, self.slope, x.numel() // 8,
        )  # fmt: skip
        return out

    def pool(self, z: Tensor, sums: Tensor, norm: Norm) -> Tensor:
        """Mean over pixels of LeakyReLU(BatchNorm(z)), (N, C), float32; fills the state."""
        features = self._empty(self.images, z.shape[1])
        kernel(f"pool_{z.shape[1]}")(
            2 * self.processors, 512, z, features, sums, sums.shape[0], norm.gamma, norm.beta,
            norm.state, self.eps, self.slope, self.images, z.shape[2] * z.shape[3],
        )  # fmt: skip
        return features

    def pool_gradient(self, gradient: Tensor, z: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
        """From the features' gradient (N, C), float32, to that before the activation, and sums."""
        c, blocks = z.shape[1], 2 * self.processors
        out, sums = torch.empty_like(z), self._empty(blocks, 2, c)
        kernel(f"pool_gradient_{c}")(
            blocks, 512, gradient, z, norm.state, self.slope, out, sums, z.numel() // 8,
            z.shape[2] * z.shape[3],
        )  # fmt: skip
        return out, sums

    def _convolve(self, name: str, x: Tensor, channels: int, **more: Any) -> tuple[Tensor, Tensor]:
        out = self._like(x, channels)
        splits = SPLITS.get(channels, 1)
        sums = self._empty(self.processors // splits, 2, channels)
        arguments = _filled(
            _ConvArguments, x=x, out=out, sums_out=sums, images=self.images, eps=self.eps,
            slope=self.slope, **more,
        )  # fmt: skip
        kernel(name)(sums.shape[0] * splits, THREADS[name], arguments)
        return out, sums

    def stem(self, images: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """The first convolution of padded images, and its partial sums."""
        return self._convolve("stem", images, 16, weight=weight)

    def forward(
        self, x: Tensor, sums: Tensor, norm: Norm, weight: Tensor, residual: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """conv(LeakyReLU(BatchNorm(x))) (+ residual) and its partial sums; fills the state."""
        name = f"forward_{x.shape[1]}" if residual is None else f"forward_add_{x.shape[1]}"
        return self._convolve(
            name, x, x.shape[1], sums_in=sums, parts_in=sums.shape[0], gamma=norm.gamma,
            beta=norm.beta, norm=norm.state, weight=weight, beside=residual,
        )  # fmt: skip

    def forward_branch(
        self, x: Tensor, sums: Tensor, norm: Norm, weight: Tensor, branch_weight: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """The same with 16 channels in and 32 out, and a 1×1 convolution beside it."""
        branch = self._like(x, 32)
        out, sums_out = self._convolve(
            "forward_branch", x, 32, sums_in=sums, parts_in=sums.shape[0], gamma=norm.gamma,
            beta=norm.beta, norm=norm.state, weight=weight, branch_weight=branch_weight,
            branch=branch,
        )  # fmt: skip
        return out, sums_out, branch

    def gradient(
        self, gradient: Tensor, weight: Tensor, z: Tensor, norm: Norm
    ) -> tuple[Tensor, Tensor]:
        """Gradient at BatchNorm's output, before the activation, and its partial sums."""
        c = z.shape[1]
        return self._convolve(
            f"gradient_{c}", gradient, c, weight=weight, beside=z, norm=norm.state
        )

    def gradient_branch(
        self, gradient: Tensor, branch: Tensor, weights: BlockWeights, z: Tensor, norm: Norm
    ) -> tuple[Tensor, Tensor]:
        """The same through a 3×3 and a 1×1 convolution of the same activated tensor."""
        return self._convolve(
            "gradient_branch", gradient, 16, weight=weights.conv1, branch=branch,
            branch_weight=weights.shortcut, beside=z, norm=norm.state,
        )  # fmt: skip

    def _weights(
        self, name: str, z: Tensor, gradient: Tensor, out: Tensor, splits: int = 1,
        norm: Tensor | None = None, branch_gradient: Tensor | None = None,
        branch_out: Tensor | None = None,
    ) -> None:  # fmt: skip
        blocks = self.processors // splits
        floats = _FLOATS[name]
        parts = self._empty(splits, blocks, floats)
        full = f"{name}_weights" if name in ("stem", "branch") else f"weights_{name}"
        arguments = _filled(
            _WeightArguments, z=z, gradient=gradient, branch_gradient=branch_gradient, norm=norm,
            slope=self.slope, parts=parts, images=self.images,
        )  # fmt: skip
        kernel(full)(blocks * splits, 384 if name in ("64", "128") else 512, arguments)
        kernel(f"{full}_add")(splits * floats // 128, 256, parts, out, branch_out, blocks)

    def weights(self, z: Tensor, gradient: Tensor, norm: Norm) -> Tensor:
        """Gradient of a 3×3 kernel, (C, C, 3, 3) in channels-last order, float32."""
        c = z.shape[1]
        out = self._empty(c, 3, 3, c)
        self._weights(str(c), z, gradient, out, WEIGHT_SPLITS.get(c, 1), norm.state)
        return out.permute(0, 3, 1, 2)

    def branch_weights(
        self, z: Tensor, gradient: Tensor, branch: Tensor, norm: Norm
    ) -> tuple[Tensor, Tensor]:
        """Gradients of the 3×3 and the 1×1 kernel of `gradient_branch`."""
        out, branch_out = self._empty(32, 3, 3, 16), self._empty(32, 1, 1, 16)
        self._weights(
            "branch", z, gradient, out, norm=norm.state, branch_gradient=branch,
            branch_out=branch_out,
        )  # fmt: skip
        return out.permute(0, 3, 1, 2), branch_out.permute(0, 3, 1, 2)

    def stem_weights(self, images: Tensor, gradient: Tensor) -> Tensor:
        """Gradient of the first kernel, (16, 3, 3, 3), from padded images."""
        out = self._empty(16, 3, 3, 3)
        self._weights("stem", images, gradient, out)
        return out.permute(0, 3, 1, 2)

    def forward_down(
        self, z: Tensor, sums: Tensor, norm: Norm, weights: BlockWeights
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """A first convolution with stride 2: output, sums, shortcut, and the activated z."""
        assert weights.shortcut is not None
        activated = self.activate(z, sums, norm)
        hidden = conv2d(activated, weights.conv1, stride=2, padding=1)
        return hidden, self.sums(hidden), conv2d(z, weights.shortcut, stride=2), activated

    def gradient_down(
        self, dh: Tensor, dz: Tensor, trace: Trace, weights: BlockWeights, norm: Norm
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Backward of `forward_down`.

        Returns the gradient before the activation, its sums, the shortcut's gradient of z, and the
        gradients of both kernels.
        """
        assert trace.activated is not None
        assert weights.shortcut is not None
        da, of_conv1 = _conv_backward(dh, trace.activated, weights.conv1)
        residual, of_shortcut = _conv_backward(dz, trace.z, weights.shortcut)
        g, sums = self.activation_gradient(da, trace.z, norm)
        return g, sums, residual, of_conv1.float(), of_shortcut.float()

    def activation_gradient(self, gradient: Tensor, z: Tensor, norm: Norm) -> tuple[Tensor, Tensor]:
        """The gradient at BatchNorm's output from that behind LeakyReLU, and its partial sums."""
        c, blocks = z.shape[1], 2 * self.processors
        out, sums = torch.empty_like(z), self._empty(blocks, 2, c)
        kernel(f"activation_gradient_{c}")(
            blocks, 512, gradient, z, norm.state, self.slope, out, sums, z.numel() // 8
        )
        return out, sums

    def norm_gradient(
        self, gradient: Tensor, sums: Tensor, z: Tensor, norm: Norm, residual: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """BatchNorm's gradient (+ residual), and those of gamma and beta."""
        c = z.shape[1]
        out = torch.empty_like(z)
        gamma, beta = self._empty(c), self._empty(c)
        kernel(f"norm_gradient_{c}")(
            self.processors, 512, gradient, z, residual, norm.state, sums, sums.shape[0], out,
            gamma, beta, z.numel() // 8,
        )  # fmt: skip
        return out, gamma, beta


def _conv_backward(gradient: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Gradients of the input and the weight of a convolution with stride 2."""
    padding = weight.shape[2] // 2
    of_x, of_weight, _ = torch.ops.aten.convolution_backward(
        gradient, x, weight, None, [2, 2], [padding] * 2, [1, 1], False, [0, 0], 1,
        [True, True, False],
    )  # fmt: skip
    return of_x, of_weight
