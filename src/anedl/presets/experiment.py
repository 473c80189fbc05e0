"""What an experiment is: rows of runs, the score each is judged by, and how it is drawn."""

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from anedl.data.settings import get_setting, is_setting
from anedl.engine.config import BUDGETS
from anedl.engine.spec import RunSpec, make_spec
from anedl.errors import ConfigError, unknown_name
from anedl.ledger.published import Published, matching
from anedl.methods.catalogue import full_name, get_method, short_name

Measure = Literal["auroc", "error"]
Drawing = Literal["bars", "over-m", "case-study"]

# What `results.json` calls the score that a method itself declares.
OWN_SCORE = "score"


@dataclass(frozen=True)
class Row:
    """One line of a table: a method with some options on a setting, judged by one score.

    Rows that differ in `score` alone share their runs.
    """

    setting: str
    method: str
    label: str
    options: Mapping[str, Any] = field(default_factory=dict)
    score: str = OWN_SCORE

    def command(
        self,
        seed: int,
        budget: str,
        development: bool = False,
        train: Mapping[str, Any] | None = None,
        more: Sequence[str] = (),
    ) -> str:
        """What trains one run of this row from the command line; `more` are its last words."""
        words = ["anedl", "train", self.setting, "--method", self.method, "--seed", str(seed)]
        if budget != "full":
            words += ["--budget", budget]
        if development:
            words.append("--dev")
        for name, value in {**(train or {}), **self.options}.items():
            flag = name.replace("_", "-")
            if isinstance(value, bool):
                words.append(f"--{flag}" if value else f"--no-{flag}")
            else:
                several = value if isinstance(value, tuple | list) else (value,)
                words += [f"--{flag}", *map(str, several)]
        return shlex.join([*words, *more])

    def spec(
        self,
        seed: int,
        budget: str,
        development: bool = False,
        train: Mapping[str, Any] | None = None,
    ) -> RunSpec:
        """The run of this row with that seed."""
        return make_spec(
            self.setting, self.method, seed, development=development, train=train,
            options=self.options, budget=budget,
        )  # fmt: skip

    def published(self, numbers: Sequence[Published], what: str) -> Published | None:
        """The published number of this row, from the experiment `what` where there is one there."""
        found = [
            item
            for item in matching(numbers, self.setting, self.method, dict(self.options))
            if item.score == self.score and item.comparable
        ]
        return next((item for item in found if item.what == what), found[0] if found else None)


def distinct_names(methods: Sequence[str]) -> dict[str, str]:
    """The short name of each method; where several share one, as much of their paths as differs."""
    names = {method: short_name(method) for method in methods}
    for depth in range(1, max(method.count("/") for method in methods) + 2):
        counts = Counter(names.values())
        same = [method for method, name in names.items() if counts[name] > 1]
        names |= {method: "/".join(method.split("/")[-depth:]) for method in same}
    return names


def command_of(config: Mapping[str, Any]) -> str | None:
    """What trains the run of a `config.json` from the command line.

    None for a user's own images, which no setting names, and for runs from before they kept in what
    they differ from their method's plain one.
    """
    if not is_setting(config["setting"]) or "differs" not in config:
        return None
    row = Row(config["setting"], config["method"], config["method"], config["differs"])
    seed, fold, limit = config["seed"], config["fold"], config["pool_limit"]
    # A length of one's own is among what differs, as is all that it alone does not explain.
    budget = config["budget"] if config["budget"] in BUDGETS else "full"
    more = [] if fold == get_setting(row.setting).fold_of(seed) else ["--fold", str(fold)]
    more += [] if limit is None else ["--pool-limit", str(limit)]
    return row.command(seed, budget, config["development"], more=more)


@dataclass(frozen=True)
class Experiment:
    """Rows, the measures a table shows of them, and the drawing that goes with it.

    `published_as` is what the file of published numbers calls it. `needs_outputs` says that it
    looks at what the models say of single images, which only a run folder holds. `given` are the
    options that were added to those of the rows.
    """

    name: str
    title: str
    rows: tuple[Row, ...]
    measures: tuple[Measure, ...]
    published_as: str
    drawing: Drawing = "bars"
    needs_outputs: bool = False
    given: Mapping[str, Any] = field(default_factory=dict)

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings of its rows, each once."""
        return tuple(dict.fromkeys(row.setting for row in self.rows))

    def with_methods(self, methods: Sequence[str]) -> "Experiment":
        """These methods only, each once; one that no row has is added with its plain options.

        What an ablation does to a method it does to a variant of it as well, which is another entry
        of the catalogue with the same class, or a subclass in a file.

        Raises:
            ConfigError: there is no such method.
        """
        rows = []
        called = distinct_names(list(dict.fromkeys(map(full_name, methods))))
        for setting in self.settings:
            of_setting = [row for row in self.rows if row.setting == setting]
            for method, name in called.items():
                cls = get_method(method).method
                known = [row for row in of_setting if row.method == method]
                like = [r for r in of_setting if issubclass(cls, get_method(r.method).method)]
                if not known and any(row.options or row.score != OWN_SCORE for row in like):
                    known = [replace(r, method=method, label=f"{name}: {r.label}") for r in like]
                rows += known or [Row(setting, method, name)]
        return replace(self, rows=tuple(rows))

    def with_settings(self, settings: Sequence[str]) -> "Experiment":
        """The rows of these settings, each once; where it has none, its first setting's rows there.

        Raises:
            ConfigError: there is no such setting.
        """
        rows: list[Row] = []
        for setting in dict.fromkeys(get_setting(name).name for name in settings):
            like = setting if setting in self.settings else self.settings[0]
            rows += [replace(row, setting=setting) for row in self.rows if row.setting == like]
        return replace(self, rows=tuple(rows))

    def with_options(self, options: Mapping[str, Any]) -> "Experiment":
        """Every row whose method has such an option with these as well.

        Raises:
            ConfigError: no method has one of them, or the rows differ in it.
        """
        rows, known = [], set()
        for row in self.rows:
            names = {a_field.name for a_field in fields(get_method(row.method).method.config_type)}
            known |= names
            added = {name: value for name, value in options.items() if name in names}
            for name in added:
                if name in row.options:
                    raise ConfigError(
                        f"option {name}: the rows of {self.name} differ in it, so it cannot be "
                        f"given for all of them"
                    )
            rows.append(replace(row, options={**row.options, **added}))
        for name in options:
            if name not in known:
                raise unknown_name("option", name, known)
        return replace(self, rows=tuple(rows), given={**self.given, **options})
