"""The two runs of a fit, each for its share of the time, and going on with what is there."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anedl.data.settings import Setting
from anedl.engine.config import TrainConfig
from anedl.engine.differences import describe_differences
from anedl.engine.model import build_method, choose_device
from anedl.engine.own import OWN
from anedl.engine.precision import precision_of
from anedl.engine.problem import Problem
from anedl.engine.run_files import METHOD_FILE
from anedl.engine.spec import RunSpec, layered_options, make_spec, read_spec
from anedl.engine.task import task_of
from anedl.engine.train import Surroundings, train
from anedl.errors import ConfigError, counted, unknown_name
from anedl.fit.begun import require_same_roles
from anedl.fit.choices import (
    FOLDS_TIME,
    MOST_EPOCH_STEPS,
    MOST_FROZEN_EPOCH_STEPS,
    Choice,
    Length,
    choose_length,
    duration,
    execution_for,
)
from anedl.fit.gather import Gathered, fold_split
from anedl.fit.probe import measure_speed
from anedl.fit.wishes import Say, Wishes
from anedl.methods.catalogue import full_name, get_method, short_name
from anedl.networks import brings_weights, build_backbone, trained_on
from anedl.networks.timm_backbone import PREFIX
from anedl.options import convert, from_json, option_types

LEAST_SPREAD = 0.02  # images of one colour: pixels are then only moved, not stretched


def value_of(taken: list[Choice], name: str) -> Any:
    """What was chosen under this name."""
    return next(choice.value for choice in taken if choice.name == name)


def is_frozen(taken: list[Choice]) -> bool:
    """Whether the trunk stays as it was trained; of others there is nothing to choose."""
    return any(choice.name == "frozen" and choice.value for choice in taken)


def check_names(wishes: Wishes) -> None:
    """Refuse a method or a backbone that does not exist, before any file is read.

    Raises:
        ConfigError: there is no such method or backbone, or its package is not installed.
    """
    get_method(full_name(wishes.method))
    if wishes.backbone is not None:
        # Weights in a package are there or not; those of timm may be a long download.
        build_backbone(wishes.backbone, load_weights=not wishes.backbone.startswith(PREFIX))
    if wishes.frozen and not brings_weights(wishes.backbone or ""):
        raise ConfigError(
            "--frozen: name a --backbone that is trained already, such as efficientnet-lite0 or "
            "timm:MODEL:pretrained; others begin with random weights"
        )


def check_options(wishes: Wishes) -> None:
    """Refuse options that cannot be, all of them at once, before any file is read.

    What depends on the images or on the length of the fit is left to `check_choices`.

    Raises:
        ConfigError: an option is not known, not of its type, or out of its range.
    """
    entry = get_method(full_name(wishes.method))
    of_engine = option_types(TrainConfig)
    types = {**of_engine, **option_types(entry.method.config_type)}
    faults = []
    for option, value in wishes.options.items():
        try:
            if option not in types:
                raise unknown_name("option", option, types)
            convert(option, value, types[option])
        except ConfigError as error:
            faults.append(str(error))
    if faults:
        raise ConfigError("; ".join(faults))
    train = {key: value for key, value in wishes.options.items() if key in of_engine}
    options = {key: value for key, value in wishes.options.items() if key not in of_engine}
    # Length and batch are chosen later, so that nothing may be at odds with them here.
    batch_size = wishes.batch_size or max(1, train.get("accumulate", 1))
    from_json(TrainConfig, {"epochs": sys.maxsize, "batch_size": batch_size, **train})
    for frozen in {False, True} if wishes.frozen is None else {wishes.frozen}:
        from_json(entry.method.config_type, layered_options(OWN, entry, frozen, options))


def check_choices(setting: Setting, wishes: Wishes, taken: list[Choice]) -> None:
    """Refuse what either training would stumble over, before the first of them begins.

    Raises:
        ConfigError: an option is not known or not of its type, the backbone cannot be built, or it
            cannot be frozen.
    """
    build_backbone(value_of(taken, "backbone"), image_size=value_of(taken, "image size"))
    for method in ("supervised", wishes.method):
        train, options = _options(method, wishes, taken)
        spec = make_spec(setting, method, wishes.seed, train=train, options=options)
        if spec.train.frozen:  # which not every trunk and not every method allows
            build_method(spec, setting, task_of(setting, False), torch.device("cpu"))


def setting_of(gathered: Gathered, taken: list[Choice]) -> Setting:
    """The terms of these images, as the engine wants them; O is decided later."""
    backbone: str = value_of(taken, "backbone")
    if (trained := trained_on(backbone)) is not None:
        mean, std = trained.mean, trained.std
    else:
        mean, std = colours(gathered.cache.images.pixels, gathered.split.labelled)
    classes = len(gathered.names)
    counts = np.bincount(gathered.labels, minlength=classes + 1)
    return Setting(
        name=OWN,
        dataset=OWN,
        train_counts=tuple(counts.tolist()),
        test_counts=(0,) * (classes + 1),
        known_classes=tuple(range(classes)),
        labelled_per_class=len(gathered.split.labelled) // classes,
        validation_per_class=len(gathered.split.validation) // classes,
        test_cut_per_class=len(gathered.fresh) // classes,
        top_m=value_of(taken, "M"),
        oracle_share=0.5,
        image_size=value_of(taken, "image size"),
        mean=mean,
        std=std,
        augmentation=value_of(taken, "augmentation"),
        backbone=backbone,
        folds="one",
        development_unknowns=0,
    )


def colours(pixels: Any, positions: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation a channel, 0…1, of the frames at these positions, one after the other."""
    total, squares, count = np.zeros(3), np.zeros(3), 0
    for position in positions:
        frame = np.asarray(pixels[position], np.float64).reshape(-1, 3) / 255
        total += frame.sum(0)
        squares += (frame**2).sum(0)
        count += len(frame)
    mean = total / count
    std = np.sqrt(np.maximum(squares / count - mean**2, LEAST_SPREAD**2))
    return tuple(np.round(mean, 4).tolist()), tuple(np.round(std, 4).tolist())


