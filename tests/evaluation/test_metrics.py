"""Every metric against a hand-made answer or a brute-force count that shares no code with it."""

import json
import subprocess
import sys
from math import log
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from anedl.errors import AnedlError
from anedl.evaluation.metrics import (
    OpenSetMetrics,
    ScoreMetrics,
    acceptance_threshold,
    aupr_in,
    aupr_out,
    auroc,
    balanced_accuracy,
    brier_score,
    error_rate,
    evaluate,
    expected_calibration_error,
    fpr_at_tpr,
    negative_log_likelihood,
    oscr,
    reliability,
    roc_curve,
)

CLASSES = 3
# The first example also pays for importing scikit-learn, which no deadline should count.
unhurried = settings(deadline=None)


def one_hot(predicted):
    return np.eye(CLASSES)[np.asarray(predicted)]


@st.composite
def open_sets(draw):
    """A small set with few distinct scores, so that ties abound: probabilities, targets, scores."""
    size = draw(st.integers(2, 25))
    targets = draw(st.lists(st.integers(-1, CLASSES - 1), min_size=size, max_size=size))
    assume(-1 in targets and max(targets) >= 0)
    scores = draw(st.lists(st.integers(-3, 3), min_size=size, max_size=size))
    predicted = draw(st.lists(st.integers(0, CLASSES - 1), min_size=size, max_size=size))
    return one_hot(predicted), np.array(targets), np.array(scores, dtype=np.float64)


def split(targets, scores):
    pairs = list(zip(targets.tolist(), scores.tolist(), strict=True))
    return [s for t, s in pairs if t >= 0], [s for t, s in pairs if t < 0]


def brute_auroc(targets, scores):
    inliers, outliers = split(targets, scores)
    wins = sum((i > o) + 0.5 * (i == o) for i in inliers for o in outliers)
    return wins / (len(inliers) * len(outliers))


def brute_fpr95(targets, scores):
    inliers, outliers = split(targets, scores)
    for threshold in sorted(set(scores.tolist()), reverse=True):
        # In whole numbers: 100 · accepted ≥ 95 · all.
        if 100 * sum(s >= threshold for s in inliers) >= 95 * len(inliers):
            return sum(s >= threshold for s in outliers) / len(outliers)
    raise AssertionError("the lowest threshold accepts everything")


def brute_oscr(predicted, targets, scores):
    rows = list(zip(predicted.tolist(), targets.tolist(), scores.tolist(), strict=True))
    inliers, outliers = split(targets, scores)
    area, last_x, last_y = 0.0, 0.0, 0.0
    for threshold in sorted(set(scores.tolist()), reverse=True):
        x = sum(s >= threshold for s in outliers) / len(outliers)
        y = sum(t >= 0 and p == t and s >= threshold for p, t, s in rows) / len(inliers)
        area += (x - last_x) * (y + last_y) / 2
        last_x, last_y = x, y
    return area


def brute_average_precision(positive, negative):
    """Σ (recall gained) · precision over distinct thresholds, high to low."""
    total, found = 0.0, 0
    for threshold in sorted({*positive, *negative}, reverse=True):
        now = sum(s >= threshold for s in positive)
        accepted = now + sum(s >= threshold for s in negative)
        total += (now - found) / len(positive) * now / accepted
        found = now
    return total


class TestBruteForce:
    @unhurried
    @given(open_sets())
    def test_auroc(self, case):
        _, targets, scores = case
        assert auroc(scores, targets) == pytest.approx(brute_auroc(targets, scores), abs=1e-12)

    @unhurried
    @given(open_sets())
    def test_fpr95(self, case):
        _, targets, scores = case
        assert fpr_at_tpr(scores, targets) == brute_fpr95(targets, scores)

    @unhurried
    @given(open_sets())
    def test_oscr(self, case):
        probabilities, targets, scores = case
        expected = brute_oscr(probabilities.argmax(1), targets, scores)
        assert oscr(probabilities, targets, scores) == pytest.approx(expected, abs=1e-12)

    @unhurried
    @given(open_sets())
    def test_average_precision_both_ways(self, case):
        _, targets, scores = case
        inliers, outliers = split(targets, scores)
        negated = [-s for s in outliers], [-s for s in inliers]
        assert aupr_in(scores, targets) == pytest.approx(brute_average_precision(inliers, outliers))
        assert aupr_out(scores, targets) == pytest.approx(brute_average_precision(*negated))

    @unhurried
    @given(open_sets(), st.integers(-4, 4))
    def test_balanced_accuracy(self, case, threshold):
        probabilities, targets, scores = case
        answers = [
            int(p) if s >= threshold else -1
            for p, s in zip(probabilities.argmax(1), scores, strict=True)
        ]
        recalls = []
        for label in sorted(set(targets.tolist())):
            of_label = [a for a, t in zip(answers, targets, strict=True) if t == label]
            recalls.append(of_label.count(label) / len(of_label))
        expected = sum(recalls) / len(recalls)
        assert balanced_accuracy(probabilities, targets, scores, threshold) == pytest.approx(
            expected
        )


