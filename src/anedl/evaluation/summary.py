"""What several seeds say together: mean ± standard deviation, and one method against another."""

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from anedl.errors import AnedlError


class MeanStd(NamedTuple):
    """Mean and sample standard deviation (n − 1) over runs; one run alone has no deviation."""

    mean: float
    std: float | None


class PairedDifference(NamedTuple):
    """Mean and sample deviation of run-by-run differences, and a Student t interval of the mean.

    One pair alone has neither deviation nor interval.
    """

    mean: float
    std: float | None
    low: float | None
    high: float | None
    level: float


def mean_std(values: Sequence[float]) -> MeanStd:
    """Mean and sample standard deviation (divided by n − 1) of one value a run."""
    runs = _finite(values)
    return MeanStd(float(runs.mean()), float(runs.std(ddof=1)) if len(runs) > 1 else None)


def paired_difference(
    first: Sequence[float], second: Sequence[float], level: float = 0.95
) -> PairedDifference:
    """Compare two methods run by run: `first[i] − second[i]`, both from the same seed and split.

    The interval is Student's t with n − 1 degrees of freedom, not a bootstrap: with the usual three
    seeds there are too few distinct resamples for a bootstrap to reach its level. It supposes
    normally distributed differences, and is wide for few runs, as it should be.
    """
    if len(first) != len(second):
        raise AnedlError(
            f"{len(first)} runs cannot be paired with {len(second)}; give the same seeds for both"
        )
    if not 0.0 < level < 1.0:
        raise AnedlError(f"the level of an interval must lie in (0, 1), got {level}")
    mean, std = mean_std([float(a) - float(b) for a, b in zip(first, second, strict=True)])
    if std is None:
        return PairedDifference(mean, None, None, None, level)
    from scipy.special import stdtrit

    reach = float(stdtrit(len(first) - 1, (1.0 + level) / 2.0)) * std / sqrt(len(first))
    return PairedDifference(mean, std, mean - reach, mean + reach, level)


def format_percent(values: Sequence[float], digits: int = 1) -> str:
    """Write fractions, one a run, as "90.3 ± 0.1" in per cent; one run alone as "90.3"."""
    mean, std = mean_std(values)
    # The z keeps a value that rounds to nothing from being printed as -0.0.
    text = f"{100 * mean:z.{digits}f}"
    return text if std is None else f"{text} ± {100 * std:.{digits}f}"


def format_difference(difference: PairedDifference, digits: int = 1) -> str:
    """Write a difference of fractions in points, as "+1.3 [+0.2, +2.4]"; one pair as "+1.3"."""
    text = f"{100 * difference.mean:+z.{digits}f}"
    if difference.low is None or difference.high is None:
        return text
    low, high = 100 * difference.low, 100 * difference.high
    return f"{text} [{low:+z.{digits}f}, {high:+z.{digits}f}]"


def _finite(values: Sequence[float]) -> npt.NDArray[np.float64]:
    """Values as a float64 vector, at least one and all finite."""
    runs = np.asarray(values, dtype=np.float64)
    if runs.ndim != 1 or len(runs) == 0:
        raise AnedlError(f"a mean needs one value a run and at least one run, got {runs.shape}")
    if not np.isfinite(runs).all():
        raise AnedlError(f"some runs have no finite value: {runs.tolist()}; leave them out")
    return runs
