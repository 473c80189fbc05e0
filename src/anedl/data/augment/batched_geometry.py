"""Geometric operations on whole uint8 batches: one gather each, a transform an image.

A transform is six numbers (a, b, c, d, e, f) that lead from the centre (x, y) of an output pixel to
the point (a·x + b·y + c, d·x + e·y + f) of the input, as in Pillow's AFFINE. Pillow's nearest
neighbour runs in 16.16 fixed point and so does `affine_nearest`, which therefore takes the same
source pixel every time.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

FIXED_ONE = 1 << 16

Affine = tuple[float, float, float, float, float, float]


def rotation(degrees: float, size: int) -> Affine:
    """Turn counterclockwise about the centre of a `size` × `size` image, as `Image.rotate`."""
    angle = -math.radians(degrees % 360.0)
    cosine, sine = round(math.cos(angle), 15), round(math.sin(angle), 15)
    centre = size / 2
    shift_x = cosine * -centre + sine * -centre + centre
    shift_y = -sine * -centre + cosine * -centre + centre
    return (cosine, sine, shift_x, -sine, cosine, shift_y)


def fixed_point(transform: Affine) -> list[int]:
    """Round a transform to 16.16 fixed point, the half pixel up to a centre folded into c and f."""
    a, b, c, d, e, f = transform
    folded = (a, b, c + a * 0.5 + b * 0.5, d, e, f + d * 0.5 + e * 0.5)
    return [math.floor(number * FIXED_ONE + 0.5) for number in folded]


def take(images: Tensor, source: Tensor) -> Tensor:
    """Give each pixel the value at `source` (N, H, W) int64, a position row · W + column."""
    index = source.flatten(1)[:, None].expand(-1, images.shape[1], -1)
    return images.flatten(2).gather(2, index).view(images.shape)


def affine_nearest(images: Tensor, transforms: Tensor) -> Tensor:
    """Move images (N, C, H, W) uint8 by `transforms` (N, 6) int32 from `fixed_point`.

    Outside the image is black.
    """
    height, width = images.shape[-2:]
    a, b, c, d, e, f = transforms.view(-1, 6, 1, 1).unbind(1)
    x = torch.arange(width, dtype=torch.int32, device=images.device)
    y = torch.arange(height, dtype=torch.int32, device=images.device)[:, None]
    column = (a * x + c) + b * y >> 16
    row = (d * x + f) + e * y >> 16
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    source = torch.where(inside, row * width + column, 0).long()
    return take(images, source) * inside[:, None]


def affine_bilinear(images: Tensor, transforms: Tensor) -> Tensor:
    """Move images (N, C, H, W) uint8 by `transforms` (N, 6) float64, interpolating.

    A point inside the image but beyond its outermost pixel centres takes the nearest edge's values;
    outside the image is black.
    """
    height, width = images.shape[-2:]
    a, b, c, d, e, f = transforms.view(-1, 6, 1, 1).unbind(1)
    x = torch.arange(width, dtype=torch.float64, device=images.device) + 0.5
    y = (torch.arange(height, dtype=torch.float64, device=images.device) + 0.5)[:, None]
    column = a * x + b * y + c
    row = d * x + e * y + f
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    column, row = column.sub_(0.5), row.sub_(0.5)
    left, top = column.floor(), row.floor()
    right_weight, lower_weight = column.sub_(left)[:, None], row.sub_(top)[:, None]

    # With the edge repeated once all round, the four neighbours of any point inside lie at fixed
    # distances in memory, so one index serves them all; for a point outside, any index will do.
    padded = F.pad(images.float(), (1, 1, 1, 1), mode="replicate").flatten(2)
    stride = width + 2
    reach = padded.shape[2] - (stride + 1)
    source = top.add_(1).mul_(stride).add_(left).add_(1).clamp_(0, reach - 1).long()
    source = source.flatten(1)[:, None].expand(-1, images.shape[1], -1)
    upper_left, upper_right, lower_left, lower_right = (
        padded[:, :, start : start + reach].gather(2, source).view(images.shape)
        for start in (0, 1, stride, stride + 1)
    )
    upper = ((upper_right - upper_left) * right_weight).add_(upper_left)
    lower = ((lower_right - lower_left) * right_weight).add_(lower_left)
    value = lower.sub_(upper).mul_(lower_weight).add_(upper)
    return value.to(torch.uint8) * inside[:, None]


def flip_and_crop(images: Tensor, flip: Tensor, left: Tensor, top: Tensor, pad: int) -> Tensor:
    """Mirror where `flip` (N,) bool says so, then crop at `left`, `top` (N,) int64 from 0 to 2·pad.

    The crop has the image's own size and comes from the image extended by `pad` reflected pixels.
    """
    height, width = images.shape[-2:]
    column = reflect(torch.arange(width, device=images.device) + left[:, None] - pad, width)
    column = torch.where(flip[:, None], width - 1 - column, column)
    row = reflect(torch.arange(height, device=images.device) + top[:, None] - pad, height)
    return take(images, row[:, :, None] * width + column[:, None, :])


def reflect(position: Tensor, size: int) -> Tensor:
    """Fold positions beyond 0 … size − 1 back, the edge pixel not repeated."""
    return (size - 1) - ((size - 1) - position.abs()).abs()


def paste_square(images: Tensor, left: Tensor, top: Tensor, side: int, grey: int) -> Tensor:
    """Fill a square of `side` with `grey`, its upper left corner at `left`, `top` (N,) int64.

    What lies outside the image is left out.
    """
    height, width = images.shape[-2:]
    column = torch.arange(width, device=images.device) - left[:, None]
    row = torch.arange(height, device=images.device) - top[:, None]
    across = (column >= 0) & (column < side)
    down = (row >= 0) & (row < side)
    return images.masked_fill(across[:, None, None, :] & down[:, None, :, None], grey)
