"""`OpenSetClassifier` by scikit-learn's own checks, on the digits, and on what users hand it."""

import pickle
import warnings

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import anedl
from anedl import blocks
from anedl.engine import features
from anedl.errors import AnedlError, ConfigError
from anedl.estimator import InputError, OpenSetClassifier, labelled_accuracy

# scikit-learn calls the images X, and so do these tests.
# ruff: noqa: N806

KNOWN = 6


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def shuffled_digits():
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.target))
    return digits.images[order], digits.target[order]


def partly_labelled(truth, labels_a_class):
    """Labels of the first few images of each known class, −1 for all other images."""
    y = np.full(len(truth), -1)
    for label in range(KNOWN):
        y[np.flatnonzero(truth == label)[:labels_a_class]] = label
    return y


def quick(**parameters):
    """A classifier that trains for a moment, with no image held out."""
    defaults = {
        "epochs": 2, "epoch_steps": 2, "batch_size": 8, "random_state": 0,
        "validation_share": 0, "calibration_share": 0,
    }  # fmt: skip
    return OpenSetClassifier(**defaults | parameters)


@pytest.fixture(scope="module")
def small():
    """100 digits of all classes with six labels for each known one."""
    images, truth = shuffled_digits()
    return images[:100], partly_labelled(truth[:100], 6)


@pytest.fixture(scope="module")
def trained():
    """A short training on 600 digits, and 597 it has not seen."""
    images, truth = shuffled_digits()
    y = partly_labelled(truth[:600], 30)
    classifier = OpenSetClassifier(
        epochs=5, epoch_steps=20, random_state=0, options={"learning_rate": 0.1}
    )
    return classifier.fit(images[:600], y), images, truth, y


EXPECTED_FAILURES = {
    "check_classifiers_classes": "its last part has classes −1 and 1, and −1 means unlabelled here "
    "(scikit-learn exempts its own semi-supervised classifiers by name)",
}


@pytest.mark.filterwarnings("ignore")  # no check has unlabelled rows, and each is told so
@parametrize_with_checks([quick()], expected_failed_checks=lambda _: EXPECTED_FAILURES)
def test_scikit_learn_accepts_it(estimator, check):
    check(estimator)


@pytest.mark.filterwarnings("ignore:y has no unlabelled")
@pytest.mark.parametrize("kind", [str, object])
def test_text_labels_pass_what_the_failing_check_asks_before_it_fails(kind):
    generator = np.random.default_rng(0)
    X, y = generator.normal(size=(30, 2)), np.array(["one", "two", "three"] * 10, kind)
    classifier = quick().fit(X, y)
    assert classifier.classes_.tolist() == ["one", "three", "two"]
    predicted = classifier.classes_[classifier.decision_function(X).argmax(1)]
    assert (classifier.predict(X) == predicted).all()


def test_it_classifies_and_rejects(trained):
    classifier, images, truth, _ = trained
    fresh, truth = images[1200:], truth[1200:]
    known = truth < KNOWN
    right = classifier.predict_proba(fresh).argmax(1) == truth
    assert right[known].mean() > 0.8
    rejected = classifier.predict(fresh) == -1
    # With 24 images held out at a level of 5 % the rate is Beta(1, 24): above 1/4 once in 1,000.
    assert len(classifier.calibration_scores_) == 24
    assert rejected[known].mean() < 0.25
    assert rejected[~known].mean() > rejected[known].mean() + 0.05


def test_rejection_is_by_p_values_from_images_held_out(trained):
    classifier, images, _, _ = trained
    fresh = images[1200:]
    held_out = classifier.calibration_scores_
    assert len(held_out) >= 19
    limits = blocks.thresholds(held_out, classifier.calibration_familiarity_)
    by_hand = blocks.p_values(limits, classifier.inlier_score(fresh), classifier.familiarity(fresh))
    np.testing.assert_allclose(classifier.p_values(fresh), by_hand)
    assert ((classifier.predict(fresh) == -1) == (by_hand <= 0.05)).all()
    by_score_alone = np.searchsorted(held_out, classifier.inlier_score(fresh), side="right")
    assert (by_hand * (len(held_out) + 1) < 1 + by_score_alone).any(), "all are familiar"


