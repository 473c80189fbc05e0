import os
import random
import unicodedata

import numpy as np
import pytest
from PIL import Image

from anedl.data.folder import list_images, load_folder
from anedl.errors import DataError


def touch(root, *names):
    """Files with images' names; listing does not open them."""
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def relative(images, root):
    return [path.relative_to(root).as_posix() for path in images.paths]


def test_classes_and_images_are_sorted(tmp_path):
    names = ["cat/b.jpg", "cat/a.PNG", "cat/deep/c.webp", "ant/2.jpeg", "ant/10.jpg", "bee/x.bmp"]
    random.Random(3).shuffle(names)
    touch(tmp_path, *names)
    dataset = load_folder(tmp_path)
    assert dataset.class_names == ("ant", "bee", "cat")
    assert relative(dataset.train.images, tmp_path) == [
        "ant/10.jpg",
        "ant/2.jpeg",
        "bee/x.bmp",
        "cat/a.PNG",
        "cat/b.jpg",
        "cat/deep/c.webp",
    ]
    assert dataset.train.labels.tolist() == [0, 0, 1, 2, 2, 2]
    assert dataset.train.labels.dtype == np.int64
    assert len(dataset.test) == 0
    assert dataset.name == tmp_path.name


def test_order_does_not_depend_on_the_disk(tmp_path, monkeypatch):
    touch(tmp_path, *(f"c/{name}.jpg" for name in "qwertyuiop"), "c/z/1.jpg", "c/a/1.jpg")
    usual = list_images(tmp_path / "c")
    walk = os.walk

    def backwards(top, **options):
        return [(parent, inner, sorted(files)[::-1]) for parent, inner, files in walk(top)][::-1]

    monkeypatch.setattr(os, "walk", backwards)
    assert list_images(tmp_path / "c") == usual
    assert [path.name for path in usual[:3]] == ["1.jpg", "e.jpg", "i.jpg"]


def test_one_unicode_form_for_class_names(tmp_path):
    decomposed = unicodedata.normalize("NFD", "café")
    touch(tmp_path, f"{decomposed}/1.jpg", "zoo/1.jpg")
    assert load_folder(tmp_path).class_names == ("café", "zoo")


def test_images_decode(tmp_path):
    (tmp_path / "red").mkdir()
    Image.new("RGB", (3, 2), (255, 0, 7)).save(tmp_path / "red" / "1.png")
    image = load_folder(tmp_path).train.images[0]
    assert image.shape == (2, 3, 3)
    assert image[1, 2].tolist() == [255, 0, 7]


def test_hidden_and_other_files_are_passed_over(tmp_path):
    touch(tmp_path, "a/1.jpg", "a/._1.jpg", "a/notes.txt", "a/jpg", "a/.thumbs/1.jpg", ".git/x.jpg")
    touch(tmp_path, "__MACOSX/1.jpg", "readme.txt")
    dataset = load_folder(tmp_path)
    assert dataset.class_names == ("a",)
    assert relative(dataset.train.images, tmp_path) == ["a/1.jpg"]


def test_train_and_test_folders(tmp_path):
    touch(tmp_path, "train/a/1.jpg", "train/c/1.jpg", "test/a/2.jpg", "test/b/3.jpg")
    dataset = load_folder(tmp_path)
    assert dataset.class_names == ("a", "b", "c")
    assert dataset.train.labels.tolist() == [0, 2]
    assert dataset.test.labels.tolist() == [0, 1]
    assert relative(dataset.test.images, tmp_path) == ["test/a/2.jpg", "test/b/3.jpg"]


def test_train_folder_alone(tmp_path):
    touch(tmp_path, "train/a/1.jpg", "train/b/1.jpg")
    dataset = load_folder(tmp_path)
    assert dataset.class_names == ("a", "b")
    assert len(dataset.test) == 0


def test_train_beside_other_classes_is_a_class(tmp_path):
    touch(tmp_path, "train/1.jpg", "bus/1.jpg")
    assert load_folder(tmp_path).class_names == ("bus", "train")


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], r"no class folders \(it holds no folders\)"),
        (["1.jpg", "2.jpg"], r"no class folders \(2 images lie directly in it\)"),
        (["a/1.jpg", "b/readme.txt"], r"b: the class folder holds no images .*\.png"),
        (["train/a/1.jpg", "test/1.jpg"], r"test: no class folders"),
    ],
)
def test_folder_without_images_is_named(tmp_path, names, message):
    touch(tmp_path, *names)
    with pytest.raises(DataError, match=message):
        load_folder(tmp_path)


def test_no_folder_is_named(tmp_path):
    with pytest.raises(DataError, match="nowhere: no such folder"):
        load_folder(tmp_path / "nowhere")
    touch(tmp_path, "file")
    with pytest.raises(DataError, match="file: not a folder"):
        load_folder(tmp_path / "file")


def test_unreadable_folder_is_named(tmp_path, monkeypatch):
    touch(tmp_path, "a/1.jpg", "a/closed/1.jpg")
    scandir = os.scandir

    def refuse(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match="closed: may not be read; change its permissions"):
        load_folder(tmp_path)
