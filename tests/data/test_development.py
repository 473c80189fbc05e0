import dataclasses
import functools
import hashlib

import numpy as np
import pytest

from anedl.data.cifar import CIFAR100_COARSE
from anedl.data.development import development_split
from anedl.data.protocol import UNKNOWN, draw_split
from anedl.data.settings import SETTINGS, get_setting
from anedl.data.split_file import read_split, write_split
from anedl.engine.spec import make_spec
from anedl.errors import ConfigError, DataError


def labels_and_names(setting):
    train_labels = np.repeat(np.arange(setting.num_classes), setting.train_counts)
    test_labels = np.repeat(np.arange(setting.num_classes), setting.test_counts)
    return train_labels, test_labels, [f"class {label}" for label in range(setting.num_classes)]


@functools.cache
def draw(name, fold=0):
    setting = get_setting(name)
    train_labels, test_labels, names = labels_and_names(setting)
    base = draw_split(setting, fold, train_labels, test_labels, names)
    return setting, base, development_split(setting, base, train_labels), train_labels


@pytest.fixture(scope="module", params=list(SETTINGS))
def drawn(request):
    return draw(request.param)


# name: classes that stay known, labelled, validation, test inliers, test outliers
COUNTS = {
    "cifar10-6/50": (4, 200, 40, 160, 200),
    "cifar10-6/100": (4, 400, 40, 160, 300),
    "cifar10-6/400": (4, 1_600, 40, 160, 900),
    "cifar100-55/50": (45, 2_250, 450, 1_800, 1_000),
    "cifar100-55/100": (45, 4_500, 450, 1_800, 1_500),
    "cifar100-80/50": (65, 3_250, 650, 2_600, 1_500),
    "cifar100-80/100": (65, 6_500, 650, 2_600, 2_250),
    "imagenet30-20/130": (16, 2_080, 416, 1_664, 1_040),
    "miniimagenet-50/50": (41, 2_050, 410, 1_640, 900),
    "miniimagenet-60/50": (49, 2_450, 490, 1_960, 1_100),
    "miniimagenet-80/50": (65, 3_250, 650, 2_600, 1_500),
    "digits": (4, 12, 8, 32, 26),
}


def test_counts(drawn):
    setting, _, split, train_labels = drawn
    targets = split.targets(train_labels[split.test])
    found = (
        split.num_known,
        len(split.labelled),
        len(split.validation),
        (targets != UNKNOWN).sum(),
        (targets == UNKNOWN).sum(),
    )
    assert found == COUNTS[setting.name]
    assert split.development
    assert split.test_part == "train"