def test_every_fitted_image_has_a_label_and_a_history(trained):
    classifier, images, _, y = trained
    given = y != -1
    assert (classifier.transduction_[given] == y[given]).all()
    assert (classifier.transduction_[~given] == classifier.predict(images[:600][~given])).all()
    epochs = classifier.labeled_iter_
    assert (epochs[given] == 0).all()
    assert set(epochs[~given]) <= {-1, 2, 3, 4, 5}  # the first epoch only pre-trains
    assert (epochs[~given] == 2).sum() == round(classifier.selection_share_ * (~given).sum())
    assert classifier.termination_condition_ == "max_iter"
    assert (classifier.n_iter_, classifier.n_features_in_) == (5, 64)


def test_the_share_to_select_follows_from_the_outliers_among_the_unlabelled(trained):
    classifier, _, truth, y = trained
    estimate = classifier.outlier_share_
    outliers = (truth[:600][y == -1] >= KNOWN).mean()
    assert estimate.low <= outliers <= estimate.high
    assert abs(estimate.share - outliers) < 0.25
    assert classifier.selection_share_ == pytest.approx(0.71 * (1 - estimate.share))
    assert estimate.pile == (y == -1).sum()


def test_the_share_to_select_without_an_estimate(small):
    X, y = small
    unlabelled = (y == -1).sum()
    unseen = quick().fit(X, y)
    assert (unseen.selection_share_, unseen.outlier_share_) == (0.5, None)
    assert (unseen.labeled_iter_ == 2).sum() == round(0.5 * unlabelled)
    given = quick(selection_share=0.3).fit(X, y)
    assert (given.labeled_iter_ == 2).sum() == round(0.3 * unlabelled)


def test_score_leaves_unlabelled_images_out(trained):
    classifier, images, truth, _ = trained
    X, y = images[1200:1300], truth[1200:1300].copy()
    y[::2] = -1
    expected = (classifier.predict(X[1::2]) == y[1::2]).mean()
    assert classifier.score(X, y) == pytest.approx(expected)
    assert labelled_accuracy(classifier, X, y) == pytest.approx(expected)
    weights = np.where(np.arange(100) < 50, 0.0, 1.0)
    assert classifier.score(X, y, weights) == pytest.approx(classifier.score(X[50:], y[50:]))
    with pytest.raises(ValueError, match="no labelled image"):
        classifier.score(X, np.full(100, -1))


@pytest.mark.parametrize("way", ["pickle", "joblib"])
def test_a_fitted_one_survives_a_file(trained, tmp_path, way):
    classifier, images, _, _ = trained
    if way == "pickle":
        again = pickle.loads(pickle.dumps(classifier))
    else:
        joblib.dump(classifier, tmp_path / "classifier")
        again = joblib.load(tmp_path / "classifier")
    fresh = images[1200:1300]
    assert (again.predict(fresh) == classifier.predict(fresh)).all()
    assert (again.inlier_score(fresh) == classifier.inlier_score(fresh)).all()


def test_what_is_said_of_an_image_does_not_depend_on_the_others(trained):
    classifier, images, _, _ = trained
    together = classifier.decision_function(images[1200:1300])
    alone = np.concatenate(
        [classifier.decision_function(image[None]) for image in images[1200:1210]]
    )
    np.testing.assert_allclose(alone, together[:10], rtol=1e-6, atol=1e-7)


def test_the_seed_decides_and_the_callers_random_numbers_stay(small):
    X, y = small
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    first = quick().fit(X, y)
    assert torch.equal(torch.rand(3), expected)
    again, other = quick().fit(X, y), quick(random_state=1).fit(X, y)
    assert (first.decision_function(X) == again.decision_function(X)).all()
    assert (first.decision_function(X) != other.decision_function(X)).any()


def test_layouts_of_the_same_images_are_the_same(small):
    X, y = small
    as_images = quick().fit(X, y)
    flat = quick(image_shape=(8, 8)).fit(X.reshape(100, 64).tolist(), y.tolist())
    channel = quick().fit(X[..., None].astype(np.float32), y)
    expected = as_images.decision_function(X)
    for classifier in (flat, channel):
        assert (classifier.decision_function(X.reshape(100, 64)) == expected).all()


