"""Did the pile help? The model of labels alone against the whole method, on the same images."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from anedl.conformal import clopper_pearson, percent
from anedl.data.dataset import IntArray
from anedl.data.protocol import Split
from anedl.errors import DataError

COVERAGE = 0.9


@dataclass(frozen=True)
class Comparison:
    """Errors of both models on held-out images, and the difference (with the pile − without).

    The interval is exact given the images on which the two disagree: which of them the pile's model
    gets right is a binomial count.
    """

    images: int
    error_without: float
    error_with: float
    difference: float
    low: float
    high: float

    @property
    def hurt(self) -> bool:
        """Whether the pile made things worse, beyond chance."""
        return self.low > 0

    def describe(self) -> str:
        """The finding in a sentence."""
        span = (
            f"error {percent(self.error_with)} with the pile, {percent(self.error_without)} from "
            f"the labels alone, on {self.images} held-out images (difference "
            f"{100 * self.difference:+.1f} points, 90 % interval {100 * self.low:+.1f} to "
            f"{100 * self.high:+.1f})"
        )
        if self.hurt:
            return f"WARNING, the pile hurt: {span}; use the model in `supervised/` instead"
        if self.high < 0:
            return f"yes: {span}"
        return f"no difference shows: {span}"

    def to_json(self) -> dict[str, Any]:
        """Turn into plain numbers, with the sentence beside them."""
        return {**asdict(self), "hurt": self.hurt, "note": self.describe()}


def compare(wrong_without: Any, wrong_with: Any) -> Comparison:
    """Compare two models by which of the same N images each gets wrong, (N,) booleans."""
    before, after = np.asarray(wrong_without, bool), np.asarray(wrong_with, bool)
    images = len(before)
    if images == 0:
        raise DataError("there are no held-out images to compare two models on")
    worse = int((after & ~before).sum())
    differ = int((after != before).sum())
    low, high = 0.0, 0.0
    if differ:
        share = clopper_pearson(worse, differ, COVERAGE)
        low, high = ((2 * end - 1) * differ / images for end in share)
    return Comparison(
        images,
        float(before.mean()),
        float(after.mean()),
        float(after.mean() - before.mean()),
        low,
        high,
    )


def compare_models(without: Path, with_pile: Path, split: Split, labels: IntArray) -> Comparison:
    """Compare the last models of two run folders on validation and fresh images together.

    Neither set had a say in these weights: the last model is taken, not the best by validation.
    """
    from safetensors.numpy import load_file

    wrong = []
    for folder in (without, with_pile):
        parts = []
        for name, positions in (("validation", split.validation), ("test", split.test)):
            saved = load_file(folder / "outputs" / f"{name}-last.safetensors")
            parts.append(saved["logits"].argmax(1) != labels[positions])
        wrong.append(np.concatenate(parts))
    return compare(*wrong)
