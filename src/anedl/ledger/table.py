"""The tables: runs that differ by seed alone stand together, published numbers beside them.

What never stands in one group: different settings, budgets, lengths, pool limits, methods or
options, development runs and test runs, and draws of labels made by different rules.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from anedl.data.settings import SETTINGS, get_setting, is_setting
from anedl.evaluation.summary import MeanStd, mean_std
from anedl.ledger.entry import Figures, LedgerRun
from anedl.ledger.published import Published, matching

Which = Literal["last", "best_val"]
WHICH: tuple[Which, ...] = ("last", "best_val")

# How a run is computed and watched, not what it learns: a method with these set is itself.
WITHOUT_EFFECT = ("precision", "execution", "stream", "log_every", "evaluate_every",
                  "test_while_training")  # fmt: skip

# Runs of these budgets are set beside published numbers, in this order.
COMPARED_BUDGETS = ("full", "fast")


class GroupKey(NamedTuple):
    """All that the runs of one group share. `fold` is None where each run has its seed's own."""

    setting: str
    budget: str
    development: bool
    pool_limit: int | None
    steps: int
    method: str
    fold: int | None
    options: str  # as JSON, its keys sorted
    recipe_hash: str


@dataclass(frozen=True)
class Beside:
    """A published number beside a group, and ours minus it in points where that can be said.

    `same` are the places that state it. `differences` is by measure and model; a pair that cannot
    be compared is not in it.
    """

    same: tuple[Published, ...]
    differences: dict[tuple[str, Which], float]

    @property
    def published(self) -> Published:
        """The first of them."""
        return self.same[0]


@dataclass(frozen=True)
class Group:
    """Runs that differ by seed alone, in the order of their seeds.

    A study of several seeds on one fold has the seed to which that fold belongs, too, which also
    stands among the seeds with a draw each.
    """

    key: GroupKey
    label: str
    runs: tuple[LedgerRun, ...]
    beside: tuple[Beside, ...] = ()

    @property
    def options(self) -> dict[str, Any]:
        """The options that differ from the method's defaults."""
        return self.runs[0].options

    @property
    def seeds(self) -> list[int]:
        """The seed of each run."""
        return [run.seed for run in self.runs]

    @property
    def wall(self) -> MeanStd:
        """Seconds a run took."""
        return mean_std([run.wall_s for run in self.runs])

    @property
    def devices(self) -> list[str]:
        """Every device that a run of the group used."""
        return sorted({run.device for run in self.runs})

    def error(self, which: Which) -> MeanStd | None:
        """Test error in per cent; None where some run has no such model."""
        return _over(figures.error for figures in self._figures(which))

    def auroc(self, which: Which, score: str = "score") -> MeanStd | None:
        """AUROC in per cent by a score; None where some run has none."""
        return _over(figures.auroc.get(score) for figures in self._figures(which))

    def figure(self, measure: str, which: Which, score: str = "score") -> MeanStd | None:
        """One of "error" and "auroc"."""
        return self.error(which) if measure == "error" else self.auroc(which, score)

    def _figures(self, which: Which) -> list[Figures]:
        found = [run.last if which == "last" else run.best_val for run in self.runs]
        figures = [entry for entry in found if entry is not None]
        return figures if len(figures) == len(found) else []


@dataclass(frozen=True)
class Table:
    """Groups of one budget, all development runs or all test runs, in the order of settings."""

    budget: str
    development: bool
    groups: tuple[Group, ...]

    @property
    def compared(self) -> bool:
        """Whether published numbers stand beside the groups."""
        return self.budget in COMPARED_BUDGETS and not self.development

    @property
    def title(self) -> str:
        """What the runs have in common."""
        if self.development:
            return f"Development runs, budget “{self.budget}”"
        if self.budget == "full":
            return "Full-length runs"
        if self.budget == "custom":
            return "Runs of a length of their own (budget “custom”)"
        return f"Runs of the budget “{self.budget}”"

    @property
    def remark(self) -> str:
        """What a reader must know before comparing."""
        if self.development:
            return (
                "Some known classes play unknown and no test image is used: these choose recipes "
                "and cannot be set beside published numbers."
            )
        if self.budget == "full":
            return (
                "The whole budget, on CIFAR as long as the released ANEDL code's. Published runs "
                "of other methods were often longer (2^19 steps)."
            )
        if self.compared:
            return (
                "Shorter than published code trains: a difference is that of the method and of the "
                "length together."
            )
        return "Each length is its own, so no published number stands beside these."


@dataclass(frozen=True)
class Ledger:
    """All tables, what is still without a full-length run, and what looks wrong."""

    tables: tuple[Table, ...]
    missing: tuple[Published, ...]
    warnings: tuple[str, ...]