def trained(
    method: str,
    problem: Problem,
    folder: Path,
    wishes: Wishes,
    share_of_time: float,
    taken: list[Choice],
    say: Say,
    called: str = "",
) -> Path:
    """Train `method` for its share of the minutes; a finished run is only checked and kept.

    `called` is what to call it where that is not the method's name.

    Raises:
        ConfigError: the folder's run was begun with other choices or on other images.
    """
    begun = (folder / "config.json").exists()
    spec = _spec(method, problem, folder, wishes, share_of_time, taken, say)
    _check_same(folder, spec, problem)
    length = f"{counted(spec.train.epochs, 'epoch')} of {counted(spec.train.epoch_steps, 'step')}"
    if (folder / "results.json").exists():
        say(f"{called or method}: trained before, {length}; more takes a new folder")
        return folder
    kept = ", the length it was begun with" if begun else ""
    say(f"training {called or method}: {length}{kept}")
    surroundings = Surroundings(
        device=wishes.device, resume=wishes.resume, quiet=wishes.quiet, workers=wishes.workers
    )
    train(spec, folder, surroundings, problem)
    return folder


def train_folds(
    problem: Problem, gathered: Gathered, run: Path, wishes: Wishes, taken: list[Choice], say: Say
) -> list[Path]:
    """Train the model of every fold, all of them in the time there is for folds."""
    count = value_of(taken, "folds")
    folders = []
    for number in range(count):
        folder = run / f"fold-{number + 1}"
        of_fold = replace(problem, split=fold_split(gathered, number))
        called = f"{wishes.method}, fold {number + 1} of {count}"
        trained(wishes.method, of_fold, folder, wishes, FOLDS_TIME / count, taken, say, called)
        folders.append(folder)
    return folders


def recorded_backbone(run: Path) -> str | None:
    """The trunk that a fit has begun to train with; None: it has not begun."""
    record = _record(run / "supervised")
    return None if record is None else str(record["train"]["backbone"])


