"""The stream over image files: what it draws, whoever reads the files."""

import multiprocessing
import os
import signal
import subprocess
import sys
from dataclasses import fields

import numpy as np
import pytest
import torch
from PIL import Image

from anedl.data import disk
from anedl.data.augment.batched import BatchedAugment
from anedl.data.augment.host import HostAugment, view_generator
from anedl.data.dataset import FileImages
from anedl.data.disk import DiskImages, DiskStream
from anedl.data.resident import ResidentStream, TrainingImages
from anedl.errors import DataError
from anedl.methods.base import Source, Want
from anedl.views import View

BATCH, STEPS, SIZE, SEED = 4, 3, 16, 5
CPU = torch.device("cpu")
WANTS = {
    "labelled": Want(Source.LABELLED, (View.FLIP, View.WEAK)),
    "pool": Want(Source.POOL, (View.WEAK, View.STRONG), 2),
    "selected": Want(Source.SELECTED, (View.PLAIN,), 1),
}
SELECTED = torch.tensor([0, 2, 5, 7, 11, 22])
# Python 3.12 dislikes forks of a process with threads, the loader more workers than cores.
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning"),
]


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """Forty small pictures of several shapes."""
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    found = []
    for number in range(40):
        shape = (18 + number % 5, 22 - number % 3, 3)
        found.append(folder / f"{number}.png")
        Image.fromarray(rng.integers(0, 256, shape, dtype=np.uint8)).save(found[-1])
    return found


def disk_images(paths):
    labels = torch.arange(9) % 3
    return DiskImages(FileImages(paths), np.arange(0, 18, 2), labels, np.arange(39, 16, -1))


@pytest.fixture
def make_stream(paths):
    """Build streams, which are closed at the end."""
    made = []

    def make(workers=0, of=paths, seed=SEED, kind="imagenet"):
        stream = DiskStream(disk_images(of), HostAugment(kind, SIZE), BATCH, seed, CPU, workers)
        made.append(stream)
        return stream

    yield make
    for stream in made:
        stream.close()


def tensors(batch):
    found = [*batch.labelled.views, batch.labelled.labels]
    for part in batch.unlabelled.values():
        found += [*part.views, part.positions]
    return found


def drawn_by(stream, epochs=(0,), first_row=0):
    """Every tensor of every batch."""
    found = []
    for epoch in epochs:
        stream.begin_epoch(WANTS, epoch, STEPS, SELECTED, first_row)
        for row in range(first_row, STEPS):
            batch = stream.batch(torch.tensor(row), torch.tensor(epoch * STEPS + row))
            found += tensors(batch)
    return found


def assert_same(first, second):
    assert len(first) == len(second) > 0
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


def test_the_number_of_workers_changes_no_bit(make_stream, monkeypatch):
    expected = drawn_by(make_stream(0), epochs=(0, 1))
    monkeypatch.setattr(disk, "JOB_IMAGES", 3)  # several jobs a part, the last one smaller
    for workers in (0, 1, 2):
        stream = make_stream(workers)
        assert_same(drawn_by(stream, epochs=(0, 1)), expected)
        assert len(multiprocessing.active_children()) == workers, "they outlive an epoch"
        stream.close()
        assert multiprocessing.active_children() == []


def test_the_images_of_a_step_are_those_of_the_resident_stream(make_stream):
    images = TrainingImages(
        torch.zeros(9, 3, SIZE, SIZE, dtype=torch.uint8),
        torch.arange(9) % 3,
        torch.zeros(23, 3, SIZE, SIZE, dtype=torch.uint8),
    )
    resident = ResidentStream(images, BatchedAugment("small", SIZE, 3), BATCH, SEED)
    streamed = make_stream()
    for epoch in (0, 3):
        for stream in (resident, streamed):
            stream.begin_epoch(WANTS, epoch, STEPS, SELECTED)
        for row in range(STEPS):
            at = torch.tensor(row), torch.tensor(epoch * STEPS + row)
            ours, theirs = streamed.batch(*at), resident.batch(*at)
            assert torch.equal(ours.labelled.labels, theirs.labelled.labels)
            assert list(ours.unlabelled) == list(theirs.unlabelled)
            for name, part in ours.unlabelled.items():
                assert torch.equal(part.positions, theirs.unlabelled[name].positions)
                assert part.views[0].shape == theirs.unlabelled[name].views[0].shape


def test_views_are_those_of_the_named_images(make_stream, paths):
    """Against files opened by hand, with random numbers of seed, step, place and slot."""
    stream = make_stream()
    stream.begin_epoch(WANTS, 2, STEPS, SELECTED)
    batch = stream.batch(torch.tensor(0), torch.tensor(6))
    augment = HostAugment("imagenet", SIZE)
    # Two labelled views are slots 0 and 1, two of the pool 2 and 3, one of the selected 4.
    for name, view_at, slot, view in (
        ("pool", 0, 2, View.WEAK),
        ("pool", 1, 3, View.STRONG),
        ("selected", 0, 4, View.PLAIN),
    ):
        part = batch.unlabelled[name]
        for place, position in enumerate(part.positions.tolist()):
            pixels = np.array(Image.open(paths[39 - position]).convert("RGB"))
            expected = augment.apply(pixels, view, view_generator(SEED, 6, place, slot))
            found = part.views[view_at][place].permute(1, 2, 0).numpy()
            np.testing.assert_array_equal(found, expected)


