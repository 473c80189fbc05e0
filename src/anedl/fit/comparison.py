"""Did the pile help? The model of labels alone against the whole method, on the same images."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import copysign, inf, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from anedl.conformal import Interval, clopper_pearson, percent
from anedl.data.dataset import IntArray
from anedl.data.protocol import Split
from anedl.errors import DataError
from anedl.fit.cautions import HeldOut

COVERAGE = 0.9
QUANTILE = 1.6448536269514722  # of the normal distribution, with 5 % beyond it


@dataclass(frozen=True)
class Comparison:
    """Errors of both models on held-out images, and the difference (with the pile − without).

    The interval is about new images, so it allows for another number of images on which the two
    disagree: two models that agree on few images may yet differ.
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
            return (
                f"WARNING, the pile hurt: {span}; use the model in `supervised/` instead. It is "
                "not calibrated: `anedl calibrate RUN/supervised KNOWN/ -o FOLDER` sets a "
                "certified threshold by known images that this fit has not had"
            )
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
    low, high = paired_interval(worse, differ - worse, images)
    return Comparison(
        images,
        float(before.mean()),
        float(after.mean()),
        float(after.mean() - before.mean()),
        low,
        high,
    )


def paired_interval(worse: int, better: int, images: int) -> Interval:
    """A 90 % interval for the change of the error rate, from the images where two models disagree.

    It holds two others. Tango's score interval (Statistics in Medicine 1998) allows for chance in
    how many images the models disagree on. The exact binomial one of which model is right on those
    images does not, but where it lies on one side of zero, so does the sign test.
    """
    difference = (worse - better) / images
    low = _bisect(lambda change: _tango(worse, better, images, change) >= QUANTILE, -1, difference)
    high = _bisect(lambda change: _tango(worse, better, images, change) > -QUANTILE, difference, 1)
    if differ := worse + better:
        share = clopper_pearson(worse, differ, COVERAGE)
        exact = [(2 * end - 1) * differ / images for end in share]
        low, high = min(low, exact[0]), max(high, exact[1])
    return Interval(low, high)


def _tango(worse: int, better: int, images: int, change: float) -> float:
    """How many deviations the observed change lies above `change`, were that the true one."""
    linear = (2 * images - worse + better) * change - worse - better
    product = -better * change * (1 - change)
    # The likeliest share of images that the second model alone gets right, given the change.
    share = (sqrt(max(0.0, linear**2 - 8 * images * product)) - linear) / (4 * images)
    variance = images * (2 * share + change * (1 - change))
    distance = worse - better - images * change
    return distance / sqrt(variance) if variance > 0 else copysign(inf, distance)


def _bisect(holds: Callable[[float], bool], low: float, high: float) -> float:
    """Where `holds` turns from true to false between `low` and `high`."""
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return (low + high) / 2


def held_out_errors(folder: Path, split: Split, labels: IntArray) -> HeldOut:
    """What a run's last model answers of validation and fresh images together.

    Neither set had a say in these weights: the last model is taken, not the best by validation.
    """
    from safetensors.numpy import load_file

    truth, answer = [], []
    for name, positions in (("validation", split.validation), ("test", split.test)):
        saved = load_file(folder / "outputs" / f"{name}-last.safetensors")
        truth.append(labels[positions])
        answer.append(saved["logits"].argmax(1))
    return HeldOut(np.concatenate(truth), np.concatenate(answer))
