"""Runs sorted into recipes: what differs by seed alone stands together, under a telling name."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anedl.engine.config import CUSTOM, without_log
from anedl.engine.differences import differing_options, portable_name, recipe_hash
from anedl.errors import AnedlError
from anedl.intake.names import shown
from anedl.report.comparison import MethodRuns
from anedl.report.run_folder import Run, read_run
from anedl.report.sections import written


@dataclass(frozen=True)
class Recipes:
    """Runs by recipe, in the order they were named in; `names` is by run folder."""

    groups: Sequence[MethodRuns]
    names: Mapping[Path, str]

    @property
    def runs(self) -> list[Run]:
        """Every run, recipe by recipe."""
        return [run for group in self.groups for run in group.runs]


def read_recipes(folders: Sequence[Path]) -> Recipes:
    """Read finished runs and sort them.

    A run of the same configuration and seed as another is no replicate: it opens a group of its
    own, and never enters the mean of the other's.

    Raises:
        AnedlError: fewer than two runs, one twice, or one that is not there or has not ended.
    """
    seen: dict[Path, Path] = {}
    for folder in folders:
        if (place := folder.resolve()) in seen:
            raise AnedlError(f"{folder} and {seen[place]} are one run; name each run once")
        seen[place] = folder
    if len(folders) < 2:
        raise AnedlError(
            "a comparison needs at least two runs; `anedl report RUN` shows a single one"
        )
    sorted_runs: dict[tuple[str, int], list[Run]] = {}
    for run in map(read_run, folders):
        recipe, again = recipe_hash(run.config), 0
        while any(r.replicate == run.replicate for r in sorted_runs.get((recipe, again), [])):
            again += 1
        sorted_runs.setdefault((recipe, again), []).append(run)
    names = short_names(folders)
    groups = [sorted(runs, key=lambda run: run.replicate) for runs in sorted_runs.values()]
    labels = _labels(groups, names)
    return Recipes([MethodRuns(*pair) for pair in zip(labels, groups, strict=True)], names)


def short_names(folders: Sequence[Path]) -> dict[Path, str]:
    """The last parts of each path, as many as it takes to tell all of them apart."""
    parts = [folder.resolve().parts for folder in folders]
    for count in range(1, max(map(len, parts), default=1) + 1):
        ends = [shown("/".join(path[-count:])) for path in parts]
        if len(set(ends)) == len(ends):
            break
    return dict(zip(folders, ends, strict=True))


# Beside the options of its method: what a run may be told by, and in which words.
ASPECTS: Mapping[str, Callable[[dict[str, Any]], str]] = {
    "setting": lambda config: str(config["setting"]),
    "budget": lambda config: f"budget {config.get('budget', CUSTOM)}",
    "development": lambda config: "development" if config["development"] else "official split",
    "pool": lambda config: (
        "whole pool" if config["pool_limit"] is None else f"{config['pool_limit']:,} pool images"
    ),
    "steps": lambda config: f"{_steps(config):,} steps",
}


def _steps(config: dict[str, Any]) -> int:
    return int(config["train"]["epochs"]) * int(config["train"]["epoch_steps"])


def _labels(groups: Sequence[Sequence[Run]], names: Mapping[Path, str]) -> list[str]:
    """A name for each group; no two are the same."""
    by_folder = [group[0].is_own and len(group) == 1 for group in groups]
    configs = [g[0].config for g, by in zip(groups, by_folder, strict=True) if not by]
    labels = []
    for group, by in zip(groups, by_folder, strict=True):
        if by:
            labels.append(names[group[0].folder])
            continue
        config = group[0].config
        method = config["method"]
        others = [c["train"] | c["options"] for c in configs if c["method"] == method]
        parts = [word(config) for word in ASPECTS.values() if len({word(c) for c in configs}) > 1]
        parts += [
            f"{name}={_written(value)}"
            for name, value in _chosen(config).items()
            if any(other.get(name) != value for other in others)
        ]
        shown_method = shown(portable_name(method))
        labels.append(f"{shown_method} ({', '.join(parts)})" if parts else shown_method)
    return [
        label if labels.count(label) == 1 else f"{label} [{_mark(group, groups, names)}]"
        for label, group in zip(labels, groups, strict=True)
    ]


def _mark(group: Sequence[Run], groups: Sequence[Sequence[Run]], names: Mapping[Path, str]) -> str:
    """What tells groups of one label apart: the recipe's hash, or else where its first run lies."""
    mark = recipe_hash(group[0].config)
    alike = [other for other in groups if recipe_hash(other[0].config) == mark]
    return f"recipe {mark[:8]}" if len(alike) == 1 else names[group[0].folder]


def _chosen(config: dict[str, Any]) -> dict[str, Any]:
    """The options that make the run another than its method's plain one, lengths left out."""
    try:
        differs = config["differs"] if "differs" in config else differing_options(config)
    except AnedlError:  # a method from a file that has gone
        return {}
    return {name: value for name, value in differs.items() if name not in ("epochs", "epoch_steps")}


def _written(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, list) else shown(str(value))


def differing_entries(groups: Sequence[MethodRuns]) -> list[tuple[str, list[str]]]:
    """Entries of the configurations that two groups have and do not share: name, value a group."""
    flat = [_flattened(group.runs[0].config) for group in groups]
    names = dict.fromkeys(name for entries in flat for name in entries)
    table = []
    for name in names:
        stated = [entries[name] for entries in flat if name in entries]
        if any(value != stated[0] for value in stated):
            cells = [shown(written(e[name])) if name in e else "–" for e in flat]
            table.append((name, cells))
    return table


def _flattened(config: dict[str, Any]) -> dict[str, Any]:
    apart = ("anedl", "seed", "fold", "differs")
    entries: dict[str, Any] = {}
    for name, value in (config | {"method": portable_name(config["method"])}).items():
        if isinstance(value, dict) and name not in apart:
            entries |= {f"{name}.{key}": inner for key, inner in without_log(value).items()}
        elif name not in apart:
            entries[name] = value
    return entries
