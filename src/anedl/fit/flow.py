"""`anedl fit`, top to bottom: gather → labels alone → whole method → calibrate → sort → tell."""

import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from safetensors.torch import save

from anedl.calibration import Calibration
from anedl.data.batches import worker_count
from anedl.data.settings import Setting
from anedl.engine.lock import require_free
from anedl.engine.model import choose_device
from anedl.engine.own import make_problem
from anedl.engine.results import describe_device
from anedl.engine.run_files import CALIBRATION_FILE, FAMILIARITY_FILE
from anedl.errors import AnedlError, ConfigError
from anedl.export.card import write_card
from anedl.files import sweep, write_bytes, write_json
from anedl.fit import choices
from anedl.fit.choices import Choice
from anedl.fit.comparison import compare, held_out_errors
from anedl.fit.copies import distance_choice
from anedl.fit.decisions import carry_over, check_files
from anedl.fit.features import looked_at
from anedl.fit.gather import Gathered, gather
from anedl.fit.judging import (
    FoldScores,
    PileImages,
    calibrate,
    choose_acceptance,
    estimate_after,
    estimate_before,
    judge_all,
    judge_by_folds,
    sort_pile,
    unknown_as_new,
)
from anedl.fit.summary import Outcome, summarise, tell
from anedl.fit.training import (
    check_choices,
    check_names,
    check_options,
    is_frozen,
    recorded_backbone,
    recorded_share,
    recorded_views,
    setting_of,
    train_folds,
    trained,
    value_of,
)
from anedl.fit.trunks import (
    TRIAL_FOLDER,
    TrunkSoFar,
    recorded_trial,
    try_trunks,
)
from anedl.fit.wishes import Say, Wishes
from anedl.intake.decided import DECIDED_FILE
from anedl.intake.describing import describe
from anedl.intake.fitted import TRUNKS_FILE, was_cut
from anedl.networks import trained_on
from anedl.report.page import write_report
from anedl.triage.sheets import write_sheets
from anedl.triage.table import write_table
from anedl.triage.verdict import Rules, Triage

__all__ = ["Fitted", "Say", "Wishes", "fit", "look"]

# What a call that has not begun to train leaves in a run folder.
LOOKED = {"cache", "intake.json", "skipped.csv", TRUNKS_FILE, TRIAL_FOLDER, DECIDED_FILE}


@dataclass(frozen=True)
class Fitted:
    """What came out; `summary` is what `fit.json` holds."""

    folder: Path
    summary: dict[str, Any]
    triage: Triage


def look(labelled: Path, pile: Path, run: Path, wishes: Wishes, say: Say) -> Gathered:
    """Find out what there is, say it and what follows from it; nothing is trained.

    Raises:
        ConfigError: the run folder is taken or lies among the images, or a wish cannot be met.
        DataError: there are too few images.
    """
    begun = _check(labelled, pile, run, wishes)
    tried = recorded_trial(run, wishes, begun)
    trunk = TrunkSoFar(begun, tried, to_be_tried=tried is None)
    return _look(labelled, pile, run, wishes, trunk, say)[0]


def _check(labelled: Path, pile: Path, run: Path, wishes: Wishes) -> str | None:
    """Refuse what cannot be before anything is read; make the run folder.

    Returns the trunk that the run has begun with, if it has.
    """
    _check_folder(labelled, pile, run, wishes.resume)
    check_names(wishes)
    check_options(wishes)
    for folder in (run, run / "supervised", *sorted(run.glob("fold-*"))):
        require_free(folder)
    check_files(run, wishes.decision_files, wishes.resume)
    begun = recorded_backbone(run)
    if begun is not None and wishes.backbone not in (None, begun):
        raise ConfigError(
            f"--backbone {wishes.backbone}: this run was begun with {begun}; leave it out, or "
            f"choose another folder"
        )
    run.mkdir(parents=True, exist_ok=True)
    return begun


