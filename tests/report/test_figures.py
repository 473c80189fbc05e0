import sys
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.patches import StepPatch
from sklearn.metrics import roc_auc_score, roc_curve

from anedl.errors import AnedlError
from anedl.evaluation.metrics import reliability
from anedl.report import figures
from anedl.report.canvas import to_png

RNG = np.random.default_rng(3)
TARGETS = np.where(RNG.random(400) < 0.4, -1, RNG.integers(0, 3, 400))
SCORE = np.round(RNG.normal(np.where(TARGETS < 0, 2.0, 4.0), 1.0), 1)  # rounded: with ties


def line(axes, start):
    (found,) = [one for one in axes.get_lines() if str(one.get_label()).startswith(start)]
    return found


def test_roc_is_sklearns_with_outliers_as_positive():
    figure = figures.roc_figure({"mine": SCORE}, TARGETS, {"mine": 3.0})
    (axes,) = figure.axes
    drawn = line(axes, "mine")
    x, y, _ = roc_curve(TARGETS == -1, -SCORE, drop_intermediate=False)
    # Drawn from the other end: every threshold of sklearn's curve, and no other.
    np.testing.assert_allclose(drawn.get_xdata()[::-1], 100 * x, atol=1e-9)
    np.testing.assert_allclose(drawn.get_ydata()[::-1], 100 * y, atol=1e-9)
    area = 100 * roc_auc_score(TARGETS == -1, -SCORE)
    assert drawn.get_label() == f"mine: AUROC {area:.1f} %"


def test_roc_marks_the_threshold_on_the_curve():
    figure = figures.roc_figure({"mine": SCORE}, TARGETS, {"mine": 3.0})
    dots = [
        one for one in figure.axes[0].get_lines()
        if one.get_marker() == "o" and len(one.get_xdata())
    ]  # fmt: skip
    assert len(dots) == 1
    rejected = SCORE < 3.0
    assert dots[0].get_xdata()[0] == pytest.approx(100 * rejected[TARGETS >= 0].mean())
    assert dots[0].get_ydata()[0] == pytest.approx(100 * rejected[TARGETS < 0].mean())


@pytest.mark.parametrize("values", [SCORE, np.exp(3 * SCORE), np.full(400, 0.25)])
def test_every_image_is_in_its_histogram(values):
    figure = figures.histogram_figure({"mine": values}, TARGETS, {"mine": 3.0})
    (axes,) = figure.axes
    filled = [p for p in axes.patches if isinstance(p, StepPatch) and p.get_fill()]
    assert [p.get_data().values.sum() for p in filled] == [
        (TARGETS >= 0).sum(),
        (TARGETS < 0).sum(),
    ]
    assert line(axes, "threshold").get_xdata()[0] == 3.0
    to_png(figure)


def test_histograms_take_a_logarithmic_axis_only_across_decades():
    wide = figures.histogram_figure({"a": np.exp(3 * SCORE), "b": SCORE}, TARGETS, {})
    assert [axes.get_xscale() for axes in wide.axes] == ["log", "linear"]


def probabilities():
    logits = RNG.normal(size=(400, 3))
    logits[TARGETS >= 0, TARGETS[TARGETS >= 0]] += 1.5
    return np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)


def test_oscr_counts_right_inliers_over_accepted_outliers_at_every_threshold():
    table = probabilities()
    (axes,) = figures.oscr_figure(table, TARGETS, {"mine": SCORE}, {"mine": 3.0}).axes
    drawn = line(axes, "mine")
    inlier, right = TARGETS >= 0, table.argmax(axis=1) == TARGETS
    points = [(0.0, 0.0)]
    for cut in np.unique(SCORE)[::-1]:
        accepted = cut <= SCORE
        points.append((100 * np.mean(accepted[~inlier]), 100 * np.mean((accepted & right)[inlier])))
    np.testing.assert_allclose(np.transpose(drawn.get_data()), points, atol=1e-9)
    area = np.trapezoid([y for _, y in points], [x for x, _ in points]) / 100
    assert drawn.get_label() == f"mine: OSCR {area:.1f} %"
    (dot,) = [one for one in axes.get_lines() if one.get_marker() == "o" and len(one.get_xdata())]
    assert dot.get_xdata()[0] == pytest.approx(100 * np.mean(SCORE[~inlier] >= 3))
    assert dot.get_ydata()[0] == pytest.approx(100 * np.mean((SCORE >= 3)[inlier] & right[inlier]))