def test_bytes_and_shares_of_white_are_the_same(small):
    X, y = small
    levels = np.rint(X * (255 / 16)).astype(np.uint8)
    of_bytes = quick().fit(levels, y).decision_function(levels)
    assert (quick().fit(levels / 255, y).decision_function(levels / 255) == of_bytes).all()
    # 0…16 without a stated range: the largest fitted number is white.
    assert (quick().fit(X, y).decision_function(X) == of_bytes).all()
    assert (quick(pixel_range=(0, 32)).fit(X, y).decision_function(X) != of_bytes).any()


FACTORS = {"bytes": 255, "shares": 1, "to 16": 16}


@pytest.mark.parametrize(
    ("fitted", "given", "message"),
    [
        ("bytes", "shares", "from 0 to 1, but in fit 0 was black and 255 white"),
        ("to 16", "shares", "from 0 to 1, but in fit 0 was black and 16 white"),
        ("shares", "to 16", "from 0 to 16, but in fit 0 was black and 1 white"),
        ("shares", "bytes", "from 0 to 255, but in fit 0 was black and 1 white"),
    ],
)
def test_images_on_another_scale_than_in_fit_are_told(small, fitted, given, message):
    X, y = small[0] / 16, small[1]
    scaled = {name: X * factor for name, factor in FACTORS.items()}
    scaled["bytes"] = np.rint(scaled["bytes"]).astype(np.uint8)
    classifier = quick().fit(scaled[fitted], y)
    classifier.predict(scaled[fitted])
    with pytest.warns(UserWarning, match=message) as told:
        classifier.predict(scaled[given])
    assert told[0].filename == __file__, "it points to the caller's line"


def test_a_pixel_range_of_other_images_is_told_in_fit(small):
    with pytest.warns(UserWarning, match="from 0 to 16, but pixel_range makes 0 black and 1 white"):
        classifier = quick(pixel_range=(0, 1)).fit(*small)
    classifier.predict(small[0])  # on the scale of fit, which has been told


def test_flattened_colour_images_without_a_shape_are_told(small):
    X = np.random.default_rng(0).integers(0, 256, (100, 192), dtype=np.uint8)
    with pytest.warns(UserWarning, match=r"give image_shape=\(8, 8, 3\)") as told:
        quick().fit(X, small[1])
    assert told[0].filename == __file__, "it points to the caller's line"
    quick(image_shape=(8, 8, 3)).fit(X, small[1])


def test_colour_images_that_are_not_square(small):
    _, y = small
    X = np.random.default_rng(0).integers(0, 256, (100, 9, 12, 3), dtype=np.uint8)
    classifier = quick().fit(X, y)
    assert (classifier.n_features_in_, classifier.image_format_.side) == (9 * 12 * 3, 12)
    assert classifier.predict(X[:3]).shape == (3,)
    with pytest.raises(ValueError, match="fitted ones are"):
        classifier.predict(X.transpose(0, 2, 1, 3))


@pytest.mark.parametrize("marker", ["", None, "-1", -1])
def test_text_labels_and_the_word_for_unknown(small, marker):
    X, y = small
    names = np.array([*"abcdef", marker], object)[y]
    held = {"validation_share": 0.0, "calibration_share": 0.2, "level": 0.3}
    classifier = quick(**held).fit(X, names)
    assert classifier.classes_.tolist() == list("abcdef")
    assert set(classifier.transduction_) <= {*"abcdef", "unknown"}
    assert "unknown" in classifier.predict(X)
    assert 0 <= classifier.score(X, names) <= 1
    other = quick(**held, unknown_label="?").fit(X, names)
    assert ((other.predict(X) == "?") == (classifier.predict(X) == "unknown")).all()
    with pytest.raises(ValueError, match="also a class"):
        quick(unknown_label="a").fit(X, names)