class TestInvariance:
    @unhurried
    @given(open_sets())
    def test_strictly_rising_transform_of_scores_changes_nothing(self, case):
        probabilities, targets, scores = case
        plain = evaluate(probabilities, targets, {"s": scores})
        assert evaluate(probabilities, targets, {"s": scores**3 * 1e4 - 7}) == plain
        assert evaluate(probabilities, targets, {"s": np.exp(scores.astype(np.float32))}) == plain

    @unhurried
    @given(open_sets(), st.randoms(use_true_random=False))
    def test_order_of_images_changes_nothing(self, case, random):
        probabilities, targets, scores = case
        order = list(range(len(targets)))
        random.shuffle(order)
        plain = evaluate(probabilities, targets, {"s": scores}, {"s": 0.5})
        mixed = evaluate(probabilities[order], targets[order], {"s": scores[order]}, {"s": 0.5})
        for name, value in plain.to_json()["by_score"]["s"].items():
            assert mixed.to_json()["by_score"]["s"][name] == pytest.approx(value, abs=1e-12)
        assert mixed.error == plain.error
        assert mixed.ece == pytest.approx(plain.ece, abs=1e-12)

    @unhurried
    @given(open_sets())
    def test_reversed_scores_mirror_auroc(self, case):
        _, targets, scores = case
        assert auroc(-scores, targets) == pytest.approx(1 - auroc(scores, targets), abs=1e-12)


class TestKnownAnswers:
    targets = np.array([0, 1, 2, 0, -1, -1])
    # The fourth image is misclassified: accuracy 3/4.
    probabilities = one_hot([0, 1, 2, 1, 0, 0])

    def metrics(self, scores):
        scores = np.asarray(scores, dtype=np.float64)
        return evaluate(self.probabilities, self.targets, {"s": scores}).by_score["s"]

    def test_perfect_separation(self):
        result = self.metrics([5, 4, 6, 3, 1, 2])
        assert result == ScoreMetrics(auroc=1.0, aupr_in=1.0, aupr_out=1.0, fpr95=0.0, oscr=0.75)

    def test_reversed(self):
        result = self.metrics([1, 2, 1, 2, 5, 5])
        assert (result.auroc, result.fpr95, result.oscr) == (0.0, 1.0, 0.0)
        # Inliers come after both outliers: precision 2/4 at recall 1/2, then 4/6 at recall 1.
        assert result.aupr_in == pytest.approx(0.5 * 2 / 4 + 0.5 * 4 / 6)

    def test_all_scores_equal(self):
        result = self.metrics([1] * 6)
        assert (result.auroc, result.fpr95) == (0.5, 1.0)
        assert result.oscr == pytest.approx(0.75 / 2)
        assert (result.aupr_in, result.aupr_out) == (pytest.approx(4 / 6), pytest.approx(2 / 6))

    def test_fpr95_accepts_exactly_ninety_five_per_cent(self):
        """19 of 20 is enough: the outlier between the 19th and the 20th inlier stays out."""
        scores = np.array([*range(20), 0.5])
        targets = np.array([0] * 20 + [-1])
        assert fpr_at_tpr(scores, targets) == 0.0
        assert fpr_at_tpr(scores, targets, tpr=0.951) == 1.0

    @pytest.mark.parametrize("size", [20, 40, 60, 100, 140, 300, 4000])
    def test_acceptance_threshold_at_exact_shares(self, size):
        scores = np.random.default_rng(size).permutation(size).astype(np.float32)
        threshold = acceptance_threshold(scores)
        assert threshold == size // 20
        assert (scores >= threshold).sum() == size * 19 // 20

    def test_acceptance_threshold_with_ties_and_extremes(self):
        assert acceptance_threshold(np.array([3.0, 3.0, 3.0, 1.0]), level=0.5) == 3.0
        assert acceptance_threshold(np.array([3.0, 3.0, 3.0, 1.0]), level=0.8) == 1.0
        assert acceptance_threshold(np.array([7.0]), level=0.01) == 7.0
        assert acceptance_threshold(np.array([2.0, 9.0]), level=1.0) == 2.0

    def test_balanced_accuracy_by_hand(self):
        scores = np.array([3.0, 1.0, 3.0, 3.0, 2.0, 1.0])
        # At 2: class 0 gets 1/2, class 1 is rejected, class 2 is right, unknown gets 1/2.
        expected = (1 / 2 + 0 + 1 + 1 / 2) / 4
        assert balanced_accuracy(self.probabilities, self.targets, scores, 2.0) == expected

    def test_error_takes_logits_and_ignores_outliers(self):
        logits = np.array([[-9.0, -2.0], [4.0, 3.0], [0.0, 100.0]])
        assert error_rate(logits, np.array([1, 1, -1])) == 0.5


