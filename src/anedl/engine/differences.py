"""What makes a run another than its method's plain one, and what the seeds of one recipe share."""

import hashlib
import json
from pathlib import Path
from typing import Any

from anedl.data.settings import Setting
from anedl.engine.config import BUDGETS, CUSTOM, TrainConfig, without_log
from anedl.engine.spec import RunSpec, make_spec
from anedl.errors import first_few
from anedl.methods.catalogue import Entry, get_method
from anedl.options import from_json, later_defaults

SET_BY_A_RUN = ("epochs", "epoch_steps")
"""Lengths that a run of no named budget may choose; the others follow from them."""

FROZEN_BY_A_RUN = ("frozen", "backbone")


def differing_options(config: dict[str, Any], entry: Entry | None = None) -> dict[str, Any]:
    """The options in a `config.json` that are not the named method's defaults under its budget.

    What a method or the engine fits to the length of a run is no difference in a run of another
    length; that length is. Nor is what it has behind a frozen trunk; that trunk is. A method from a
    file is asked as the file now is, so this is answered when a run begins and kept with it;
    `entry` is the method where that is loaded already.
    """
    entry = entry or get_method(config["method"])
    own = from_json(Setting, config["own"]) if "own" in config else None
    what = (own or config["setting"], config["method"], config["seed"], config["fold"],
            config["development"], config["pool_limit"])  # fmt: skip
    frozen = config["train"].get("frozen", False)
    named = config.get("budget", CUSTOM) in BUDGETS
    follows_from = (*(FROZEN_BY_A_RUN if frozen else ()), *(() if named else SET_BY_A_RUN))
    given = {name: config["train"][name] for name in follows_from}
    budget = config["budget"] if named else "full"
    defaults = make_spec(*what, budget=budget, train=given, entry=entry).to_json()
    plain = make_spec(*what, entry=entry).to_json()["train"]
    defaults["train"] |= {name: plain.get(name) for name in given}
    unsaid = {**later_defaults(TrainConfig), **later_defaults(entry.method.config_type)}
    by_default = _as_written({**unsaid, **defaults["train"], **defaults["options"]})
    stated = _as_written({**unsaid, **config["train"], **config["options"]})
    return {
        name: value
        for name, value in without_log(stated).items()
        if name not in by_default or by_default[name] != value
    }


def describe_differences(before: RunSpec, now: RunSpec) -> str:
    """What two specs differ in, by name, with both values; the first few of them."""
    was, wanted = _flat(before), _flat(now)
    different = [
        f"{name} {was.get(name)}, now {wanted.get(name)}"
        for name in {**was, **wanted}
        if was.get(name) != wanted.get(name)
    ]
    return first_few(different)


def _flat(spec: RunSpec) -> dict[str, Any]:
    """All that determines a run, in one layer."""
    layers = ("train", "options", "own")
    record = spec.to_json()
    flat = {name: value for name, value in record.items() if name not in layers}
    inner = {name: value for key in layers for name, value in record.get(key, {}).items()}
    return flat | without_log(inner)


def _as_written(options: dict[str, Any]) -> dict[str, Any]:
    """As JSON gives them back, where a tuple is a list."""
    read: dict[str, Any] = json.loads(json.dumps(options))
    return read


def recipe_hash(config: dict[str, Any]) -> str:
    """SHA-256 of a `config.json` less its seed, its fold and what follows from the rest."""
    apart = ("anedl", "seed", "fold", "differs", "restarts", "pretraining")
    shared = {key: config[key] for key in config if key not in apart}
    shared["method"] = portable_name(config["method"])
    shared["train"] = without_log(config["train"])
    return hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()


def portable_name(method: str) -> str:
    """A method's name without the folder that its file, if it comes from one, lies in."""
    path, colon, class_name = method.rpartition(":")
    return f"{Path(path).name}:{class_name}" if colon else method