def recorded_views(run: Path) -> int | None:
    """Views of every image that a fit with a frozen trunk has begun with; None: it has not."""
    record = _record(run / "supervised")
    if record is None:
        return None
    return int(record["train"].get("feature_views", TrainConfig.feature_views))


def recorded_share(run: Path) -> float | None:
    """O of a fit that is to go on, None where neither its folds nor itself have begun."""
    records = (_record(run), _record(run / "fold-1"))
    return next((float(record["own"]["oracle_share"]) for record in records if record), None)


def _spec(
    method: str,
    problem: Problem,
    folder: Path,
    wishes: Wishes,
    share_of_time: float,
    taken: list[Choice],
    say: Say,
) -> RunSpec:
    """The spec of a new run, its length from the time there is; of a run that goes on, its own."""
    length = {"epochs": wishes.epochs, "epoch_steps": wishes.epoch_steps}
    seconds = 60 * wishes.minutes * share_of_time
    device = choose_device(wishes.device)
    execution = execution_for(seconds, device)
    if (record := _record(folder)) is not None:
        length = {name: given or record["train"][name] for name, given in length.items()}
        execution = record["train"]["execution"]
    train, options = _options(method, wishes, taken)
    train = {"execution": execution, **train}
    if None in length.values():
        draft = make_spec(problem.setting, method, wishes.seed, train=train, options=options)
        precision = precision_of(draft, device)
        compiles = device.type == "cuda" and draft.train.execution != "eager"
        if compiles:
            say("compiling the steps and measuring their speed: a minute or so, the first time")
        speed = measure_speed(draft, problem, precision)
        start = speed.start if compiles else 0.0
        most = MOST_FROZEN_EPOCH_STEPS if draft.train.frozen else MOST_EPOCH_STEPS
        found = choose_length(seconds, speed.step, speed.epoch, start, most)
        found = Length(wishes.epochs or found.epochs, wishes.epoch_steps or found.epoch_steps)
        if longer := found.overrun(seconds, speed.step, speed.epoch):
            # The labels alone come first, and no other training has less to do.
            trainings = 2 + value_of(taken, "folds")
            takes = duration(trainings * found.takes(speed.step, speed.epoch))
            others = (
                f", and all trainings together more than {takes}, where there are "
                f"{duration(60 * wishes.minutes)}"
            ) * (method == "supervised")
            side = problem.setting.image_size
            say(
                f"note: {longer}{others}; a smaller --image-size (now {side}) makes it shorter, "
                f"in a new folder"
            )
        length = {"epochs": found.epochs, "epoch_steps": found.epoch_steps}
    return make_spec(
        problem.setting, method, wishes.seed, train={**train, **length}, options=options
    )


def _options(
    method: str, wishes: Wishes, taken: list[Choice]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a run is told beside its length: options of the engine, and those of the method."""
    train: dict[str, Any] = {"batch_size": value_of(taken, "batch size")}
    options: dict[str, Any] = {}
    if is_frozen(taken):
        train["frozen"] = True
        views = next((choice.value for choice in taken if choice.name == "feature views"), None)
        train |= {} if views is None else {"feature_views": views}
    if method == wishes.method:
        of_engine = option_types(TrainConfig)
        train |= {name: value for name, value in wishes.options.items() if name in of_engine}
        options |= {name: value for name, value in wishes.options.items() if name not in of_engine}
    return train, options


def _record(folder: Path) -> dict[str, Any] | None:
    path = folder / "config.json"
    if not path.exists():
        return None
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


def _check_same(folder: Path, spec: RunSpec, problem: Problem) -> None:
    written = folder / "config.json"
    if not written.exists():
        return
    require_same_roles(folder, problem.split)
    before = read_spec(written, tell=False)
    if before.digest != spec.digest:
        copy, as_it_was = folder / METHOD_FILE, ""
        if before.method_sha256 != spec.method_sha256 and copy.is_file():
            as_it_was = f"; --method {copy}:{short_name(before.method)} is the file as it was"
        raise ConfigError(
            f"{folder}: this run was begun with other choices "
            f"({describe_differences(before, spec)}); give the same ones again, or choose another "
            f"folder{as_it_was}"
        )
