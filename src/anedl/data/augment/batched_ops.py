"""Value operations on whole uint8 batches, a parameter an image, level for level what Pillow does.

Every function takes images (N, C, H, W) uint8 on any device and runs without looking at a value on
the host, so all of it can be captured in a CUDA graph or compiled. An operation that maps grey
levels to grey levels is a table, (N, 1 or C, 256) uint8, so that whichever one an image drew costs
one lookup. Parameters are tensors (N,), factors float32.

Where Pillow drops a fraction, so does this, computed in Pillow's precision: `Image.blend` is
float32, `ImageOps.autocontrast` float64.
"""

import torch
from torch import Tensor

LEVELS = 256


def lookup(tables: Tensor, levels: Tensor) -> Tensor:
    """Look every pixel up in its image's table; `levels` are the pixels as (N, C, H·W) int64."""
    return tables.expand(-1, levels.shape[1], -1).gather(2, levels)


def level_ramp(device: torch.device) -> Tensor:
    """Every grey level once, (1, 1, 256) float32."""
    return torch.arange(LEVELS, device=device, dtype=torch.float32).view(1, 1, -1)


def blend(degenerate: Tensor, images: Tensor, factor: Tensor) -> Tensor:
    """Go from `degenerate` (factor 0) to `images` (factor 1) or beyond, as `Image.blend`.

    Both hold whole numbers; `factor` is float32 and broadcasts against them. A compiler that fuses
    the product with the sum may land one level away where the result is all but whole.
    """
    start = degenerate.float()
    # In place where shapes allow: on a CPU, fresh memory costs more than the arithmetic.
    return (images.float() - start).mul(factor).add_(start).clamp_(0, 255).to(torch.uint8)


def per_image(parameter: Tensor, dims: int) -> Tensor:
    """Give a parameter (N,) trailing axes, so that it broadcasts over images of `dims` axes."""
    return parameter.view(-1, *[1] * (dims - 1))


def posterize_tables(bits: Tensor) -> Tensor:
    """Keep the top `bits` (N,) int64 bits of each level, (N, 1, 256)."""
    drop = per_image(8 - bits, 3)
    levels = torch.arange(LEVELS, device=bits.device).view(1, 1, -1)
    return (levels >> drop << drop).to(torch.uint8)


def solarize_tables(threshold: Tensor) -> Tensor:
    """Invert the levels at or above `threshold` (N,) int64, (N, 1, 256)."""
    levels = torch.arange(LEVELS, device=threshold.device).view(1, 1, -1)
    return torch.where(levels < per_image(threshold, 3), levels, 255 - levels).to(torch.uint8)


def brightness_tables(factor: Tensor) -> Tensor:
    """Blend with black, (N, 1, 256)."""
    ramp = level_ramp(factor.device)
    return blend(torch.zeros_like(ramp), ramp, per_image(factor, 3))


def contrast_tables(grey: Tensor, factor: Tensor) -> Tensor:
    """Blend with the mean level of `grey` (N, 1, H, W), the images' luminance: (N, 1, 256)."""
    return blend(per_image(mean_level(grey), 3), level_ramp(grey.device), per_image(factor, 3))


def histogram_of(levels: Tensor) -> Tensor:
    """How often each level occurs, (N, C, 256) int32; `levels` are pixels as (N, C, H·W) int64.

    Counting by an integer scatter is exact in any order, hence deterministic.
    """
    count, channels, _ = levels.shape
    histogram = torch.zeros(count, channels, LEVELS, dtype=torch.int32, device=levels.device)
    one = torch.ones(1, 1, 1, dtype=torch.int32, device=levels.device)
    return histogram.scatter_add_(2, levels, one.expand_as(levels))


def level_range(histogram: Tensor) -> tuple[Tensor, Tensor]:
    """The least and the greatest level that occur in each channel, (N, C, 1) int32 each."""
    levels = torch.arange(LEVELS, dtype=torch.int32, device=histogram.device)
    occurs = histogram > 0
    low = torch.where(occurs, levels, LEVELS - 1).amin(2, keepdim=True)
    return low, torch.where(occurs, levels, 0).amax(2, keepdim=True)


def autocontrast_tables(histogram: Tensor) -> Tensor:
    """Stretch each channel to the full range of levels, (N, C, 256)."""
    low, high = (end.double() for end in level_range(histogram))
    # `255.0 / x` on a tensor would multiply by a rounded reciprocal.
    scale = torch.full_like(low, 255.0) / (high - low).clamp(min=1.0)
    ramp = level_ramp(histogram.device).double()
    stretched = (ramp * scale + -low * scale).clamp(0.0, 255.0)
    return torch.where(high > low, stretched, ramp).to(torch.uint8)


def equalize_tables(histogram: Tensor) -> Tensor:
    """Flatten each channel's histogram, (N, C, 256)."""
    _, high = level_range(histogram)
    up_to = histogram.cumsum(2, dtype=torch.int32)
    step = (up_to[..., -1:] - histogram.gather(2, high.long())) // 255
    equalized = (step // 2 + up_to - histogram) // step.clamp(min=1)
    levels = torch.arange(LEVELS, dtype=torch.int32, device=histogram.device)
    return torch.where(step > 0, equalized.clamp(max=255), levels).to(torch.uint8)


def luminance(images: Tensor) -> Tensor:
    """The grey image of ITU-R 601 weights in 16-bit fixed point, (N, 1, H, W) uint8."""
    if images.shape[1] == 1:
        return images
    red, green, blue = images.to(torch.int32).chunk(3, dim=1)
    return (red * 19595 + green * 38470 + blue * 7471 + 0x8000 >> 16).to(torch.uint8)


def smooth(images: Tensor) -> Tensor:
    """Pillow's SMOOTH: the mean of a 3 × 3 window, the centre counted 5 times; the border stays."""
    wide = images.to(torch.int16)
    rows = wide[:, :, :-2] + wide[:, :, 1:-1] + wide[:, :, 2:]
    window = rows[..., :-2] + rows[..., 1:-1] + rows[..., 2:] + 4 * wide[:, :, 1:-1, 1:-1]
    # 13 is odd, so no sum is a tie and float32 rounds every one of them rightly.
    smoothed = images.clone()
    smoothed[:, :, 1:-1, 1:-1] = (window.float() * (1 / 13) + 0.5).to(torch.uint8)
    return smoothed


def mean_level(grey: Tensor) -> Tensor:
    """The mean of each grey image (N, 1, H, W) rounded half up, (N,) int64."""
    pixels = grey.shape[-2] * grey.shape[-1]
    return (2 * grey.flatten(1).sum(1, dtype=torch.int64) + pixels) // (2 * pixels)
