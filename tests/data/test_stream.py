"""What every stream shares: its interface and the plan of an epoch."""

import inspect

import numpy as np
import pytest

from anedl.data.disk import DiskStream
from anedl.data.order import draw_epoch
from anedl.data.resident import ResidentStream
from anedl.data.stream import Stream
from anedl.errors import DataError
from anedl.methods.base import Source, Want
from anedl.views import View

SIZES = {Source.LABELLED: 6, Source.POOL: 23}
BATCH, STEPS, SEED = 4, 5, 3
WANTS = {
    "labelled": Want(Source.LABELLED, (View.WEAK,)),
    "pool": Want(Source.POOL, (View.WEAK, View.STRONG), 2),
    "selected": Want(Source.SELECTED, (View.WEAK,), 3),
}


def plan(epoch=0, selected=None, seed=SEED, wants=WANTS):
    return draw_epoch(wants, SIZES, BATCH, seed, epoch, STEPS, selected)


@pytest.mark.parametrize("kind", [ResidentStream, DiskStream])
@pytest.mark.parametrize("verb", ["begin_epoch", "batch", "pool", "close"])
def test_every_stream_takes_the_same_calls(kind, verb):
    def parameters(owner):
        return [
            (p.name, p.kind, p.default)
            for p in inspect.signature(getattr(owner, verb)).parameters.values()
        ]

    assert parameters(kind) == parameters(Stream)
    assert isinstance(kind.capturable, bool)


def test_a_plan_has_a_row_a_step():
    assert {name: rows.shape for name, rows in plan().items()} == {
        "labelled": (STEPS, BATCH),
        "pool": (STEPS, 2 * BATCH),
        "selected": (STEPS, 3 * BATCH),
    }


def test_every_image_comes_once_before_any_comes_again_across_epochs():
    plans = [plan(epoch) for epoch in range(6)]
    for name, size in (("labelled", 6), ("pool", 23), ("selected", 23)):
        sequence = np.concatenate([rows[name].ravel() for rows in plans])
        for start in range(0, len(sequence) - size + 1, size):
            assert sorted(sequence[start : start + size]) == list(range(size)), (name, start)


def test_the_selected_are_positions_of_the_pool_and_come_evenly():
    selected = np.array([2, 3, 11, 19, 22])
    rows = plan(4, selected)
    drawn, counts = np.unique(rows["selected"], return_counts=True)
    assert drawn.tolist() == selected.tolist()
    assert counts.max() - counts.min() <= 1
    for name in ("labelled", "pool"):
        np.testing.assert_array_equal(rows[name], plan(4)[name])
    assert not np.array_equal(rows["selected"], plan(5, selected)["selected"])


def test_two_parts_of_one_source_and_two_seeds_are_drawn_apart():
    pool = Want(Source.POOL, (View.WEAK,))
    rows = plan(wants={"labelled": WANTS["labelled"], "one": pool, "two": pool})
    assert not np.array_equal(rows["one"], rows["two"])
    assert not np.array_equal(plan()["pool"], plan(seed=SEED + 1)["pool"])


def test_an_empty_selection_is_refused():
    with pytest.raises(DataError, match="no pool image was selected"):
        plan(selected=np.zeros(0, dtype=np.int64))