class TestCalibration:
    def test_ece_by_hand(self):
        probabilities = np.array([[0.9, 0.1], [0.9, 0.1], [0.4, 0.6], [0.5, 0.5], [1.0, 0.0]])
        targets = np.array([0, 1, 1, 0, -1])
        # .9 twice, half right: gap .4; .6 right: gap .4; .5 right (first of the tie): gap .5.
        assert expected_calibration_error(probabilities, targets) == pytest.approx(
            (2 * 0.4 + 0.4 + 0.5) / 4
        )

    def test_gaps_cancel_within_a_bin_only(self):
        probabilities = np.array([[0.75, 0.25]] * 4)
        targets = np.array([0, 0, 0, 1])
        assert expected_calibration_error(probabilities, targets) == 0.0
        apart = np.array([[0.75, 0.25]] * 3 + [[0.95, 0.05]])
        assert expected_calibration_error(apart, targets) == pytest.approx((3 * 0.25 + 0.95) / 4)

    def test_reliability_bins(self):
        probabilities = np.array([[0.8, 0.2], [0.7, 0.3], [1.0, 0.0], [0.3, 0.7]])
        low, high = reliability(probabilities, np.array([0, 1, 0, 1]), bins=5)
        # .8 lies on an edge and falls below it, into (.6, .8] with the two .7.
        assert (low.low, low.high, low.count) == (0.6, 0.8, 3)
        assert low.confidence == pytest.approx((0.8 + 0.7 + 0.7) / 3)
        assert low.accuracy == pytest.approx(2 / 3)
        assert (high.low, high.high, high.count, high.confidence) == (0.8, 1.0, 1, 1.0)

    def test_brier_and_likelihood_by_hand(self):
        probabilities = np.array([[0.7, 0.2, 0.1], [0.0, 0.5, 0.5], [1.0, 0.0, 0.0]])
        targets = np.array([0, 2, -1])
        assert brier_score(probabilities, targets) == pytest.approx(
            ((0.09 + 0.04 + 0.01) + (0.25 + 0.25)) / 2
        )
        expected = -(log(0.7) + log(0.5)) / 2
        assert negative_log_likelihood(probabilities, targets) == pytest.approx(expected)

    def test_likelihood_stays_finite_when_a_probability_underflows(self):
        value = negative_log_likelihood(np.array([[1.0, 0.0]]), np.array([1]))
        assert 80 < value < 100

    def test_worst_brier_is_two(self):
        assert brier_score(one_hot([0, 1]), np.array([1, 0])) == 2.0

    def test_logits_are_refused(self):
        with pytest.raises(AnedlError, match="softmax"):
            brier_score(np.array([[3.0, -1.0]]), np.array([0]))


def area_under(curve):
    x, y = (part.tolist() for part in curve)
    return sum((x[i] - x[i - 1]) * (y[i] + y[i - 1]) / 2 for i in range(1, len(x)))


class TestRocCurve:
    @unhurried
    @given(open_sets())
    def test_area_is_the_auroc(self, case):
        _, targets, scores = case
        curve = roc_curve(scores, targets)
        area = area_under(curve)
        assert area == pytest.approx(brute_auroc(targets, scores), abs=1e-12)

    def test_thinned_curve_keeps_its_ends_and_its_area(self):
        random = np.random.default_rng(0)
        targets = random.integers(-1, 2, 5000)
        scores = random.normal(size=5000) + (targets >= 0)
        curve = roc_curve(scores, targets)
        assert 400 < len(curve.true_positive_rate) <= 500
        assert (curve.false_positive_rate[0], curve.true_positive_rate[0]) == (0.0, 0.0)
        assert (curve.false_positive_rate[-1], curve.true_positive_rate[-1]) == (1.0, 1.0)
        area = area_under(curve)
        assert area == pytest.approx(auroc(scores, targets), abs=1e-3)

    @pytest.mark.parametrize("most", [2, 3, 10])
    def test_few_points(self, most):
        targets = np.tile([0, -1], 500)
        curve = roc_curve(np.arange(1000.0), targets, max_points=most)
        assert 2 <= len(curve.false_positive_rate) <= most
        assert curve.true_positive_rate[-1] == 1.0