def test_the_classes_are_balanced_and_renumbered(drawn):
    setting, base, split, train_labels = drawn
    assert set(split.known_classes) < set(base.known_classes)
    assert split.known_names == tuple(f"class {label}" for label in split.known_classes)
    for targets, share in (
        (split.labelled_targets(train_labels), setting.labelled_per_class),
        (split.validation_targets(train_labels), setting.validation_per_class // 5),
    ):
        assert np.bincount(targets).tolist() == [share] * split.num_known


def test_only_images_whose_label_the_setting_grants_have_a_label_here(drawn):
    _, base, split, train_labels = drawn
    granted = set(base.labelled) | set(base.validation)
    used = np.concatenate([split.labelled, split.validation, split.test])
    assert len(used) == len(set(used))
    assert set(used) == granted
    assert not set(used) & set(base.pool)
    assert np.array_equal(split.pool, base.pool)
    assert set(split.labelled) <= set(base.labelled)
    split.check(train_labels, np.zeros(0, np.int64))


def test_images_cut_for_the_final_test_appear_nowhere():
    _, base, split, _ = draw("digits")
    used = np.concatenate([split.labelled, split.validation, split.pool, split.test])
    assert base.test_part == "train"
    assert not set(base.test) & set(used)


def test_pool_and_test_labels_are_never_looked_at(drawn):
    setting, base, split, train_labels = drawn
    hidden = np.ones(len(train_labels), dtype=bool)
    hidden[base.labelled] = hidden[base.validation] = False
    permuted = train_labels.copy()
    permuted[hidden] = permuted[hidden][::-1]
    assert (permuted != train_labels).any()
    assert development_split(setting, base, permuted) == split
    nonsense = np.where(hidden, -7, train_labels)
    assert development_split(setting, base, nonsense) == split


def test_the_classes_that_play_unknown_follow_the_stated_recipe():
    setting, base, split, _ = draw("cifar100-55/100", fold=1)
    key = "cifar100-55/development/fold-1/class"
    order = sorted(
        range(11), key=lambda family: hashlib.sha256(f"{key}/{family}".encode()).hexdigest()
    )
    unknown = {label for label in base.known_classes if CIFAR100_COARSE[label] in order[:2]}
    assert set(base.known_classes) - set(split.known_classes) == unknown
    assert len(unknown) == setting.development_unknowns == 10


def test_classes_that_stand_alone_are_drawn_one_by_one():
    _, base, split, _ = draw("digits", fold=1)
    key = "digits-6/development/fold-1/class"
    order = sorted(
        range(6), key=lambda label: hashlib.sha256(f"{key}/{label}".encode()).hexdigest()
    )
    assert set(base.known_classes) - set(split.known_classes) == set(order[:2])


def test_folds_rotate_the_classes_and_label_counts_share_them():
    kept = [set(draw("cifar100-55/50", fold)[2].known_classes) for fold in range(3)]
    assert kept[0] != kept[1] != kept[2] != kept[0]
    assert kept[0] == set(draw("cifar100-55/100", 0)[2].known_classes)


GOLDEN = {
    ("cifar100-55/50", 0): "8720abaa1321cfd51f03f1db2bf3e65f3701dfef30424d568cbbc43c0b1938ae",
    ("imagenet30-20/130", 0): "d5a076408f53f8af6bac6a42c834977f8c73f661321081d782bac3004a804cee",
    ("digits", 1): "664de73bc896df0ea9671da5ebf949395bc2d301429d19e5e2b03e611af360fe",
}


@pytest.mark.parametrize(("name", "fold"), GOLDEN)
def test_golden_hashes(name, fold):
    assert draw(name, fold)[2].digest == GOLDEN[name, fold]


def test_round_trip(tmp_path):
    _, base, split, _ = draw("digits")
    write_split(split, tmp_path / "split.json")
    assert read_split(tmp_path / "split.json") == split
    assert split != base


def test_another_settings_split_is_refused():
    _, base, split, train_labels = draw("digits")
    with pytest.raises(ConfigError, match=r"split of cifar10-6/50 needs .* got a split of digits"):
        development_split(get_setting("cifar10-6/50"), base, train_labels)
    with pytest.raises(ConfigError, match="got a development split of digits"):
        development_split(get_setting("digits"), split, train_labels)


def test_too_few_known_classes_have_no_development_split():
    with pytest.raises(ConfigError, match="of 2 known classes none can play unknown"):
        draw("digits-2/3")
    with pytest.raises(ConfigError, match="none can play unknown"):
        make_spec("cifar100-5/50", "fixmatch", development=True)
    chosen, _, split, _ = draw("cifar100-4+30+55+1+32/5")
    assert chosen.num_known - len(split.known_classes) == chosen.development_unknowns == 1
    setting, _, split, _ = draw("cifar100-10/4")
    assert setting.num_known - len(split.known_classes) == 5, "a family plays unknown as a whole"


def test_one_validation_image_is_too_few():
    setting = dataclasses.replace(get_setting("digits"), validation_per_class=1)
    train_labels, test_labels, names = labels_and_names(setting)
    base = draw_split(setting, 0, train_labels, test_labels, names)
    with pytest.raises(ConfigError, match="2 validation images a class or more"):
        development_split(setting, base, train_labels)


def test_a_development_split_must_not_test_on_the_official_part():
    _, _, split, train_labels = draw("digits")
    wrong = dataclasses.replace(split, test_part="test")
    with pytest.raises(DataError, match="must not use the official test part"):
        wrong.check(train_labels, np.zeros(0, np.int64))
