import numpy as np
from sklearn.metrics import confusion_matrix

from anedl.report.canvas import to_png
from anedl.report.confusion import confusion_counts, confusion_figure, confusion_rows

RNG = np.random.default_rng(3)
TARGETS = np.where(RNG.random(400) < 0.4, -1, RNG.integers(0, 3, 400))
SCORE = RNG.normal(np.where(TARGETS < 0, 2.0, 4.0), 1.0)


def test_counts_are_sklearns_with_unknown_as_a_class():
    predicted = RNG.integers(0, 3, 400)
    accepted = SCORE >= 3.0
    counts = confusion_counts(predicted, TARGETS, accepted, 3)
    truth = np.where(TARGETS < 0, 3, TARGETS)
    np.testing.assert_array_equal(
        counts, confusion_matrix(truth, np.where(accepted, predicted, 3), labels=range(4))
    )


def test_rows_are_shaded_by_their_own_shares_and_empty_truths_left_out():
    rows = confusion_rows(np.array([[9, 0, 1], [0, 3, 0], [0, 0, 0]]), ["cat", "dog"])
    assert [name for name, _ in rows] == ["cat", "dog"]  # no image is unknown in truth
    cat, dog = (cells for _, cells in rows)
    assert [(c.count, c.shade, c.right) for c in cat] == [
        (9, 9, True),
        (0, 0, False),
        (1, 1, False),
    ]
    assert [c.shade for c in dog] == [0, 9, 0]


def test_many_classes_are_drawn_with_the_last_named_unknown():
    names = ["$x_{", "$$", *(f"class {k}" for k in range(90))]  # no mathematics
    figure = confusion_figure(np.eye(93, dtype=int), names)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels[0] == "$x_{"
    assert labels[-1] == "unknown"
    assert len(labels) <= 61
    assert len(figure.axes[0].images[0].get_array()) == 93
    assert to_png(figure).startswith(b"\x89PNG")


def test_without_unknown_images_the_picture_has_no_row_of_them():
    figure = confusion_figure(np.array([[9, 0, 1], [0, 3, 0], [0, 0, 0]]), ["cat", "dog"])
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cat", "dog"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["cat", "dog", "unknown"]
    assert axes.images[0].get_array().shape == (2, 3)


def test_few_classes_have_their_counts_in_the_picture():
    counts = np.array([[9, 0, 1], [0, 1234, 0], [0, 2, 3]])
    texts = {text.get_text() for text in confusion_figure(counts, ["cat", "dog"]).axes[0].texts}
    assert {"9", "1,234", "2", "3"} <= texts
    many = confusion_figure(np.eye(31, dtype=int), [str(n) for n in range(30)])
    assert not many.axes[0].texts
