"""A threshold for new images that is set after training, by known images the model has not seen.

A model's promise holds for images from where its calibration images came. Elsewhere (another
camera, season or hospital) some dozen images of known classes set it anew; they need no labels, for
only their scores count. The run stays as it is: the model goes into a folder of its own with its
new calibration, as by `anedl export --weights`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from anedl.calibration import Calibration
from anedl.conformal import FloatArray, check_share, compare, percent, shortfall
from anedl.engine.inference import outputs_of
from anedl.engine.judge import Say, silent
from anedl.engine.load import problem_of
from anedl.engine.model import TrainedModel, load_model
from anedl.engine.own import find_cache
from anedl.errors import ConfigError, DataError, first_few
from anedl.export.description import model_of, read_calibration, read_familiarity
from anedl.export.predictor import Predictor, require_run
from anedl.export.reading import decoders, list_paths
from anedl.export.weights import check_vacant, write_weights
from anedl.familiarity import Familiarity
from anedl.intake.duplicates import duplicate_groups, shared_with
from anedl.intake.examined import Examined
from anedl.intake.fitted import near_distance_of
from anedl.intake.pool import examine_all

LEVEL = 0.05  # where neither the caller nor an earlier calibration names one


@dataclass(frozen=True, eq=False)
class Calibrated:
    """Where the calibrated model is, which one of the run it is, and what holds for new images."""

    folder: Path
    model: str
    calibration: Calibration


@dataclass(frozen=True, eq=False)
class Scores:
    """Scores (N,) of known images and, where the model has one, their familiarity (N,)."""

    score: FloatArray
    familiar: FloatArray


def calibrate(
    run: str | Path,
    images: Sequence[str | Path] | None = None,
    *,
    out: str | Path,
    level: float | None = None,
    model: str | None = None,
    licence: str | None = None,
    device: str = "auto",
    data: str | Path | None = None,
    workers: int | None = None,
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
        say: told in a line what is found.

    Raises:
        ConfigError: the level or a name is not one we can use, or the folder is taken.
        DataError: there is no such run, or too few images can be used.
    """
    folder, target = Path(run), Path(out)
    check_vacant(target)
    require_run(folder)
    chosen = model_of(folder, model)
    former = read_calibration(folder, chosen)
    if level is None:
        level = LEVEL if former is None else former.level
    check_share(level, "the level")
    trained = load_model(folder, chosen, device)
    if images is None and trained.spec.own is not None:
        raise ConfigError(
            f"{folder}: `anedl fit` has calibrated this run by itself; name images of its classes "
            "that it has not seen, to calibrate it for where they come from"
        )
    root = None if data is None else Path(data)
    familiarity = read_familiarity(folder, former)
    if familiarity is None:
        familiarity = _learnt(trained, folder, root, say, needed=images is None)
    if images is None:
        found = _of_validation(trained, folder, root, familiarity, say)
        notes = [_about_validation(chosen, len(found.score))]
    else:
        predictor = Predictor(trained, familiarity=familiarity)
        paths = [Path(path) for path in images]
        found = _of_images(predictor, folder, paths, decoders(workers), say)
        notes = [
            f"calibrated after training, on {len(found.score):,} images that were said to be of "
            f"known classes: the promise is for images from where these come from"
        ]
    if reason := shortfall(len(found.score), level):
        raise DataError(f"{reason}; give more images, or ask for less by a coarser level")
    if former is not None:
        notes.append(_against_former(former, found, level))
    calibration = Calibration(found.score, np.zeros(0), level, found.familiar, tuple(notes))
    write_weights(folder, target, chosen, licence, (calibration, familiarity))
    return Calibrated(target, chosen, calibration)


def _learnt(
    trained: TrainedModel, folder: Path, root: Path | None, say: Say, needed: bool
) -> Familiarity | None:
    """What is familiar to a model that was never asked, by the images it was trained on."""
    try:
        problem = problem_of(trained.spec, folder, root)
    except DataError as error:
        if needed:
            raise
        say(f"new images will be judged by their score alone, without familiarity: {error}")
        return None
    labelled = problem.images_at(trained.split.labelled)
    say(f"looking at the {len(labelled):,} labelled images for what is familiar")
    return Familiarity.of(outputs_of(trained.method, labelled, trained.precision).features)


