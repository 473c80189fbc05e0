"""Numbers become images by a stated rule."""

import tracemalloc

import numpy as np
import pytest
from PIL import Image

from anedl.data.arrays import NUMBERS_AT_ONCE, ImageShapeError, image_format, mean_and_deviation
from anedl.data.labels import as_labels, is_unlabelled, with_unknown


def rows(values, dtype=np.float64):
    return np.array([values], dtype)


@pytest.mark.parametrize(
    ("numbers", "shape", "expected"),
    [
        (64, None, (8, 8, 1)),
        (1, None, (1, 1, 1)),
        (12, None, (1, 12, 1)),
        (12, (2, 2, 3), (2, 2, 3)),
        (12, (3, 4), (3, 4, 1)),
    ],
)
def test_a_row_is_an_image_of_the_stated_shape_or_a_square_or_one_line(numbers, shape, expected):
    found = image_format(np.zeros((3, numbers)), shape, None, None)
    assert (found.height, found.width, found.channels) == expected


@pytest.mark.parametrize(
    ("numbers", "advice"),
    [
        (3072, r"image_shape=\(32, 32, 3\), or image_shape=\(1, 3072\)"),
        (192, r"image_shape=\(8, 8, 3\)"),
        (500, r"image_shape=\(height, width\), or image_shape=\(1, 500\)"),
    ],
)
def test_what_is_taken_for_one_line_of_pixels_is_told(numbers, advice):
    with pytest.warns(UserWarning, match=f"{numbers} numbers.* one line of pixels; give {advice}"):
        found = image_format(np.zeros((3, numbers)), None, None, None)
    assert (found.height, found.width) == (1, numbers)
    # Who says so, or has as many numbers as no image has, is told nothing.
    image_format(np.zeros((3, numbers)), (1, numbers), None, None)
    image_format(np.zeros((3, 63)), None, None, None)


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([0, 7, 200, 9], np.uint8, [0, 7, 200, 9]),
        ([0, 0.2, 0.4, 0.1], float, [0, 51, 102, 26]),  # 25.5 rounds to even
        ([0, 4, 16, 8], float, [0, 64, 255, 128]),
        ([-1, 0, 1, -0.5], float, [0, 128, 255, 64]),
        ([0, 128, 255, 1], np.int64, [0, 128, 255, 1]),
        ([5, 5, 5, 5], float, [255, 255, 255, 255]),
        ([-2, -2, -2, -2], float, [0, 0, 0, 0]),
        ([0, 0, 0, 0], float, [0, 0, 0, 0]),
    ],
)
def test_numbers_become_grey_levels(values, dtype, expected):
    given = rows(values, dtype)
    found = image_format(given, (2, 2), None, 8)
    # Before any resizing: the same format at the image's own size.
    levels = type(found)(2, 2, 1, found.low, found.high, 2).images(given)
    assert levels.ravel().tolist() == expected


def test_the_fitted_range_holds_for_later_rows():
    found = image_format(rows([0, 10] * 32), None, None, None)
    later = found.images(rows([-5, 5, 20] + [0] * 61))
    assert later.ravel()[:3].tolist() == [0, 128, 255]


@pytest.mark.parametrize("shape", [(5, 4, 4, 3), (3, 300, 300, 3), (1000, 20, 20, 1)])
def test_mean_and_deviation_are_those_of_all_pixels(shape):
    images = np.random.default_rng(0).integers(0, 200, shape, dtype=np.uint8)
    images[0, 0, 0, 0] = 255
    pixels = images.reshape(-1, shape[3]) / 255
    mean, deviation = mean_and_deviation(images)
    np.testing.assert_allclose(mean, pixels.mean(0), atol=1e-9)
    np.testing.assert_allclose(deviation, pixels.std(0), atol=1e-9)


