"""`anedl fit`, top to bottom: gather → labels alone → whole method → calibrate → sort → tell."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from anedl import __version__, dirichlet
from anedl.conformal import Calibration
from anedl.data.batches import worker_count
from anedl.data.settings import Setting
from anedl.engine.inference import outputs_of
from anedl.engine.model import choose_device, load_model
from anedl.engine.own import OWN, make_problem
from anedl.engine.precision import Precision, choose_precision
from anedl.engine.problem import Problem
from anedl.engine.results import describe_device
from anedl.engine.spec import RunSpec, make_spec
from anedl.engine.train import Surroundings, train
from anedl.errors import ConfigError
from anedl.files import write_json
from anedl.fit import choices
from anedl.fit.choices import Choice
from anedl.fit.comparison import Comparison, compare_models
from anedl.fit.gather import Gathered, gather
from anedl.fit.probe import measure_speed
from anedl.intake.findings import describe
from anedl.methods.base import Outputs
from anedl.pollution import ShareEstimate, estimate_outlier_share
from anedl.triage.clusters import Cluster, cluster_unknown
from anedl.triage.confidence import Confidence, choose_confidence
from anedl.triage.sheets import write_sheets
from anedl.triage.table import write_table
from anedl.triage.verdict import Labelled, Rules, Triage, judge
from anedl.triage.verdict import gather as gather_evidence

Say = Callable[[str], None]


@dataclass(frozen=True)
class Wishes:
    """What the user may decide; None leaves a choice to `anedl fit`."""

    minutes: float = 10.0
    level: float = 0.05
    seed: int = 0
    image_size: int | None = None
    augmentation: str | None = None
    backbone: str | None = None
    batch_size: int | None = None
    top_m: int | None = None
    selection_share: float | None = None
    epochs: int | None = None
    epoch_steps: int | None = None
    target_precision: float = 0.95
    benjamini_hochberg: bool = False
    device: str = "auto"
    workers: int | None = None
    resume: bool = False
    quiet: bool = False

    def __post_init__(self) -> None:
        if self.minutes <= 0:
            raise ConfigError(f"--minutes {self.minutes:g}: there must be some time to train")
        if not 0 < self.level < 1:
            raise ConfigError(
                f"--target-inlier-loss {self.level:g}: the share of known images that may be "
                f"called unknown lies between 0 and 1"
            )


@dataclass(frozen=True)
class Fitted:
    """What came out; `summary` is what `fit.json` holds."""

    folder: Path
    summary: dict[str, Any]
    triage: Triage


def look(labelled: Path, pile: Path, run: Path, wishes: Wishes, say: Say) -> Gathered:
    """Find out what there is and say it; nothing is trained."""
    _check_folder(run, wishes.resume)
    run.mkdir(parents=True, exist_ok=True)
    gathered = gather(
        labelled, pile, run, choose_device(wishes.device), wishes.level, wishes.seed,
        wishes.image_size, worker_count(wishes.workers), say, wishes.quiet,
    )  # fmt: skip
    say(describe(gathered.findings))
    if gathered.skipped:
        say(f"files that were skipped, with reasons: {run / 'skipped.csv'}")
    return gathered


def fit(labelled: Path, pile: Path, run: Path, wishes: Wishes, say: Say) -> Fitted:
    """Train on the labelled images and the pile, and sort the pile into `run`."""
    started = time.monotonic()
    gathered = look(labelled, pile, run, wishes, say)
    device = choose_device(wishes.device)
    taken = _first_choices(gathered, wishes, device)
    setting = _setting(gathered, taken)
    problem = replace(
        make_problem(setting, gathered.cache.images, gathered.labels, gathered.split),
        workers=worker_count(wishes.workers),
    )

    # The labels alone first: a yardstick, and an estimate of how dirty the pile is.
    twin_folder = run / "supervised"
    twin = _trained("supervised", problem, twin_folder, wishes, choices.SUPERVISED_TIME, taken, say)
    before = _pollution(twin, gathered, problem, np.concatenate([gathered.fresh, gathered.decoys]))
    taken.append(choices.choose_selection_share(before.share, wishes.selection_share))
    setting = replace(setting, oracle_share=_value(taken, "O"))
    problem = replace(problem, setting=setting)
    say("choices (each can be overridden, see --help):")
    for choice in taken:
        say(choice.describe())

    model = _trained("anedl", problem, run, wishes, 1 - choices.SUPERVISED_TIME, taken, say)
    judged = _judged(model, gathered, problem)
    calibration = Calibration(judged["fresh"].score, judged["decoys"].score, wishes.level)
    write_json(run / "calibration.json", calibration.to_json())
    inliers = judged["decoys"].score if len(gathered.decoys) else judged["fresh"].score
    pollution = estimate_outlier_share(inliers, judged["pile"].score)
    helped = compare_models(twin_folder, run, gathered.split, gathered.labels)
    confidence = _confidence(judged["validation"], gathered, wishes)
    triage, clusters = _sorted_pile(judged["pile"], gathered, calibration, confidence, wishes)
    write_table(run, triage)
    write_sheets(run / "clusters", clusters, _pile_images(gathered))

    summary = _summary(
        gathered, taken, calibration, pollution, helped, confidence, triage, clusters, wishes
    )
    summary["seconds"] = round(time.monotonic() - started, 1)
    summary["device"] = describe_device(device)
    write_json(run / "fit.json", summary)
    for line in tell(summary):
        say(line)
    return Fitted(run, summary, triage)


@dataclass(frozen=True)
class Judged:
    """What the model says of some images, as arrays."""

    probabilities: np.ndarray[Any, np.dtype[np.float64]]
    score: np.ndarray[Any, np.dtype[np.float64]]
    epistemic: np.ndarray[Any, np.dtype[np.float64]]
    aleatoric: np.ndarray[Any, np.dtype[np.float64]]
    features: np.ndarray[Any, np.dtype[np.float32]]


def tell(summary: dict[str, Any]) -> list[str]:
    """The outcome in words, for the terminal."""
    counts = summary["triage"]
    lines = [
        f"how dirty is the pile: {summary['pollution']['note']}",
        f"did the pile help: {summary['helped']['note']}",
        *summary["calibration"]["notes"],
        summary["confidence"]["sentence"],
        "the pile: " + ", ".join(f"{count:,} {state}" for state, count in counts.items()),
    ]
    lines += [f"  cluster {c['number']}: {c['sentence']}" for c in summary["clusters"][:5]]
    return lines


def _check_folder(run: Path, resume: bool) -> None:
    if (run / "config.json").exists() and not resume:
        raise ConfigError(
            f"{run} already holds a run: continue it with --resume or choose another folder"
        )


def _first_choices(gathered: Gathered, wishes: Wishes, device: torch.device) -> list[Choice]:
    side = gathered.side
    assert isinstance(side.value, int)
    return [
        side,
        choices.choose_augmentation(side.value, wishes.augmentation),
        choices.choose_backbone(side.value, device, wishes.backbone),
        choices.choose_batch_size(len(gathered.split.labelled), wishes.batch_size),
        choices.choose_top_m(len(gathered.names), wishes.top_m),
    ]


def _value(taken: list[Choice], name: str) -> Any:
    return next(choice.value for choice in taken if choice.name == name)


def _setting(gathered: Gathered, taken: list[Choice]) -> Setting:
    """The terms of these images, as the engine wants them."""
    frames = gathered.cache.images.pixels[gathered.split.labelled].reshape(-1, 3) / 255.0
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
        top_m=_value(taken, "M"),
        oracle_share=0.5,
        image_size=_value(taken, "image size"),
        mean=tuple(np.round(frames.mean(0), 4).tolist()),
        # Images of one colour have no spread; their pixels are then only moved, not stretched.
        std=tuple(np.round(np.maximum(frames.std(0), 0.02), 4).tolist()),
        augmentation=_value(taken, "augmentation"),
        backbone=_value(taken, "backbone"),
        folds="one",
        development_unknowns=0,
    )


def _trained(
    method: str,
    problem: Problem,
    folder: Path,
    wishes: Wishes,
    share_of_time: float,
    taken: list[Choice],
    say: Say,
) -> Path:
    """Train `method` for its share of the minutes, or go on with what is there."""
    spec = _spec(method, problem, folder, wishes, share_of_time, taken)
    if not (folder / "results.json").exists():
        say(f"training {method}: {spec.train.epochs} epochs of {spec.train.epoch_steps} steps")
        surroundings = Surroundings(
            device=wishes.device, resume=wishes.resume, quiet=wishes.quiet, workers=wishes.workers
        )
        train(spec, folder, surroundings, problem)
    return folder


def _spec(
    method: str,
    problem: Problem,
    folder: Path,
    wishes: Wishes,
    share_of_time: float,
    taken: list[Choice],
) -> RunSpec:
    """The spec of a new run, its length from the time there is; of a run that goes on, its own."""
    length = {"epochs": wishes.epochs, "epoch_steps": wishes.epoch_steps}
    written = folder / "config.json"
    if written.exists():
        recorded = json.loads(written.read_text(encoding="utf-8"))["train"]
        length = {name: recorded[name] for name in length}
    options = {"batch_size": _value(taken, "batch size")}
    if None in length.values():
        draft = make_spec(problem.setting, method, wishes.seed, train=options)
        seconds = 60 * wishes.minutes * share_of_time
        speed = measure_speed(draft, problem, _precision(draft, wishes))
        found = choices.choose_length(seconds, speed.step, speed.epoch)
        length = {
            "epochs": wishes.epochs or found.epochs,
            "epoch_steps": wishes.epoch_steps or found.epoch_steps,
        }
    return make_spec(problem.setting, method, wishes.seed, train={**options, **length})


def _precision(spec: RunSpec, wishes: Wishes) -> Precision:
    device = choose_device(wishes.device)
    return Precision(choose_precision(spec.train.precision, device), device)


def _judged(model: Path, gathered: Gathered, problem: Problem) -> dict[str, Judged]:
    """What the last model says of the images that judge and of the whole pile."""
    trained = load_model(model)
    parts = {
        "validation": gathered.split.validation,
        "fresh": gathered.fresh,
        "decoys": gathered.decoys,
        "pile": gathered.pile,
    }
    return {
        name: _arrays(outputs_of(trained.method, problem.images_at(positions), trained.precision))
        if len(positions)
        else _nothing(len(gathered.names))
        for name, positions in parts.items()
    }


def _arrays(outputs: Outputs) -> Judged:
    unknown = np.full(len(outputs.score), np.nan)
    epistemic, aleatoric = unknown, unknown
    if outputs.alpha is not None:
        epistemic = dirichlet.mutual_information(outputs.alpha).double().cpu().numpy()
        aleatoric = dirichlet.expected_entropy(outputs.alpha).double().cpu().numpy()
    return Judged(
        outputs.logits.double().softmax(-1).cpu().numpy(),
        outputs.score.double().cpu().numpy(),
        epistemic,
        aleatoric,
        outputs.features.float().cpu().numpy(),
    )


def _nothing(classes: int) -> Judged:
    none = np.zeros(0)
    return Judged(np.zeros((0, classes)), none, none, none, np.zeros((0, 1), np.float32))


def _pollution(model: Path, gathered: Gathered, problem: Problem, inliers: Any) -> ShareEstimate:
    """The pile's outlier share by a model that has seen neither pile nor `inliers`."""
    trained = load_model(model)
    of_inliers, of_pile = (
        _arrays(outputs_of(trained.method, problem.images_at(positions), trained.precision)).score
        for positions in (inliers, gathered.pile)
    )
    return estimate_outlier_share(of_inliers, of_pile)


