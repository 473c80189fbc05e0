"""The ledger as a picture: a bar for every group of runs, the best AUROC on top."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from anedl.errors import AnedlError
from anedl.evaluation.summary import MeanStd
from anedl.ledger.published import MEASURES, NAMES, comparable_figure
from anedl.ledger.table import Group, Ledger
from anedl.report.bars import Bar, Panel, bars_figure
from anedl.report.canvas import two_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LABEL_WIDTH = 38  # characters of a line; a label has two at most
MOST_GROUPS = 40  # of one setting: more are told apart in a table, not in a picture
STRESSED = "anedl"  # begins the name of every form of the paper's method


def picture_of(ledger: Ledger) -> "Figure":
    """A row of panels for each setting: AUROC and error of the last models.

    Raises:
        AnedlError: there is nothing to draw, or too much for one picture.
    """
    by_setting: dict[str, list[Group]] = {}
    for table in ledger.tables:
        for group in table.groups:
            by_setting.setdefault(group.key.setting, []).append(group)
    if not by_setting:
        raise AnedlError("there is no run to draw; `anedl ledger` says which there are")
    for setting, groups in by_setting.items():
        if len(groups) > MOST_GROUPS:
            raise AnedlError(
                f"{setting}: {len(groups)} rows are too many for a picture ({MOST_GROUPS} at "
                f"most): choose with --steps, --method or --setting"
            )
    return bars_figure(
        [
            [_panel(setting, _sorted(groups), measure) for measure in reversed(MEASURES)]
            for setting, groups in by_setting.items()
        ]
    )


def _sorted(groups: Sequence[Group]) -> list[Group]:
    """The best AUROC first; groups without one last."""

    def rank(group: Group) -> float:
        area = group.auroc("last")
        return 0.0 if area is None else -area.mean

    return sorted(groups, key=rank)


def _panel(setting: str, groups: Sequence[Group], measure: str) -> Panel:
    bars = [
        Bar(
            two_lines(group.label, LABEL_WIDTH),
            _values(group, measure),
            _published(group, measure),
            stressed=group.key.method.startswith(STRESSED),
        )
        for group in groups
    ]
    return Panel(f"{setting}: {NAMES[measure]} (%)", bars)


def _values(group: Group, measure: str) -> list[float]:
    """A figure for each run; none where some run has none."""
    found = [
        run.last.error if measure == "error" else run.last.auroc.get("score") for run in group.runs
    ]
    numbers = [value for value in found if value is not None]
    return numbers if len(numbers) == len(found) else []


def _published(group: Group, measure: str) -> MeanStd | None:
    """The first published number by the same score that can be compared."""
    items = [beside.published for beside in group.beside if beside.published.score == "score"]
    found = (comparable_figure(item, measure) for item in items)
    return next((figure for figure in found if figure is not None), None)
