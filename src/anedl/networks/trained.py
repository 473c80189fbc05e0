"""What is known of weights that a backbone's name brings along."""

from typing import NamedTuple


class TrainedOn(NamedTuple):
    """How images were shown to a trunk when it was trained: pixels a side, mean and std (0…1)."""

    side: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    images: str  # what they were
