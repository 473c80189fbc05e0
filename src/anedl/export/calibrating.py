"""A threshold for new images that is set after training, by known images the model has not seen.

A model's promise holds for images from where its calibration images came. Elsewhere (another
camera, season or hospital) some dozen images of known classes set it anew; they need no labels, for
only their scores count. The run stays as it is: the model goes into a folder of its own with its
new calibration, as by `anedl export --weights`.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from anedl.calibration import Calibration
from anedl.conformal import (
    FloatArray,
    chance_to_lose,
    check_share,
    clopper_pearson,
    compare,
    percent,
    shortfall,
)
from anedl.data.dataset import IntArray
from anedl.engine.inference import outputs_of
from anedl.engine.judge import Say, silent
from anedl.engine.load import problem_of
from anedl.engine.model import TrainedModel, load_model
from anedl.engine.own import find_cache
from anedl.engine.problem import Problem
from anedl.errors import ConfigError, DataError, counted, first_few
from anedl.export.description import model_of, read_calibration, read_familiarity
from anedl.export.predictor import Predictor, require_run
from anedl.export.reading import Wanted, decoders, list_paths, require_there
from anedl.export.weights import check_vacant, write_weights
from anedl.familiarity import Familiarity
from anedl.intake.duplicates import copies_of, duplicate_groups
from anedl.intake.examined import Examined
from anedl.intake.fitted import near_distance_of
from anedl.intake.pool import examine_all

UNLIKELY = 0.05  # a loss this unlikely under the former calibration is not put down to chance
LEVEL = 0.05  # where neither the caller nor an earlier calibration names one


@dataclass(frozen=True, eq=False)
class Calibrated:
    """Where the calibrated model is, which one of the run it is, and what holds for new images.

    `told` is what was found on the way: images that could not be read, copies, what is missing.
    """

    folder: Path
    model: str
    calibration: Calibration
    told: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores (N,) of known images and, where the model has one, their familiarity (N,)."""

    score: FloatArray
    familiar: FloatArray


def calibrate(
    run: str | Path,
    images: str | Path | Sequence[str | Path] | None = None,
    *,
    out: str | Path,
    level: float | None = None,
    model: str | None = None,
    licence: str | None = None,
    device: str = "auto",
    data: str | Path | None = None,
    workers: int | None = None,
    near_distance: int | None = None,
    say: Say = silent,
) -> Calibrated:
    """Set a finished model's threshold for new images anew.

    Args:
        run: run folder, or a folder of `anedl export --weights`.
        images: files and folders of images of known classes that training has not seen. None takes
            the validation images, of a benchmark's run.
        out: a new folder, for the model with its new calibration and its card.
        level: the share of images of known classes that may be lost; by default the one that the
            run was calibrated for, else 5 %.
        model: "last" or "best" by validation; by default the one that is calibrated, else "last".
        licence: of the weights, for the card, as hubs name it.
        device: "auto", "cpu" or "cuda".
        data: folder of the data sets, for benchmarks.
        workers: processes that decode; default: one a core, at most 8.
        near_distance: images whose 64-bit hashes differ in so many bits or fewer are copies, of
            which one counts; 0: equal pixels only. Default: what the fit had, else 4.
        say: told in a line what is found; `told` of what is returned has the same lines.

    Raises:
        ConfigError: the level or a name is not one we can use, or the folder is taken.
        DataError: there is no such run, a path that was named is not there or cannot be read, or
            too few images can be used.
    """
    folder, target = Path(run), Path(out)
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        say(text)

    named = [images] if isinstance(images, str | Path) else images
    paths = [] if named is None else [Path(path) for path in named]
    check_vacant(target)
    require_run(folder)
    require_there(paths)
    chosen = model_of(folder, model)
    former = read_calibration(folder, chosen)
    if level is None:
        level = _level_of(folder, former)
    check_share(level, "the level")
    trained = load_model(folder, chosen, device)
    if images is None and trained.spec.own is not None:
        raise ConfigError(
            f"{folder}: name images of its classes that this run has not seen, to calibrate it for "
            "where they come from"
        )
    root = None if data is None else Path(data)
    familiarity = read_familiarity(folder, former)
    if familiarity is None:
        familiarity = _learnt(trained, folder, root, tell, needed=images is None)
    if images is None:
        found = _of_validation(trained, folder, root, familiarity, tell)
        notes = [_about_validation(chosen, len(found.score))]
    else:
        predictor = Predictor(trained, familiarity=familiarity)
        distance = near_distance_of(folder) if near_distance is None else near_distance
        found = _of_images(predictor, folder, paths, decoders(workers), distance, tell)
        notes = [
            f"calibrated after training, on {len(found.score):,} different images that were said "
            f"to be of known classes: the promise is for images from where these come from"
        ]
    if reason := shortfall(len(found.score), level):
        raise DataError(f"{reason}; give more images, or ask for less by a coarser level")
    if former is not None:
        notes.append(_against_former(former, found, level))
    calibration = Calibration(found.score, np.zeros(0), level, found.familiar, tuple(notes))
    write_weights(folder, target, chosen, licence, (calibration, familiarity))
    return Calibrated(target, chosen, calibration, tuple(told))