def _of_validation(
    trained: TrainedModel,
    folder: Path,
    root: Path | None,
    familiarity: Familiarity | None,
    say: Say,
) -> Scores:
    problem = problem_of(trained.spec, folder, root)
    if trained.split != problem.split:
        raise DataError(f"{folder / 'split.json'}: the data here are not those of this run")
    images = problem.validation()[0]
    say(f"calibrating on {len(images):,} validation images")
    outputs = outputs_of(trained.method, images, trained.precision)
    score = outputs.score.double().cpu().numpy()
    if familiarity is None:
        return Scores(score, np.zeros(0))
    return Scores(score, familiarity.score(outputs.features).double().cpu().numpy())


def _about_validation(model: str, images: int) -> str:
    if model == "last":
        return f"calibrated on the run's {images:,} validation images, which chose nothing about it"
    return (
        f"calibrated on the run's {images:,} validation images, which also chose this model among "
        f"its epochs: of new images of known classes slightly more may be lost than is promised"
    )


def _of_images(
    predictor: Predictor, folder: Path, paths: Sequence[Path], workers: int, say: Say
) -> Scores:
    """What the model says of image files, without those that it knows and without copies."""
    listed = list_paths(paths)
    unread = [f"{wanted.name} ({wanted.error})" for wanted in listed.wanted if wanted.error]
    sound = [wanted for wanted in listed.wanted if wanted.error is None]
    say(f"looking at {len(sound):,} images")
    examined = examine_all([w.path for w in sound], predictor.framing.resize, workers)
    pieces, digests, hashes = [], [], []
    answers: Iterator[tuple[str, Examined | str]] = zip(
        (wanted.name for wanted in sound), examined, strict=True
    )
    while chunk := list(islice(answers, predictor.batch_size)):
        unread += [f"{name} ({reason})" for name, reason in chunk if isinstance(reason, str)]
        images = [image for _, image in chunk if isinstance(image, Examined)]
        if images:
            frames = np.stack([predictor.framing.crop(image.frame) for image in images])
            pieces.append(predictor.judge(frames))
            digests += [image.digest.hex() for image in images]
            hashes += [image.hash for image in images]
    if listed.passed_over:
        say(f"{len(listed.passed_over):,} files are no images and were passed over")
    if unread:
        say(f"{len(unread):,} images could not be read: {first_few(unread)}")
    if not pieces:
        raise DataError("none of what was named is an image that can be read")
    used = _unseen(folder, predictor, digests, np.array(hashes, np.uint64), say)
    score = np.concatenate([piece.inlier_score for piece in pieces])[used]
    familiar = [piece.familiarity for piece in pieces if piece.familiarity is not None]
    return Scores(score, np.concatenate(familiar)[used] if familiar else np.zeros(0))


def _unseen(
    folder: Path,
    predictor: Predictor,
    digests: list[str],
    hashes: np.ndarray[tuple[int], np.dtype[np.uint64]],
    say: Say,
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Positions of the images that may calibrate: no copy of another, none that the fit had."""
    _, first = np.unique(np.array(digests), return_index=True)
    if copies := len(digests) - len(first):
        say(f"{copies:,} are exact copies of others, and count once")
    first = np.sort(first).astype(np.int64)
    if predictor.trained.spec.own is None:
        return first
    try:
        cache = find_cache(folder)
    except DataError:
        say(
            "whether training has seen some of these images cannot be told here, without the run's "
            "own: it must not have"
        )
        return first
    known = len(cache.digests)
    groups = duplicate_groups(
        [*cache.digests, *digests],
        np.concatenate([cache.hashes, hashes]),
        near_distance_of(cache.folder.parent),
    )
    seen = shared_with(groups, np.arange(known), known + first) - known
    if len(seen):
        say(
            f"{len(seen):,} of the images, or copies of them, are the run's own, and say nothing "
            f"of new ones: left out"
        )
    used = np.setdiff1d(first, seen)
    if not len(used):
        raise DataError(
            "all of these images, or copies of them, were there when the model was trained; a "
            "threshold for new images takes others"
        )
    return used


def _against_former(former: Calibration, found: Scores, level: float) -> str:
    """Whether the threshold that the model had would have done for these images."""
    comparison = compare(former.fresh, found.score, level)
    differ = (
        f"their scores differ from those of the {comparison.fresh:,} images that had calibrated it "
        f"(p = {comparison.p_value:.2g})"
        if comparison.differ
        else f"no difference shows between their scores and those of the {comparison.fresh:,} "
        f"images that had calibrated it (p = {comparison.p_value:.2g})"
    )
    if shortfall(comparison.fresh, level):
        return differ
    familiar = found.familiar if len(former.familiar) else None
    lost = float((former.p_values(found.score, "new", familiar) <= level).mean())
    return (
        f"by the calibration before, {percent(lost)} of these images would be lost where "
        f"{percent(level)} may be; {differ}"
    )