def test_images_are_the_same_whichever_are_converted_together():
    side = 30
    many = np.random.default_rng(0).random((3 * NUMBERS_AT_ONCE // side**2, side**2)) * 16
    for size in (side, 8):
        found = image_format(many, None, (0, 16), size)
        alone = [found.images(row[None])[0] for row in many[::100]]
        assert (found.images(many)[::100] == alone).all()


def memory_of(function, *arguments):
    """What a call takes at its peak, in bytes."""
    tracemalloc.start()
    try:
        function(*arguments)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_neither_conversion_nor_statistics_copy_all_numbers_at_once():
    some = np.zeros((5000, 40, 40, 1), np.uint8)
    assert memory_of(mean_and_deviation, some) < some.nbytes
    numbers = np.zeros((5000, 1600), np.float32)
    for side in (40, 8):
        found = image_format(numbers, None, None, side)
        assert memory_of(found.images, numbers) < some.nbytes + 32 * NUMBERS_AT_ONCE


def test_a_size_that_does_not_fit_into_memory_is_refused():
    found = image_format(np.zeros((100, 64)), None, None, 10**6)
    with pytest.raises(ImageShapeError, match=r"image_size 1000000: 100 images .* 200000.0 GB"):
        found.images(np.zeros((100, 64)))


@pytest.mark.parametrize(
    ("fitted", "given"),
    [
        (np.uint8([0, 255]), np.uint8([0, 1])),
        (np.array([0.0, 16.0]), np.array([0.0, 0.0])),  # black
        (np.array([0.0, 255.0]), np.array([0.0, 1.0])),  # nearly black
        (np.array([0.0, 1.0]), np.array([0.0, 1.4])),
        (np.array([0.0, 1.0]), np.uint8([0, 1])),  # a mask
        (np.array([0, 255]), np.array([0, 1])),
        (np.array([-2.1, 2.6]), np.array([-0.5, 0.9])),  # standardized
    ],
)
def test_one_dark_image_is_no_other_scale(fitted, given):
    image_format(fitted[None], None, None, None).warn_of_scale(given[None])


@pytest.mark.parametrize(
    ("fitted", "given"),
    [
        ([0.0, 255.0], [[0.0, 1.0], [1.0, 0.0]]),  # masks
        ([0.0, 255.0], [[0.0, 0.7]]),
        ([-2.1, 2.6], [[0.0, 0.9]]),
        ([-2.1, 2.6], [[0.0, 5.1]]),
        ([0.0, 1.0], [[0.0, 1.6]]),
        ([0.0, 1.0], np.uint8([[0, 2]])),
    ],
)
def test_another_scale_is_told(fitted, given):
    found = image_format(rows(fitted), None, None, None)
    with pytest.warns(UserWarning, match=f"in fit {fitted[0]:g} was black"):
        found.warn_of_scale(np.asarray(given))


def test_a_few_numbers_beyond_white_are_no_other_scale():
    found = image_format(rows([0, 1] * 200), None, None, None)
    found.warn_of_scale(rows([0, 1] * 198 + [0, 11] * 2))
    with pytest.warns(UserWarning, match="from 0 to 11"):
        found.warn_of_scale(rows([0, 1] * 195 + [0, 11] * 5))


def test_what_goes_beyond_a_pixel_range_in_fit_may_do_so_later():
    with pytest.warns(UserWarning, match="pixel_range makes 0 black and 400 white"):
        found = image_format(rows([0, 3000]), None, (0, 400), None)
    found.warn_of_scale(rows([0, 3100]))


def test_images_that_are_not_square_are_stretched_as_pillow_does():
    given = np.arange(12 * 9, dtype=np.uint8)[None]
    found = image_format(given, (9, 12), None, None)
    assert found.side == 12
    picture = Image.fromarray(given.reshape(9, 12)).resize((12, 12), Image.Resampling.BILINEAR)
    assert (found.images(given)[0, :, :, 0] == np.asarray(picture)).all()


@pytest.mark.parametrize(
    ("numbers", "shape", "side"),
    [(4, None, 8), (50 * 50, None, 50), (200 * 200, None, 96), (500, (1, 500), 96)],
)
def test_the_side_stays_within_bounds(numbers, shape, side):
    assert image_format(np.zeros((1, numbers)), shape, None, None).side == side


@pytest.mark.parametrize(
    ("shape", "pixel_range", "side", "message"),
    [
        ((3, 3), None, None, "8 numbers"),
        ((2, 2, 2), None, None, "1 or 3 channels"),
        ((8,), None, None, "height, width"),
        (None, (1, 1), None, "pixel_range"),
        (None, None, 7, "least is 8"),
    ],
)
def test_what_cannot_be_is_refused(shape, pixel_range, side, message):
    with pytest.raises(ImageShapeError, match=message):
        image_format(np.zeros((1, 8)), shape, pixel_range, side)


@pytest.mark.parametrize(
    "labels",
    [
        np.array([3, -1, 0]),
        np.array([3.0, -1.0, 0.0]),
        np.array(["a", "", "b"]),
        np.array(["a", None, "b"], object),
        np.array(["a", "", "b"], object),
        np.array(["a", -1, "b"], object),
        np.array([3, -1, 0], object),
    ],
)
def test_the_mark_of_an_image_without_label(labels):
    assert is_unlabelled(labels).tolist() == [False, True, False]


class NotAvailable:
    """As pandas' NA: whether it equals anything, itself included, is not available either."""

    def __eq__(self, other):
        return self

    __ne__ = __eq__
    __hash__ = None

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")


@pytest.mark.parametrize("missing", [np.nan, float("nan"), np.float32("nan"), None, NotAvailable()])
@pytest.mark.parametrize("kind", [list, lambda labels: np.array(labels, object)])
def test_an_empty_cell_is_no_label(missing, kind):
    texts = as_labels(kind(["a", missing, "b"]))
    assert texts.tolist() == ["a", None, "b"]
    assert is_unlabelled(texts).tolist() == [False, True, False]
    numbers = as_labels(np.array([3, missing, 0], object))
    assert (numbers.tolist(), numbers.dtype.kind) == ([3, -1, 0], "i")


def test_nan_among_numbers_is_no_label():
    given = np.array([3.0, np.nan, -1.0])
    assert as_labels(given).tolist() == as_labels(given.tolist()).tolist() == [3, -1, -1]
    assert np.isnan(given[1]), "what was given stays as it is"


def test_labels_without_gaps_stay_as_they_are():
    assert as_labels(["a", -1]).tolist() == ["a", "-1"]
    assert as_labels(["nan", ""]).tolist() == ["nan", ""]
    assert as_labels(np.array(["a", -1], object)).tolist() == ["a", -1]
    assert as_labels([True, False]).dtype == bool


def test_no_number_of_these_kinds_is_a_mark():
    assert not is_unlabelled(np.array([0, 255], np.uint8)).any()
    assert not is_unlabelled(np.array([True, False])).any()


def test_the_answer_unknown_leaves_the_classes_as_they_are():
    assert with_unknown(np.array([2, 5]), -1).tolist() == [2, 5, -1]
    assert with_unknown(np.array(["a", "b"]), "unknown").tolist() == ["a", "b", "unknown"]
    assert with_unknown(np.array([2, 5]), "unknown").tolist() == [2, 5, "unknown"]
    assert with_unknown(np.array(["a"]), -1).tolist() == ["a", -1]