def _confidence(validation: Judged, gathered: Gathered, wishes: Wishes) -> Confidence:
    truth = gathered.labels[gathered.split.validation]
    correct = validation.probabilities.argmax(1) == truth
    return choose_confidence(
        validation.probabilities.max(1), correct, target=wishes.target_precision
    )


def _sorted_pile(
    pile: Judged,
    gathered: Gathered,
    calibration: Calibration,
    confidence: Confidence,
    wishes: Wishes,
) -> tuple[Triage, list[Cluster]]:
    items, groups = gathered.cache.items, gathered.groups
    labelled: dict[int, list[Labelled]] = {}
    for position in np.flatnonzero((gathered.labels < len(gathered.names)) & (groups >= 0)):
        item = items[position]
        labelled.setdefault(int(groups[position]), []).append(Labelled(item.name, str(item.label)))
    evidence = gather_evidence(
        [items[position].name for position in gathered.pile],
        pile.probabilities,
        pile.score,
        calibration.p_values(pile.score, "pile"),
        pile.epistemic,
        pile.aleatoric,
        groups[gathered.pile],
        gathered.names,
        labelled,
    )
    rules = Rules(wishes.level, confidence.threshold, wishes.benjamini_hochberg)
    return cluster_unknown(judge(evidence, rules), pile.features)


