import dataclasses
import functools
import hashlib
import json
import math

import numpy as np
import pytest
from sklearn.datasets import load_digits

from anedl.data.protocol import UNKNOWN, Split, draw_split, hash_order
from anedl.data.settings import SETTINGS, Setting, get_setting
from anedl.data.sources import load_dataset
from anedl.data.split_file import read_split, write_split
from anedl.errors import ConfigError, DataError

ALL = list(SETTINGS)


def mixed_labels(counts):
    """Labels with these counts, in an order that is mixed and the same everywhere."""
    labels = np.repeat(np.arange(len(counts)), counts)
    size = max(len(labels), 1)
    step = next(number for number in range(7919, 99_999) if math.gcd(number, size) == 1)
    return labels[np.arange(len(labels)) * step % size]


def labels_and_names(setting: Setting):
    names = [f"class {label}" for label in range(setting.num_classes)]
    return mixed_labels(setting.train_counts), mixed_labels(setting.test_counts), names


@functools.cache
def draw(name, fold=0):
    setting = get_setting(name)
    return draw_split(setting, fold, *labels_and_names(setting))


@pytest.fixture(scope="module", params=ALL)
def drawn(request):
    setting = get_setting(request.param)
    train_labels, test_labels, names = labels_and_names(setting)
    split = draw_split(setting, 0, train_labels, test_labels, names)
    return setting, split, train_labels, test_labels


# name: labelled, validation, pool, pool inliers, test, test inliers
COUNTS = {
    "cifar10-6/50": (300, 300, 49_400, 29_400, 10_000, 6_000),
    "cifar10-6/100": (600, 300, 49_100, 29_100, 10_000, 6_000),
    "cifar10-6/400": (2_400, 300, 47_300, 27_300, 10_000, 6_000),
    "cifar100-55/50": (2_750, 2_750, 44_500, 22_000, 10_000, 5_500),
    "cifar100-55/100": (5_500, 2_750, 41_750, 19_250, 10_000, 5_500),
    "cifar100-80/50": (4_000, 4_000, 42_000, 32_000, 10_000, 8_000),
    "cifar100-80/100": (8_000, 4_000, 38_000, 28_000, 10_000, 8_000),
    "imagenet30-20/130": (2_600, 2_600, 33_800, 20_800, 3_000, 2_000),
    "miniimagenet-50/50": (2_500, 2_500, 45_000, 20_000, 10_000, 5_000),
    "miniimagenet-60/50": (3_000, 3_000, 44_000, 24_000, 10_000, 6_000),
    "miniimagenet-80/50": (4_000, 4_000, 42_000, 32_000, 10_000, 8_000),
    "digits": (18, 60, 1_119, 645, 600, 360),
}


def test_counts(drawn):
    setting, split, train_labels, test_labels = drawn
    pool_inliers = np.isin(train_labels[split.pool], setting.known_classes).sum()
    test_inliers = (split.test_targets(train_labels, test_labels) != UNKNOWN).sum()
    found = (
        len(split.labelled),
        len(split.validation),
        len(split.pool),
        pool_inliers,
        len(split.test),
        test_inliers,
    )
    assert found == COUNTS[setting.name]
    assert pool_inliers == setting.pool_inliers
    assert len(split.pool) - pool_inliers == setting.pool_outliers


def test_each_known_class_has_its_share_and_unknown_classes_none(drawn):
    setting, split, train_labels, _ = drawn
    for indices, share in (
        (split.labelled, setting.labelled_per_class),
        (split.validation, setting.validation_per_class),
    ):
        counts = np.bincount(train_labels[indices], minlength=setting.num_classes)
        for label in range(setting.num_classes):
            assert counts[label] == (share if label in setting.known_classes else 0)


