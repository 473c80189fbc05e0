import numpy as np
import pytest

from anedl.data.miniimagenet import load_miniimagenet
from anedl.errors import DataError

# Scattered numbers, so that the sorted order is not the order of creation.
WNIDS = [f"n{(number * 7919) % 100_000_000:08}" for number in range(1000, 1100)]
PARTS = {"train": WNIDS[:64], "val": WNIDS[64:80], "test": WNIDS[80:]}


def image_names(wnid):
    return [f"{wnid}{number:08}.jpg" for number in (12, 3)]


def write_flat(folder):
    for wnid in WNIDS:
        (folder / wnid).mkdir(parents=True)
        for name in image_names(wnid):
            (folder / wnid / name).touch()


def write_parts(folder):
    for part, wnids in PARTS.items():
        for wnid in wnids:
            (folder / part / wnid).mkdir(parents=True)
            for name in image_names(wnid):
                (folder / part / wnid / name).touch()


def write_csv(folder):
    (folder / "images").mkdir(parents=True)
    for part, wnids in PARTS.items():
        rows = ["filename,label"]
        for wnid in wnids:
            for name in image_names(wnid):
                (folder / "images" / name).touch()
                rows.append(f"{name},{wnid}")
        (folder / f"{part}.csv").write_text("\n".join(rows) + "\n")


@pytest.mark.parametrize("write", [write_flat, write_parts, write_csv])
def test_every_layout_gives_the_same_order(tmp_path, write):
    write(tmp_path / "miniimagenet")
    dataset = load_miniimagenet(tmp_path)
    assert dataset.class_names == tuple(sorted(WNIDS))
    np.testing.assert_array_equal(dataset.train.labels, np.repeat(np.arange(100), 2))
    expected = [name for wnid in sorted(WNIDS) for name in sorted(image_names(wnid))]
    assert [path.name for path in dataset.train.images.paths] == expected
    assert all(path.is_file() for path in dataset.train.images.paths)
    assert len(dataset.test) == 0


def test_class_cut_across_parts_is_put_together(tmp_path):
    write_parts(tmp_path / "miniimagenet")
    wnid = PARTS["train"][0]
    (tmp_path / "miniimagenet" / "test" / wnid).mkdir()
    (tmp_path / "miniimagenet" / "test" / wnid / f"{wnid}00000007.jpg").touch()
    dataset = load_miniimagenet(tmp_path)
    names = [
        path.name
        for path, label in zip(dataset.train.images.paths, dataset.train.labels, strict=True)
        if dataset.class_names[label] == wnid
    ]
    assert names == [f"{wnid}{number:08}.jpg" for number in (3, 7, 12)]


def test_nothing_there_says_what_to_do(tmp_path):
    with pytest.raises(DataError, match=r"no Mini-ImageNet here.*anedl data fetch miniimagenet"):
        load_miniimagenet(tmp_path)


def test_wrong_classes_are_named(tmp_path):
    folder = tmp_path / "miniimagenet"
    write_flat(folder)
    for name in image_names(WNIDS[0]):
        (folder / WNIDS[0] / name).unlink()
    with pytest.raises(DataError, match=f"class {WNIDS[0]} holds no images"):
        load_miniimagenet(tmp_path)
    (folder / WNIDS[0]).rmdir()
    with pytest.raises(DataError, match="99 classes where 100 are due"):
        load_miniimagenet(tmp_path)
    (folder / "house_finch").mkdir()
    with pytest.raises(DataError, match="'house_finch' is no WordNet id"):
        load_miniimagenet(tmp_path)


def test_lone_part_is_refused(tmp_path):
    write_parts(tmp_path / "miniimagenet")
    (tmp_path / "miniimagenet" / "val").rename(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="train/, val/ and test/ belong together"):
        load_miniimagenet(tmp_path)


def test_wrong_tables_are_named(tmp_path):
    folder = tmp_path / "miniimagenet"
    write_csv(folder)
    lost = image_names(PARTS["val"][0])[0]
    (folder / "images" / lost).unlink()
    with pytest.raises(DataError, match=rf"{lost}: named in val\.csv, line 2, but"):
        load_miniimagenet(tmp_path)
    (folder / "val.csv").write_text("file,class\n")
    with pytest.raises(DataError, match=r"val\.csv: needs the columns filename and label"):
        load_miniimagenet(tmp_path)
    (folder / "val.csv").unlink()
    with pytest.raises(DataError, match=r"val\.csv: the table is missing"):
        load_miniimagenet(tmp_path)
