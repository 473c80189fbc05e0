"""Two hundred files that nobody would wish for: each is read right or skipped with a reason."""

import csv
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from anedl.errors import DataError
from anedl.intake.cache import build_cache, open_cache
from anedl.intake.decoding import decode
from anedl.intake.findings import write_skipped
from anedl.intake.listing import list_pile

SIDE = 16


def relative(item, root):
    return os.fsencode(item.path)[len(os.fsencode(root)) + 1 :]


def framed(pixels):
    picture = Image.fromarray(np.asarray(pixels, np.uint8))
    return np.array(picture.resize((SIDE, SIDE), Image.Resampling.BILINEAR))


@pytest.mark.usefixtures("alarm")
@pytest.mark.parametrize("workers", [0, 2])
def test_every_file_is_read_right_or_skipped_with_a_reason(hostile, tmp_path, workers):
    listing = list_pile(hostile.root)
    # Between listing and decoding one file goes away, and one that was being written is finished.
    hostile.path(b"plain.png").unlink()
    del hostile.pixels[b"plain.png"], hostile.pixels[b"link.png"]
    hostile.bad |= {b"plain.png", b"link.png"}
    whole = hostile.path(b"shape3.png").read_bytes()
    hostile.path(b"cut4.png").write_bytes(whole)
    hostile.bad.remove(b"cut4.png")
    hostile.pixels[b"cut4.png"] = hostile.pixels[b"shape3.png"]

    cache = build_cache(listing.items, tmp_path / "cache", SIDE, workers)
    kept = {relative(item, hostile.root): row for row, item in enumerate(cache.items)}
    for name, pixels in hostile.pixels.items():
        assert name in kept, (name, cache.skipped)
        row = kept[name]
        assert (cache.height[row], cache.width[row]) == pixels.shape[:2], name
        np.testing.assert_array_equal(cache.images[row], framed(pixels), err_msg=str(name))
        np.testing.assert_array_equal(decode(hostile.path(name)), pixels, err_msg=str(name))
    assert set(kept) <= set(hostile.pixels) | hostile.either

    skipped = [*listing.skipped, *cache.skipped]
    total = len(hostile.pixels) + len(hostile.bad) + len(hostile.either)
    assert len(kept) + len(skipped) == total
    names = [entry.name for entry in skipped] + [item.name for item in cache.items]
    assert len(set(names)) == total
    for entry in skipped:
        assert entry.reason
        assert entry.reason.isprintable(), entry
        assert str(hostile.root) not in entry.reason
        assert entry.name.isprintable()
        assert not entry.labelled

    write_skipped(tmp_path / "skipped.csv", skipped)
    with (tmp_path / "skipped.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["part", "name", "reason"]
    assert rows[1:] == [["pile", entry.name, entry.reason] for entry in skipped]
    again = open_cache(tmp_path / "cache")
    assert again.items == cache.items
    assert again.skipped == cache.skipped


def test_reasons_say_what_is_wrong(hostile, tmp_path):
    listing = list_pile(hostile.root)
    cache = build_cache(listing.items, tmp_path / "cache", SIDE)
    reasons = {entry.name: entry.reason for entry in [*listing.skipped, *cache.skipped]}
    for name, part in {
        "empty.jpg": "empty",
        "cut5.jpeg": "cut short",
        "text.jpg": "not an image",
        "notes.txt": "not an image by its name, nor by its content",
        "pipe.jpg": "a named pipe, not a file",
        "socket.jpg": "a socket",
        "device.jpg": "a device",
        "loop.jpg": "leads back to itself",
        "dangling.jpg": "a link to nothing",
        "around": "a link to a folder",
        "deep/up.jpg": "a link to a folder",
        ".hidden.png": "hidden",
        "bomb11000.png": "declares 11000 × 11000 pixels, beyond the limit of 120 million",
        "bomb100000.png": "beyond the limit of 120 million",
        "float.tiff": "no fixed range",
        "drawing.eps": "not an image",
    }.items():
        assert part in reasons[name], name


def test_forbidden_files_and_folders_are_skipped(tmp_path, monkeypatch):
    """The system's refusal is simulated: the superuser may read everything."""
    pile = tmp_path / "pile"
    (pile / "closed").mkdir(parents=True)
    for name in ("mine.png", "theirs.png"):
        Image.new("RGB", (8, 8)).save(pile / name)
    real_open, real_scan = os.open, os.scandir

    def guarded_open(path, *rest, **options):
        if str(path).endswith("theirs.png"):
            raise PermissionError(13, "Permission denied", str(path))
        return real_open(path, *rest, **options)

    def guarded_scan(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return real_scan(path)

    monkeypatch.setattr(os, "open", guarded_open)
    monkeypatch.setattr(os, "scandir", guarded_scan)
    listing = list_pile(pile)
    cache = build_cache(listing.items, tmp_path / "cache", SIDE)
    assert [item.name for item in cache.items] == ["mine.png"]
    assert [(s.name, s.reason) for s in [*listing.skipped, *cache.skipped]] == [
        ("closed/", "the folder cannot be read (Permission denied)"),
        ("theirs.png", "the file may not be read (permission denied)"),
    ]


@pytest.mark.usefixtures("alarm")
def test_a_file_that_grows_while_it_is_read(tmp_path):
    path = tmp_path / "growing.png"
    pixels = np.random.default_rng(0).integers(0, 256, (200, 200, 3), np.uint8)
    Image.fromarray(pixels).save(path)
    done = threading.Event()

    def grow():
        with path.open("ab") as file:
            while not done.wait(0.0005):
                file.write(b"more" * 100)
                file.flush()

    writer = threading.Thread(target=grow)
    writer.start()
    try:
        for _ in range(10):
            np.testing.assert_array_equal(decode(path), pixels)
    finally:
        done.set()
        writer.join()


@pytest.mark.usefixtures("alarm")
def test_a_pipe_that_takes_a_files_place_does_not_block(tmp_path, monkeypatch):
    path = tmp_path / "x.jpg"
    os.mkfifo(path)
    ordinary = tmp_path / "ordinary"
    ordinary.write_bytes(b"x")
    status = ordinary.stat()
    # What it was when it was looked at is not what is opened.
    monkeypatch.setattr(Path, "stat", lambda *_, **__: status)
    with pytest.raises(DataError, match="a named pipe, not a file"):
        decode(path)
