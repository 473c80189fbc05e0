"""Whole sets of images, a batch at a time."""

import threading

import numpy as np
import pytest
import torch
from PIL import Image

from anedl.data.augment.host import HostAugment
from anedl.data.batches import ImageBatches, to_memory, worker_count
from anedl.data.dataset import ArrayImages, FileImages
from anedl.errors import ConfigError, DataError

SIZE = 8
AUGMENT = HostAugment("small", SIZE)


class Counted:
    """Images whose every pixel is their number, and which count how many were asked for."""

    def __init__(self, size=SIZE):
        self.size = size
        self.asked = []
        self.lock = threading.Lock()

    def __len__(self):
        return 100

    def __getitem__(self, index):
        with self.lock:
            self.asked.append(index)
        return np.full((self.size, self.size, 3), index, dtype=np.uint8)


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_batches_come_in_order_whoever_makes_them(threads):
    indices = np.arange(99, 0, -2)
    batches = list(ImageBatches(Counted(), indices, AUGMENT, threads).batches(8))
    assert [len(batch) for batch in batches] == [8] * 6 + [2]
    whole = torch.cat(batches)
    assert whole.shape == (50, 3, SIZE, SIZE)
    assert whole.dtype == torch.uint8
    assert whole[:, 1, 2, 3].tolist() == indices.tolist()


def test_no_more_is_made_than_the_batch_in_use_and_the_next():
    images = Counted()
    made = ImageBatches(images, np.arange(100), AUGMENT, 4).batches(10)
    assert images.asked == [], "nothing before it is asked for"
    for number, _ in enumerate(made, 1):
        assert 10 * number <= len(images.asked) <= 10 * (number + 1)
    assert len(images.asked) == 100


def test_giving_up_stops_the_threads():
    before = threading.active_count()
    images = Counted()
    made = ImageBatches(images, np.arange(100), AUGMENT, 2).batches(5)
    next(made)
    made.close()
    assert threading.active_count() == before
    assert len(images.asked) <= 10


def test_an_image_that_cannot_be_read_is_named(tmp_path):
    (tmp_path / "text.png").write_text("no picture")
    Image.new("RGB", (SIZE, SIZE)).save(tmp_path / "good.png")
    paths = [tmp_path / "good.png", tmp_path / "text.png", tmp_path / "good.png"]
    before = threading.active_count()
    with pytest.raises(DataError, match=r"text\.png: cannot be decoded"):
        list(ImageBatches(FileImages(paths), np.arange(3), AUGMENT, 2).batches(2))
    assert threading.active_count() == before


def test_into_memory_once_and_only_what_is_asked_for():
    images, told = Counted(size=11), []
    indices = np.array([3, 50, 99])
    found = to_memory(images, indices, AUGMENT, 2, lambda *state: told.append(state))
    assert isinstance(found, ArrayImages)
    assert found.pixels.shape == (100, SIZE, SIZE, 3)
    assert sorted(images.asked) == [3, 50, 99]
    for index in indices:
        assert (found[index] == index).all()
    assert found.pixels.sum() == (3 + 50 + 99) * SIZE * SIZE * 3
    assert told[-1] == (3 * SIZE * SIZE * 3, 3 * SIZE * SIZE * 3)


def test_nothing_into_memory():
    found = to_memory(FileImages([]), np.zeros(0, dtype=np.int64), AUGMENT, 2)
    assert found.pixels.shape == (0, SIZE, SIZE, 3)


def test_how_many_workers():
    assert 1 <= worker_count(None) <= 8
    assert worker_count(0) == 0
    assert worker_count(30) == 30
    with pytest.raises(ConfigError, match="workers -1"):
        worker_count(-1)
