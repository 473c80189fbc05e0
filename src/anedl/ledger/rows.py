"""The ledger in words: every table as rows of text, the same for a terminal, Markdown and HTML."""

from collections.abc import Sequence
from dataclasses import dataclass

from anedl.evaluation.summary import MeanStd
from anedl.ledger.published import Published
from anedl.ledger.table import WHICH, Beside, Group, Ledger, Table

COLUMNS = ("method", "seeds", "error, last", "error, best val.", "AUROC, last",
           "AUROC, best val.", "steps", "time", "device / source")  # fmt: skip
MISSING_COLUMNS = ("setting", "method", "what", "error", "AUROC", "source")

ABOUT = (
    "All figures in per cent, mean ± standard deviation (n − 1) over seeds. “last”: the model "
    "after the last epoch; “best val.”: that of the epoch with the least validation error. AUROC "
    "is by the method's own score. Lines marked ↳ are published; (+n): the same number stands in "
    "n more places; Δ: ours minus theirs, in points."
)


@dataclass(frozen=True)
class Row:
    """A line of a table; `published` ones stand below the runs they belong to."""

    published: bool
    cells: tuple[str, ...]


@dataclass(frozen=True)
class Block:
    """The rows of one setting."""

    setting: str
    rows: tuple[Row, ...]


@dataclass(frozen=True)
class Section:
    """One table of the ledger with its words."""

    title: str
    remark: str
    blocks: tuple[Block, ...]
    notes: tuple[str, ...]


def sections(ledger: Ledger) -> list[Section]:
    """Every table, in order."""
    return [_section(table) for table in ledger.tables]


def missing_rows(ledger: Ledger) -> list[Row]:
    """The published numbers without a full-length run of ours."""
    return [
        Row(True, (item.setting, item.method, item.label, *_figures(item), item.source))
        for item in ledger.missing
    ]


def format_figure(figure: MeanStd | None) -> str:
    """Per cent as "90.3 ± 0.1", one run as "90.3", nothing as a dash."""
    if figure is None:
        return "–"
    text = f"{figure.mean:z.1f}"
    return text if figure.std is None else f"{text} ± {figure.std:.1f}"


def published_figure(item: Published, measure: str) -> str:
    """A published figure as it stands there; what cannot be compared with ours says so."""
    value, std = (
        (item.error, item.error_std) if measure == "error" else (item.auroc, item.auroc_std)
    )
    if measure in item.unavailable:
        return "not available"
    if value is None:
        return "–"
    text = f"{value}" if std is None else f"{value} ± {std}"
    return text if measure in item.comparable else f"{text} (not comparable)"


def format_duration(seconds: float) -> str:
    """44 s, 12 min, 2.6 h."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def _figures(item: Published) -> tuple[str, str]:
    return published_figure(item, "error"), published_figure(item, "auroc")


def _section(table: Table) -> Section:
    blocks: dict[str, list[Row]] = {}
    notes: dict[str, None] = {}
    for group in table.groups:
        rows = blocks.setdefault(group.key.setting, [])
        rows.append(_group_row(group))
        for beside in group.beside:
            rows.append(_published_row(beside))
            item = beside.published
            places = "; ".join(one.label for one in beside.same)
            notes[f"{item.setting}, {item.method}, {places}: {item.note}"] = None
    return Section(
        table.title,
        table.remark,
        tuple(Block(setting, tuple(rows)) for setting, rows in blocks.items()),
        tuple(notes),
    )


def _group_row(group: Group) -> Row:
    figures = [
        format_figure(group.figure(measure, which))
        for measure in ("error", "auroc")
        for which in WHICH
    ]
    return Row(
        False,
        (
            group.label,
            _seeds(group.seeds),
            *figures,
            f"{group.key.steps:,}",
            format_duration(group.wall.mean),
            "; ".join(group.devices),
        ),
    )


def _published_row(beside: Beside) -> Row:
    item = beside.published
    label = item.label
    if len(beside.same) > 1:
        label += f" (+{len(beside.same) - 1})"
    if item.score != "score":
        label += f" (AUROC by {item.score})"
    cells = []
    for measure in ("error", "auroc"):
        for which in WHICH:
            difference = beside.differences.get((measure, which))
            words = [published_figure(item, measure)] if which == "last" else []
            if difference is not None:
                words.append(f"Δ {difference:+z.1f}")
            cells.append(", ".join(words))
    return Row(True, (f"↳ {label}", "", *cells, "", "", item.source))


def _seeds(seeds: Sequence[int]) -> str:
    """3: 0 1 2."""
    return f"{len(seeds)}: {' '.join(map(str, seeds))}"
