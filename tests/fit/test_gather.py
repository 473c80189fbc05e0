"""Who trains, who judges: roles, hidden images, copies, and refusals."""

import csv
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from anedl.errors import DataError
from anedl.fit.gather import gather
from anedl.fit.roles import halves

CPU = torch.device("cpu")


def gathered(folders, run, level=0.05, seed=0, say=lambda text: None):
    return gather(*folders, run, CPU, level, seed, quiet=True, say=say)


@pytest.fixture
def copies(folders, tmp_path):
    """The folders, with every labelled image in the pile once more, slightly changed."""
    labelled, pile = tmp_path / "labelled", tmp_path / "pile"
    shutil.copytree(folders[0], labelled)
    shutil.copytree(folders[1], pile)
    for path in sorted(labelled.rglob("*.png")):
        bright = np.asarray(Image.open(path)).astype(int) + 2
        name = f"copy-of-{path.parent.name}-{path.name}"
        Image.fromarray(np.clip(bright, 0, 255).astype(np.uint8)).save(pile / name)
    return labelled, pile


def test_every_image_has_one_role_and_the_pile_is_whole(folders, tmp_path):
    found = gathered(folders, tmp_path / "run")
    split = found.split
    roles = [split.labelled, split.validation, found.fresh, found.decoys, found.pile]
    together = np.concatenate(roles)
    assert len(np.unique(together)) == len(together) == len(found.cache.items)
    assert len(found.pile) == 40
    for role, of_class in ((split.labelled, 12 - 2 - 5), (split.validation, 2)):
        assert np.bincount(found.labels[role], minlength=3).tolist() == [of_class] * 3
    calibration = np.concatenate([found.fresh, found.decoys])
    assert np.bincount(found.labels[calibration], minlength=3).tolist() == [5, 5, 5]


def test_decoys_lie_in_the_pool_and_fresh_images_never(folders, tmp_path):
    found = gathered(folders, tmp_path / "run")
    pool = set(found.split.pool.tolist())
    assert set(found.decoys.tolist()) <= pool
    assert pool.isdisjoint(found.fresh.tolist())
    assert pool.isdisjoint(found.split.validation.tolist())
    assert pool.isdisjoint(found.split.labelled.tolist())
    assert abs(len(found.fresh) - len(found.decoys)) <= 1
    assert found.split.test.tolist() == found.fresh.tolist()


def test_what_looks_like_a_judge_never_trains(copies, tmp_path):
    found = gathered(copies, tmp_path / "run")
    names = [item.name for item in found.cache.items]
    copy_of = {
        position: names.index(
            f"copy-of-{found.cache.items[position].label}-{names[position].split('/')[-1]}"
        )
        for position in np.flatnonzero(found.labels < 3)
    }
    pool = set(found.split.pool.tolist())
    for position in [*found.split.validation, *found.fresh]:
        assert copy_of[position] not in pool
    for position in found.decoys:
        assert copy_of[position] in pool
    # Withheld images are still sorted in the end, and counted.
    assert set(copy_of.values()) <= set(found.pile.tolist())
    assert found.findings.withheld == len(set(found.pile.tolist()) - pool) > 0


def test_roles_depend_on_the_seed_alone(folders, tmp_path):
    first, again = gathered(folders, tmp_path / "a"), gathered(folders, tmp_path / "b")
    other = gathered(folders, tmp_path / "c", seed=1)
    assert first.split == again.split
    assert first.split != other.split


def test_neither_half_of_the_calibration_stays_empty():
    """Three copies of one image first: they stay together, and the other half gets the rest."""
    fresh, decoys = halves(np.arange(4), np.zeros(4, int), np.array([0, 0, 0, -1]), seed=0)
    assert sorted([fresh.tolist(), decoys.tolist()]) == [[0, 1, 2], [3]]


def test_one_class_is_refused(folders, tmp_path):
    one = tmp_path / "one"
    shutil.copytree(folders[0] / "bars", one / "bars")
    with pytest.raises(DataError, match="one class only"):
        gathered((one, folders[1]), tmp_path / "run")


def test_too_few_images_of_a_class_are_refused_with_the_minimum(folders, tmp_path):
    few = tmp_path / "few"
    shutil.copytree(folders[0], few)
    for path in sorted((few / "bars").iterdir())[4:]:
        path.unlink()
    said = []
    with pytest.raises(DataError, match=r"'bars' has 4.*at least 5"):
        gathered((few, folders[1]), tmp_path / "run", say=said.append)
    # What was found is told all the same.
    assert "bars        4" in "\n".join(said)
    assert "pile: 40 images" in "\n".join(said)


def test_an_empty_pile_is_refused(folders, tmp_path):
    (tmp_path / "pile").mkdir()
    with pytest.raises(DataError, match="no images in the pile"):
        gathered((folders[0], tmp_path / "pile"), tmp_path / "run")


def test_a_pile_of_which_nothing_can_be_read_is_refused_and_the_reasons_are_there(
    folders, tmp_path
):
    pile = tmp_path / "pile"
    pile.mkdir()
    for number in range(3):
        (pile / f"{number}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(30))
    with pytest.raises(DataError, match="none of its 3 files can be read"):
        gathered((folders[0], pile), tmp_path / "run")
    with (tmp_path / "run" / "skipped.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["part"], row["name"]) for row in rows] == [
        ("pile", f"{number}.png") for number in range(3)
    ]
    assert all(row["reason"] for row in rows)
