import numpy as np
import pytest

from anedl.report import training_figures as figures


def line(axes, start):
    (found,) = [one for one in axes.get_lines() if str(one.get_label()).startswith(start)]
    return found


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


def test_curves_mark_a_fresh_network():
    figure = figures.curves_figure(
        curve_rows(), 10, "mine", self_training_from=1, best_epoch=3, restarts=(2,)
    )
    assert "fresh network" in {text.get_text() for text in figure.axes[0].texts}
    for axes in figure.axes:
        assert [2, 2] in [list(one.get_xdata()) for one in axes.get_lines()]
        shaded = [(patch.get_x(), patch.get_x() + patch.get_width()) for patch in axes.patches]
        assert shaded == [(1, 2), (3, 4)]  # each network goes through both stages
    losses = [list(one.get_xdata()) for one in figure.axes[0].get_lines()[:4]]
    assert losses == [[0.5, 1], [1.5, 2], [2.5, 3], [3.5, 4]]


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
        {
            "epoch": e,
            "selection": {"count": 10 * e, "purity": 0.9, "precision": 0.7, "recall": 0.1 * e},
        }
        for e in (2, 3, 4)
    ]
    counts, shares = figures.selection_figure([*rows, {"epoch": 4, "loss": 1.0}]).axes
    assert list(counts.get_lines()[0].get_xdata()) == [2, 3, 4]
    assert list(counts.get_lines()[0].get_ydata()) == [20, 30, 40]
    np.testing.assert_allclose(line(shares, "purity").get_ydata(), [90] * 3)
    np.testing.assert_allclose(line(shares, "precision").get_ydata(), [70] * 3)
    np.testing.assert_allclose(line(shares, "recall").get_ydata(), [20, 30, 40])
    for row in rows:
        del row["selection"]["precision"]  # as older runs have it
    _, shares = figures.selection_figure(rows).axes
    assert len(shares.get_lines()) == 2
