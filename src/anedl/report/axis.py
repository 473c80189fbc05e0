"""An axis of a picture drawn by hand, because the page's script has to know its way in it."""

from dataclasses import dataclass
from math import log


@dataclass(frozen=True)
class Axis:
    """Values from `low` to `high` lie along pixels from `start` to `end`."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def place(self, value: float) -> float:
        """The pixel of a value."""
        if self.logarithmic:
            share = log(value / self.low) / log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start + share * (self.end - self.start)

    def ticks(self, count: int = 7) -> list[tuple[float, str]]:
        """Pixels and labels of about so many round values."""
        from matplotlib.ticker import LogLocator, MaxNLocator

        locator = (
            LogLocator(subs=(1.0, 2.0, 5.0), numticks=30)
            if self.logarithmic
            else MaxNLocator(count, steps=[1, 2, 2.5, 5, 10])
        )
        values = [v for v in locator.tick_values(self.low, self.high) if self.low <= v <= self.high]
        every = max(1, -(-len(values) // (2 * count)))
        return [(self.place(value), f"{value:.10g}") for value in values[::every]]