def test_nan_is_no_label(small):
    X, y = small
    expected = quick().fit(X, y)
    as_floats = np.where(y == -1, np.nan, y)
    as_texts = [np.nan if label == -1 else "abcdef"[label] for label in y]
    for labels in (as_floats, as_texts, np.array(as_texts, object)):
        found = quick().fit(X, labels)
        assert len(found.classes_) == KNOWN
        assert (found.decision_function(X) == expected.decision_function(X)).all()
        assert found.score(X, labels) == expected.score(X, y)
        assert labelled_accuracy(found, X, labels) == expected.score(X, y)


def test_a_word_for_no_label_that_is_a_class_is_told_with_the_marks_there_are(small):
    X, y = small
    names = np.array([*"abcdef", "unknown"])[y]
    with pytest.raises(ValueError, match='if these images have no label, mark them "" instead'):
        quick().fit(X, names)
    with pytest.warns(UserWarning, match='marked "", "-1", None or NaN: the method is supervised'):
        quick(unknown_label="?").fit(X, names)
    with pytest.warns(UserWarning, match="marked −1 or NaN: the method is supervised"):
        quick().fit(X, np.where(y == -1, 9, y))


def test_what_numpy_makes_of_minus_one_between_texts_is_no_class(small):
    X, y = small
    names = np.array(["abcdef"[label] if label >= 0 else -1 for label in y])
    assert names.dtype.kind == "U"
    assert "-1" in names
    classifier = quick().fit(X, names)
    assert classifier.classes_.tolist() == list("abcdef")
    as_numbers = quick().fit(X, y)
    assert (classifier.decision_function(X) == as_numbers.decision_function(X)).all()
    assert classifier.score(X, names) == as_numbers.score(X, y)
    assert labelled_accuracy(classifier, X, names) == as_numbers.score(X, y)


def labelled_first(small):
    """Labelled images class by class, then the others: folds that are not stratified miss some."""
    X, y = small
    order = np.lexsort((y, y == -1))
    return X[order], y[order]


@pytest.mark.parametrize("kind", [str, object])
@pytest.mark.parametrize("marker", ["", "-1"])
def test_text_is_cross_validated_as_numbers_are(small, marker, kind):
    X, y = labelled_first(small)
    names = np.array([*"abcdef", marker], kind)[y]
    by_text = cross_val_score(quick(), X, names, cv=2, error_score="raise")
    assert (by_text == cross_val_score(quick(), X, y, cv=2, error_score="raise")).all()


@pytest.mark.parametrize("marker", [None, -1])
def test_objects_of_several_kinds_are_cross_validated_shuffled(small, marker):
    X, y = labelled_first(small)
    names = np.array([*"abcdef", marker], object)[y]
    shuffled = KFold(2, shuffle=True, random_state=0)
    scores = cross_val_score(quick(), X, names, cv=shuffled, error_score="raise")
    assert (scores == cross_val_score(quick(), X, y, cv=shuffled)).all()
    # With the unlabelled first, scikit-learn makes folds in their order and says nothing.
    with pytest.raises(ValueError, match=r"KFold\(shuffle=True\)"):
        cross_val_score(quick(), X[::-1], names[::-1], cv=3, error_score="raise")
    with pytest.raises(ValueError, match=r'got 1 class.*mark images without a label by ""'):
        quick().fit(X, np.where(names == "a", names, marker))


def test_numbers_as_classes_and_a_word_for_unknown(small):
    X, y = small
    classifier = quick(calibration_share=0.2, level=0.3, unknown_label="none").fit(X, y)
    assert set(classifier.predict(X)) <= {*range(KNOWN), "none"}
    assert "none" in classifier.predict(X)


def test_too_few_held_out_reject_nothing_and_say_so(small):
    X, y = small
    with pytest.warns(UserWarning, match="nothing is rejected: 6 held-out images cannot certify"):
        classifier = quick(calibration_share=0.15).fit(X, y)
    assert -1 not in classifier.predict(X)


def test_classes_too_small_to_hold_out_say_so(small):
    X, y = small
    few = partly_labelled(y, 2)
    with pytest.warns(UserWarning, match="fewer than 5 labelled images"):
        classifier = quick(calibration_share=0.15).fit(X, few)
    assert len(classifier.calibration_scores_) == 0
    assert (classifier.p_values(X) == 1).all()
    assert classifier.best_epoch_ == 2