def _look(
    labelled: Path,
    pile: Path,
    run: Path,
    wishes: Wishes,
    so_far: TrunkSoFar,
    say: Say,
) -> tuple[Gathered, list[Choice], Setting]:
    device = choose_device(wishes.device)
    trained = trained_on(so_far.name(wishes))
    frozen = choices.choose_frozen(trained, device, wishes.frozen)
    if wishes.feature_views is not None and not frozen.value:
        raise ConfigError(
            f"--feature-views {wishes.feature_views}: only a frozen trunk has them; add --frozen"
        )
    shown = trained if frozen.value or device.type == "cuda" else None
    gathered = gather(labelled, pile, run, wishes, device, say, shown)
    say(describe(gathered.findings))
    for line in gathered.told_of_decisions:
        say(line)
    if gathered.skipped:
        say(f"files that were skipped, with reasons: {run / 'skipped.csv'}")
    side = gathered.side.value
    assert isinstance(side, int)
    labelled_images = sum(item.label is not None for item in gathered.cache.items)
    trunk = so_far.choice(wishes, device, side, labelled_images)
    taken = _first_choices(gathered, wishes, trunk, frozen)
    setting = setting_of(gathered, taken)
    check_choices(setting, wishes, taken)
    say("choices (each can be overridden, see --help):")
    for choice in taken:
        say(choice.describe())
    return gathered, taken, setting


def fit(labelled: Path, pile: Path, run: Path, wishes: Wishes, say: Say) -> Fitted:
    """Train on the labelled images and the pile, and sort the pile into `run`.

    A call that was cut off goes on with `wishes.resume`; where both trainings had ended, only what
    follows them is done again.
    """
    started = time.monotonic()
    begun = _check(labelled, pile, run, wishes)
    if begun is not None:
        tried = recorded_trial(run, wishes, begun)
    else:
        tried = try_trunks(labelled, pile, run, wishes, choose_device(wishes.device), say)
    trunk = TrunkSoFar(begun, tried)
    gathered, taken, setting = _look(labelled, pile, run, wishes, trunk, say)
    if tried is not None:
        wishes = replace(wishes, minutes=tried.minutes_left(wishes.minutes))
    sweep(run)
    problem = replace(
        make_problem(setting, gathered.cache.images, gathered.labels, gathered.split),
        workers=worker_count(wishes.workers),
    )

    if is_frozen(taken):
        problem, views, minutes = looked_at(problem, gathered, wishes, recorded_views(run), say)
        taken.append(views)
        wishes = replace(wishes, minutes=minutes)

    # The labels alone first: a yardstick, and an estimate of how dirty the pile is.
    twin = trained(
        "supervised", problem, run / "supervised", wishes, choices.SUPERVISED_TIME, taken, say
    )
    before = estimate_before(twin, gathered, problem, wishes.device)
    taken.append(_selection(before.share, run, wishes))
    setting = replace(setting, oracle_share=value_of(taken, "O"))
    problem = replace(problem, setting=setting)
    say(taken[-1].describe())

    folds = train_folds(problem, gathered, run, wishes, taken, say)
    time_left = 1 - choices.SUPERVISED_TIME - (choices.FOLDS_TIME if folds else 0)
    trained(wishes.method, problem, run, wishes, time_left, taken, say)
    judged = judge_all(run, gathered, problem, wishes.device)
    calibration, familiarity = calibrate(judged, wishes.level)
    by_folds = judge_by_folds(folds, gathered, problem, wishes.device) if folds else None
    cross = by_folds.p_values() if by_folds is not None else None
    write_bytes(run / FAMILIARITY_FILE, save(familiarity.tensors()))
    write_calibration(run, calibration, by_folds)
    confidence = choose_acceptance(judged["validation"], gathered, wishes.target_precision)
    p_value = calibration.p_values(judged["pile"].score, "pile") if cross is None else cross.values
    rules = Rules(wishes.level, confidence.threshold, wishes.benjamini_hochberg, len(folds))
    triage, clusters = sort_pile(judged["pile"], p_value, gathered, rules)
    write_table(run, triage, say)
    carry_over(run, gathered.decided)
    write_sheets(run / "clusters", clusters, PileImages(gathered))

    alone, held_out = (held_out_errors(f, gathered.split, gathered.labels) for f in (twin, run))
    outcome = Outcome(
        before=before,
        pollution=estimate_after(calibration, judged["pile"], by_folds, gathered),
        helped=compare(alone.wrong, held_out.wrong),
        held_out=held_out,
        calibration=calibration,
        cross=cross,
        confidence=confidence,
        triage=triage,
        clusters=clusters,
        as_new=unknown_as_new(calibration, familiarity, judged["pile"], gathered),
    )
    summary = summarise(gathered, taken, outcome, run, wishes.method)
    summary |= {
        "sources": {"labelled": str(labelled), "pile": str(pile)},
        "seed": wishes.seed,
        "asked": wishes.unrecorded(),
        "near_distance": gathered.findings.near_distance,
        "seconds": round(time.monotonic() - started, 1),
        "device": describe_device(choose_device(wishes.device)),
    }
    write_json(run / "fit.json", summary)
    for line in tell(summary):
        say(line)
    _write_pages(run, say)
    minutes, seconds = divmod(round(time.monotonic() - started), 60)
    say(f"took {minutes} min {seconds} s")
    return Fitted(run, summary, triage)


