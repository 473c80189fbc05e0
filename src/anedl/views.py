"""The views of an image that a method may ask for; an augmentation says what each one does."""

from enum import StrEnum
from typing import Literal


class View(StrEnum):
    """How an image is shown to the network."""

    PLAIN = "plain"
    """As at test time: nothing random."""
    FLIP = "flip"
    """Plain, and mirrored left to right half of the time."""
    WEAK = "weak"
    """Flipped and shifted a little: the label is certainly kept."""
    STRONG = "strong"
    """Weak, then distorted in colour and shape and partly covered."""


ViewName = Literal["plain", "flip", "weak", "strong"]
"""A view as an option of a method names it."""
