"""What may be compared with what: splits first, then settings, lengths and the rest."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from anedl.engine.config import CUSTOM
from anedl.intake.names import shown
from anedl.report.comparison import MethodRuns, listed, pairs
from anedl.report.recipes import Recipes
from anedl.report.run_folder import Run

GONE = "cannot be told"
MADE_WITH = {"anedl": "Versions of anedl", "torch": "Versions of torch", "device": "Devices"}
SHORT = 12  # hexadecimal digits of a hash that a person compares


@dataclass(frozen=True)
class Fairness:
    """What is the same, what a reader must know before comparing, and smaller differences."""

    agreed: list[str]
    warnings: list[str]
    notes: list[str]


@dataclass(frozen=True)
class SplitRow:
    """One seed's split in each recipe, None where it has no such run."""

    seed: str
    same: bool
    splits: list[str | None]


def split_rows(recipes: Recipes) -> list[SplitRow]:
    """Every seed with the split that each recipe had for it."""
    rows = []
    folds = any(run.config["seed"] != run.config["fold"] for run in recipes.runs)
    for seed, fold in sorted({run.replicate for run in recipes.runs}):
        of_seed = [_with(group, (seed, fold)) for group in recipes.groups]
        found = [run for run in of_seed if run is not None]
        rows.append(
            SplitRow(
                f"{seed} (fold {fold})" if folds else str(seed),
                all(found[0].shares_split(run) for run in found),
                [None if run is None else short_split(run) for run in of_seed],
            )
        )
    return rows


def short_split(run: Run) -> str:
    """As much of a split's hash as a person compares."""
    return GONE if run.split_hash is None else run.split_hash[:SHORT]


def judge_fairness(recipes: Recipes) -> Fairness:
    """Compare splits, then everything else that makes figures differ without merit."""
    agreed, warnings = _splits(recipes)
    groups = recipes.groups
    checks: list[tuple[Callable[[Run], str], str, str]] = [
        (
            lambda run: shown(run.config["setting"]),
            "Different settings",
            "They answer different questions: error and AUROC may not be compared across them.",
        ),
        (
            lambda run: "development split" if run.config["development"] else "official split",
            "Development runs beside official ones",
            "On a development split some known classes play unknown and no official test image is "
            "used: these figures choose a recipe and may not be compared with the others.",
        ),
        (
            lambda run: _pool(run.config["pool_limit"]),
            "Pools of different sizes",
            "A difference is that of the recipe and of the pool together.",
        ),
        (
            lambda run: f"{run.results['steps']:,} steps",
            "Different lengths of training",
            "A difference is that of the recipe and of the length together.",
        ),
        (
            lambda run: f"“{shown(str(run.config.get('budget', CUSTOM)))}”",
            "Different budgets",
            "What goes with a budget differs too, even where the steps are as many.",
        ),
    ]
    for read, what, meaning in checks:
        kinds = _kinds(groups, read)
        if len(kinds) > 1:
            warnings.append(f"{what} ({_parted(kinds)}). {meaning}")
    warnings += _seed_warnings(recipes)
    notes = []
    for key, what in MADE_WITH.items():
        kinds = _kinds(groups, partial(_stated, key))
        if len(kinds) > 1:
            notes.append(f"{what}: {_parted(kinds)}.")
    return Fairness(agreed, warnings, notes)


def _splits(recipes: Recipes) -> tuple[list[str], list[str]]:
    groups, runs = recipes.groups, recipes.runs
    warnings = [
        f"{recipes.names[run.folder]}: its images are gone, so it cannot be told whether another "
        f"run had the same ones. It is paired with none."
        for run in runs
        if run.split_hash is None
    ]
    distinct = {run.split_hash for run in runs}
    if len(distinct) == 1 and None not in distinct:
        return [
            f"All {len(runs)} runs are on the same split ({short_split(runs[0])}…): the same "
            f"images were labelled, unlabelled, for validation and for the test."
        ], warnings
    # Seeds whose recipes fall apart in the same way are told together.
    broken: dict[tuple[tuple[str, ...], ...], list[int]] = {}
    shared = 0
    for seed, fold in sorted({run.replicate for run in runs}):
        of_seed = [(g.name, run) for g in groups if (run := _with(g, (seed, fold))) is not None]
        parts: dict[str, list[str]] = {}
        for name, run in of_seed:
            parts.setdefault(run.split_hash or str(run.folder), []).append(name)
        shared += len(of_seed) > 1
        if len(parts) > 1:
            broken.setdefault(tuple(map(tuple, parts.values())), []).append(seed)
    for names, seeds in broken.items():
        sides = ", another for ".join(" and ".join(part) for part in names)
        warnings.append(
            f"Different splits for seed{'s' * (len(seeds) > 1)} {listed(seeds)}: one for {sides}. "
            f"These runs learnt from different images and were tested on different images: they "
            f"are not paired, and a difference between their means may be one of the images."
        )
    agreed = []
    if len(groups) == 1:
        agreed.append(f"One recipe, run on {len(distinct)} splits.")
    elif not shared:
        warnings.append(
            "No two recipes share a seed: nothing is paired, and every mean is over other splits."
        )
    elif not broken:
        agreed.append(
            "Every seed had the same split in each recipe that was run with it: the same images "
            "were labelled, unlabelled, for validation and for the test, so runs may be paired."
        )
    return agreed, warnings


def _seed_warnings(recipes: Recipes) -> list[str]:
    """Means over different seeds, recipes that nothing pairs, and runs that are no replicates."""
    groups, found = recipes.groups, []
    kinds: dict[tuple[tuple[int, int], ...], list[str]] = {}
    for group in groups:
        kinds.setdefault(tuple(run.replicate for run in group.runs), []).append(group.name)
    if len(kinds) > 1 and any(len(group.runs) > 1 for group in groups):
        parted = {listed([seed for seed, _ in kind]): names for kind, names in kinds.items()}
        if len(parted) < len(kinds):
            parted = {str(list(kind)): names for kind, names in kinds.items()}
        found.append(
            f"The means are over different seeds ({_parted(parted)}). Only the paired differences "
            f"are over the same ones."
        )
    alone = [group.name for group in groups[1:] if not pairs(groups[0], group)]
    if alone and len(alone) < len(groups) - 1:
        found.append(
            f"Nothing pairs {groups[0].name} with {' and '.join(alone)}: they stand in no row of "
            f"differences."
        )
    same: dict[str, list[str]] = {}
    for run in recipes.runs:
        same.setdefault(str(run.results["config_hash"]), []).append(recipes.names[run.folder])
    found += [
        f"{' and '.join(names)} have the same configuration and seed. They are no replicates of "
        f"each other, so each stands in a row of its own."
        for names in same.values()
        if len(names) > 1
    ]
    return found


def _with(group: MethodRuns, replicate: tuple[int, int]) -> Run | None:
    return next((run for run in group.runs if run.replicate == replicate), None)


def _kinds(groups: Sequence[MethodRuns], read: Callable[[Run], str]) -> dict[str, list[str]]:
    """The recipes by what is read from their runs; one with several kinds stands in each."""
    kinds: dict[str, dict[str, None]] = {}
    for group in groups:
        for run in group.runs:
            kinds.setdefault(read(run), {})[group.name] = None
    return {kind: list(names) for kind, names in kinds.items()}


def _parted(kinds: dict[str, list[str]]) -> str:
    return "; ".join(f"{kind}: {', '.join(names)}" for kind, names in kinds.items())


def _stated(key: str, run: Run) -> str:
    return shown(str(run.results[key]))


def _pool(limit: int | None) -> str:
    return "the whole pool" if limit is None else f"{limit:,} images"
