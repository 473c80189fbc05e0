"""Pictures show the frames' own pixels, and the cache of them stays within its bound."""

import io

import numpy as np
import pytest
from PIL import Image

from anedl.errors import DataError
from anedl.review.thumbnails import LARGEST, SHOWN, PictureCache, thumbnail, whole_image


def decoded(picture):
    image = Image.open(io.BytesIO(picture[0]))
    assert image.get_format_mimetype() == picture[1]
    return np.asarray(image.convert("RGB"))


@pytest.mark.parametrize("side", [8, 28, 64])
def test_tiny_frames_are_enlarged_pixel_by_pixel(side):
    frame = np.random.default_rng(0).integers(0, 256, (side, side, 3), np.uint8)
    shown = decoded(thumbnail(frame))
    scale = len(shown) // side
    assert SHOWN <= len(shown) < SHOWN + side
    np.testing.assert_array_equal(shown, np.kron(frame, np.ones((scale, scale, 1), np.uint8)))


def test_larger_frames_keep_their_size_and_look():
    ramp = np.linspace(0, 255, 224).astype(np.uint8)
    frame = np.stack([np.tile(ramp, (224, 1))] * 3, axis=2)
    shown = decoded(thumbnail(frame))
    assert shown.shape == frame.shape
    assert np.abs(shown.astype(int) - frame).mean() < 3


def test_a_whole_image_is_upright_and_no_larger_than_a_screen(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (3000, 1000), "red").save(tmp_path / "a.jpg", exif=exif)
    shown = decoded(whole_image(tmp_path / "a.jpg"))
    assert shown.shape[0] == LARGEST
    assert shown.shape[1] == pytest.approx(LARGEST / 3, abs=2)


def test_what_is_no_image_is_not_passed_on(tmp_path):
    (tmp_path / "a.jpg").write_text("<svg onload='alert(1)'/>")
    with pytest.raises(DataError):
        whole_image(tmp_path / "a.jpg")


def test_the_cache_lets_the_pictures_go_that_were_not_asked_for_longest():
    cache = PictureCache(most_bytes=30)
    for number in range(3):
        cache.put(number, (bytes(10), "image/png"))
    assert cache.get(0) is not None
    cache.put(3, (bytes(10), "image/png"))
    assert [cache.get(number) is not None for number in range(4)] == [True, False, True, True]
    assert cache.bytes == 30
    cache.put(3, (bytes(10), "image/png"))
    assert cache.bytes == 30