def _level_of(folder: Path, former: Calibration | None) -> float:
    """The level that the model, or else the other one of its run, was calibrated for."""
    known = former or read_calibration(folder, model_of(folder, None))
    return LEVEL if known is None else known.level


def _learnt(
    trained: TrainedModel, folder: Path, root: Path | None, say: Say, needed: bool
) -> Familiarity | None:
    """What is familiar to a model that was never asked, by the images it was trained on."""
    try:
        problem = _problem(trained, folder, root)
    except DataError as error:
        if needed:
            raise
        say(f"new images will be judged by their score alone, without familiarity: {error}")
        return None
    labelled = problem.images_at(trained.split.labelled)
    say(f"looking at the {counted(len(labelled), 'labelled image')} for what is familiar")
    return Familiarity.of(outputs_of(trained.method, labelled, trained.precision).features)


def _of_validation(
    trained: TrainedModel,
    folder: Path,
    root: Path | None,
    familiarity: Familiarity | None,
    say: Say,
) -> Scores:
    images = _problem(trained, folder, root).validation()[0]
    say(f"calibrating on {counted(len(images), 'validation image')}")
    outputs = outputs_of(trained.method, images, trained.precision)
    score = outputs.score.double().cpu().numpy()
    if familiarity is None:
        return Scores(score, np.zeros(0))
    return Scores(score, familiarity.score(outputs.features).double().cpu().numpy())


def _problem(trained: TrainedModel, folder: Path, root: Path | None) -> Problem:
    problem = problem_of(trained.spec, folder, root)
    if trained.split != problem.split:
        raise DataError(f"{folder / 'split.json'}: the data here are not those of this run")
    return problem


def _about_validation(model: str, images: int) -> str:
    if model == "last":
        return f"calibrated on the run's {images:,} validation images, which chose nothing in it"
    return (
        f"calibrated on the run's {images:,} validation images, which also chose this model among "
        f"its epochs: of new images of known classes somewhat more may be lost than is promised"
    )


def _of_images(
    predictor: Predictor,
    folder: Path,
    paths: Sequence[Path],
    workers: int,
    near_distance: int,
    say: Say,
) -> Scores:
    """What the model says of image files, without those that it knows and without copies."""
    listed = list_paths(paths)
    unread = [(wanted, wanted.error) for wanted in listed.wanted if wanted.error]
    _refuse_named(unread, paths)
    sound = [wanted for wanted in listed.wanted if wanted.error is None]
    say(f"looking at {counted(len(sound), 'image')}")
    examined = examine_all([w.path for w in sound], predictor.framing.resize, workers)
    pieces, digests, hashes = [], [], []
    answers: Iterator[tuple[Wanted, Examined | str]] = zip(sound, examined, strict=True)
    while chunk := list(islice(answers, predictor.batch_size)):
        unread += [(wanted, reason) for wanted, reason in chunk if isinstance(reason, str)]
        images = [image for _, image in chunk if isinstance(image, Examined)]
        if images:
            frames = np.stack([predictor.framing.crop(image.frame) for image in images])
            pieces.append(predictor.judge(frames))
            digests += [image.digest.hex() for image in images]
            hashes += [image.hash for image in images]
    _refuse_named(unread, paths)
    if listed.passed_over:
        count = len(listed.passed_over)
        files_are = "file is no image and was" if count == 1 else "files are no images and were"
        say(f"{count:,} {files_are} passed over")
    if listed.without:
        say(f"there are no images in {first_few(listed.without)}")
    if unread:
        say(f"{counted(len(unread), 'image')} could not be read: {_with_reasons(unread)}")
    if not pieces:
        raise DataError("none of what was named is an image that can be read")
    used = _unseen(folder, predictor, digests, np.array(hashes, np.uint64), near_distance, say)
    score = np.concatenate([piece.inlier_score for piece in pieces])[used]
    familiar = [piece.familiarity for piece in pieces if piece.familiarity is not None]
    return Scores(score, np.concatenate(familiar)[used] if familiar else np.zeros(0))


