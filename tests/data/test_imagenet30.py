import random

import numpy as np
import pytest

from anedl.data.imagenet30 import IMAGENET30_CLASSES, load_imagenet30
from anedl.errors import DataError


def write_folders(root, train=2, test=1):
    for part, count in (("train", train), ("test", test)):
        for name in IMAGENET30_CLASSES:
            folder = root / "imagenet30" / part / name
            folder.mkdir(parents=True)
            for number in range(count):
                (folder / f"{number}.JPEG").touch()


def write_lists(root, shuffle=False):
    folder = root / "imagenet30"
    for part in ("train", "test"):
        lines = [
            f"{path.relative_to(folder).as_posix()} {IMAGENET30_CLASSES.index(path.parent.name)}"
            for path in sorted((folder / part).rglob("*.JPEG"))
        ]
        if shuffle:
            random.Random(0).shuffle(lines)
        (folder / f"{part}.txt").write_text("\n".join(lines) + "\n")


def test_classes_are_thirty_in_alphabetical_order():
    assert len(set(IMAGENET30_CLASSES)) == 30
    assert list(IMAGENET30_CLASSES) == sorted(IMAGENET30_CLASSES)
    assert IMAGENET30_CLASSES[19:21] == ("pillow", "revolver")


def test_class_folders(tmp_path):
    write_folders(tmp_path)
    dataset = load_imagenet30(tmp_path)
    assert dataset.name == "imagenet30"
    assert dataset.class_names == IMAGENET30_CLASSES
    np.testing.assert_array_equal(dataset.train.labels, np.repeat(np.arange(30), 2))
    np.testing.assert_array_equal(dataset.test.labels, np.arange(30))
    assert dataset.train.images.paths[3] == tmp_path / "imagenet30/train/airliner/1.JPEG"


@pytest.mark.parametrize("shuffle", [False, True])
def test_file_lists_give_the_same_as_folders(tmp_path, shuffle):
    write_folders(tmp_path)
    folders = load_imagenet30(tmp_path / "imagenet30")
    write_lists(tmp_path, shuffle)
    lists = load_imagenet30(tmp_path)
    for part in ("train", "test"):
        one, other = getattr(folders, part), getattr(lists, part)
        assert one.images.paths == other.images.paths
        np.testing.assert_array_equal(one.labels, other.labels)


def test_listed_path_may_hold_spaces(tmp_path):
    write_folders(tmp_path)
    write_lists(tmp_path)
    (tmp_path / "imagenet30" / "my images").mkdir()
    (tmp_path / "imagenet30" / "my images" / "an acorn.jpg").touch()
    (tmp_path / "imagenet30" / "test.txt").write_text("my images/an acorn.jpg 0\n")
    assert load_imagenet30(tmp_path).test.images.paths[0].name == "an acorn.jpg"


def test_wrong_folders_are_named(tmp_path):
    write_folders(tmp_path)
    (tmp_path / "imagenet30/test/tank").rename(tmp_path / "imagenet30/test/tanks")
    with pytest.raises(DataError, match=r"test: .*missing tank; not of the set: tanks.*fetch"):
        load_imagenet30(tmp_path)


def test_nothing_there_says_what_is_expected(tmp_path):
    with pytest.raises(DataError, match=r"imagenet30: no ImageNet-30 here .*anedl data fetch"):
        load_imagenet30(tmp_path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("train/acorn/0.JPEG", "line 2: .* is not a path, a space and a label"),
        ("train/acorn/0.JPEG 30", "line 2: .* is not a path, a space and a label"),
        ("train/acorn/0.JPEG -1", "line 2: .* is not a path, a space and a label"),
        ("train/banjo/0.JPEG 3", "label 3 for an image of banjo, which is 4"),
        ("/etc/0.JPEG 3", "must be relative"),
        ("../0.JPEG 3", "must be relative"),
        ("train/acorn/9.JPEG 0", r"9\.JPEG: listed in train\.txt, but there is no such file"),
    ],
)
def test_wrong_line_is_named(tmp_path, line, message):
    write_folders(tmp_path)
    write_lists(tmp_path)
    path = tmp_path / "imagenet30" / "train.txt"
    first, _, *rest = path.read_text().splitlines()
    path.write_text("\n".join([first, line, *rest]))
    with pytest.raises(DataError, match=message):
        load_imagenet30(tmp_path)


def test_missing_or_empty_list_is_named(tmp_path):
    write_folders(tmp_path)
    write_lists(tmp_path)
    (tmp_path / "imagenet30" / "test.txt").write_text("\n")
    with pytest.raises(DataError, match=r"test\.txt: the file list is empty"):
        load_imagenet30(tmp_path)
    (tmp_path / "imagenet30" / "test.txt").unlink()
    with pytest.raises(DataError, match=r"test\.txt: the file list is missing"):
        load_imagenet30(tmp_path)
