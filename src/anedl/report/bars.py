"""Bars that begin at zero: a bar a row, a dot a run, a line where the published mean is."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anedl.evaluation.summary import MeanStd, mean_std
from anedl.report.canvas import FAINT, FIRST, INK, PAGE_WIDTH, PALE, SECOND, new_figure, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Bar:
    """A row of one panel: the figures of its runs in per cent, and the published one if any.

    A row without figures keeps its place and its name.
    """

    label: str
    values: Sequence[float]
    published: MeanStd | None = None
    stressed: bool = False


@dataclass(frozen=True)
class Panel:
    """The bars of one measure, from the top down."""

    title: str
    bars: Sequence[Bar]


def bars_figure(panels: Sequence[Sequence[Panel]], remark: str = "") -> "Figure":
    """Rows of panels, those of a row with the same labels, which stand at the first alone.

    The `remark` is of all of them. The lengths compare, for bars begin at zero; the numbers tell
    what lengths cannot.
    """
    counts = [len(row[0].bars) for row in panels]
    figure = new_figure(PAGE_WIDTH * 1.2, 0.8 * len(panels) + 0.34 * sum(counts) + 0.3)
    grid = figure.subplots(
        len(panels), len(panels[0]), squeeze=False, height_ratios=[n + 1 for n in counts]
    )
    for across, row in zip(grid, panels, strict=True):
        for place, (axes, panel) in enumerate(zip(across, row, strict=True)):
            _draw(axes, panel, named=place == 0)
    said = "bar: mean of the last models; dot: a run"
    if any(bar.published for row in panels for panel in row for bar in panel.bars):
        said += "; line: published"
    if remark:
        said += f"\n{remark}"
    figure.supxlabel(said, fontsize=8, color=FAINT, parse_math=False)
    return figure


def _draw(axes: "Axes", panel: Panel, named: bool) -> None:
    for height, bar in enumerate(panel.bars):
        if bar.values:
            _bar(axes, height, bar)
    names = [bar.label if named else "" for bar in panel.bars]
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(left=0)
    # Room for the numbers, not for more than there can be.
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= 100])
    axes.set_title(panel.title, fontsize=10, parse_math=False)
    axes.tick_params(colors=FAINT)
    tidy(axes)
    axes.grid(False, axis="y")


def _bar(axes: "Axes", height: int, bar: Bar) -> None:
    mean, std = mean_std(list(bar.values))
    axes.barh(height, mean, height=0.62, color=FIRST if bar.stressed else PALE)
    axes.plot(bar.values, [height] * len(bar.values), "o", color=INK, markersize=3)
    reach = max(mean, *bar.values)
    text = f"{mean:.1f}" if std is None else f"{mean:.1f} ± {std:.1f}"
    if bar.published is not None:
        line = bar.published.mean
        axes.vlines(line, height - 0.38, height + 0.38, color=SECOND, linewidth=2)
        # Behind the line, or it would lie under the text; unless there is room for that before it,
        # where nobody takes it for the line's figure.
        has_room = line > (1 + 0.05 * len(text)) * reach
        reach = reach if has_room else max(reach, line)
    axes.annotate(text, (reach, height), (4, 0), textcoords="offset points", va="center",
                  fontsize=8, color=INK)  # fmt: skip
    axes.margins(x=0.25)