def test_the_roles_are_disjoint_and_cover_the_train_part(drawn):
    setting, split, train_labels, test_labels = drawn
    roles = [split.labelled, split.validation, split.pool]
    if setting.test_cut_per_class:
        assert split.test_part == "train"
        roles.append(split.test)
        cut = np.bincount(train_labels[split.test], minlength=setting.num_classes)
        assert set(cut) == {setting.test_cut_per_class}
    else:
        assert split.test_part == "test"
        assert split.test.tolist() == list(range(len(test_labels)))
    assert sorted(np.concatenate(roles).tolist()) == list(range(len(train_labels)))
    split.check(train_labels, test_labels)


def test_indices_are_ascending_int64_and_sealed(drawn):
    _, split, _, _ = drawn
    for indices in (split.labelled, split.validation, split.pool, split.test):
        assert indices.dtype == np.int64
        assert (np.diff(indices) > 0).all()
        with pytest.raises(ValueError, match="read-only"):
            indices[0] = 5


def test_the_draw_follows_its_stated_recipe():
    setting = get_setting("digits")
    train_labels, test_labels, names = labels_and_names(setting)
    split = draw_split(setting, 2, train_labels, test_labels, names)

    def rank(key):
        return {i: hashlib.sha256(f"{key}/{i}".encode()).hexdigest() for i in range(1797)}

    test_rank, fold_rank = rank("digits/test"), rank("digits/fold-2")
    of_class_4 = [i for i in range(1797) if train_labels[i] == 4]
    test = sorted(of_class_4, key=test_rank.__getitem__)[:60]
    rest = sorted(set(of_class_4) - set(test), key=fold_rank.__getitem__)
    assert set(split.test[train_labels[split.test] == 4]) == set(test)
    assert set(split.validation[train_labels[split.validation] == 4]) == set(rest[:10])
    assert set(split.labelled[train_labels[split.labelled] == 4]) == set(rest[10:13])


@pytest.mark.parametrize("name", ["cifar10-6/50", "cifar100-55/50", "digits"])
def test_a_fold_has_its_own_draw_and_the_same_test(name):
    first, second = draw(name, 0), draw(name, 1)
    shared = np.intersect1d(first.labelled, second.labelled)
    assert len(shared) < 0.3 * len(first.labelled)
    assert np.array_equal(first.test, second.test)
    assert first.digest != second.digest
    assert draw(name, 1).digest == second.digest


def test_more_labels_add_to_fewer():
    few, more, many = (draw(f"cifar10-6/{labels}", fold=1) for labels in (50, 100, 400))
    assert set(few.labelled) < set(more.labelled) < set(many.labelled)
    assert np.array_equal(few.validation, many.validation)


def test_cifar100_settings_share_the_draw_of_a_class():
    few, many = draw("cifar100-55/50"), draw("cifar100-80/50")
    assert set(few.labelled) < set(many.labelled)
    assert set(few.validation) < set(many.validation)


def test_other_counts_share_the_draw_of_the_named_ones():
    named, few, less = draw("cifar100-55/50"), draw("cifar100-55/4"), draw("cifar100-20/4")
    assert set(few.labelled) < set(named.labelled)
    assert np.array_equal(few.validation, named.validation)
    assert set(less.labelled) < set(few.labelled)
    assert set(less.known_classes) < set(few.known_classes)
    assert np.array_equal(less.test, named.test)


def test_one_fold_settings_refuse_a_second():
    with pytest.raises(ConfigError, match="fold 0 only; vary the seed"):
        draw("imagenet30-20/130", fold=1)
    with pytest.raises(ConfigError, match="no fold -1"):
        draw("digits", fold=-1)


def test_hash_order_is_a_permutation_that_depends_on_the_key():
    numbers = list(range(500))
    assert sorted(hash_order(numbers, "a")) == numbers
    assert hash_order(numbers, "a") != hash_order(numbers, "b")
    # Dropping numbers leaves the order of the others alone.
    even = [number for number in hash_order(numbers, "a") if number % 2 == 0]
    assert hash_order(range(0, 500, 2), "a") == even


