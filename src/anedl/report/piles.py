"""Sorted piles of own images side by side: how dirty, the threshold, and what became of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anedl.report import top
from anedl.report.canvas import FIRST, INK, PAGE_WIDTH, new_figure, shortened, tidy
from anedl.report.judged import read_judged, read_pile
from anedl.report.pictures import Picture, picture
from anedl.report.recipes import Recipes
from anedl.report.run_folder import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class SortedPile:
    """What a run found out about its pile; `cards` are those at the top of its own report."""

    name: str
    images: int
    cards: dict[str, top.Card]
    shares: list[top.Share]


def piles_section(recipes: Recipes) -> dict[str, Any] | None:
    """Everything the template says of own images; None where no run is of any."""
    runs = [run for run in recipes.runs if run.is_own]
    if not runs:
        return None
    piles = [_sorted_pile(run, recipes.names[run.folder]) for run in runs]
    return {
        "piles": piles,
        "rows": list(dict.fromkeys(name for pile in piles for name in pile.cards)),
        "picture": _pollution_picture(runs, recipes),
    }


def _sorted_pile(run: Run, name: str) -> SortedPile:
    pile = read_pile(run)
    cards = {card.name: card for card in top.cards(run, pile, read_judged(run))}
    return SortedPile(name, len(pile), cards, top.sorted_shares(pile))


def _pollution_picture(runs: Sequence[Run], recipes: Recipes) -> Picture | None:
    found = [
        (recipes.names[run.folder], run.fit["pollution"])
        for run in runs
        if run.fit and run.fit.get("pollution")
    ]
    if not found:
        return None
    spoken = "; ".join(
        f"{name}: {100 * p['share']:.0f} % ({100 * p['low']:.0f} to {100 * p['high']:.0f})"
        for name, p in found
    )
    return picture(
        "pollution",
        "How dirty each pile is",
        "The estimated share of images of no known class: a dot, and the interval that the run "
        "states for it.",
        f"Estimated outlier shares with intervals. {spoken}.",
        pollution_figure([(name, p["share"], p["low"], p["high"]) for name, p in found]),
    )


def pollution_figure(rows: Sequence[tuple[str, float, float, float]]) -> "Figure":
    """A row a run: name, share, and both ends of its interval, as fractions."""
    figure = new_figure(PAGE_WIDTH, 0.8 + 0.42 * len(rows))
    axes = figure.subplots()
    for row, (_, share, low, high) in enumerate(rows):
        axes.hlines(row, 100 * low, 100 * high, color=INK, linewidth=2)
        axes.plot(100 * share, row, "o", color=FIRST, markersize=8, markeredgecolor="white")
    names = [shortened(name, 34) for name, *_ in rows]
    axes.set_yticks(range(len(rows)), names, parse_math=False)
    axes.set(xlabel="images of no known class (%)", xlim=(0, 100), ylim=(len(rows) - 0.5, -0.5))
    tidy(axes)
    axes.grid(False, axis="y")
    return figure
