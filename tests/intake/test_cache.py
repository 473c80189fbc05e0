import fcntl
import json
import os
import shutil

import numpy as np
import pytest
from PIL import Image

from anedl.data.dataset import ArrayImages
from anedl.errors import ConfigError, DataError
from anedl.intake import cache as module
from anedl.intake.cache import build_cache, open_cache
from anedl.intake.listing import Item
from anedl.intake.pool import examine_all

SIDE = 8


def save(path, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (SIDE, SIDE, 3), np.uint8)
    Image.fromarray(pixels).save(path)
    return pixels


@pytest.fixture
def items(tmp_path):
    """Twelve images, two of them broken, the first five labelled."""
    found = []
    for number in range(12):
        path = tmp_path / f"{number:02}.png"
        save(path, number)
        label = "ab"[number % 2] if number < 5 else None
        found.append(Item(path, path.name, label))
    found[3].path.write_bytes(b"broken")
    found[8].path.write_bytes(b"")
    return found


@pytest.fixture
def decoded(monkeypatch):
    """The names of the files that were decoded, in order."""
    names = []

    def counted(paths, *rest):
        names.extend(path.name for path in paths)
        return examine_all(paths, *rest)

    monkeypatch.setattr(module, "examine_all", counted)
    return names


def check(cache, items):
    """Every row holds the pixels of its file, decoded here."""
    assert len(cache.images) == len(cache.items) == len(cache.hashes) == len(cache.digests)
    assert len(cache.items) + len(cache.skipped) == len(items)
    for row, item in enumerate(cache.items):
        with Image.open(item.path) as image:
            np.testing.assert_array_equal(cache.images[row], np.array(image.convert("RGB")))


def test_rows_are_the_readable_items_in_order(items, tmp_path):
    cache = build_cache(items, tmp_path / "cache", SIDE)
    assert cache.items == [item for number, item in enumerate(items) if number not in (3, 8)]
    check(cache, items)
    assert isinstance(cache.images, ArrayImages)
    assert isinstance(cache.images.pixels, np.memmap)
    assert [(s.name, s.labelled) for s in cache.skipped] == [("03.png", True), ("08.png", False)]
    assert cache.width.tolist() == cache.height.tolist() == [SIDE] * 10
    assert cache.hashes.dtype == np.uint64
    names = sorted(path.name for path in (tmp_path / "cache").iterdir())
    assert names == [".lock", "index.jsonl", "pixels.npy"]
    np.testing.assert_array_equal(np.load(tmp_path / "cache/pixels.npy"), cache.images.pixels)


def test_unchanged_files_are_not_decoded_again(items, tmp_path, decoded):
    first = build_cache(items, tmp_path / "cache", SIDE)
    decoded.clear()
    again = build_cache(items, tmp_path / "cache", SIDE)
    assert decoded == []
    assert again.items == first.items
    assert again.digests == first.digests
    np.testing.assert_array_equal(again.hashes, first.hashes)
    check(again, items)


def test_only_what_changed_is_decoded(items, tmp_path, decoded):
    build_cache(items, tmp_path / "cache", SIDE)
    decoded.clear()
    save(items[3].path, 33)  # repaired
    save(items[6].path, 66)
    os.utime(items[6].path, ns=(1, 1))
    items[9].path.unlink()
    extra = tmp_path / "extra.png"
    save(extra, 99)
    changed = [Item(extra, "extra.png", "b"), *reversed(items[1:])]
    cache = build_cache(changed, tmp_path / "cache", SIDE)
    # What was skipped is tried again.
    assert decoded == ["extra.png", "09.png", "08.png", "06.png", "03.png"]
    assert [item.name for item in cache.items] == [
        "extra.png", "11.png", "10.png", "07.png", "06.png", "05.png", "04.png", "03.png",
        "02.png", "01.png",
    ]  # fmt: skip
    check(cache, changed)


def test_another_side_is_another_cache(items, tmp_path, decoded):
    build_cache(items, tmp_path / "cache", SIDE)
    decoded.clear()
    cache = build_cache(items, tmp_path / "cache", 16)
    assert len(decoded) == 12
    assert cache.images.pixels.shape == (10, 16, 16, 3)