# A change of these is a change of the protocol: published splits no longer match.
GOLDEN = {
    ("cifar10-6/50", 0): "af1ae9ed6403a7f712f7c780ea2af53dc07a36af40d21752b8a0b19047e82fbd",
    ("cifar100-55/50", 0): "ddd18e3cbfad34bc0bd262719c671facc3b0b99f40bd89ed2debf3a36a8b10d0",
    ("cifar100-55/50", 1): "d0cdcd56b72e59ba0eacac4f947670845dd89f89c1156f23040d10eb136b6eaf",
    ("cifar100-80/100", 2): "7f569b30d24f293955f6f990db890589640cc628e5d56fa5f92b1e268ef1de50",
    ("imagenet30-20/130", 0): "a1442a9aa3ca08c798720372b86f75d8965860a88748bfd09dc037267ee27aee",
    ("miniimagenet-60/50", 0): "569cdb3615f8f7ba34e67a4e877b8690bbe392348eeeff8177c5cc25361211ad",
    ("digits", 0): "210ddd75c2321c7aca2cf90232386820928382d7192b1e5992049546f4f2a75c",
}


@pytest.mark.parametrize(("name", "fold"), GOLDEN)
def test_golden_hashes(name, fold):
    assert draw(name, fold).digest == GOLDEN[name, fold]


def test_golden_hash_of_the_real_digits():
    labels = load_digits().target.astype(np.int64)
    names = [str(digit) for digit in range(10)]
    split = draw_split(get_setting("digits"), 0, labels, np.zeros(0, np.int64), names)
    assert split.digest == "f46896fe9e0a4bd79c6f3e29bb14e5583fde679b2da054865fe627d6327eb64c"


@pytest.mark.cifar
def test_golden_hash_of_the_real_cifar100():
    try:
        data = load_dataset("cifar100")
    except DataError as error:
        pytest.skip(str(error))
    split = draw_split(
        get_setting("cifar100-55/50"), 0, data.train.labels, data.test.labels, data.class_names
    )
    assert split.digest == "fc560a21e250cdc95ea1483ce54f693bbd5805b7bda521b4c26a1c3472dfd30e"


def test_the_hash_covers_everything():
    split = draw("digits")
    changes = [
        {"setting": "digits2"},
        {"fold": 1},
        {"development": True},
        {"known_classes": (0, 1, 2, 3, 4, 6)},
        {"known_names": ("zero", *split.known_names[1:])},
        {"test_part": "test"},
    ]
    for name in ("labelled", "validation", "pool", "test"):
        indices = getattr(split, name)
        changes.append({name: indices[1:]})
        changes.append({name: np.append(indices[:-1], indices[-1] + 1)})
    # One image moves from the end of a field to the next field: the same numbers, other roles.
    changes.append({"labelled": split.labelled[:0], "validation": split.labelled})
    digests = {dataclasses.replace(split, **change).digest for change in changes}
    assert len(digests) == len(changes)
    assert split.digest not in digests
    assert dataclasses.replace(split) == split


def test_the_hash_is_that_of_the_stated_bytes():
    split = Split(
        "s", 3, False, (1, 4), ("ä", "b"), *map(np.array, ([7], [2], [0, 5], [1])), "test"
    )
    head = (
        b'{"development":false,"fold":3,"format":1,"known_classes":[1,4],'
        b'"known_names":["\\u00e4","b"],"setting":"s","test_part":"test"}\n'
    )
    body = b""
    for name, numbers in (("labelled", [7]), ("validation", [2]), ("pool", [0, 5]), ("test", [1])):
        body += f"{name} {len(numbers)}\n".encode()
        body += b"".join(number.to_bytes(8, "little") for number in numbers)
    assert split.digest == hashlib.sha256(head + body).hexdigest()


