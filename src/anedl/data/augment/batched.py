"""Views of whole batches, made where the batch lies: the host's augmentations, pixel for pixel.

Given the same random numbers, `BatchedAugment` and `HostAugment` make the same images; the numbers
themselves come from `counter` here, so that a step needs nothing from the host and can be compiled
or captured in a CUDA graph.
"""

import torch
from torch import Tensor, nn

from anedl.data.augment.batched_geometry import affine_bilinear, flip_and_crop, paste_square
from anedl.data.augment.batched_ops import blend, luminance, mean_level, per_image
from anedl.data.augment.batched_randaugment import DRAWS, RandAugment
from anedl.data.augment.counter import uniforms
from anedl.data.augment.host import CUTOUT_GREY, KINDS
from anedl.errors import ConfigError, DataError, unknown_name
from anedl.views import View

WEAK_DRAWS = 3
CUTOUT_DRAWS = 2
DIGIT_WEAK_DRAWS = 4
DIGIT_STRONG_DRAWS = 7


class BatchedAugment(nn.Module):
    """Makes views of batches of `size` × `size` images with 1 or 3 channels.

    `kind` is "cifar" or "small" (flip, crop, RandAugment, cutout) or "digits" (affine, contrast,
    brightness, cutout; never mirrored). Move it to the device of the images with `.to(device)`.
    """

    def __init__(self, kind: str, size: int, channels: int) -> None:
        super().__init__()
        if kind not in KINDS:
            raise unknown_name("kind of augmentation", kind, KINDS)
        if kind == "imagenet":
            raise ConfigError(
                "augmentation of kind 'imagenet' crops from larger images, which only the host "
                "does: read the images from disk, or store them at their final size and use 'small'"
            )
        if size < 8 or channels not in (1, 3):
            raise ConfigError(
                f"augmentation needs images at least 8 pixels wide with 1 or 3 channels, "
                f"got {size} pixels and {channels} channels"
            )
        self.kind = kind
        self.size = size
        self.channels = channels
        if kind != "digits":
            self.rand_augment = RandAugment(size)

    def forward(
        self, images: Tensor, view: View, seed: int, step: Tensor | int, slot: int
    ) -> Tensor:
        """Make one view of each image, (N, C, H, W) uint8 like `images`; a plain view is `images`.

        Randomness is a pure function of (seed, step, slot, position in the batch): the same image
        at another position gets another view, and a longer batch does not change the earlier ones.
        `step` is a 0-dim int64 tensor on the images' device, or an int. Give each view made in one
        step its own `slot`.
        """
        if images.shape[1:] != (self.channels, self.size, self.size) or images.dtype != torch.uint8:
            raise DataError(
                f"expected images (N, {self.channels}, {self.size}, {self.size}) uint8, "
                f"got {tuple(images.shape)} {images.dtype}"
            )
        count = self.draws(view)
        if count == 0:
            return images
        uniform = uniforms(seed, step, slot, len(images), count, images.device)
        return self.apply_draws(images, view, uniform)

    def draws(self, view: View) -> int:
        """How many random numbers a view of one image uses."""
        # Compared one by one because torch.compile (2.13) does not guard an enum used as a key: it
        # would run the graph of one view for all of them.
        if view is View.PLAIN:
            return 0
        if self.kind == "digits":
            if view is View.FLIP:
                return 0
            weak, strong = DIGIT_WEAK_DRAWS, DIGIT_STRONG_DRAWS + CUTOUT_DRAWS
            return weak if view is View.WEAK else strong
        if view is View.FLIP:
            return 1
        return WEAK_DRAWS if view is View.WEAK else WEAK_DRAWS + DRAWS + CUTOUT_DRAWS

    def apply_draws(self, images: Tensor, view: View, uniform: Tensor) -> Tensor:
        """Make the view that the numbers `uniform` (N, draws(view)) in [0, 1) decide."""
        if self.kind == "digits":
            if view is View.WEAK:
                return weak_digits(images, uniform)
            varied = strong_digits(images, uniform[:, :-CUTOUT_DRAWS])
            return cutout(varied, uniform[:, -CUTOUT_DRAWS:], self.size * 3 // 8)

        flip = uniform[:, 0] < 0.5
        if view is View.FLIP:
            return torch.where(per_image(flip, 4), images.flip(3), images)
        pad = self.size // 8
        top, left = (uniform[:, 1:WEAK_DRAWS] * (2 * pad + 1)).long().unbind(1)
        weak = flip_and_crop(images, flip, left, top, pad)
        if view is View.WEAK:
            return weak
        distorted: Tensor = self.rand_augment(weak, uniform[:, WEAK_DRAWS:-CUTOUT_DRAWS])
        return cutout(distorted, uniform[:, -CUTOUT_DRAWS:], self.size // 2)


def cutout(images: Tensor, uniform: Tensor, side: int) -> Tensor:
    """Cover a grey square whose centre is any pixel; `uniform` is (N, 2), row before column."""
    top, left = ((uniform * images.shape[-1]).long() - side // 2).unbind(1)
    return paste_square(images, left, top, side, CUTOUT_GREY)


def weak_digits(images: Tensor, uniform: Tensor) -> Tensor:
    """Shift by a whole pixel or none, turn and scale a little; `uniform` is (N, 4)."""
    shift_x, shift_y, turn, scale = uniform.double().unbind(1)
    pixel = images.shape[-1] / 8
    transforms = affine_about_centre(
        rotation=between(turn, -10, 10),
        scale=between(scale, 0.9, 1.1),
        shear=torch.zeros_like(turn),
        shift_x=((shift_x * 3).floor() - 1) * pixel,
        shift_y=((shift_y * 3).floor() - 1) * pixel,
        centre=images.shape[-1] / 2,
    )
    return affine_bilinear(images, transforms)


def strong_digits(images: Tensor, uniform: Tensor) -> Tensor:
    """Shift, turn, scale and shear, then change contrast and brightness; `uniform` is (N, 7)."""
    shift_x, shift_y, turn, scale, shear, contrast, brightness = uniform.double().unbind(1)
    pixel = images.shape[-1] / 8
    transforms = affine_about_centre(
        rotation=between(turn, -25, 25),
        scale=between(scale, 0.8, 1.2),
        shear=between(shear, -0.2, 0.2),
        shift_x=between(shift_x, -1.5, 1.5) * pixel,
        shift_y=between(shift_y, -1.5, 1.5) * pixel,
        centre=images.shape[-1] / 2,
    )
    moved = affine_bilinear(images, transforms)
    contrast, brightness = (
        per_image(between(factor, 0.6, 1.4).float(), 4) for factor in (contrast, brightness)
    )
    flat = per_image(mean_level(luminance(moved)), 4)
    return blend(torch.zeros_like(flat), blend(flat, moved, contrast), brightness)


def between(uniform: Tensor, low: float, high: float) -> Tensor:
    """Stretch numbers on [0, 1) to [low, high)."""
    return low + (high - low) * uniform


def affine_about_centre(
    rotation: Tensor,
    scale: Tensor,
    shear: Tensor,
    shift_x: Tensor,
    shift_y: Tensor,
    centre: float,
) -> Tensor:
    """Transforms (N, 6) float64 of: scale, shear, rotate about the centre, shift; all of them (N,).

    Forward, out = R·S·(in − centre)·scale + centre + shift with R the turn by `rotation` degrees
    and S = ((1, shear), (0, 1)); a transform leads the other way, from output to input.
    """
    angle = torch.deg2rad(rotation)
    cosine, sine = angle.cos(), angle.sin()
    a, b = (cosine + shear * sine) / scale, (sine - shear * cosine) / scale
    d, e = -sine / scale, cosine / scale
    x, y = centre + shift_x, centre + shift_y
    return torch.stack([a, b, centre - a * x - b * y, d, e, centre - d * x - e * y], dim=1)
