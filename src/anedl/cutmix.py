"""CutMix (Yun et al. 2019): a rectangle of another image pasted in, and its name with it.

A network that is to say how much of an image is whose should find a wrong name hard to memorise.
"""

import torch
from torch import Tensor


def draw_patches(images: Tensor, probability: float) -> Tensor:
    """Draw which pixels of (N, C, H, W) images are to come from another one, (N, 1, H, W) bool.

    With `probability` an image gets a rectangle of its own: its area before the image's edge cuts
    it is uniform between none and all, its shape the image's, its centre anywhere.
    """
    count, _, height, width = images.shape
    area, chance, down, across = torch.rand(4, count, 1, device=images.device).unbind()
    half = torch.where(chance < probability, area.sqrt() / 2, -1.0)
    rows = (torch.arange(height, device=images.device) + 0.5) / height
    columns = (torch.arange(width, device=images.device) + 0.5) / width
    inside_rows = (rows - down).abs() <= half
    inside_columns = (columns - across).abs() <= half
    return (inside_rows[:, :, None] & inside_columns[:, None, :])[:, None]


def paste(images: Tensor, patches: Tensor) -> Tensor:
    """Each image (N, C, H, W) with its patch (N, 1, H, W) taken from its partner."""
    return torch.where(patches, partner_of(images), images)


def partner_of(rows: Tensor) -> Tensor:
    """What belongs to the images that patches come from, in the order of those they go into."""
    return rows.roll(1, 0)


def share_kept(patches: Tensor) -> Tensor:
    """The part of each image that is still its own, (N,)."""
    return 1 - patches.float().mean((1, 2, 3))