@pytest.mark.parametrize("damage", ["none", "torn index", "lost pixels", "changed file"])
def test_an_interrupted_build_goes_on(items, tmp_path, monkeypatch, decoded, damage):
    monkeypatch.setattr(module, "SAVED_EVERY", 2)

    def interrupt(done, total):
        if done == 7 * SIDE * SIDE * 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_cache(items, tmp_path / "cache", SIDE, progress=interrupt)
    with pytest.raises(DataError, match="no complete image cache"):
        open_cache(tmp_path / "cache")
    partial = tmp_path / "cache" / "partial"
    left = 6  # the seventh was not saved
    if damage == "torn index":
        content = (partial / "index.jsonl").read_bytes()
        (partial / "index.jsonl").write_bytes(content[:-5])
        left = 5
    if damage == "lost pixels":  # 0, 1, 2, 4 and half of 5
        size = (partial / "pixels.npy").stat().st_size
        rows = (size - 128) // (SIDE * SIDE * 3)
        os.truncate(partial / "pixels.npy", 128 + 4 * SIDE * SIDE * 3 + 50)
        assert rows >= 5
        left = 5
    if damage == "changed file":
        save(items[2].path, 222)
        os.utime(items[2].path, ns=(1, 1))
        left = 2
    decoded.clear()
    cache = build_cache(items, tmp_path / "cache", SIDE)
    assert decoded == [item.name for item in items[left:]]
    assert len(cache.items) == 10
    check(cache, items)
    assert not partial.exists()


def test_an_old_cache_serves_until_the_new_one_is_there(items, tmp_path):
    old = build_cache(items[:6], tmp_path / "cache", SIDE)

    def interrupt(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build_cache(items, tmp_path / "cache", SIDE, progress=interrupt)
    assert open_cache(tmp_path / "cache").items == old.items
    mapped = np.array(old.images.pixels)
    build_cache(items, tmp_path / "cache", SIDE)
    np.testing.assert_array_equal(old.images.pixels, mapped)  # those who read it still can


def test_damage_is_noticed(items, tmp_path, decoded):
    build_cache(items, tmp_path / "cache", SIDE)
    pixels = tmp_path / "cache" / "pixels.npy"
    os.truncate(pixels, pixels.stat().st_size - 1)
    with pytest.raises(DataError, match="no complete image cache; build it again"):
        open_cache(tmp_path / "cache")
    decoded.clear()
    check(build_cache(items, tmp_path / "cache", SIDE), items)
    assert len(decoded) == 12


def test_progress_counts_every_file(items, tmp_path):
    told = []
    build_cache(items, tmp_path / "cache", SIDE, progress=lambda *state: told.append(state))
    frame = SIDE * SIDE * 3
    assert told == [(number * frame, 12 * frame) for number in range(1, 13)]


def test_nothing_readable_is_an_empty_cache(items, tmp_path):
    cache = build_cache([items[3], items[8]], tmp_path / "cache", SIDE)
    assert len(cache.images) == 0
    assert len(cache.skipped) == 2
    assert cache.images.pixels.shape == (0, SIDE, SIDE, 3)
    assert build_cache([], tmp_path / "none", SIDE).items == []


def test_refusals(items, tmp_path, monkeypatch):
    with pytest.raises(ConfigError, match="at least 8 pixels"):
        build_cache(items, tmp_path / "cache", 7)
    (tmp_path / "cache").mkdir()
    with (tmp_path / "cache/.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="another process is building"):
            build_cache(items, tmp_path / "cache", SIDE)
    usage = shutil.disk_usage(tmp_path)._replace(free=100)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DataError, match=r"takes up to 0\.0 GB but 0\.0 GB are free"):
        build_cache(items, tmp_path / "cache", SIDE)


@pytest.mark.parametrize("workers", [0, 1])
def test_the_bits_in_use_are_kept_and_an_older_index_is_read_without_them(tmp_path, workers):
    for name, top in (("dark.png", 2**12), ("full.png", 2**16)):
        values = np.linspace(0, top - 1, 80).reshape(8, 10).astype(np.uint16)
        Image.fromarray(values).save(tmp_path / name)
    Image.new("RGB", (9, 9), "red").save(tmp_path / "plain.png")
    items = [Item(tmp_path / name, name) for name in ("dark.png", "full.png", "plain.png")]
    folder = tmp_path / "cache"
    assert build_cache(items, folder, 8, workers).depths.tolist() == [12, 16, 0]
    # What is copied from an older cache keeps its own.
    assert build_cache(items[:2], folder, 8, workers).depths.tolist() == [12, 16]
    header, *lines = (folder / "index.jsonl").read_text().splitlines()
    older = [header, *(json.dumps(json.loads(line)[:9]) for line in lines)]
    (folder / "index.jsonl").write_text("\n".join(older) + "\n")
    again = open_cache(folder)
    assert [item.name for item in again.items] == ["dark.png", "full.png"]
    assert again.depths.tolist() == [0, 0]
