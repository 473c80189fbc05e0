"""The stream of batches over images on the device."""

from dataclasses import fields

import numpy as np
import pytest
import torch

from anedl.data.augment.batched import BatchedAugment
from anedl.data.resident import ResidentStream, TrainingImages
from anedl.errors import DataError
from anedl.methods.base import Batch, Labelled, Source, Unlabelled, Want
from anedl.views import View

BATCH, STEPS = 4, 5
LABELLED = Want(Source.LABELLED, (View.FLIP, View.WEAK))
POOL = Want(Source.POOL, (View.WEAK, View.STRONG), 2)
SELECTED = Want(Source.SELECTED, (View.WEAK, View.STRONG), 2)
FIRST_STAGE = {"labelled": LABELLED, "pool": POOL}
SECOND_STAGE = {**FIRST_STAGE, "selected": SELECTED}


def numbered(count: int, offset: int) -> torch.Tensor:
    """Images whose every pixel is the image's own number, so that a batch says who is in it."""
    return (
        torch.arange(offset, offset + count).to(torch.uint8)[:, None, None, None].repeat(1, 1, 8, 8)
    )


@pytest.fixture
def images():
    return TrainingImages(numbered(6, 0), torch.tensor([0, 1, 2, 0, 1, 2]), numbered(23, 100))


def make_stream(images, seed=3, kind="digits", batch_size=BATCH):
    return ResidentStream(images, BatchedAugment(kind, 8, 1), batch_size, seed)


def batch_of(stream, row, epoch=0):
    return stream.batch(torch.tensor(row), torch.tensor(epoch * STEPS + row))


def tensors(batch: Batch) -> list[torch.Tensor]:
    found = [*batch.labelled.views, batch.labelled.labels]
    for part in batch.unlabelled.values():
        found += [*part.views, part.positions]
    return found


def assert_same(first: Batch, second: Batch) -> None:
    pairs = list(zip(tensors(first), tensors(second), strict=True))
    assert all(torch.equal(a, b) for a, b in pairs)


def test_shapes_and_sources(images):
    stream = make_stream(images)
    stream.begin_epoch(SECOND_STAGE, 0, STEPS, torch.tensor([1, 4, 9]))
    batch = batch_of(stream, 0)
    assert [v.shape for v in batch.labelled.views] == [(BATCH, 1, 8, 8)] * 2
    assert list(batch.unlabelled) == ["pool", "selected"]
    for part in batch.unlabelled.values():
        assert [v.shape for v in part.views] == [(2 * BATCH, 1, 8, 8)] * 2
        assert all(v.dtype == torch.uint8 for v in part.views)
        assert part.positions.dtype == torch.int64


def test_images_labels_and_positions_belong_together(images):
    plain = {
        "labelled": Want(Source.LABELLED, (View.PLAIN,)),
        "pool": Want(Source.POOL, (View.PLAIN,), 2),
    }
    stream = make_stream(images)
    stream.begin_epoch(plain, 0, STEPS, None)
    for row in range(STEPS):
        batch = batch_of(stream, row)
        numbers = batch.labelled.views[0][:, 0, 0, 0].long()
        assert torch.equal(batch.labelled.labels, images.labels[numbers])
        pool = batch.unlabelled["pool"]
        assert torch.equal(pool.views[0][:, 0, 3, 3].long(), pool.positions + 100)


def test_labelled_and_pool_images_each_come_once_a_pass_across_epochs(images):
    stream = make_stream(images)
    drawn = {"labelled": [], "pool": []}
    for epoch in range(7):
        stream.begin_epoch(FIRST_STAGE, epoch, STEPS, None)
        for name in drawn:
            drawn[name].append(stream.drawn[name].flatten().clone())
    for name, size in (("labelled", 6), ("pool", 23)):
        sequence = torch.cat(drawn[name]).numpy()
        for start in range(0, len(sequence) - size + 1, size):
            assert sorted(sequence[start : start + size]) == list(range(size)), (name, start)


def test_the_batch_of_a_step_does_not_depend_on_what_came_before(images):
    selected = torch.tensor([0, 2, 5, 7, 11, 22])
    travelled = make_stream(images)
    for epoch in range(3):
        travelled.begin_epoch(FIRST_STAGE, epoch, STEPS, None)
        for row in range(STEPS):
            batch_of(travelled, row, epoch)
    travelled.begin_epoch(SECOND_STAGE, 3, STEPS, selected)
    travelled.begin_epoch(SECOND_STAGE, 4, STEPS, selected)
    torch.manual_seed(99)
    fresh = make_stream(images)
    fresh.begin_epoch(SECOND_STAGE, 4, STEPS, selected)
    for row in (3, 0):
        assert_same(batch_of(travelled, row, 4), batch_of(fresh, row, 4))


