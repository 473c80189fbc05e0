"""Who trains, who judges: roles, hidden images, copies, and refusals."""

import csv
import re
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from anedl.errors import DataError
from anedl.fit.gather import gather
from anedl.fit.roles import halves
from anedl.fit.wishes import Wishes
from anedl.intake.describing import describe
from anedl.intake.duplicates import NEAR_DISTANCE

CPU = torch.device("cpu")


def gathered(folders, run, level=0.05, seed=0, say=lambda text: None, **wishes):
    wanted = Wishes(level=level, seed=seed, quiet=True, workers=0, **wishes)
    return gather(*folders, run, wanted, CPU, say)


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
    for role, of_class in ((split.labelled, 12 - 2 - 3), (split.validation, 2)):
        assert np.bincount(found.labels[role], minlength=3).tolist() == [of_class] * 3
    calibration = np.concatenate([found.fresh, found.decoys])
    assert np.bincount(found.labels[calibration], minlength=3).tolist() == [3, 3, 3]


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
    # Whoever reads the counts of copies finds those that are kept out of training among them.
    like = found.findings.pile_like
    assert like["validation"] + like["fresh"] == found.findings.withheld
    assert like["decoys"] >= len(found.decoys)


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
    for path in sorted((few / "bars").iterdir())[5:]:
        path.unlink()
    (few / "bars" / "0.png").write_bytes(b"")  # which only decoding tells
    said = []
    with pytest.raises(DataError, match=r"'bars' has 4.*at least 5"):
        gathered((few, folders[1]), tmp_path / "run", say=said.append)
    # What was found is told all the same.
    assert "bars        4" in "\n".join(said)
    assert "pile: 40 images" in "\n".join(said)


def test_classes_with_too_few_files_are_all_refused_before_anything_is_decoded(folders, tmp_path):
    few = tmp_path / "few"
    shutil.copytree(folders[0], few)
    for name, left in (("bars", 4), ("rows", 2)):
        for path in sorted((few / name).iterdir())[left:]:
            path.unlink()
    with pytest.raises(DataError, match=r"class 'bars' has 4; class 'rows' has 2; every class"):
        gathered((few, folders[1]), tmp_path / "run")
    assert not (tmp_path / "run").exists()


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


@pytest.mark.parametrize(
    ("level", "folds", "trains", "finest"),
    [
        (0.05, None, 21, 2 / (36 + 2)),  # two folds of all 36
        (0.05, 0, 21, 1 / (7 + 1)),  # two fifths calibrate at most: 15, seven of them hidden
        (0.01, 3, 25, 3 / (36 + 3)),  # three folds, as asked: nothing need be hidden
        (0.06, None, 25, None),  # two folds can
        (0.125, 0, 15, None),  # seven hidden images can
    ],
)
def test_a_level_out_of_reach_costs_no_labels_and_is_told(
    folders, tmp_path, level, folds, trains, finest
):
    found = gathered(folders, tmp_path / "run", level, folds=folds)
    assert len(found.split.labelled) == trains
    told = [line for line in describe(found.findings).splitlines() if "will be rejected" in line]
    assert bool(told) == (finest is not None)
    if finest is not None:
        asked = float(re.search(r"--target-inlier-loss ([0-9.]+)", told[0])[1])
        assert finest <= asked < finest + 0.001
        assert told[0].startswith("note: nothing will be rejected: 36 labelled images cannot")
        # Who asks for that is not told so again.
        again = gathered(folders, tmp_path / "again", asked, folds=folds)
        assert "will be rejected" not in describe(again.findings)


@pytest.fixture
def fixed_camera(tmp_path):
    """One part in 12 pictures a class, with a little noise: whole, or with a spot somewhere."""
    rng = np.random.default_rng(0)
    part = np.kron(rng.integers(40, 200, (6, 6)), np.ones((8, 8), int))

    def save(path, spots):
        picture = part + rng.normal(0, 3, part.shape).round().astype(int)
        for _ in range(spots):
            row, column = rng.integers(4, 40, 2)
            picture[row : row + 3, column : column + 3] = 0
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.clip(picture, 0, 255).astype(np.uint8)).save(path)

    for spots, kind in enumerate(("whole", "spot")):
        for number in range(12):
            save(tmp_path / "labelled" / kind / f"{number}.png", spots)
            save(tmp_path / "pile" / f"{kind}-{number}.png", spots)
    return tmp_path / "labelled", tmp_path / "pile"


def test_a_camera_that_never_moves_is_refused_with_the_way_on(fixed_camera, tmp_path):
    said = []
    with pytest.raises(DataError, match=r"'whole' has 0 \(in 12 files.*--near-distance 0"):
        gathered(fixed_camera, tmp_path / "run", say=said.append)
    assert "labels is probably wrong; if such images do differ" in said[-1]
    found = gathered(fixed_camera, tmp_path / "run", near_distance=0)
    assert found.findings.conflicts == []
    assert found.findings.withheld == 0
    assert found.findings.near == found.findings.exact
    assert len(found.split.pool) == 24 + len(found.decoys)