def test_targets_number_the_known_classes_and_mark_the_others():
    split = draw("cifar10-6/50")
    assert split.targets(np.arange(10)).tolist() == [-1, -1, 0, 1, 2, 3, 4, 5, -1, -1]
    assert split.targets(np.array([99, -1])).tolist() == [-1, -1]
    assert split.targets(np.zeros(0, np.int64)).shape == (0,)
    train_labels, test_labels, names = labels_and_names(get_setting("cifar10-6/50"))
    for indices, targets in (
        (split.labelled, split.labelled_targets(train_labels)),
        (split.validation, split.validation_targets(train_labels)),
    ):
        expected = [split.known_names.index(names[train_labels[i]]) for i in indices]
        assert targets.tolist() == expected
    assert (split.test_targets(train_labels, test_labels) == split.targets(test_labels)).all()


class TestWrongData:
    def test_too_few_images(self):
        setting = get_setting("digits")
        train_labels, test_labels, names = labels_and_names(setting)
        with pytest.raises(DataError, match=r"1,797 train images, the data has 1,796"):
            draw_split(setting, 0, train_labels[1:], test_labels, names)

    def test_an_unexpected_test_part(self):
        setting = get_setting("digits")
        train_labels, _, names = labels_and_names(setting)
        with pytest.raises(DataError, match="0 test images, the data has 3"):
            draw_split(setting, 0, train_labels, np.zeros(3, np.int64), names)

    def test_another_balance_of_classes(self):
        setting = get_setting("digits")
        train_labels, test_labels, names = labels_and_names(setting)
        train_labels[np.flatnonzero(train_labels == 8)[0]] = 9
        with pytest.raises(DataError, match=r"class 'class 8' has 173 train images.*have 174"):
            draw_split(setting, 0, train_labels, test_labels, names)

    def test_labels_out_of_range(self):
        setting = get_setting("digits")
        train_labels, test_labels, names = labels_and_names(setting)
        train_labels[0] = 10
        with pytest.raises(DataError, match="must lie in 0…9"):
            draw_split(setting, 0, train_labels, test_labels, names)

    def test_names_of_another_data_set(self):
        setting = get_setting("digits")
        train_labels, test_labels, _ = labels_and_names(setting)
        with pytest.raises(DataError, match="10 classes, the data has 2 class names"):
            draw_split(setting, 0, train_labels, test_labels, ["a", "b"])


class TestCheck:
    @pytest.fixture
    def labels(self):
        return labels_and_names(get_setting("digits"))[:2]

    def test_an_image_with_two_roles(self, labels):
        split = draw("digits")
        twice = np.sort(np.append(split.labelled, split.pool[0]))
        with pytest.raises(DataError, match=f"image {split.pool[0]} has more than one role"):
            dataclasses.replace(split, labelled=twice).check(*labels)

    def test_an_image_without_a_role(self, labels):
        split = draw("digits")
        with pytest.raises(DataError, match=f"image {split.pool[5]} has no role"):
            dataclasses.replace(split, pool=np.delete(split.pool, 5)).check(*labels)

    def test_a_labelled_image_of_an_unknown_class(self, labels):
        split = draw("digits")
        outlier = split.pool[labels[0][split.pool] == 9][0]
        changed = dataclasses.replace(
            split,
            labelled=np.sort(np.append(split.labelled, outlier)),
            pool=split.pool[split.pool != outlier],
        )
        with pytest.raises(DataError, match="labelled image of the split is not of a known class"):
            changed.check(*labels)

    def test_a_known_class_without_labels(self, labels):
        split = draw("digits")
        gone = labels[0][split.labelled] == 3
        changed = dataclasses.replace(
            split,
            labelled=split.labelled[~gone],
            pool=np.sort(np.append(split.pool, split.labelled[gone])),
        )
        with pytest.raises(DataError, match="'class 3' has no labelled image"):
            changed.check(*labels)

    def test_data_of_another_size(self, labels):
        with pytest.raises(DataError, match="drawn from other data"):
            draw("digits").check(labels[0][:1000], labels[1])
        split = draw("cifar10-6/50")
        train_labels, test_labels, _ = labels_and_names(get_setting("cifar10-6/50"))
        with pytest.raises(DataError, match="not exactly the test part of 9999"):
            split.check(train_labels, test_labels[1:])


