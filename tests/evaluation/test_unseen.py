import json

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from anedl.errors import AnedlError
from anedl.evaluation.unseen import UnseenMetrics, evaluate_unseen


@pytest.fixture
def drawn():
    """Scores of 300 inliers and 170 outliers, with ties, by two names."""
    rng = np.random.default_rng(4)
    inside = {"a": rng.normal(1, 1, 300).round(1), "b": rng.normal(3, 1, 300)}
    outside = {"a": rng.normal(0, 1, 170).round(1), "b": rng.normal(0, 2, 170)}
    return inside, outside


def test_figures_are_those_of_sklearn(drawn):
    inside, outside = drawn
    thresholds = {"a": -0.5, "b": 1.25}
    metrics = evaluate_unseen(inside, outside, thresholds)
    assert metrics.images == 170
    inlier = np.repeat([1, 0], [300, 170])
    for name, row in metrics.by_score.items():
        values = np.concatenate([inside[name], outside[name]])
        assert row.auroc == pytest.approx(roc_auc_score(inlier, values), abs=1e-12)
        assert row.aupr_in == pytest.approx(average_precision_score(inlier, values), abs=1e-12)
        flipped = average_precision_score(1 - inlier, -values)
        assert row.aupr_out == pytest.approx(flipped, abs=1e-12)
        accepted, found, _ = roc_curve(inlier, values, drop_intermediate=False)
        assert row.fpr95 == pytest.approx(accepted[found >= 0.95][0], abs=1e-12)
        below = sum(value < thresholds[name] for value in outside[name].tolist())
        assert row.rejected == pytest.approx(below / 170, abs=1e-12)
    assert set(metrics.by_score) == {"a", "b"}


def test_an_outlier_on_the_threshold_is_accepted():
    metrics = evaluate_unseen(
        {"a": np.array([1.0, 2.0])}, {"a": np.array([0.5, 1.0, 0.9, 3.0])}, {"a": 1.0}
    )
    assert metrics.by_score["a"].rejected == 0.5


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_finite_is_left_out_and_the_others_stay(drawn, broken):
    inside, outside = drawn
    thresholds = {"a": 0.0, "b": 0.0}
    before = evaluate_unseen(inside, outside, thresholds)
    outside["a"][17] = broken
    after = evaluate_unseen(inside, outside, thresholds)
    assert after.by_score == {"b": before.by_score["b"]}
    assert after.images == 170


def test_json_and_back(drawn):
    metrics = evaluate_unseen(*drawn, {"a": 0.1, "b": 0.2})
    document = json.loads(json.dumps(metrics.to_json(), allow_nan=False))
    assert set(document) == {"images", "by_score"}
    assert UnseenMetrics.from_json(document) == metrics
    del document["by_score"]["a"]["rejected"]
    with pytest.raises(AnedlError, match="evaluate the run again"):
        UnseenMetrics.from_json(document)