def test_steps_epochs_and_seeds_differ(images):
    first = make_stream(images)
    first.begin_epoch(FIRST_STAGE, 0, STEPS, None)
    other_seed = make_stream(images, seed=4)
    other_seed.begin_epoch(FIRST_STAGE, 0, STEPS, None)
    batches = [batch_of(first, 0), batch_of(first, 1), batch_of(other_seed, 0)]
    first.begin_epoch(FIRST_STAGE, 1, STEPS, None)
    batches.append(batch_of(first, 0, 1))
    orders = {tuple(batch.unlabelled["pool"].positions.tolist()) for batch in batches}
    assert len(orders) == 4


def test_the_views_of_one_image_are_drawn_apart():
    """Two weak views of the same image differ: Eq. 6 between equal views would be zero."""
    torch.manual_seed(0)
    noise = torch.randint(0, 256, (20, 1, 8, 8), dtype=torch.uint8)
    images = TrainingImages(noise[:4], torch.zeros(4, dtype=torch.int64), noise)
    stream = make_stream(images)
    twice = {"labelled": LABELLED, "pool": Want(Source.POOL, (View.WEAK, View.WEAK), 2)}
    stream.begin_epoch(twice, 0, STEPS, None)
    first, second = batch_of(stream, 0).unlabelled["pool"].views
    assert (first != second).flatten(1).any(1).float().mean() > 0.8


def test_selected_positions_come_from_the_selection_alone_and_evenly(images):
    selected = torch.tensor([3, 8, 14, 20])
    stream = make_stream(images)
    stream.begin_epoch(SECOND_STAGE, 2, STEPS, selected)
    drawn = stream.drawn["selected"].flatten()
    assert set(drawn.tolist()) == set(selected.tolist())
    counts = np.bincount(drawn.numpy())[selected.numpy()]
    assert counts.max() - counts.min() <= 1
    batch = batch_of(stream, 4, 2)
    assert torch.isin(batch.unlabelled["selected"].positions, selected).all()


def test_the_same_selection_is_shuffled_anew_each_epoch(images):
    stream = make_stream(images)
    selected = torch.arange(20)
    stream.begin_epoch(SECOND_STAGE, 2, STEPS, selected)
    before = stream.drawn["selected"].clone()
    stream.begin_epoch(SECOND_STAGE, 3, STEPS, selected)
    assert not torch.equal(before, stream.drawn["selected"])


def test_no_selection_means_the_whole_pool(images):
    stream = make_stream(images)
    stream.begin_epoch(SECOND_STAGE, 0, STEPS, None)
    assert set(stream.drawn["selected"].flatten().tolist()) == set(range(23))
    assert not torch.equal(stream.drawn["selected"], stream.drawn["pool"])


def test_an_empty_selection_is_told(images):
    with pytest.raises(DataError, match="no pool image"):
        make_stream(images).begin_epoch(SECOND_STAGE, 0, STEPS, torch.zeros(0, dtype=torch.int64))


def test_buffers_keep_their_address_from_epoch_to_epoch(images):
    stream = make_stream(images)
    stream.begin_epoch(FIRST_STAGE, 0, STEPS, None)
    first = {name: buffer.data_ptr() for name, buffer in stream.drawn.items()}
    before = {name: buffer.clone() for name, buffer in stream.drawn.items()}
    stream.begin_epoch(SECOND_STAGE, 1, STEPS, torch.tensor([1, 2]))
    second = {name: buffer.data_ptr() for name, buffer in stream.drawn.items()}
    stream.begin_epoch(SECOND_STAGE, 2, STEPS, torch.tensor([3, 4, 5]))
    third = {name: buffer.data_ptr() for name, buffer in stream.drawn.items()}
    assert first == {name: second[name] for name in first}
    assert second == third
    assert all(not torch.equal(before[name], stream.drawn[name]) for name in before)


def test_a_selection_or_another_stage_leaves_the_other_orders_alone(images):
    one, two = make_stream(images), make_stream(images)
    one.begin_epoch(FIRST_STAGE, 5, STEPS, None)
    two.begin_epoch(SECOND_STAGE, 5, STEPS, torch.tensor([1, 2]))
    for name in FIRST_STAGE:
        assert torch.equal(one.drawn[name], two.drawn[name])


def test_the_types_of_unlabelled_data_have_no_place_for_a_label():
    assert [f.name for f in fields(Unlabelled)] == ["views", "positions"]
    assert [f.name for f in fields(Batch)] == ["labelled", "unlabelled"]
    assert [f.name for f in fields(Labelled)] == ["views", "labels"]
    assert [f.name for f in fields(TrainingImages)] == ["labelled", "labels", "pool"]
    part = Unlabelled((torch.zeros(2, 1, 8, 8, dtype=torch.uint8),), torch.arange(2))
    with pytest.raises(AttributeError):
        part.labels = torch.zeros(2)
