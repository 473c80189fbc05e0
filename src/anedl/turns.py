"""Images turned by quarters, for methods that learn from telling by how many.

Every pool image can teach that, whether or not anyone knows its class.
"""

import torch
from torch import Tensor

TURNS = 4  # by 0°, 90°, 180° and 270°


def turned_each_way(images: Tensor) -> tuple[Tensor, Tensor]:
    """All four rotations of square (N, C, S, S) images, (4N, C, S, S), and by how many quarters.

    The first N are the images themselves.
    """
    rotated = torch.cat([torch.rot90(images, turn, (2, 3)) for turn in range(TURNS)])
    return rotated, torch.arange(TURNS, device=images.device).repeat_interleave(len(images))


def turned_one_way(images: Tensor) -> tuple[Tensor, Tensor]:
    """Square (N, C, S, S) images, each in one rotation, and by how many quarters, (N,).

    The first quarter of them stays as it is, the second is turned once, and so on: a batch is in
    random order, so nothing need be drawn.
    """
    parts = images.tensor_split(TURNS)
    rotated = [torch.rot90(part, turn, (2, 3)) for turn, part in enumerate(parts)]
    turns = [images.new_full((len(part),), t, dtype=torch.int64) for t, part in enumerate(parts)]
    return torch.cat(rotated), torch.cat(turns)
