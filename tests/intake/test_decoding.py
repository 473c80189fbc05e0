"""Single images; the hostile pile has the rest."""

import os
import struct
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from anedl.errors import DataError
from anedl.intake.decoding import (
    UnreadableError,
    decode,
    decode_deep,
    holds_image,
    image_suffixes,
)


def test_transparency_shows_white(tmp_path):
    grey, alpha = Image.new("L", (2, 1), 40), Image.new("L", (2, 1), 255)
    alpha.putpixel((1, 0), 0)
    Image.merge("LA", (grey, alpha)).save(tmp_path / "la.png")
    assert decode(tmp_path / "la.png")[0].tolist() == [[40] * 3, [255] * 3]

    colours = np.array([[[1, 2, 3], [9, 8, 7]]], np.uint8)
    Image.fromarray(colours).save(tmp_path / "key.png", transparency=(9, 8, 7))
    assert decode(tmp_path / "key.png")[0].tolist() == [[1, 2, 3], [255] * 3]

    half = np.array([[[100, 0, 255, 128]]], np.uint8)
    Image.fromarray(half).save(tmp_path / "half.png")
    mixed = [255 + (c - 255) * 128 / 255 for c in (100, 0, 255)]
    np.testing.assert_allclose(decode(tmp_path / "half.png")[0, 0], mixed, atol=1)


def test_decoded_images_are_writable_and_lie_in_order(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 5
    Image.new("RGB", (5, 3)).save(tmp_path / "a.jpg", exif=exif)
    pixels = decode(tmp_path / "a.jpg")
    assert pixels.shape == (5, 3, 3)
    assert pixels.flags.writeable
    assert pixels.flags.c_contiguous


def test_refusals_name_the_file_and_give_the_reason_apart(tmp_path):
    path = tmp_path / os.fsdecode(b"caf\xe9\n.png")
    path.write_bytes(b"")
    with pytest.raises(UnreadableError) as caught:
        decode(path)
    assert caught.value.reason == "the file is empty (0 bytes)"
    assert str(caught.value).endswith(r"caf\xe9\x0a.png: the file is empty (0 bytes)")
    assert isinstance(caught.value, DataError)


@pytest.mark.parametrize("name", ["x" * 300 + ".png", "nul\0nul.png", "plain.png/below.png", ""])
def test_paths_that_cannot_be(tmp_path, name):
    Image.new("RGB", (2, 2)).save(tmp_path / "plain.png")
    with pytest.raises(UnreadableError) as caught:
        decode(tmp_path / name)
    assert caught.value.reason.isprintable()


def test_values_without_a_range_are_refused(tmp_path):
    Image.fromarray(np.array([[0, 70_000]], np.int32)).save(tmp_path / "counts.tiff")
    with pytest.raises(UnreadableError, match=r"unusual kind \(grey values beyond 16 bits\)"):
        decode(tmp_path / "counts.tiff")


def test_drawings_are_not_run(tmp_path):
    (tmp_path / "a.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EOF\n")
    with pytest.raises(UnreadableError, match="not an image of any format known here"):
        decode(tmp_path / "a.png")
    assert {".jpg", ".png", ".webp", ".tif"} <= image_suffixes()
    assert not {".eps", ".pdf", ".mpg", ".txt", ".csv"} & image_suffixes()


def test_content_is_recognised_without_a_name(tmp_path):
    Image.new("RGB", (2, 2)).save(tmp_path / "x", "WEBP")
    (tmp_path / "y").write_text("P5 is no portable grey map without numbers")
    assert holds_image(tmp_path / "x")
    assert not holds_image(tmp_path / "y")
    assert not holds_image(tmp_path / "gone")


def test_threads_leave_the_warning_filters_as_they_were(tmp_path):
    """Decoding silences warnings, in the threads of a pool too, and only while it lasts."""
    path = tmp_path / "spoiled.jpg"
    exif = b"Exif\0\0MM\0\x2a\xff\xff\xff\xff" + b"\xff" * 40
    Image.new("RGB", (64, 64)).save(path, exif=exif)
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as threads:
        assert len(list(threads.map(decode, [path] * 200))) == 200
    assert warnings.filters == before
    with pytest.warns(UserWarning, match="still heard"):
        warnings.warn("still heard", stacklevel=1)


def colours_of_sixteen_bits(values):
    """A PNG file of (height, width, 3 or 4) uint16, which Pillow reads but cannot write."""
    height, width, channels = values.shape
    header = struct.pack(">IIBBBBB", width, height, 16, {3: 2, 4: 6}[channels], 0, 0, 0)
    lines = b"".join(b"\0" + line.astype(">u2").tobytes() for line in values)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


@pytest.mark.parametrize("bits", [10, 12, 14, 16])
def test_the_bits_in_use_of_a_file_of_sixteen_are_counted_and_its_range_is_kept(tmp_path, bits):
    values = np.random.default_rng(bits).integers(0, 2**bits, (9, 11)).astype(np.uint16)
    values[0, 0] = 2**bits - 1
    colours = np.repeat(values[..., None], 3, axis=2)
    opaque = np.full((9, 11, 1), 65535, np.uint16)
    for ending in ("png", "tif"):
        Image.fromarray(values).save(tmp_path / f"grey.{ending}")
    (tmp_path / "colour.png").write_bytes(colours_of_sixteen_bits(colours))
    (tmp_path / "alpha.png").write_bytes(
        colours_of_sixteen_bits(np.concatenate([colours, opaque], axis=2))
    )
    for path in tmp_path.iterdir():
        pixels, depth = decode_deep(path)
        assert depth == bits, path.name
        np.testing.assert_allclose(pixels[..., 0], values / 257, atol=1.0)


def test_files_of_eight_bits_have_no_such_depth(tmp_path):
    dark = np.full((4, 5, 3), 3, np.uint8)
    for name in ("a.png", "b.jpg", "c.gif", "d.tif"):
        Image.fromarray(dark).save(tmp_path / name)
        assert decode_deep(tmp_path / name)[1] == 0
    Image.fromarray(np.zeros((4, 5), np.uint16)).save(tmp_path / "black.png")
    assert decode_deep(tmp_path / "black.png")[1] == 0