def write_calibration(run: Path, calibration: Calibration, by_folds: FoldScores | None) -> None:
    """Write `calibration.json`: the scores behind every p-value."""
    record = calibration.to_json()
    if by_folds is not None:
        record["folds"] = [scores.tolist() for scores in by_folds.folds]
    write_json(run / CALIBRATION_FILE, record)


def _write_pages(run: Path, say: Say) -> None:
    say(f"model card: {write_card(run)}")
    try:
        say(f"report: {write_report(run)}")
    except AnedlError as error:
        # Without the drawing packages the sorted pile is still there.
        say(f"no report: {error}")


def _check_folder(labelled: Path, pile: Path, run: Path, resume: bool) -> None:
    for source in (labelled, pile):
        if run.resolve().is_relative_to(source.resolve()):
            raise ConfigError(
                f"{run}: the run folder lies in {source}, whose images it would be mistaken for; "
                f"choose a place outside"
            )
    if not run.exists() or resume:
        return
    if not run.is_dir():
        raise ConfigError(f"{run}: is a file; choose a folder for the run")
    if (run / "config.json").exists() or (run / "supervised").exists():
        raise ConfigError(
            f"{run} already holds a run: continue it with --resume or choose another folder"
        )
    if was_cut(run):
        raise ConfigError(
            f"{run}: a fit was begun here and has not ended: go on with it with --resume, or "
            f"choose another folder"
        )
    if foreign := sorted(path.name for path in run.iterdir() if path.name not in LOOKED):
        raise ConfigError(
            f"{run}: holds other files ({foreign[0]!r} …); choose an empty or a new folder"
        )


def _first_choices(
    gathered: Gathered, wishes: Wishes, trunk: Choice, frozen: Choice
) -> list[Choice]:
    side = gathered.side
    assert isinstance(side.value, int)
    return [
        side,
        choices.choose_augmentation(side.value, wishes.augmentation),
        trunk,
        *([frozen] if frozen.value or trained_on(str(trunk.value)) else []),
        choices.choose_batch_size(len(gathered.split.labelled), wishes.batch_size),
        choices.choose_top_m(len(gathered.names), wishes.top_m),
        gathered.folds,
        *distance_choice(gathered.findings, wishes.near_distance is not None),
    ]


def _selection(outlier_share: float, run: Path, wishes: Wishes) -> Choice:
    """O; a run that goes on keeps its own, whatever the estimate's last bits say today."""
    choice = choices.choose_selection_share(outlier_share, wishes.selection_share)
    recorded = recorded_share(run)
    if recorded is None or wishes.selection_share is not None:
        return choice
    return replace(choice, value=recorded)
