import io
from base64 import b64decode

import numpy as np
import pytest
from PIL import Image

from anedl.report import album
from anedl.report.album import Album, encoded

RNG = np.random.default_rng(1)


def noise(side, channels=3):
    return RNG.integers(0, 256, (side, side, channels), np.uint8)


def decoded(thumbnail):
    return np.asarray(Image.open(io.BytesIO(b64decode(thumbnail.source.split(",")[1]))))


class Pictures:
    def __getitem__(self, key):
        return np.full((8, 8, 1), key[1] % 256, np.uint8)


def test_an_image_is_stored_once_however_often_it_is_shown():
    book = Album(Pictures())
    first = book.add(("train", 7))
    assert book.add(("train", 7)) == first
    assert book.add(("test", 7)) != first
    assert len(book.thumbnails()) == 2


def test_an_album_takes_so_many_and_no_more(monkeypatch):
    monkeypatch.setattr(album, "MOST_IMAGES", 3)
    book = Album(Pictures())
    names = [book.add(("train", i)) for i in range(5)]
    assert names[3:] == [None, None]
    assert book.add(("train", 1)) == names[1]  # what is in can be shown again
    assert [t.name for t in book.thumbnails()] == names[:3]


def test_without_images_there_are_none():
    book = Album(None)
    assert book.add(("train", 1)) is None
    assert book.thumbnails() == []
    assert Album(Pictures()).add(None) is None


@pytest.mark.parametrize("channels", [1, 3])
def test_small_images_keep_their_very_pixels(channels):
    image = noise(32, channels)
    (thumbnail,) = encoded({"a": image})
    assert thumbnail.sharp
    np.testing.assert_array_equal(decoded(thumbnail), image.squeeze())


def test_large_images_shrink_until_all_fit(monkeypatch):
    images = {str(i): noise(300) for i in range(12)}
    sides = {}
    for most in (1_000_000, 30_000):
        monkeypatch.setattr(album, "MOST_BYTES", most)
        made = encoded(images)
        assert sum(len(one.source) for one in made) <= most
        assert {one.name for one in made} == set(images)
        sides[most] = decoded(made[0]).shape[0]
    assert sides[30_000] < sides[1_000_000] == 96
