import numpy as np
from matplotlib.patches import Rectangle

from anedl.report.canvas import INLIER, OUTLIER, to_png
from anedl.report.contact_sheet import (
    Strip,
    Tile,
    most_doubtful,
    most_outlier_like,
    sheet_figure,
    square,
    surest_of_each_class,
    truth_of,
)


def test_surest_of_each_class_come_surest_first():
    sureness = np.array([3.0, 9.0, 5.0, 7.0, 9.0, 1.0])
    predicted = np.array([0, 1, 0, 1, 1, 2])
    picked = surest_of_each_class(sureness, predicted, 4, 2)
    # 9.0 occurs twice: the earlier of equals comes first.
    assert [list(p) for p in picked] == [[2, 0], [1, 4], [5], []]


def test_most_outlier_like_have_the_lowest_scores():
    assert list(most_outlier_like(np.array([4.0, 1.0, 3.0, 2.0]), 3)) == [1, 3, 2]


def test_most_doubtful_are_accepted_and_least_sure():
    probability = np.array([0.3, 0.9, 0.5, 0.4])
    accepted = np.array([False, True, True, True])
    assert list(most_doubtful(probability, accepted, 2)) == [3, 2]
    assert not len(most_doubtful(probability, np.zeros(4, dtype=bool), 2))


def test_truth_of_a_prediction():
    assert truth_of(2, 2) == "right"
    assert truth_of(2, 1) == "wrong"
    assert truth_of(2, -1) == "outlier"
    assert truth_of(2, None) == "not known"


def grey(value):
    return np.full((8, 8, 1), value, dtype=np.uint8)


def test_sheet_shows_pixels_captions_and_borders_in_order():
    tiles = [Tile(grey(10), "one", "right"), Tile(grey(20), "two", "outlier")]
    figure = sheet_figure(
        [Strip("$cat_{", tiles), Strip("dog", [Tile(grey(30), "three", "wrong")])]
    )
    (axes,) = figure.axes
    assert [int(np.asarray(image.get_array())[0, 0]) for image in axes.images] == [10, 20, 30]
    assert {image.get_interpolation() for image in axes.images} == {"nearest"}
    words = [text.get_text() for text in axes.texts]
    assert words == ["$cat_{", "one", "two", "dog", "three"]
    borders = [p for p in axes.patches if isinstance(p, Rectangle)][1::2]  # each over a white one
    colours = [
        f"#{''.join(f'{round(255 * c):02X}' for c in p.get_edgecolor()[:3])}" for p in borders
    ]
    assert colours == [INLIER, OUTLIER, INLIER]
    assert [p.get_linestyle() for p in borders] == ["-", "-", "--"]
    # The second image stands right of the first, the second strip below.
    left = [image.get_extent()[0] for image in axes.images]
    top = [image.get_extent()[3] for image in axes.images]
    assert left[0] < left[1]
    assert left[0] == left[2]
    assert top[0] == top[1] < top[2]
    assert len(figure.legends) == 1
    to_png(figure)


def test_sheet_without_truth_has_no_legend():
    assert not sheet_figure([Strip("", [Tile(grey(1), "a", "not known")])]).legends


def test_many_classes_share_rows_and_stay_apart():
    count = 5
    strips = [Strip(f"class {k}", [Tile(grey(k), "", "right")] * count) for k in range(55)]
    (axes,) = sheet_figure(strips).axes
    places = {tuple(np.round(image.get_extent(), 6)) for image in axes.images}
    assert len(places) == 55 * count
    assert max(place[1] for place in places) <= axes.get_xlim()[1]
    assert max(place[2] for place in places) <= axes.get_ylim()[0]


def test_square_takes_the_middle():
    wide = np.arange(4 * 6 * 3, dtype=np.uint8).reshape(4, 6, 3)
    np.testing.assert_array_equal(square(wide), wide[:, 1:5])
    assert square(grey(7)).shape == (8, 8)