def test_without_unlabelled_images_it_is_supervised(small):
    X, y = small[0][small[1] >= 0], small[1][small[1] >= 0]
    with pytest.warns(UserWarning, match="no unlabelled images"):
        classifier = quick(options={"kl_weight": 0.1, "learning_rate": 0.1}).fit(X, y)
    assert classifier.method_ == "supervised"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same = quick(method="supervised", options={"learning_rate": 0.1}).fit(X, y)
    assert (same.decision_function(X) == classifier.decision_function(X)).all()
    with (
        pytest.warns(UserWarning, match="no unlabelled images"),
        pytest.raises(ConfigError, match="did you mean kl_weight"),
    ):
        quick(options={"kl_wait": 0.1}).fit(X, y)


def test_no_images_are_told_as_such(small):
    classifier = quick().fit(*small)
    with pytest.raises(ValueError, match="0 sample"):
        classifier.predict(np.zeros((0, *small[0].shape[1:])))


def test_two_classes_decide_by_one_number(small):
    X, y = small[0], np.where(small[1] > 1, -1, small[1])
    classifier = quick().fit(X, y)
    decision, probability = classifier.decision_function(X), classifier.predict_proba(X)
    assert decision.shape == (100,)
    np.testing.assert_allclose(probability[:, 1], 1 / (1 + np.exp(-decision)))
    assert (classifier.predict(X) == (decision > 0)).all()


def test_other_methods_of_the_catalogue_fit(small):
    X, y = small
    everything = quick(method="fixmatch").fit(X, y)
    assert (everything.labeled_iter_[y == -1] == -1).all()  # it selects nobody: it takes all
    assert quick(method="openmatch").fit(X, y).predict(X).shape == (100,)


def test_it_searches_a_grid_in_a_pipeline(small):
    X, y = small[0].reshape(100, 64), small[1]
    pipeline = make_pipeline(MinMaxScaler(), quick(image_shape=(8, 8)))
    grid = {"opensetclassifier__selection_share": [0.3, 0.6]}
    search = GridSearchCV(pipeline, grid, cv=2).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert search.predict(X).shape == (100,)
    by_scorer = GridSearchCV(pipeline, grid, cv=2, scoring=labelled_accuracy).fit(X, y)
    assert (by_scorer.cv_results_["mean_test_score"] == search.cv_results_["mean_test_score"]).all()


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"method": "anedll"}, "did you mean anedl"),
        ({"options": {"learning_rat": 0.1}}, "did you mean"),
        ({"level": 0}, "level"),
        ({"level": 1}, "level"),
        ({"selection_share": 1.5}, "selection_share"),
        ({"augmentation": "imagenet"}, "augmentation"),
        ({"image_size": 4}, "least is 8"),
        ({"validation_share": 0.7, "calibration_share": 0.7}, "shares"),
        ({"pixel_range": (1, 0)}, "pixel_range"),
        ({"epochs": 0}, "epochs"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(small, parameters, message):
    with pytest.raises(AnedlError, match=message):
        quick(**parameters).fit(*small)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("method", [5, None]),
        ("epochs", ["2", 2.5, None, True]),
        ("epoch_steps", ["2", [2]]),
        ("batch_size", [8.0]),
        ("image_shape", [8, "88", (8, "8"), (8.0, 8.0), (64,), (8, [8]), (-8, -8)]),
        ("image_size", ["9", 9.5]),
        ("pixel_range", [5, ("a", 1), (1,), (0, np.inf), (0, 1, 2), "01"]),
        ("level", ["a", None, True, np.nan]),
        ("unknown_label", [[1], (1,), {}, np.array([1])]),
        ("selection_share", ["a", [0.5]]),
        ("validation_share", ["a", None]),
        ("calibration_share", ["a", None]),
        ("options", [[1], "cutmix", {1: 2}]),
    ],
)
def test_values_of_another_kind_are_refused_by_name(small, name, values):
    for value in values:
        with pytest.raises(InputError, match=rf"^{name} .*: must be "):
            quick(**{name: value}).fit(*small)