class TestEvaluate:
    probabilities = np.array([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4], [0.5, 0.5]], dtype=np.float32)
    targets = np.array([0, 1, 1, -1])
    scores: ClassVar = {"good": np.array([4, 3, 2, 1]), "bad": np.array([1.0, 2.0, 3.0, 4.0])}

    def test_every_score_gets_its_own_row(self):
        result = evaluate(self.probabilities, self.targets, self.scores, {"good": 2.0})
        assert result.error == pytest.approx(1 / 3)
        assert result.by_score["good"].auroc == 1.0
        assert result.by_score["bad"].auroc == 0.0
        assert result.by_score["good"].balanced_accuracy == pytest.approx((1 + 0.5 + 1) / 3)
        assert result.by_score["bad"].balanced_accuracy is None

    def test_survives_json(self):
        result = evaluate(self.probabilities, self.targets, self.scores, {"bad": 2.0})
        text = json.dumps(result.to_json(), allow_nan=False)
        assert OpenSetMetrics.from_json(json.loads(text)) == result

    def test_without_outliers_only_the_closed_set_is_measured(self):
        known = self.targets >= 0
        scores = {name: values[known] for name, values in self.scores.items()}
        result = evaluate(self.probabilities[known], self.targets[known], scores)
        assert result.by_score == {}
        assert result.brier == evaluate(self.probabilities, self.targets, {}).brier

    @pytest.mark.parametrize("broken", [{}, {"error": 1.0}, {"by_score": {"s": {"what": 1}}}])
    def test_other_json_is_refused(self, broken):
        with pytest.raises(AnedlError, match="evaluate the run again"):
            OpenSetMetrics.from_json(broken)

    def test_threshold_of_an_unknown_score(self):
        with pytest.raises(AnedlError, match="did you mean good"):
            evaluate(self.probabilities, self.targets, self.scores, {"goood": 1.0})


class TestGuards:
    scores = np.array([1.0, 2.0])
    probabilities = one_hot([0, 1])

    @pytest.mark.parametrize("metric", [auroc, aupr_in, aupr_out, fpr_at_tpr, roc_curve])
    def test_what_is_missing_is_named(self, metric):
        with pytest.raises(AnedlError, match="no outliers"):
            metric(self.scores, np.array([0, 1]))
        with pytest.raises(AnedlError, match="no inliers"):
            metric(self.scores, np.array([-1, -1]))
        with pytest.raises(AnedlError, match="no inliers"):
            metric(np.array([]), np.array([], dtype=int))

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_broken_scores_are_refused(self, value):
        broken = np.array([1.0, value])
        with pytest.raises(AnedlError, match="1 of 2 scores are NaN or infinite"):
            auroc(broken, np.array([0, -1]))
        with pytest.raises(AnedlError, match="NaN or infinite"):
            acceptance_threshold(broken)
        with pytest.raises(AnedlError, match="NaN or infinite"):
            evaluate(self.probabilities, np.array([0, -1]), {"s": broken})

    @pytest.mark.parametrize(
        ("targets", "message"),
        [
            (np.array([-1, -1]), "no inliers"),
            (np.array([0, CLASSES]), "beyond the 3 classes"),
            (np.array([0, -2]), "-2 is no class"),
            (np.array([0, 1, 2]), "N = 3"),
            (np.array([0.0, 1.0]), "integers"),
        ],
    )
    @pytest.mark.parametrize("metric", [error_rate, expected_calibration_error, brier_score])
    def test_broken_targets_are_refused(self, metric, targets, message):
        with pytest.raises(AnedlError, match=message):
            metric(self.probabilities, targets)

    def test_nan_probabilities_are_refused(self):
        with pytest.raises(AnedlError, match="probabilities are NaN"):
            error_rate(np.array([[np.nan, 1.0]]), np.array([1]))

    def test_lengths_must_agree(self):
        with pytest.raises(AnedlError, match="2 scores but 3 targets"):
            auroc(self.scores, np.array([0, 1, -1]))

    def test_settings_out_of_range_are_refused(self):
        targets = np.array([0, -1])
        with pytest.raises(AnedlError, match=r"\(0, 1\]"):
            acceptance_threshold(self.scores, level=0.0)
        with pytest.raises(AnedlError, match="at least one"):
            acceptance_threshold(np.array([]))
        with pytest.raises(AnedlError, match="at least 2 points"):
            roc_curve(self.scores, targets, max_points=1)
        with pytest.raises(AnedlError, match="at least one bin"):
            reliability(self.probabilities, targets, bins=0)
        with pytest.raises(AnedlError, match="threshold is NaN"):
            balanced_accuracy(self.probabilities, targets, self.scores, np.nan)


def test_importing_the_metrics_does_not_load_scikit_learn():
    code = (
        "import sys, anedl.evaluation.metrics, anedl.evaluation.summary; "
        "sys.exit('sklearn' in sys.modules or 'scipy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