def test_one_image_twice_in_a_batch_is_seen_differently(make_stream):
    stream = make_stream(kind="small")
    wants = {**WANTS, "selected": Want(Source.SELECTED, (View.STRONG,), 2)}
    stream.begin_epoch(wants, 0, STEPS, torch.tensor([4]))
    views = stream.batch(torch.tensor(0), torch.tensor(0)).unlabelled["selected"].views[0]
    assert len({view.numpy().tobytes() for view in views}) == 2 * BATCH


def test_an_epoch_can_begin_in_its_middle(make_stream):
    whole = drawn_by(make_stream(), epochs=(4,))
    rest = drawn_by(make_stream(), epochs=(4,), first_row=1)
    assert_same(rest, whole[len(whole) - len(rest) :])


def test_an_epoch_that_was_left_is_forgotten(make_stream):
    stream = make_stream(1)
    stream.begin_epoch(WANTS, 7, STEPS, None)
    stream.batch(torch.tensor(0), torch.tensor(21))
    assert_same(drawn_by(stream), drawn_by(make_stream()))


def test_no_global_random_number_is_used(make_stream):
    torch.manual_seed(1)
    first = drawn_by(make_stream())
    after = torch.rand(1)
    torch.manual_seed(1)
    assert torch.equal(after, torch.rand(1))
    assert_same(first, drawn_by(make_stream()))
    other = drawn_by(make_stream(seed=SEED + 1))
    assert not all(torch.equal(a, b) for a, b in zip(first, other, strict=True))


def test_the_pool_comes_whole_and_in_order(make_stream, paths):
    stream = make_stream()
    plain = torch.cat(list(stream.pool(View.PLAIN, 0).batches(10)))
    augment = HostAugment("imagenet", SIZE)
    for position in (0, 9, 10, 22):
        pixels = np.array(Image.open(paths[39 - position]))
        expected = augment.apply(pixels, View.PLAIN, np.random.default_rng(0))
        np.testing.assert_array_equal(plain[position].permute(1, 2, 0).numpy(), expected)
    flipped = [torch.cat(list(stream.pool(View.FLIP, step).batches(7))) for step in (3, 3, 6)]
    assert torch.equal(flipped[0], flipped[1])
    assert not torch.equal(flipped[0], flipped[2])


@pytest.mark.parametrize("workers", [0, 1])
def test_a_damaged_image_is_named(make_stream, paths, tmp_path, workers):
    damaged = tmp_path / "damaged.png"
    damaged.write_bytes(paths[20].read_bytes()[:200])
    stream = make_stream(workers, of=[*paths[:20], damaged, *paths[21:]])
    with pytest.raises(DataError, match=r"^\S*damaged\.png: cannot be decoded") as caught:
        drawn_by(stream, epochs=range(3))
    assert "Traceback" not in str(caught.value)
    stream.close()
    assert multiprocessing.active_children() == []


KILL_A_WORKER = """
import multiprocessing, os, signal, sys
from pathlib import Path
import numpy as np, torch
from anedl.data.augment.host import HostAugment
from anedl.data.dataset import FileImages
from anedl.data.disk import DiskImages, DiskStream
from anedl.errors import DataError
from anedl.methods.base import Source, Want
from anedl.views import View

images = FileImages(sorted(Path(sys.argv[1]).glob("*.png")))
disk_images = DiskImages(images, np.arange(9), torch.arange(9) % 3, np.arange(9, 40))
stream = DiskStream(disk_images, HostAugment("imagenet", 16), 4, 5, torch.device("cpu"), 1)
wants = {"labelled": Want(Source.LABELLED, (View.WEAK,)), "pool": Want(Source.POOL, (View.WEAK,))}
stream.begin_epoch(wants, 0, 1000, None)
stream.batch(torch.tensor(0), torch.tensor(0))
(worker,) = multiprocessing.active_children()
signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # torch's handler would raise just anywhere
os.kill(worker.pid, signal.SIGKILL)
try:
    list(map(stream.batch, torch.arange(1, 1000), torch.arange(1, 1000)))
except DataError as error:
    print(error)
stream.close()
print("left:", multiprocessing.active_children())
"""


def test_a_killed_worker_is_told(paths):
    """In a process of its own, for the sake of the loader's signal handler."""
    command = [sys.executable, "-c", KILL_A_WORKER, str(paths[0].parent)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "ended unexpectedly" in result.stdout, result.stderr
    assert "--workers" in result.stdout
    assert "left: []" in result.stdout


def test_workers_end_though_one_died_with_a_lock_in_hand(make_stream, monkeypatch):
    monkeypatch.setattr("anedl.data.disk.GRACE_SECONDS", 0.5)
    stream = make_stream(2)
    stream.begin_epoch(WANTS, 0, STEPS, SELECTED)
    stream.batch(torch.tensor(0), torch.tensor(0))
    # The lock that the loader takes to tell its workers that it is over, never given back.
    stream._arriving._workers_done_event._cond.acquire()
    workers = multiprocessing.active_children()
    assert len(workers) == 2
    stream.close()
    assert not any(worker.is_alive() for worker in workers)


def test_ctrl_c_does_not_reach_a_worker(make_stream):
    """A terminal sends it to the whole group; the run decides when its workers end."""
    stream = make_stream(1)
    stream.begin_epoch(WANTS, 0, STEPS, SELECTED)
    stream.batch(torch.tensor(0), torch.tensor(0))
    (worker,) = multiprocessing.active_children()
    os.kill(worker.pid, signal.SIGINT)
    worker.join(0.5)
    assert worker.is_alive()
    stream.batch(torch.tensor(1), torch.tensor(1))


def test_there_is_no_room_for_a_label_of_the_pool():
    assert [f.name for f in fields(DiskImages)] == ["images", "labelled", "labels", "pool"]