class _PileImages:
    """The pile's frames in the order of the triage."""

    def __init__(self, gathered: Gathered) -> None:
        self._pixels = gathered.cache.images
        self._positions = gathered.pile

    def __len__(self) -> int:
        return len(self._positions)

    def __getitem__(self, index: int, /) -> Any:
        return self._pixels[int(self._positions[index])]


def _pile_images(gathered: Gathered) -> _PileImages:
    return _PileImages(gathered)


def _summary(
    gathered: Gathered,
    taken: list[Choice],
    calibration: Calibration,
    pollution: ShareEstimate,
    helped: Comparison,
    confidence: Confidence,
    triage: Triage,
    clusters: list[Cluster],
    wishes: Wishes,
) -> dict[str, Any]:
    limits = {of: calibration.threshold(of) for of in ("new", "pile")}
    return {
        "anedl": __version__,
        "classes": list(gathered.names),
        "images": {
            "labelled": len(gathered.split.labelled),
            "validation": len(gathered.split.validation),
            "fresh": len(gathered.fresh),
            "decoys": len(gathered.decoys),
            "pile": len(gathered.pile),
            "skipped": len(gathered.skipped),
        },
        "choices": {c.name: {"value": c.value, "reason": c.reason} for c in taken},
        "level": wishes.level,
        "calibration": {
            "notes": calibration.describe().splitlines(),
            "thresholds": {
                of: {
                    "score": limit.value if np.isfinite(limit.value) else None,
                    "certified": limit.certified,
                    "images": limit.images,
                    "note": limit.note,
                }
                for of, limit in limits.items()
            },
        },
        "pollution": pollution.to_json(),
        "helped": helped.to_json(),
        "confidence": {
            "threshold": confidence.threshold,
            "certified": confidence.certified,
            "sentence": confidence.sentence,
        },
        "triage": dict(triage.counts()),
        "clusters": [
            {"number": c.number, "images": len(c.members), "sentence": c.sentence} for c in clusters
        ],
    }
