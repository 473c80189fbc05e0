import numpy as np
import pytest
from PIL import Image

from anedl.data.dataset import ArrayImages, Dataset, FileImages, LabelledImages
from anedl.errors import DataError


def grey(count: int) -> ArrayImages:
    return ArrayImages(np.zeros((count, 4, 4, 1), np.uint8))


def test_files_decode_to_writable_rgb(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "colour.png")
    Image.fromarray(pixels[:, :, 0]).save(tmp_path / "grey.png")
    images = FileImages([tmp_path / "colour.png", tmp_path / "grey.png"])
    np.testing.assert_array_equal(images[0], pixels)
    np.testing.assert_array_equal(images[1], np.stack([pixels[:, :, 0]] * 3, axis=2))
    assert images[0].flags.writeable
    assert len(images) == 2


def test_sixteen_bit_grey_keeps_its_range(tmp_path):
    levels = np.array([[0, 257, 25700, 65535]], np.uint16)
    Image.fromarray(levels).save(tmp_path / "deep.png")
    decoded = FileImages([tmp_path / "deep.png"])[0]
    np.testing.assert_array_equal(decoded[0, :, 0], [0, 1, 100, 255])
    assert decoded.shape == (1, 4, 3)


def test_palette_with_transparency_decodes_to_its_colours(tmp_path):
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 200, 100, 50])
    image.putpixel((1, 0), 1)
    image.save(tmp_path / "palette.png", transparency=b"\x00\xff")
    decoded = FileImages([tmp_path / "palette.png"])[0]
    np.testing.assert_array_equal(decoded[0], [[10, 20, 30], [200, 100, 50]])


@pytest.mark.parametrize("content", [b"", b"no image", "truncated"])
def test_file_that_is_no_image_is_named(tmp_path, content):
    path = tmp_path / "broken.png"
    if content == "truncated":
        Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64), np.uint8)).save(path)
        content = path.read_bytes()[:1500]
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"broken\.png: cannot be decoded.*remove or replace"):
        FileImages([path])[0]


def test_image_too_large_to_be_honest_is_refused(tmp_path, monkeypatch):
    Image.new("L", (64, 64)).save(tmp_path / "huge.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    with pytest.raises(DataError, match=r"huge\.png: cannot be decoded"):
        FileImages([tmp_path / "huge.png"])[0]


def test_file_that_is_gone_is_named(tmp_path):
    with pytest.raises(DataError, match=r"gone\.png: the image is not there"):
        FileImages([tmp_path / "gone.png"])[0]


@pytest.mark.parametrize(
    "pixels",
    [np.zeros((2, 4, 4), np.uint8), np.zeros((2, 4, 4, 4), np.uint8), np.zeros((2, 4, 4, 3))],
)
def test_arrays_must_be_images(pixels):
    with pytest.raises(DataError, match="uint8 with 1 or 3 channels"):
        ArrayImages(pixels)


def test_labels_must_match_images_and_names():
    with pytest.raises(DataError, match="3 images but 2 labels"):
        LabelledImages(grey(3), np.zeros(2, np.int64))
    none = LabelledImages(grey(0), np.zeros(0, np.int64))
    for labels in ([0, 2], [-1, 0]):
        part = LabelledImages(grey(2), np.array(labels))
        with pytest.raises(DataError, match="test labels run from"):
            Dataset("toy", ("a", "b"), train=none, test=part)