def test_reliability_draws_how_often_each_bin_is_right():
    table = probabilities()
    above, below = figures.reliability_figure(reliability(table, TARGETS, bins=5)).axes
    known = TARGETS >= 0
    confidence = table.max(axis=1)[known]
    right = (table.argmax(axis=1) == TARGETS)[known]
    bins = np.ceil(confidence * 5).astype(int)
    expected = {(n - 1) / 5: right[bins == n].mean() for n in np.unique(bins)}
    drawn = {p.get_x() / 100: p.get_height() / 100 for p in above.patches}
    assert drawn == pytest.approx(expected)
    assert sum(p.get_height() for p in below.patches) == known.sum()


def test_the_legend_of_the_reliability_lies_over_no_bar():
    figure = figures.reliability_figure(reliability(probabilities(), TARGETS, bins=5))
    figure.draw_without_rendering()
    (key,) = figure.legends
    box = key.get_window_extent()
    assert not any(axes.get_legend() for axes in figure.axes)
    assert not any(box.overlaps(axes.get_window_extent()) for axes in figure.axes)
    assert box.x1 <= figure.bbox.x1


def test_a_small_set_is_held_against_a_large_one_in_shares_of_each():
    kinds = {"few": SCORE[:30], "many": SCORE}
    (axes,) = figures.spread_figure({"s": kinds}, {"s": -np.inf}, "images", against_all=True).axes
    filled = [p for p in axes.patches if isinstance(p, StepPatch) and p.get_fill()]
    assert [p.get_data().values.sum() for p in filled] == [pytest.approx(100), pytest.approx(100)]
    assert len(filled[0].get_data().values) < figures.BINS  # thirty images fill few bins
    assert not [one for one in axes.get_lines() if one.get_label() == "threshold"]


def test_a_threshold_for_new_images_has_a_line_of_its_own_where_it_is_another():
    kinds = {"few": SCORE[:30], "many": SCORE}

    def marks(threshold, for_new):
        figure = figures.spread_figure(
            {"s": kinds}, {"s": threshold}, "images", against_all=True, for_new=for_new
        )
        (axes,) = figure.axes
        lines = [(one.get_label(), one.get_xdata()[0]) for one in axes.get_lines()]
        assert [t.get_text() for t in axes.texts] == [f"{at:.4g}" for _, at in lines]
        figure.draw_without_rendering()
        boxes = [text.get_window_extent() for text in axes.texts]
        assert not any(a.overlaps(b) for a, b in pairwise(boxes))
        return lines

    assert marks(2.0, 2.001) == [("threshold, pile", 2.0), ("threshold, new images", 2.001)]
    assert marks(2.5, 1.5) == [("threshold, new images", 1.5), ("threshold, pile", 2.5)]
    assert marks(2.0, 2.0) == marks(2.0, None) == marks(2.0, -np.inf) == [("threshold", 2.0)]
    assert marks(-np.inf, 2.0) == [("threshold, new images", 2.0)]


def test_auroc_over_m_sums_the_largest():
    alpha = (1 + RNG.exponential(size=(400, 5))).astype(np.float32)
    alpha[TARGETS >= 0, 0] += 1
    (axes,) = figures.top_m_figure(alpha, TARGETS, 2, 0.75).axes
    drawn = line(axes, "sum of the M largest")
    expected = [
        100 * roc_auc_score(TARGETS >= 0, np.sort(alpha.astype(np.float64))[:, -m:].sum(axis=1))
        for m in range(1, 6)
    ]
    assert list(drawn.get_xdata()) == [1, 2, 3, 4, 5]
    np.testing.assert_allclose(drawn.get_ydata(), expected, atol=0.01)
    assert line(axes, "this run").get_xdata()[0] == 2
    assert list(line(axes, "max softmax").get_ydata()) == [75, 75]


def test_pictures_are_reproducible():
    first, second = (to_png(figures.roc_figure({"mine": SCORE}, TARGETS, {})) for _ in range(2))
    assert first == second


def test_drawing_leaves_no_global_state():
    figures.roc_figure({"mine": SCORE}, TARGETS, {})
    if "matplotlib.pyplot" in sys.modules:
        assert not sys.modules["matplotlib.pyplot"].get_fignums()


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(AnedlError, match=r'matplotlib.*pip install "anedl\[report\]"'):
        figures.roc_figure({"mine": SCORE}, TARGETS, {})
