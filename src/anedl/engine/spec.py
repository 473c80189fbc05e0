"""What to run: a setting, a method, a seed and every option, as written to `config.json`."""

import hashlib
import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from math import floor
from pathlib import Path
from typing import Any

from anedl import __version__
from anedl.data.settings import Setting, get_setting
from anedl.engine.config import (
    BUDGETS,
    CUSTOM,
    LENGTH_OPTIONS,
    Budget,
    TrainConfig,
    default_frozen_side,
    pretraining_of_each,
    restart_epochs,
    train_defaults,
    without_log,
)
from anedl.engine.kept_method import Kept, load_kept
from anedl.engine.task import task_of
from anedl.errors import ConfigError, Notice, unknown_name
from anedl.methods.base import MethodConfig, Stage
from anedl.methods.catalogue import Entry, full_name, get_method, short_name
from anedl.options import field_default, from_json, option_types, to_json


@dataclass(frozen=True)
class RunSpec:
    """One run, fully determined: the same spec on the same CPU gives the same bits.

    `budget` says whose lengths these are: "full", "fast", or "custom" where they are of neither.
    `method_sha256` is the hash of the file of a user's method, and `entry` the method itself, which
    stays what it was when the spec was made. `own` are the terms of a user's own images, for which
    there is no setting of that name.
    """

    setting: str
    method: str
    seed: int
    fold: int
    development: bool
    pool_limit: int | None
    train: TrainConfig
    options: MethodConfig
    entry: Entry = field(repr=False, compare=False)
    budget: str = CUSTOM
    method_sha256: str | None = None
    own: Setting | None = None

    def __getstate__(self) -> dict[str, Any]:
        """All but the method, which another process loads by its name."""
        return {name: value for name, value in vars(self).items() if name != "entry"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take up what was pickled."""
        vars(self).update(state, entry=get_method(state["method"]))

    @property
    def terms(self) -> Setting:
        """The setting itself."""
        return self.own or get_setting(self.setting)

    def to_json(self) -> dict[str, Any]:
        """As written to `config.json`."""
        train = to_json(self.train)
        del train["pretrain_share"]  # it has become `pretrain_epochs`
        record = {
            "anedl": __version__,
            "setting": self.setting,
            "method": self.method,
            "budget": self.budget,
            "seed": self.seed,
            "fold": self.fold,
            "development": self.development,
            "pool_limit": self.pool_limit,
            "train": train,
            "options": to_json(self.options),
        }
        if self.method_sha256 is not None:
            record["method_sha256"] = self.method_sha256
        if self.own is not None:
            record["own"] = to_json(self.own)
        return record

    @property
    def restarts(self) -> tuple[int, ...]:
        """Epochs at whose beginning a fresh network takes over."""
        return restart_epochs(self.options.networks_in_turn, self.train.epochs)

    @property
    def pretraining(self) -> int:
        """Epochs for which every network pre-trains."""
        return pretraining_of_each(self.options.networks_in_turn, self.train.pretrain_epochs)

    def part_of(self, epoch: int) -> range:
        """The epochs of the network that this one is of."""
        parts = pairwise((0, *self.restarts, self.train.epochs))
        return next(range(begun, end) for begun, end in parts if begun <= epoch < end)

    def may_be_best(self, epoch: int) -> bool:
        """Whether the model after this epoch may be the best one, once there is another.

        A detector may only learn in self-training, so that a fresh network in pre-training may not
        replace a model of the whole method.
        """
        return epoch < self.pretraining or self.stage_of(epoch) is Stage.SELF_TRAIN

    def stage_of(self, epoch: int) -> Stage:
        """Where the network of this epoch stands in its own part of the run."""
        age = epoch - self.part_of(epoch).start
        return Stage.PRETRAIN if age < self.pretraining else Stage.SELF_TRAIN

    @property
    def digest(self) -> str:
        """SHA-256 of all that determines the result.

        The version of the code is left out, and so are what only a log shows, and the name of the
        budget: its lengths are among the options. Of a method from a file the class and the file's
        hash count, not where the file lies.
        """
        record = self.to_json()
        del record["anedl"], record["budget"]
        record["train"] = without_log(record["train"])
        record["method"] = short_name(self.method)
        return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def make_spec(
    setting: str | Setting,
    method: str = "anedl",
    seed: int = 0,
    fold: int | None = None,
    development: bool = False,
    pool_limit: int | None = None,
    train: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    budget: str = "full",
    entry: Entry | None = None,
) -> RunSpec:
    """Build a spec from names and from the options that differ from their defaults.

    Defaults come in layers: the engine's, the data set's for this budget, the method's, the
    method's for this data set, then `train` and `options`. What a method counts in epochs or steps
    is stated for the full budget and scales with `epochs`, whoever set them, unless it is given
    here. `fold` None takes the fold that belongs to the seed. A `Setting` in place of a name holds
    the terms of a user's own images. `entry` is the method where it is not to be loaded from what
    its name says.
    """
    if seed < 0:
        raise ConfigError(f"seed {seed}: a seed is 0 or more")
    if budget not in BUDGETS:
        raise unknown_name("budget", budget, BUDGETS)
    own = setting if isinstance(setting, Setting) else None
    a_setting = own or get_setting(str(setting))
    if development:
        a_setting.check_development()
    name = full_name(method)
    entry = entry or get_method(name)
    _check_names(entry, options or {})
    config = _train_config(a_setting, entry, budget, train or {})
    method_config = _method_config(a_setting.dataset, entry, config, options or {})
    method_config.check_wishes()
    config = config.resolved(a_setting.backbone, method_config.networks_in_turn)
    _check_networks(config, method_config)
    return RunSpec(
        setting=a_setting.name,
        method=name,
        seed=seed,
        fold=a_setting.fold_of(seed) if fold is None else fold,
        development=development,
        pool_limit=pool_limit,
        train=config,
        options=method_config.resolved(task_of(a_setting, development)),
        entry=entry,
        budget=_budget_name(a_setting, entry, config),
        method_sha256=entry.sha256,
        own=own,
    )


def _check_names(entry: Entry, given: Mapping[str, Any]) -> None:
    """Refuse an option that the method does not have; whoever gave it may mean the engine's."""
    known = option_types(entry.method.config_type)
    for name in given:
        if name not in known:
            raise unknown_name("option", name, {**option_types(TrainConfig), **known})


def _budget_name(setting: Setting, entry: Entry, config: TrainConfig) -> str:
    """The budget whose lengths these are, however they were asked for: equal runs, equal names."""
    for budget in BUDGETS:
        named = _train_config(setting, entry, budget, {}).resolved(setting.backbone)
        if all(getattr(config, key) == getattr(named, key) for key in LENGTH_OPTIONS):
            return budget
    return CUSTOM


def _train_config(
    setting: Setting, entry: Entry, budget: Budget, given: Mapping[str, Any]
) -> TrainConfig:
    """The engine's options in their layers."""
    dataset, side = setting.dataset, setting.image_size
    if {"pretrain_share", "pretrain_epochs"} <= given.keys():
        raise ConfigError("pretrain_share and pretrain_epochs say the same: give one of them")
    of_entry = {**entry.engine, **entry.engine_by_dataset.get(dataset, {})}
    check_entry(entry)
    layers = {**train_defaults(dataset, budget), **of_entry, **given}
    if "pretrain_epochs" in given:
        layers["pretrain_share"] = None
    if layers.get("frozen"):
        layers.setdefault("frozen_side", default_frozen_side(dataset, side))
    config = from_json(TrainConfig, layers)
    if 0 < config.frozen_side < side:
        raise ConfigError(
            f"option frozen_side: {config.frozen_side} is less than the {side} pixels that the "
            f"images have; it enlarges them, and 0 leaves them as they are"
        )
    stated = from_json(TrainConfig, {**train_defaults(dataset), **of_entry})
    scaled = {
        name: round(of_entry[name] * config.steps / stated.steps)
        for name in ("horizon", "warmup_steps")
        if name in of_entry and name not in given
    }
    return replace(config, **scaled)


def _check_networks(train: TrainConfig, options: MethodConfig) -> None:
    """Refuse more networks in turn than the run has time for.

    Raises:
        ConfigError: says why, and what to change.
    """
    networks = options.networks_in_turn
    restarts = restart_epochs(networks, train.epochs)
    if not restarts:
        return
    shortest = min(end - begun for begun, end in pairwise((0, *restarts, train.epochs)))
    pretraining = pretraining_of_each(networks, train.pretrain_epochs)
    if shortest <= pretraining:
        raise ConfigError(
            f"option networks: {networks} share {train.epochs} epochs, and one of them has only "
            f"{shortest}, of which pre-training takes {pretraining}; take fewer networks, more "
            f"epochs or less pre-training"
        )
    if train.fresh_statistics:
        raise ConfigError(
            "option fresh_statistics: would also change those of the networks that are done; set "
            "it to 0, or networks to 1"
        )


def check_entry(entry: Entry) -> None:
    """Tell what is wrong with a user's class as being wrong in that file.

    Raises:
        ConfigError: an option is called as one of the engine's, or its `engine` cannot be.
    """
    if entry.source is None:
        return
    engine = option_types(TrainConfig)
    if taken := sorted(engine.keys() & option_types(entry.method.config_type).keys()):
        raise ConfigError(
            f"{entry.source}: option {taken[0]!r} of {entry.method.config_type.__name__} is called "
            f"as one of the engine's: give it another name"
        )
    try:
        if "pretrain_epochs" in entry.engine:
            raise ConfigError("pretrain_epochs: state pretrain_share, which goes with any length")
        from_json(TrainConfig, dict(entry.engine))
    except ConfigError as error:
        raise ConfigError(f"{entry.source}: engine of {entry.method.__name__}: {error}") from error


def _method_config(
    dataset: str, entry: Entry, train: TrainConfig, given: Mapping[str, Any]
) -> MethodConfig:
    """The method's options in their layers; those in epochs scaled to the length of the run."""
    config_type = entry.method.config_type
    options = layered_options(dataset, entry, train.frozen, given)
    defaults = {a_field.name: field_default(a_field) for a_field in fields(config_type)}
    for name, least in entry.in_epochs.items():
        if name not in given:
            at_full = options.get(name, defaults[name])
            share = train.epochs / train_defaults(dataset)["epochs"]
            options[name] = max(least, floor(at_full * share + 0.5))
    return from_json(config_type, options)


def layered_options(
    dataset: str, entry: Entry, frozen: bool, given: Mapping[str, Any]
) -> dict[str, Any]:
    """What a method's entry states for a data set, and over it what a user has given."""
    stated = {**entry.options, **entry.by_dataset.get(dataset, {})}
    if frozen:
        stated |= {**entry.frozen, **entry.frozen_by_dataset.get(dataset, {})}
    for name, dropped in entry.method.config_type.drops.items():
        if name in given:
            stated.pop(dropped, None)
    return {**stated, **given}


def default_folder(
    setting: str,
    method: str,
    seed: int,
    development: bool,
    budget: str = "full",
    runs: Path = Path("runs"),
    variant: str = "",
) -> Path:
    """runs/cifar100-55-50/anedl-seed1, or …/anedl-fast-seed1, or …/anedl-dev-seed1."""
    kinds = [variant, "fast" if budget == "fast" else "", "dev" if development else ""]
    name = "-".join([short_name(method), *filter(None, kinds), f"seed{seed}"])
    return runs / setting.replace("/", "-") / name


def read_spec(path: Path, tell: bool = True) -> RunSpec:
    """Read the spec that a run wrote to its `config.json`.

    A user's method is loaded from its file or, where that has changed since, from the copy in the
    run folder, and a line says so. Where there is no copy, the changed file is loaded, and warned
    of. `tell` False says nothing.
    """
    spec, kept = _read(path)
    if tell and kept is not None:
        _notice(f"{kept.why}: using the copy in {kept.copy}")
    elif tell and (changed := _changed_method(spec)):
        warnings.warn(f"{path}: {changed}", stacklevel=2)
    return spec


def read_spec_to_train(path: Path) -> RunSpec:
    """The same for a run that is to be repeated or to go on.

    Raises:
        ConfigError: the file of a user's method has changed since, and the run has no copy.
    """
    spec, kept = _read(path)
    if kept is not None:
        new = "; to train the changed file, name it (--method) and a new folder (--out)"
        _notice(f"{kept.why}: training with the copy in {kept.copy}{new if kept.changed else ''}")
    elif changed := _changed_method(spec):
        raise ConfigError(
            f"{path}: {changed}, so the run can neither go on nor be repeated: restore the file, "
            f"or begin another run with it in a folder of its own"
        )
    return spec


def method_begun_with(folder: Path, method: str) -> Entry | None:
    """The method of the run that is to go on in `folder`, as it was when that began.

    None where there is no run, or one of another method.

    Raises:
        ConfigError: the file of a user's method has changed since, and the run has no copy.
    """
    written = folder / "config.json"
    if not written.exists():
        return None
    if read_spec(written, tell=False).method != full_name(method):
        return None
    return read_spec_to_train(written).entry


def _read(path: Path) -> tuple[RunSpec, Kept | None]:
    """The spec, and where its method was loaded from if not from its own file."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        own = from_json(Setting, record["own"]) if "own" in record else None
        kept = load_kept(path.parent, record["method"], record.get("method_sha256"))
        spec = make_spec(
            own or record["setting"],
            record["method"],
            record["seed"],
            record["fold"],
            record["development"],
            record["pool_limit"],
            entry=kept.entry if kept else None,
        )
        spec = replace(
            spec,
            train=from_json(TrainConfig, record["train"]),
            options=from_json(type(spec.options), record["options"]),
            # Runs from before there were budgets or hashes say nothing of them.
            budget=record.get("budget", CUSTOM),
            method_sha256=record.get("method_sha256", spec.method_sha256),
        )
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: there is no such configuration") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: not the configuration of a run ({error!r})") from error
    return spec, kept


def _changed_method(spec: RunSpec) -> str | None:
    if spec.entry.sha256 == spec.method_sha256:
        return None
    return (
        f"the method's file {spec.entry.source} has changed since "
        f"(SHA-256 {str(spec.entry.sha256)[:12]}… now, {str(spec.method_sha256)[:12]}… then)"
    )


_NOTICED: dict[str | tuple[str, type[Warning], int], int] = {}


def _notice(text: str) -> None:
    """Say something once, however many parts of a command read the run."""
    warnings.warn_explicit(text, Notice, __name__, 0, registry=_NOTICED)