def _refuse_named(unread: Sequence[tuple[Wanted, str]], paths: Sequence[Path]) -> None:
    """Refuse files and folders that cannot be read and were named themselves.

    Whoever names a file wants it to count; what lies in a folder is left out and told.
    """
    named = set(paths)
    if refused := [entry for entry in unread if entry[0].path in named]:
        raise DataError(
            f"what was named cannot be read: {_with_reasons(refused)}; leave it out, or name sound "
            "images of known classes"
        )


def _with_reasons(unread: Sequence[tuple[Wanted, str]]) -> str:
    return first_few([f"{wanted.name} ({reason})" for wanted, reason in unread])


def _unseen(
    folder: Path,
    predictor: Predictor,
    digests: list[str],
    hashes: npt.NDArray[np.uint64],
    near_distance: int,
    say: Say,
) -> IntArray:
    """Positions of the images that may calibrate: different ones, none of which the run has had.

    Pictures of a burst are as good as one: with each of them counted, an odd scene would set the
    threshold by itself.
    """
    groups = duplicate_groups(digests, hashes, near_distance)
    _, leaders = np.unique(groups[groups >= 0], return_index=True)
    different = np.union1d(np.flatnonzero(groups < 0), np.flatnonzero(groups >= 0)[leaders])
    if copies := len(digests) - len(different):
        are = "is a copy of another" if copies == 1 else "are copies of others"
        say(f"{copies:,} of the images {are}, or nearly: all alike count as one")
    cache = None
    with suppress(DataError):
        cache = find_cache(folder) if predictor.trained.spec.own is not None else None
    if cache is None:
        say(
            "whether the run has had some of these images cannot be told here, without its own: it "
            "must not have"
        )
        return different
    had = copies_of(
        [digests[position] for position in different],
        hashes[different],
        cache.digests,
        cache.hashes,
        near_distance,
    )
    if had.any():
        are = (
            "or a copy of it, is the run's own, and says"
            if had.sum() == 1
            else "or copies of them, are the run's own, and say"
        )
        say(f"{int(had.sum()):,} of the images, {are} nothing of new ones: left out")
    if had.all():
        raise DataError(
            "all of these images, or copies of them, were there when the model was trained; a "
            "threshold for new images takes others. If they only look alike, --near-distance 0 "
            "takes equal pixels alone for copies"
        )
    return different[~had]


def _against_former(former: Calibration, found: Scores, level: float) -> str:
    """Whether the calibration that the model had would have done for these images."""
    images, before = len(found.score), len(former.fresh)
    if np.array_equal(np.sort(found.score), former.fresh):
        return "these are the images that had calibrated it before"
    differ = compare(former.fresh, found.score, level)
    scores = (
        f"their scores differ from those of the {before:,} images that had calibrated it "
        f"(p = {differ.p_value:.2g})"
        if differ.differ
        else f"no difference shows between their scores and those of the {before:,} images that "
        f"had calibrated it (p = {differ.p_value:.2g})"
    )
    if shortfall(before, level):
        return scores
    familiar = found.familiar if len(former.familiar) else None
    lost = int((former.p_values(found.score, "new", familiar) <= level).sum())
    by_chance = chance_to_lose(lost, images, before, level)
    low, high = clopper_pearson(lost, images, 0.9)
    if by_chance < UNLIKELY:
        verdict = f"more than chance explains (p = {by_chance:.2g})"
    elif lost > level * images:
        verdict = f"which chance may explain (p = {by_chance:.2g})"
    else:
        verdict = "and no more are"
    return (
        f"by the calibration before, {percent(lost / images)} of these images would be lost (90 % "
        f"interval {percent(low)} to {percent(high)}) where {percent(level)} may be, {verdict}; "
        f"{scores}"
    )
