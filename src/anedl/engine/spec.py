"""What to run: a setting, a method, a seed and every option, as written to `config.json`."""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from anedl import __version__
from anedl.data.settings import get_setting
from anedl.engine.config import TrainConfig, train_defaults
from anedl.engine.task import task_of
from anedl.errors import ConfigError
from anedl.methods.base import MethodConfig
from anedl.methods.catalogue import get_method
from anedl.options import from_json, to_json


@dataclass(frozen=True)
class RunSpec:
    """One run, fully determined: the same spec on the same machine gives the same bits."""

    setting: str
    method: str
    seed: int
    fold: int
    development: bool
    pool_limit: int | None
    train: TrainConfig
    options: MethodConfig

    def to_json(self) -> dict[str, Any]:
        """As written to `config.json`."""
        return {
            "anedl": __version__,
            "setting": self.setting,
            "method": self.method,
            "seed": self.seed,
            "fold": self.fold,
            "development": self.development,
            "pool_limit": self.pool_limit,
            "train": to_json(self.train),
            "options": to_json(self.options),
        }

    @property
    def digest(self) -> str:
        """SHA-256 of all that determines the result: the version of the code is left out."""
        record = {key: value for key, value in self.to_json().items() if key != "anedl"}
        return hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def make_spec(
    setting: str,
    method: str = "anedl",
    seed: int = 0,
    fold: int | None = None,
    development: bool = False,
    pool_limit: int | None = None,
    train: dict[str, Any] | None = None,
    options: dict[str, Any] | None = None,
) -> RunSpec:
    """Build a spec from names and from the options that differ from their defaults.

    Defaults come in layers: the engine's, the data set's, the method's, the method's for this data
    set, then `train` and `options`. `fold` None takes the fold that belongs to the seed.
    """
    if seed < 0:
        raise ConfigError(f"seed {seed}: a seed is 0 or more")
    a_setting = get_setting(setting)
    entry = get_method(method)
    engine_options = {**train_defaults(a_setting.dataset), **entry.engine, **(train or {})}
    method_options = {**entry.options, **entry.by_dataset.get(a_setting.dataset, {})}
    config = from_json(entry.method.config_type, {**method_options, **(options or {})})
    return RunSpec(
        setting=a_setting.name,
        method=method,
        seed=seed,
        fold=a_setting.fold_of(seed) if fold is None else fold,
        development=development,
        pool_limit=pool_limit,
        train=from_json(TrainConfig, engine_options).resolved(a_setting.backbone),
        options=config.resolved(task_of(a_setting, development)),
    )


def read_spec(path: Path) -> RunSpec:
    """Read the spec that a run wrote to its `config.json`."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        spec = make_spec(
            record["setting"],
            record["method"],
            record["seed"],
            record["fold"],
            record["development"],
            record["pool_limit"],
        )
        return replace(
            spec,
            train=from_json(TrainConfig, record["train"]),
            options=from_json(type(spec.options), record["options"]),
        )
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: there is no such configuration") from error
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{path}: not the configuration of a run ({error!r})") from error
