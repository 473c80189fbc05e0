"""A table with a row for each class, which the page lets a reader sort."""

from dataclasses import dataclass

import numpy as np

from anedl.report.judged import Judged, Pile, cut_words
from anedl.report.run_folder import Run

NOTHING = "–"


@dataclass(frozen=True)
class Entry:
    """A cell: what it says, and the number it is sorted by (None comes last)."""

    text: str
    value: float | None


@dataclass(frozen=True)
class ClassTable:
    """Column names, and for each class its name and cells; `caption` explains the columns."""

    columns: list[str]
    rows: list[tuple[str, list[Entry]]]
    caption: str


def class_table(run: Run, pile: Pile, judged: Judged) -> ClassTable:
    """Each known class among the images of known truth, and in the pile."""
    predicted, accepted = judged.predicted, judged.accepted
    right = predicted == judged.targets
    columns = [
        judged.what, "error (%)", "turned away (%)", "found (%)", "precision (%)",
        *_pile_columns(pile),
    ]  # fmt: skip
    rows = []
    for label, name in enumerate(run.class_names):
        of_class = judged.targets == label
        answered = accepted & (predicted == label)
        images = int(of_class.sum())
        cells = [
            count(images),
            share((~right)[of_class].sum(), images),
            share((~accepted)[of_class].sum(), images),
            share((right & accepted)[of_class].sum(), images),
            share((answered & right).sum(), int(answered.sum())),
            *_pile_cells(pile, label),
        ]
        rows.append((name, cells))
    # No image of known truth is of a class that only the table of the pile names.
    rows += [
        (name, [count(0), *(share(0, 0) for _ in range(4)), *_pile_cells(pile, label)])
        for label, name in enumerate(pile.class_names)
        if label >= pile.model_classes
    ]
    cut = cut_words(run, judged, pile)
    below = f", with a score below {cut}" if cut else ""
    caption = (
        f"Of the {judged.what}: error, before anything is rejected; turned away as unknown{below}; "
        "found, that is not turned away and named rightly; precision, the share of right ones "
        "among those answered with the class"
        + ("" if judged.inlier.all() else ", outliers among them counted as wrong")
        + f". Of the {'pile' if run.is_own else 'pool'}: {_pile_words(pile)}."
    )
    return ClassTable(columns, rows, caption)


def _pile_columns(pile: Pile) -> list[str]:
    if pile.state is not None:
        return ["pile: accepted", "pile: review", "pile: unknown"]
    return ["pool: not turned away"] + (["pool: in truth"] if pile.truth is not None else [])


def _pile_cells(pile: Pile, label: int) -> list[Entry]:
    guessed = pile.predicted == label
    if pile.state is not None:
        states = np.array(pile.state)
        return [count((guessed & (states == s)).sum()) for s in ("accept", "review", "unknown")]
    cells = [count((guessed & pile.accepted).sum())]
    return cells + ([count((pile.truth == label).sum())] if pile.truth is not None else [])


def _pile_words(pile: Pile) -> str:
    if pile.state is not None:
        return "images whose likeliest class it is, by verdict"
    truth = ", and how many there are in truth" if pile.truth is not None else ""
    return f"images taken for the class and not turned away{truth}"


def count(number: int) -> Entry:
    """A number of images."""
    return Entry(f"{int(number):,}", float(number))


def share(part: int, whole: int) -> Entry:
    """A share in per cent; nothing where there is no whole."""
    if not whole:
        return Entry(NOTHING, None)
    value = 100 * float(part) / whole
    return Entry(f"{value:.1f}", value)
