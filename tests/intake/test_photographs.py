"""HEIC from telephones and raw files from cameras: told apart, and read where they can be."""

import io
import os
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image, ImageFile

from anedl.intake import decoding, photographs
from anedl.intake.cache import build_cache
from anedl.intake.decoding import UnreadableError, decode, header_size, holds_image
from anedl.intake.listing import list_pile
from anedl.intake.photographs import HEIC, ODD_HEIC, RAW

CACHES = (photographs.reads_heic, decoding._readable_formats, decoding.image_suffixes)


def photo(brand=b"heic", also=b"mif1heic"):
    """The beginning of such a file; what follows is for a decoder that nobody has here."""
    return (16 + len(also)).to_bytes(4, "big") + b"ftyp" + brand + bytes(4) + also + bytes(200)


def forget():
    for cached in CACHES:
        cached.cache_clear()


@pytest.fixture
def without(monkeypatch):
    """As if pillow-heif were not installed."""
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    forget()
    yield
    forget()


class Heif(ImageFile.ImageFile):
    """Takes every photograph for 6 × 4 pixels of one colour, but knows no sequences."""

    format = "HEIF"

    def _open(self):
        if self.fp.read(12)[8:] == b"msf1":
            raise SyntaxError("a sequence")
        self._mode, self._size = "RGB", (6, 4)

    def load(self):
        self.im = Image.new("RGB", self.size, (10, 20, 30)).im
        return super().load()


def installed(monkeypatch):
    """As if pillow-heif were there: it registers a plugin of this name with Pillow."""

    def register():
        Image.register_open("HEIF", Heif, lambda start: start[4:8] == b"ftyp")
        Image.register_extensions("HEIF", [".heic", ".heics"])

    monkeypatch.setattr(Image, "ID", [*Image.ID])
    monkeypatch.setattr(Image, "EXTENSION", {**Image.EXTENSION})
    monkeypatch.setattr(Image, "OPEN", {**Image.OPEN})
    package = SimpleNamespace(register_heif_opener=register)
    monkeypatch.setitem(sys.modules, "pillow_heif", package)
    forget()


def test_endings_that_the_package_makes_known(with_package):
    assert {".heic", ".heics", ".png"} <= decoding.image_suffixes()


@pytest.fixture
def with_package(monkeypatch):
    Image.init()
    installed(monkeypatch)
    yield
    forget()


@pytest.mark.usefixtures("without")
@pytest.mark.parametrize("brand", [b"heic", b"heix", b"hevc", b"mif1", b"msf1"])
@pytest.mark.parametrize("name", ["IMG_1.HEIC", "a.heif", "no-suffix", "b.jpg"])
def test_a_heic_photo_is_an_image_that_cannot_be_read(tmp_path, name, brand):
    (tmp_path / name).write_bytes(photo(brand))
    assert holds_image(tmp_path / name)
    listing = list_pile(tmp_path)
    assert [item.name for item in listing.items] == [name]
    assert not listing.skipped
    with pytest.raises(UnreadableError) as caught:
        decode(tmp_path / name)
    assert caught.value.reason == HEIC
    assert "convert it to JPEG or PNG, or install pillow-heif" in HEIC


@pytest.mark.usefixtures("without")
def test_what_only_looks_like_one(tmp_path):
    Image.new("RGB", (3, 2), "red").save(tmp_path / "renamed.heic", "JPEG")
    assert decode(tmp_path / "renamed.heic").shape == (2, 3, 3)
    (tmp_path / "clip.mov").write_bytes(photo(b"qt  ", b"qt  "))
    (tmp_path / "words.heic").write_text("no photo at all")
    (tmp_path / "odd.avif").write_bytes(photo(b"mif1", b"avifmif1"))
    assert not holds_image(tmp_path / "clip.mov")
    for name in ("clip.mov", "words.heic", "odd.avif"):
        with pytest.raises(UnreadableError) as caught:
            decode(tmp_path / name)
        assert "HEIC" not in caught.value.reason


@pytest.mark.usefixtures("without")
@pytest.mark.parametrize("name", ["a.CR2", "a.nef", "a.ARW", "a.dng", "a.cr3", "a.RAF"])
def test_a_raw_file_is_not_taken_for_its_thumbnail(tmp_path, name):
    """Most are TIFF files, whose first picture is a small one."""
    for content in (photo(b"crx ", b"crx isom"), b"II*\0" + bytes(300), tiff()):
        (tmp_path / name).write_bytes(content)
        assert [item.name for item in list_pile(tmp_path).items] == [name]
        for read in (decode, header_size):
            with pytest.raises(UnreadableError) as caught:
                read(tmp_path / name)
            assert caught.value.reason == RAW
    Image.new("RGB", (3, 2)).save(tmp_path / name, "JPEG")
    assert decode(tmp_path / name).shape == (2, 3, 3)


def tiff():
    file = io.BytesIO()
    Image.new("RGB", (16, 12), "blue").save(file, "TIFF")
    return file.getvalue()


@pytest.mark.usefixtures("with_package")
def test_with_the_package_a_heic_photo_is_read(tmp_path):
    (tmp_path / "a.heic").write_bytes(photo())
    pixels = decode(tmp_path / "a.heic")
    assert pixels.shape == (4, 6, 3)
    assert np.unique(pixels.reshape(-1, 3), axis=0).tolist() == [[10, 20, 30]]
    (tmp_path / "b.heic").write_bytes(photo(b"msf1"))
    assert [item.name for item in list_pile(tmp_path).items] == ["a.heic", "b.heic"]
    with pytest.raises(UnreadableError) as caught:
        decode(tmp_path / "b.heic")
    assert caught.value.reason == ODD_HEIC
    # Other files are read as ever.
    Image.new("RGB", (3, 2), "red").save(tmp_path / "c.png")
    assert decode(tmp_path / "c.png").shape == (2, 3, 3)


@pytest.mark.usefixtures("without")
def test_once_the_package_is_installed_photos_are_tried_again_unless_a_run_has_begun(
    tmp_path, monkeypatch
):
    pile = tmp_path / "pile"
    pile.mkdir()
    (pile / "a.heic").write_bytes(photo())
    Image.new("RGB", (3, 2), "red").save(pile / "b.png")
    items = list_pile(pile).items
    first = build_cache(items, tmp_path / "cache", 8)
    assert [(entry.name, entry.reason) for entry in first.skipped] == [("a.heic", HEIC)]
    installed(monkeypatch)
    unread = {pile / "a.heic": HEIC}
    os.utime(pile / "b.png", (1, 1))  # so that it must be looked at again
    for _ in range(2):
        begun = build_cache(list_pile(pile).items, tmp_path / "cache", 8, unread=unread)
        assert [item.name for item in begun.items] == ["b.png"]
        assert [(entry.name, entry.reason) for entry in begun.skipped] == [("a.heic", HEIC)]
    again = build_cache(items, tmp_path / "cache", 8)
    assert [item.name for item in again.items] == ["a.heic", "b.png"]
    assert again.images[0].reshape(-1, 3)[0].tolist() == [10, 20, 30]
