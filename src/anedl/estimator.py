"""A scikit-learn classifier that learns from unlabelled images too and may answer "unknown"."""

import warnings
from dataclasses import replace
from math import prod
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse
from scipy.special import expit, log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from anedl.calibration import Calibration
from anedl.data.arrays import ImageFormat, image_format, mean_and_deviation
from anedl.data.dataset import ArrayImages, IntArray, UInt8Array
from anedl.data.labels import as_labels, is_text, is_unlabelled, marks, with_unknown
from anedl.data.protocol import Split
from anedl.data.settings import Setting
from anedl.engine.config import TrainConfig
from anedl.engine.features import with_features
from anedl.engine.held_model import HeldModel, Said
from anedl.engine.in_memory import NEVER, train_in_memory
from anedl.engine.model import choose_device
from anedl.engine.own import classes_to_sum, make_problem
from anedl.engine.pool_share import FEWEST_VALIDATION, estimate_pool, share_to_select
from anedl.engine.precision import precision_of
from anedl.engine.problem import Problem
from anedl.engine.spec import make_spec
from anedl.familiarity import Familiarity
from anedl.intake.partition import Partition, partition
from anedl.methods.default import DEFAULT_METHOD
from anedl.options import option_types
from anedl.parameter_kinds import InputError, check_kinds

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]

# The recipe of the digits is the one tuned for hundreds of steps and few labels, as here.
RECIPE = "digits"
# A class with fewer labelled images keeps them all: two held out would be half of them.
FEWEST_TO_HOLD_OUT = 5


class OpenSetClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Open-set semi-supervised image classifier.

    `fit` takes labelled and unlabelled images together. Unlabelled ones bear the label −1, or "",
    "-1" or None where labels are text, or NaN in either (of these scikit-learn cannot stratify None
    and NaN, nor a −1 that is no text among texts); some of them may be of no known class. `predict`
    answers `unknown_label` where an image does not look like one of the known classes: it rejects
    at most `level` of the true inliers, by split-conformal p-values from labelled images that
    training has not seen.

    Images are (N, height, width), (N, height, width, channels) or flattened (N, D), with 1 or 3
    channels. Bytes and floats in 0…1 keep their scale; other numbers are stretched between zero (or
    the least, if negative) and the largest that `fit` saw. D numbers without `image_shape` are a
    square grey image, or one row of pixels where D is no square.

    Parameters
    ----------
    method : a name that `anedl methods` lists. Without unlabelled images it is "supervised".
    epochs, epoch_steps, batch_size : length of the training; raise them for large images.
    image_shape : (height, width) or (height, width, channels) of flattened images.
    image_size : side of the square that the network sees; default: the longer side, 8 to 96.
    pixel_range : the numbers of black and white, where the rule above does not fit.
    level : the share of true inliers that may be rejected.
    unknown_label : what `predict` answers for rejected images; default: −1, or "unknown" for text.
    selection_share : the share of the unlabelled images that joins self-training. Default: 0.71 ×
        the share that seems to be of known classes after a short training on the labels alone; 0.5
        where fewer than 10 images are held out for validation.
    validation_share, calibration_share : labelled images held out to choose the epoch and to set
        the threshold; 0 holds none out, and without calibration nothing is rejected. A class with
        fewer than 5 labelled images leaves none of any class to hold out.
    random_state : seed; the same one gives the same model on the same machine.
    device : "auto", "cpu" or "cuda".
    augmentation : "digits" (small turns and shifts, never mirrored), "small" (mirrored, cropped,
        colours changed); "auto": digits for grey images, small for colour.
    options : further options of the engine or the method by name, such as
        {"learning_rate": 0.01, "backbone": "wrn-28-2"}; photographs want a trunk that is trained
        already, {"frozen": True, "backbone": "efficientnet-lite0"}.
    verbose : show progress on standard error.

    Attributes
    ----------
    classes_ : (K,) known classes, sorted.
    transduction_ : (N,) a label for every fitted image: given ones as given, others predicted. The
        promise of `level` is for new images; training has seen these.
    labeled_iter_ : (N,) 0 for given labels, the epoch (from 1) in which self-training first took an
        unlabelled image, −1 where it never did or the method does not choose among them.
    termination_condition_ : "max_iter": training always takes all epochs.
    n_iter_ : the number of epochs.
    outlier_share_ : the estimate behind the default `selection_share`, with its interval, or None.
    selection_share_ : the share that was used.
    best_epoch_ : the epoch (from 1) of the model that is kept.
    calibration_scores_ : inlier scores of the labelled images held out for the threshold, sorted.
    calibration_familiarity_ : familiarities of the same images, in the same order.
    method_ : the method that was trained.
    image_format_ : how numbers become images.
    n_features_in_ : numbers in an image; feature_names_in_ where they had names.
    """

    def __init__(
        self,
        method: str = DEFAULT_METHOD,
        *,
        epochs: int = 12,
        epoch_steps: int = 50,
        batch_size: int = 32,
        image_shape: tuple[int, ...] | None = None,
        image_size: int | None = None,
        pixel_range: tuple[float, float] | None = None,
        level: float = 0.05,
        unknown_label: Any = None,
        selection_share: float | None = None,
        validation_share: float = 0.15,
        calibration_share: float = 0.15,
        random_state: Any = None,
        device: str = "auto",
        augmentation: str = "auto",
        options: dict[str, Any] | None = None,
        verbose: bool = False,
    ) -> None:
        self.method = method
        self.epochs = epochs
        self.epoch_steps = epoch_steps
        self.batch_size = batch_size
        self.image_shape = image_shape
        self.image_size = image_size
        self.pixel_range = pixel_range
        self.level = level
        self.unknown_label = unknown_label
        self.selection_share = selection_share
        self.validation_share = validation_share
        self.calibration_share = calibration_share
        self.random_state = random_state
        self.device = device
        self.augmentation = augmentation
        self.options = options
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        # On tables that are no images, in the few steps of a default.
        tags.classifier_tags.poor_score = True
        return tags

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803 - scikit-learn's name
        """Train on images `X` with labels `y` (N,), unlabelled ones among them.

        Raises:
            ValueError: `X` or `y` is not what it should be, or there are fewer than two classes.
            ConfigError: a parameter is not one that we know or can use.
        """
        self._check_parameters()
        (rows, y), shape = self._read(X, y=None if y is None else as_labels(y))
        labels = self._number(y)
        self.image_format_ = image_format(
            rows, self._shape(shape), self.pixel_range, self.image_size
        )
        images = self.image_format_.images(rows)
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        roles = self._hold_out(labels, seed)
        self._train(images, labels, roles, seed)
        self._calibrate(images[roles.labelled], images[roles.calibration])
        self._look_back(images, labels)
        return self

    def predict(self, X: Any) -> Array:  # noqa: N803
        """(N,) the most likely known class, or `unknown_label` where an image is rejected."""
        return self._named(self._judge(X))

    def predict_proba(self, X: Any) -> FloatArray:  # noqa: N803
        """(N, K) probabilities of the known classes, in the order of `classes_`.

        They suppose that the image is of one of these: see `p_values` for whether it is.
        """
        return _probabilities(self._judge(X).logits)

    def predict_log_proba(self, X: Any) -> FloatArray:  # noqa: N803
        """(N, K) logarithms of `predict_proba`."""
        logarithms: FloatArray = log_softmax(self._judge(X).logits, axis=1)
        return logarithms

    def decision_function(self, X: Any) -> FloatArray:  # noqa: N803
        """(N, K) logits of the known classes; of two classes (N,), the second's less the first's.

        As in every scikit-learn classifier the largest one is the predicted class, rejection aside.
        How much an image looks like an inlier is `inlier_score`.
        """
        logits = self._judge(X).logits
        return logits[:, 1] - logits[:, 0] if len(self.classes_) == 2 else logits

    def inlier_score(self, X: Any) -> FloatArray:  # noqa: N803
        """(N,) the method's inlier score, higher the more an image looks like a known class."""
        return self._judge(X).score

    def familiarity(self, X: Any) -> FloatArray:  # noqa: N803
        """(N,) how much of an image's features labelled images have too, −1 or less to 0.

        Low where an image resembles no labelled one at all: the inlier score may know nothing of
        such images.
        """
        found = self._judge(X).familiarity
        assert found is not None
        return found

    def p_values(self, X: Any) -> FloatArray:  # noqa: N803
        """(N,) p-values of "this image is of a known class"; `predict` rejects up to `level`.

        Small where `inlier_score` or `familiarity` is low. All are 1 where no image was held out
        for calibration.
        """
        return self._p_values(self._judge(X))

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:  # noqa: N803
        """Share of the labelled images that get their label; unlabelled ones are left out.

        An image of a known class that is rejected counts as an error.
        """
        y = as_labels(y)
        known = _labelled(y)
        right = self.predict(X)[known] == y[known]
        return float(np.average(right, weights=_picked(sample_weight, known)))

    def _check_parameters(self) -> None:
        check_kinds(self.get_params())
        if not 0 < self.level < 1:
            raise InputError(f"level {self.level}: must lie between 0 and 1")
        if self.selection_share is not None and not 0 < self.selection_share <= 1:
            raise InputError(f"selection_share {self.selection_share}: must lie in 0…1, above 0")
        if self.augmentation not in ("auto", "digits", "small"):
            raise InputError(f"augmentation {self.augmentation!r} is not auto, digits or small")

    def _read(self, X: Any, **more: Any) -> tuple[Any, tuple[int, ...] | None]:  # noqa: N803
        """`X` as rows (N, D), with `y` where that is among `more`; and an image's shape, if any."""
        shape = None
        if not issparse(X):
            dimensions = X.ndim if hasattr(X, "ndim") else np.asarray(X).ndim
            if dimensions > 2:
                X = np.asarray(X)  # noqa: N806
                shape = X.shape[1:]
                X = X.reshape(len(X), prod(shape))  # noqa: N806
        return validate_data(self, X, **more), shape

    def _shape(self, shape: tuple[int, ...] | None) -> tuple[int, ...] | None:
        """The shape of an image, by X or by `image_shape`, which must agree."""
        stated = None if self.image_shape is None else tuple(map(int, self.image_shape))
        if shape and stated and (*shape, 1)[:3] != (*stated, 1)[:3]:
            raise InputError(
                f"image_shape {stated}: the images in X are of shape {tuple(shape)}; leave "
                f"image_shape out, or flatten X if image_shape is right"
            )
        return shape or stated

    def _number(self, y: Array) -> IntArray:
        """Labels as 0…K−1, and K for the unlabelled; sets `classes_` and what "unknown" is."""
        unlabelled = is_unlabelled(y)
        if not unlabelled.all():
            check_classification_targets(y[~unlabelled])
        self.classes_, numbers = np.unique(y[~unlabelled], return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(
                f"a classifier needs labelled images of two classes or more; got "
                f"{len(self.classes_) or 'none of any'} class{_if_a_fold(y)}"
            )
        unknown = self.unknown_label
        if unknown is None:
            unknown = "unknown" if is_text(self.classes_) else -1
        if any(unknown == label for label in self.classes_):
            mark = '""' if is_text(self.classes_) else "−1"
            raise InputError(
                f"unknown_label {unknown!r} is also a class: choose another; if these images have "
                f"no label, mark them {mark} instead"
            )
        self._answers = with_unknown(self.classes_, unknown)
        labels = np.full(len(y), len(self.classes_), np.int64)
        labels[~unlabelled] = numbers
        return labels

    def _hold_out(self, labels: IntArray, seed: int) -> Partition:
        """Positions of the labelled images by role; none held out where a class has too few."""
        labelled = np.flatnonzero(labels < len(self.classes_))
        own = labels[labelled]
        shares = (self.validation_share, self.calibration_share)
        if np.bincount(own).min() < FEWEST_TO_HOLD_OUT and any(shares):
            warnings.warn(
                f"a class has fewer than {FEWEST_TO_HOLD_OUT} labelled images: none are held out, "
                f"so the last epoch's model is kept and nothing is rejected",
                stacklevel=3,
            )
            shares = (0.0, 0.0)
        alone = np.full(len(own), -1)
        parts = partition(own, alone, *shares, seed=seed, minimum=1)
        return Partition(
            labelled[parts.labelled], labelled[parts.validation], labelled[parts.calibration]
        )

    def _train(self, images: UInt8Array, labels: IntArray, roles: Partition, seed: int) -> None:
        count = len(self.classes_)
        pool = np.flatnonzero(labels == count)
        self.method_ = self.method
        if len(pool) == 0 and self.method != "supervised":
            warnings.warn(
                f"y has no unlabelled images, which would be marked {marks(self.classes_)}: the "
                f"method is supervised, on the labelled ones alone",
                stacklevel=3,
            )
            self.method_ = "supervised"
        setting = self._setting(images, labels)
        names = tuple(str(label) for label in self.classes_)
        split = Split(
            setting=setting.name, fold=0, development=False, known_classes=tuple(range(count)),
            known_names=names, labelled=roles.labelled, validation=roles.validation, pool=pool,
            test=roles.calibration, test_part="train",
        )  # fmt: skip
        problem = make_problem(setting, ArrayImages(images), labels, split)
        problem = self._looked_at(problem, seed)
        self._choose_share(problem, seed)
        setting = replace(setting, oracle_share=self.selection_share_)
        arguments = self._arguments(setting, seed)
        problem, spec = replace(problem, setting=setting), make_spec(**arguments)
        run = train_in_memory(spec, problem, self.device, quiet=not self.verbose)
        self._model = HeldModel(arguments, len(pool), run.weights, self.device)
        self.n_iter_, self.best_epoch_ = spec.train.epochs, run.epoch + 1
        self.termination_condition_ = "max_iter"
        self.labeled_iter_ = np.zeros(len(labels), np.int64)
        first = run.first_selected
        self.labeled_iter_[pool] = np.where(first == NEVER, -1, first + 1)

    def _looked_at(self, problem: Problem, seed: int) -> Problem:
        """With the features of a frozen trunk, if it is one, for all trainings at once."""
        if not (self.options or {}).get("frozen"):
            return problem
        # How much self-training selects is not known yet, and features do not depend on it.
        spec = make_spec(**self._arguments(replace(problem.setting, oracle_share=1.0), seed))
        device = choose_device(self.device)
        precision = precision_of(spec, device)
        return with_features(problem, spec, precision, quiet=not self.verbose)

    def _choose_share(self, problem: Problem, seed: int) -> None:
        """Set O, from an estimate where none was given and there is something to estimate by."""
        self.outlier_share_ = None
        if self.selection_share is not None:
            self.selection_share_ = float(self.selection_share)
            return
        enough = len(problem.split.validation) >= FEWEST_VALIDATION
        if enough and len(problem.split.pool) and self.method_ != "supervised":
            arguments = self._arguments(problem.setting, seed)
            self.outlier_share_ = estimate_pool(
                arguments, problem, self.device, quiet=not self.verbose
            )
        found = self.outlier_share_
        self.selection_share_ = share_to_select(None if found is None else found.share)

    def _setting(self, images: UInt8Array, labels: IntArray) -> Setting:
        count, channels = len(self.classes_), images.shape[3]
        mean, deviation = mean_and_deviation(images)
        augmentation: Literal["digits", "small"] = "digits" if channels == 1 else "small"
        if self.augmentation != "auto":
            augmentation = "digits" if self.augmentation == "digits" else "small"
        return Setting(
            name="own",
            dataset=RECIPE,
            train_counts=tuple(np.bincount(labels, minlength=count + 1).tolist()),
            test_counts=(0,) * (count + 1),
            known_classes=tuple(range(count)),
            labelled_per_class=0,
            validation_per_class=0,
            test_cut_per_class=0,
            top_m=classes_to_sum(count),
            oracle_share=0.0,  # chosen later, once the pool has been looked at
            image_size=images.shape[1],
            mean=tuple(mean.tolist()),
            std=tuple(deviation.clip(min=1 / 255).tolist()),
            augmentation=augmentation,
            backbone=_backbone(images.shape[1]),
            folds="one",
            development_unknowns=0,
        )

    def _arguments(self, setting: Setting, seed: int) -> dict[str, Any]:
        """What `make_spec` takes: plain values, so that they can be pickled."""
        engine = option_types(TrainConfig)
        given = self.options or {}
        # Compiling takes longer than the default number of steps.
        train = {"epochs": int(self.epochs), "epoch_steps": int(self.epoch_steps),
                 "batch_size": int(self.batch_size), "execution": "eager"}  # fmt: skip
        train |= {name: value for name, value in given.items() if name in engine}
        options = {name: value for name, value in given.items() if name not in engine}
        if self.method_ != self.method:
            # They are another method's, but a slip in them is one all the same.
            make_spec(setting, self.method, options=options)
            options = {}
        return {"setting": setting, "method": self.method_, "seed": seed, "train": train,
                "options": options}  # fmt: skip

    def _calibrate(self, labelled: UInt8Array, fresh: UInt8Array) -> None:
        self.calibration_scores_ = self.calibration_familiarity_ = np.zeros(0)
        self._model.familiarity = Familiarity.of(self._model.judge(labelled).features)
        if len(fresh) == 0:
            return
        said = self._model.judge(fresh)
        assert said.familiarity is not None
        self._calibration = Calibration(said.score, np.zeros(0), self.level, said.familiarity)
        self.calibration_scores_ = self._calibration.fresh
        self.calibration_familiarity_ = self._calibration.familiar
        if note := self._calibration.threshold("new").note:
            warnings.warn(
                f"nothing is rejected: {note}; raise level or calibration_share, or label more",
                stacklevel=3,
            )

    def _look_back(self, images: UInt8Array, labels: IntArray) -> None:
        """Label the images that came without a label, and set `transduction_`."""
        given = labels < len(self.classes_)
        self.transduction_ = self._answers[labels]
        self.transduction_[~given] = self._named(self._model.judge(images[~given]))

    def _judge(self, X: Any) -> Said:  # noqa: N803
        check_is_fitted(self)
        image: ImageFormat = self.image_format_
        image.check_batch(getattr(X, "shape", ()))
        rows, shape = self._read(X, reset=False)
        image.check(shape)
        image.warn_of_scale(rows)
        return self._model.judge(image.images(rows))

    def _p_values(self, said: Said) -> FloatArray:
        if len(self.calibration_scores_) == 0:
            return np.ones(len(said.score))
        return self._calibration.p_values(said.score, "new", said.familiarity)

    def _named(self, said: Said) -> Array:
        rejected = self._p_values(said) <= self.level
        likeliest = said.logits.argmax(1)
        answers: Array = self._answers[np.where(rejected, len(self.classes_), likeliest)]
        return answers


def labelled_accuracy(estimator: Any, X: Any, y: Any) -> float:  # noqa: N803
    """A scorer for `GridSearchCV(scoring=…)` around any classifier: unlabelled images are left out.

    Meant for comparing with classifiers whose own `score` would count them, and in place of
    scikit-learn's scorers by name ("accuracy", "f1_macro" …), which all do.
    """
    y = as_labels(y)
    known = _labelled(y)
    return float((estimator.predict(X)[known] == y[known]).mean())


def _labelled(y: Array) -> npt.NDArray[np.bool_]:
    """(N,) which images can be scored: those with a label."""
    known = ~is_unlabelled(y)
    if not known.any():
        raise InputError(
            "there is no labelled image to score: y has unlabelled ones alone" + _if_a_fold(y)
        )
    return known


def _if_a_fold(y: Array) -> str:
    """The remedy where `y` may be a fold that scikit-learn could not stratify."""
    if y.dtype.kind != "O" or all(isinstance(label, str) for label in y):
        return ""
    return (
        ". If this is a fold of a cross-validation: scikit-learn stratifies text or numbers, but "
        'not objects of both kinds or None; mark images without a label by "" among text and by '
        "−1 among numbers, or take cv=KFold(shuffle=True)"
    )


def _probabilities(logits: FloatArray) -> FloatArray:
    if logits.shape[1] == 2:
        # The same function of the difference that `decision_function` gives, so that ranks agree.
        second = expit(logits[:, 1] - logits[:, 0])
        return np.stack([1.0 - second, second], axis=1)
    probabilities: FloatArray = softmax(logits, axis=1)
    return probabilities


def _picked(sample_weight: Any, known: npt.NDArray[np.bool_]) -> Array | None:
    return None if sample_weight is None else np.asarray(sample_weight)[known]


def _backbone(side: int) -> str:
    """A trunk for the size of the images; `options={"backbone": …}` takes another."""
    if side <= 16:
        return "wrn-digits"
    return "wrn-28-2" if side <= 64 else "resnet18"