def test_numbers_of_numpy_are_numbers(small):
    X, y = small
    given = {"image_shape": np.array([8, 8]), "image_size": np.int64(8), "pixel_range": [0, 16]}
    counts = {"epochs": np.int64(2), "epoch_steps": np.int32(2), "batch_size": np.int64(8)}
    found = quick(**given, **counts, level=np.float32(0.05)).fit(X, y)
    assert (found.decision_function(X) == quick().fit(X, y).decision_function(X)).all()


def test_an_image_shape_against_that_of_the_images_is_refused(small):
    X, y = small
    with pytest.raises(InputError, match=r"image_shape \(4, 16\): the images in X .* \(8, 8\)"):
        quick(image_shape=(4, 16)).fit(X, y)
    assert quick(image_shape=(8, 8, 1)).fit(X, y).image_format_.height == 8
    assert quick(image_shape=(4, 16)).fit(X.reshape(100, 64), y).image_format_.height == 4


def test_one_image_alone_is_told_how_to_be_given(small):
    X, y = small
    classifier = quick().fit(X, y)
    for one in (X[0], X[0][..., None]):
        with pytest.raises(ValueError, match=r"shape of one image, \(8, 8.*X\[None\]"):
            classifier.predict(one)
    assert classifier.predict(X[0][None]).shape == (1,)
    line = quick(image_shape=(1, 64)).fit(X.reshape(100, 64), y)
    assert line.predict(X[0].reshape(1, 64)).shape == (1,)  # one image, and a batch of one


def test_fewer_than_two_classes_are_refused(small):
    X, y = small
    with pytest.raises(ValueError, match="got 1 class"):
        quick().fit(X, np.where(y == 3, 3, -1))
    with pytest.raises(ValueError, match="got none of any class"):
        quick().fit(X, np.full(len(X), -1))


def test_a_shape_that_does_not_fit_is_refused(small):
    X, y = small
    with pytest.raises(ValueError, match="64 numbers"):
        quick(image_shape=(8, 9)).fit(X.reshape(100, 64), y)
    with pytest.raises(ValueError, match="height, width"):
        quick().fit(X[:, None, None], y)


def test_clones_and_unfitted_ones(trained):
    classifier, images, _, _ = trained
    copy = clone(classifier)
    assert copy.get_params() == classifier.get_params()
    with pytest.raises(NotFittedError):
        copy.predict(images[:1])


def test_the_package_offers_it():
    assert anedl.OpenSetClassifier is OpenSetClassifier


@pytest.mark.long
def test_the_default_training_tells_unknown_digits_apart():
    images, truth = shuffled_digits()
    classifier = OpenSetClassifier(random_state=0)
    classifier.fit(images[:1200], partly_labelled(truth[:1200], 25))
    predicted, truth = classifier.predict(images[1200:]), truth[1200:]
    known = truth < KNOWN
    assert (predicted[known] == truth[known]).mean() > 0.85
    assert (predicted[~known] == -1).mean() > 0.6


def test_all_trainings_behind_a_frozen_trunk_share_its_features(trained_backbone, monkeypatch):
    images, truth = shuffled_digits()
    colours = np.repeat(images[:120, :, :, None], 3, axis=3)
    looks = []
    real = features._features
    monkeypatch.setattr(
        features, "_features", lambda *args: looks.append(str(args[1].view)) or real(*args)
    )
    frozen = {"frozen": True, "backbone": trained_backbone, "feature_views": 1}
    classifier = quick(options=frozen, validation_share=0.4)
    classifier.fit(colours, partly_labelled(truth[:120], 10))
    assert classifier.outlier_share_ is not None, "trainings that estimate it come first"
    assert looks == ["plain", "weak", "strong"]
    assert set(classifier.predict(colours)) <= {-1, *range(KNOWN)}


def test_a_frozen_trunk_of_colours_refuses_grey_images(small):
    with pytest.raises(ConfigError, match="three channels"):
        quick(options={"frozen": True, "backbone": "efficientnet-lite0"}).fit(*small)
