import sys

import numpy as np
import pytest
from matplotlib.patches import StepPatch
from sklearn.metrics import confusion_matrix, roc_auc_score, roc_curve

from anedl.errors import AnedlError
from anedl.report import figures
from anedl.report.canvas import to_png, width_in_inches

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


def test_confusion_counts_are_sklearns_with_unknown_as_a_class():
    predicted = RNG.integers(0, 3, 400)
    accepted = SCORE >= 3.0
    counts = figures.confusion_counts(predicted, TARGETS, accepted, 3)
    truth = np.where(TARGETS < 0, 3, TARGETS)
    np.testing.assert_array_equal(
        counts, confusion_matrix(truth, np.where(accepted, predicted, 3), labels=range(4))
    )


def test_confusion_matrix_has_names_and_numbers_while_they_can_be_read():
    counts = np.diag([5, 0, 7])
    axes = figures.confusion_figure(counts, ["cat", "$dog_{"]).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cat", "$dog_{", "unknown"]
    assert [text.get_text() for text in axes.texts] == ["5", "7"]
    many = figures.confusion_figure(np.eye(56, dtype=int), [f"class {k}" for k in range(55)])
    assert not many.axes[0].texts
    assert many.axes[0].get_yticklabels()[-1].get_text() == "unknown"


def test_a_name_that_looks_like_mathematics_is_drawn_as_it_is():
    drawn = to_png(figures.confusion_figure(np.eye(3, dtype=int), ["$x_{", "$$"]))
    assert drawn.startswith(b"\x89PNG")


def curve_rows():
    rows = [
        {"step": 5 * n, "epoch": (5 * n - 1) // 10, "loss": 1 / n, "stage": 1} for n in range(1, 9)
    ]
    test = {"error": 0.5, "auroc": {"score": 0.9, "max_softmax": 0.8}}
    return rows + [
        {"step": 10 * e + 10, "epoch": e, "validation": {"error": 0.4 - 0.1 * e}, "test": test}
        for e in range(4)
    ]


def test_curves_mark_where_self_training_starts():
    figure = figures.curves_figure(curve_rows(), 10, "mine", self_training_from=2, best_epoch=3)
    assert len(figure.axes) == 3
    for axes in figure.axes:
        upright = [
            one for one in axes.get_lines()
            if len(set(one.get_xdata())) == 1 and list(one.get_ydata()) == [0, 1]
        ]  # fmt: skip
        assert [list(one.get_xdata()) for one in upright] == [[2, 2]]
    names = {text.get_text().strip(): text.get_position()[0] for text in figure.axes[0].texts}
    assert names == {"pretraining": 2, "self-training": 2}
    assert not figures.curves_figure(curve_rows(), 10, "mine").axes[0].texts


def test_curves_draw_what_was_recorded_over_epochs():
    figure = figures.curves_figure(curve_rows(), 10, "mine", self_training_from=2, best_epoch=3)
    errors, areas = figure.axes[1:]
    np.testing.assert_allclose(line(errors, "validation").get_xdata(), [1, 2, 3, 4])
    np.testing.assert_allclose(line(errors, "validation").get_ydata(), [40, 30, 20, 10])
    assert line(errors, "best").get_xdata()[0] == 4
    assert line(errors, "best").get_ydata()[0] == pytest.approx(10)
    np.testing.assert_allclose(line(areas, "mine").get_ydata(), [90] * 4)
    np.testing.assert_allclose(line(areas, "max softmax").get_ydata(), [80] * 4)
    losses = [list(one.get_xdata()) for one in figure.axes[0].get_lines()[:2]]
    assert losses == [[0.5, 1, 1.5, 2], [2.5, 3, 3.5, 4]]


def test_curves_leave_out_what_was_not_recorded():
    rows = [{k: v for k, v in row.items() if k != "test"} for row in curve_rows()]
    assert len(figures.curves_figure(rows, 10, "mine").axes) == 2
    assert len(figures.curves_figure(rows[:8], 10, "mine").axes) == 1


def test_selection_over_epochs():
    rows = [
        {"epoch": e, "selection": {"count": 10 * e, "purity": 0.9, "recall": 0.1 * e}}
        for e in (2, 3, 4)
    ]
    counts, shares = figures.selection_figure([*rows, {"epoch": 4, "loss": 1.0}]).axes
    assert list(counts.get_lines()[0].get_xdata()) == [2, 3, 4]
    assert list(counts.get_lines()[0].get_ydata()) == [20, 30, 40]
    np.testing.assert_allclose(line(shares, "purity").get_ydata(), [90] * 3)
    np.testing.assert_allclose(line(shares, "recall").get_ydata(), [20, 30, 40])


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


def test_pictures_are_reproducible_and_know_their_width():
    first, second = (to_png(figures.roc_figure({"mine": SCORE}, TARGETS, {})) for _ in range(2))
    assert first == second
    assert width_in_inches(first) == pytest.approx(5.6, abs=0.3)


def test_drawing_leaves_no_global_state():
    figures.roc_figure({"mine": SCORE}, TARGETS, {})
    if "matplotlib.pyplot" in sys.modules:
        assert not sys.modules["matplotlib.pyplot"].get_fignums()


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(AnedlError, match=r'matplotlib.*pip install "anedl\[report\]"'):
        figures.roc_figure({"mine": SCORE}, TARGETS, {})