def test_the_way_on_is_named_only_where_it_leads_somewhere(folders, tmp_path):
    few = tmp_path / "few"
    shutil.copytree(folders[0], few)
    for path in sorted((few / "bars").iterdir())[1:]:
        shutil.copy(sorted((few / "bars").iterdir())[0], path)
    with pytest.raises(DataError, match=r"'bars' has 1 \(in 12 files") as refusal:
        gathered((few, folders[1]), tmp_path / "run")
    assert "--near-distance" not in str(refusal.value)


def test_a_pile_of_which_nothing_is_left_to_train_on_is_refused(folders, tmp_path):
    """Its one image is like one that judges: first only like it, then the very same."""
    pile = tmp_path / "pile"
    pile.mkdir()
    for path in sorted(folders[0].rglob("*.png")):
        bright = np.asarray(Image.open(path)).astype(int) + 2
        Image.fromarray(np.clip(bright, 0, 255).astype(np.uint8)).save(pile / "copy.png")
        try:
            found = gathered((folders[0], pile), tmp_path / "run")
        except DataError as refusal:
            told = str(refusal)
            break
        # The image it is like trains, or lies in the pile itself.
        names = [item.name for item in found.cache.items]
        original = names.index(path.relative_to(folders[0]).as_posix())
        assert original in [*found.split.labelled, *found.decoys]
    assert "all its images (1) are like ones that validate or calibrate" in told
    assert "; if such images do differ" in told
    found = gathered((folders[0], pile), tmp_path / "run", near_distance=0)
    assert found.pile[0] in found.split.pool
    shutil.copy(path, pile / "copy.png")
    with pytest.raises(DataError, match="so none is left to train on") as refused:
        gathered((folders[0], pile), tmp_path / "run")
    assert "--near-distance" not in str(refused.value)


@pytest.mark.parametrize(
    ("pile", "outside", "told"),
    [
        (12, 12, "there are 36 labelled files and only 12 in the pile, and 12 of 48 labelled"),
        (12, 0, "there are 36 labelled files and only 12 in the pile: did you swap them?"),
        (13, 12, "12 of 48 labelled files lie in no class folder: did you swap them?"),
        (13, 11, None),
    ],
)
def test_that_the_two_may_have_been_swapped_is_told(folders, tmp_path, pile, outside, told):
    labelled = tmp_path / "labelled"
    shutil.copytree(folders[0], labelled)
    (tmp_path / "pile").mkdir()
    for path in sorted(folders[1].iterdir())[:pile]:
        shutil.copy(path, tmp_path / "pile")
    for path in sorted(folders[1].iterdir())[:outside]:
        shutil.copy(path, labelled)
    text = describe(gathered((labelled, tmp_path / "pile"), tmp_path / "run").findings)
    assert ("swap" in text) == (told is not None)
    assert told is None or f"note: {told}" in text


def test_a_run_that_goes_on_keeps_its_distance(copies, tmp_path):
    run = tmp_path / "run"
    begun = gathered(copies, run, near_distance=0)
    assert begun.findings.near.across == 0
    assert gathered(copies, run, resume=True).split == begun.split
    assert gathered(copies, run, resume=True).findings.near_distance == 0
    # A new run in its place does not.
    assert gathered(copies, run).findings.near_distance == NEAR_DISTANCE
    assert gathered(copies, run).findings.near.across == 36


@pytest.mark.parametrize(
    ("labelled", "pile", "told"),
    [("labelled", "labelled", "one and the same place: 36 of the pile's 36 files"),
     ("labelled", ".", "the labelled images lie in the pile: 36 of the pile's 76 files"),
     ("labelled", "list.txt", "the two overlap: 2 of the pile's 3 files"),
     ("link/labelled", ".", "lie in the pile: 36 of the pile's 76 files")],
)  # fmt: skip
def test_a_pile_that_holds_the_labelled_files_is_told_so(folders, tmp_path, labelled, pile, told):
    root = tmp_path / "all"
    shutil.copytree(folders[0], root / "labelled")
    shutil.copytree(folders[1], root / "pile")
    (tmp_path / "link").symlink_to(root)
    names = ["labelled/bars/0.png", "labelled/../labelled/rows/1.png", "pile/strange-30.png"]
    names[2] = next(path.relative_to(root).as_posix() for path in (root / "pile").iterdir())
    (root / "list.txt").write_text("\n".join(names))
    first = tmp_path / labelled if labelled.startswith("link") else root / labelled
    found = gathered((first, root / pile), tmp_path / "run")
    assert told in describe(found.findings)


def test_apart_from_each_other_nothing_is_told(folders, tmp_path):
    assert "labelled images themselves" not in describe(
        gathered(folders, tmp_path / "run").findings
    )


@pytest.mark.parametrize("part", [0, 1])
def test_a_list_whose_paths_begin_elsewhere_is_refused_before_decoding(folders, tmp_path, part):
    source = tmp_path / "list.csv"
    source.write_text("path,label\nno/1.png,bars\nno/2.png,rows\n")
    sources = [*folders]
    sources[part] = source
    with pytest.raises(DataError, match=r"none of its 2 files is there.*folder of the list"):
        gathered(sources, tmp_path / "run")
    assert not (tmp_path / "run").exists()