def build_ledger(runs: Sequence[LedgerRun], published: Sequence[Published]) -> Ledger:
    """Group the runs, set published numbers beside them and list those without a full run."""
    by_key: dict[GroupKey, list[LedgerRun]] = {}
    for run in runs:
        by_key.setdefault(key_of(run), []).append(run)
    for key, members in by_key.items():
        if key.fold is not None:
            # The seed whose own draw is that fold belongs to both: to the seeds with a draw each
            # and to the seeds on this one draw.
            plain = by_key.get(key._replace(fold=None), [])
            members += [run for run in plain if run.fold == key.fold]
    files = {key: members[0].method_sha256 for key, members in by_key.items()}
    by_table: dict[tuple[str, bool], list[Group]] = {}
    for key in sorted(by_key, key=_order):
        group = Group(key, _label(key, files), tuple(sorted(by_key[key], key=_run_order)))
        by_table.setdefault((key.budget, key.development), []).append(group)
    tables = []
    for budget, development in sorted(by_table, key=_table_order):
        table = Table(budget, development, tuple(by_table[budget, development]))
        if table.compared:
            groups = tuple(replace(g, beside=_beside(g, published)) for g in table.groups)
            table = replace(table, groups=groups)
        tables.append(table)
    reached = [
        item
        for table in tables
        if table.budget == "full"
        for group in table.groups
        for beside in group.beside
        for item in beside.same
    ]
    missing = tuple(item for item in published if item not in reached)
    return Ledger(tuple(tables), missing, tuple(_warnings(runs)))


def key_of(run: LedgerRun) -> GroupKey:
    """What a run must share with another to be averaged with it."""
    named = is_setting(run.setting)
    own_fold = get_setting(run.setting).fold_of(run.seed) if named else run.seed
    return GroupKey(
        setting=run.setting,
        budget=run.budget,
        development=run.development,
        pool_limit=run.pool_limit,
        steps=run.steps,
        method=run.method,
        fold=None if run.fold == own_fold else run.fold,
        options=json.dumps(run.options, sort_keys=True),
        recipe_hash=run.recipe_hash,
    )


def _beside(group: Group, published: Sequence[Published]) -> tuple[Beside, ...]:
    """The published numbers of the group's method and options; equal ones stand once."""
    if group.key.pool_limit is not None:
        return ()
    options = {name: v for name, v in group.options.items() if name not in WITHOUT_EFFECT}
    found: dict[tuple[Any, ...], list[Published]] = {}
    for item in matching(published, group.key.setting, group.key.method, options):
        numbers = (item.error, item.error_std, item.auroc, item.auroc_std, item.score)
        found.setdefault(numbers, []).append(item)
    return tuple(Beside(tuple(items), _differences(group, items[0])) for items in found.values())


def _differences(group: Group, item: Published) -> dict[tuple[str, Which], float]:
    differences = {}
    for measure in item.comparable:
        value = item.error if measure == "error" else item.auroc
        for which in WHICH:
            ours = group.figure(measure, which, item.score)
            if value is not None and ours is not None:
                differences[measure, which] = ours.mean - value
    return differences


def _label(key: GroupKey, files: Mapping[GroupKey, str | None]) -> str:
    """The method and what makes this group another than the method's plain one.

    `files` holds the hash of the method's file for every group, None of those of the package.
    """
    parts = [f"{name}={_shown(value)}" for name, value in json.loads(key.options).items()]
    if key.pool_limit is not None:
        parts.append(f"{key.pool_limit:,} pool images")
    if key.fold is not None:
        parts.append(f"all on fold {key.fold}")
    alike = [o for o in files if o != key and _without_recipe(o) == _without_recipe(key)]
    file = files[key]
    if alike and file is not None and all(files[other] != file for other in alike):
        parts.append(f"file {file[:8]}")
    elif alike:
        parts.append(f"recipe {key.recipe_hash[:8]}")
    return f"{key.method} ({', '.join(parts)})" if parts else key.method


def _without_recipe(key: GroupKey) -> GroupKey:
    return key._replace(recipe_hash="", steps=0)


def _shown(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, list) else str(value)


def _over(values: Iterable[float | None]) -> MeanStd | None:
    found = list(values)
    numbers = [value for value in found if value is not None]
    return mean_std(numbers) if numbers and len(numbers) == len(found) else None


def _run_order(run: LedgerRun) -> tuple[int, str]:
    return run.seed, run.config_hash


def _order(key: GroupKey) -> tuple[Any, ...]:
    """Settings as the package lists them, then methods; a method's plain group comes first."""
    names = list(SETTINGS)
    place = names.index(key.setting) if key.setting in SETTINGS else len(names)
    return (place, key.setting, key.method, len(key.options), key.options, key.fold or 0,
            key.pool_limit or 0, key.steps, key.recipe_hash)  # fmt: skip


def _table_order(kind: tuple[str, bool]) -> tuple[Any, ...]:
    budget, development = kind
    ranks = [*COMPARED_BUDGETS, "custom"]
    return (development, ranks.index(budget) if budget in ranks else len(ranks), budget)


def _warnings(runs: Sequence[LedgerRun]) -> list[str]:
    """Runs that should share a split and do not: their figures are of different images."""
    splits: dict[tuple[Any, ...], dict[str, str]] = {}
    for run in runs:
        place = (run.setting, run.fold, run.development, run.pool_limit)
        splits.setdefault(place, {}).setdefault(run.split_hash, run.file_name)
    return [
        f"{place[0]}, fold {place[1]}: {' and '.join(files.values())} are of different splits; "
        f"run again what was run on an old one"
        for place, files in splits.items()
        if len(files) > 1
    ]