def test_a_split_refuses_disordered_indices():
    split = draw("digits")
    for wrong in (split.pool[::-1], np.array([3, 3]), np.array([-1, 3]), split.pool[None]):
        with pytest.raises(DataError, match="pool indices of a split must be ascending"):
            dataclasses.replace(split, pool=wrong)
    with pytest.raises(DataError, match="6 known classes but 5 names"):
        dataclasses.replace(split, known_names=split.known_names[1:])
    with pytest.raises(DataError, match="known classes of a split must be ascending"):
        dataclasses.replace(split, known_classes=(1, 0, 2, 3, 4, 5))


class TestFile:
    def test_round_trip(self, tmp_path, drawn):
        _, split, _, _ = drawn
        path = tmp_path / "split.json"
        write_split(split, path)
        back = read_split(path)
        assert back == split
        for field in dataclasses.fields(Split):
            assert np.array_equal(getattr(back, field.name), getattr(split, field.name))
        assert path.stat().st_size < 600_000
        assert [file.name for file in tmp_path.iterdir()] == ["split.json"]

    def test_it_states_counts_and_hash_for_people(self, tmp_path):
        split = draw("digits")
        write_split(split, tmp_path / "split.json")
        record = json.loads((tmp_path / "split.json").read_text())
        assert record["counts"] == {"labelled": 18, "validation": 60, "pool": 1119, "test": 600}
        assert record["sha256"] == split.digest

    def test_a_failed_write_leaves_the_old_file(self, tmp_path, monkeypatch):
        path = tmp_path / "split.json"
        write_split(draw("digits"), path)
        before = path.read_bytes()

        def fail(self, target):
            raise OSError("disk full")

        monkeypatch.setattr(type(path), "replace", fail)
        with pytest.raises(OSError, match="disk full"):
            write_split(draw("digits", fold=1), path)
        assert path.read_bytes() == before
        assert [file.name for file in tmp_path.iterdir()] == ["split.json"]

    @pytest.mark.parametrize(
        "alter",
        [
            lambda record: record["labelled"].pop(),
            lambda record: record["pool"].__setitem__(0, record["pool"][0] + 0.0),
            lambda record: record["test"].reverse(),
            lambda record: record["known_classes"].__setitem__(5, 9),
            lambda record: record["known_names"].__setitem__(0, "other"),
            lambda record: record["counts"].__setitem__("pool", 1),
            lambda record: record.__setitem__("fold", 1),
            lambda record: record.__setitem__("development", 0),
            lambda record: record.__setitem__("setting", "cifar10-6/50"),
            lambda record: record.__setitem__("test_part", "pool"),
            lambda record: record.__setitem__("sha256", "0" * 64),
            lambda record: record.__setitem__("labelled", None),
        ],
    )
    def test_an_altered_file_is_refused(self, tmp_path, alter):
        path = tmp_path / "split.json"
        write_split(draw("digits"), path)
        record = json.loads(path.read_text())
        alter(record)
        path.write_text(json.dumps(record))
        with pytest.raises(DataError, match=r"split\.json: the split was altered"):
            read_split(path)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "cannot be read as JSON"),
            ("[1]", "not a split"),
            ("{}", "states no format"),
            ('{"format": 2}', "format 2, this version reads 1"),
            ('{"format": 1}', "lacks the field 'setting'"),
        ],
    )
    def test_another_file_is_refused(self, tmp_path, text, message):
        path = tmp_path / "split.json"
        path.write_text(text)
        with pytest.raises(DataError, match=message):
            read_split(path)

    def test_a_missing_file(self, tmp_path):
        with pytest.raises(DataError, match="there is no split here"):
            read_split(tmp_path / "split.json")
