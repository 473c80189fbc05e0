import dataclasses
from itertools import pairwise

import numpy as np
import pytest
from sklearn.datasets import load_digits

from anedl.data.cifar import CIFAR100_COARSE
from anedl.data.settings import ALIASES, SETTINGS, _of_counts, get_setting, is_setting
from anedl.errors import ConfigError

# name: pool inliers, pool outliers, share selected, M, classes that play unknown in development
TABLE = {
    "cifar10-6/50": (29_400, 20_000, 0.42, 3, 2),
    "cifar10-6/100": (29_100, 20_000, 0.42, 3, 2),
    "cifar10-6/400": (27_300, 20_000, 0.41, 3, 2),
    "cifar100-55/50": (22_000, 22_500, 0.35, 25, 10),
    "cifar100-55/100": (19_250, 22_500, 0.33, 25, 10),
    "cifar100-80/50": (32_000, 10_000, 0.54, 40, 15),
    "cifar100-80/100": (28_000, 10_000, 0.52, 40, 15),
    "imagenet30-20/130": (20_800, 13_000, 0.44, 10, 4),
    "miniimagenet-50/50": (20_000, 25_000, 0.32, 25, 9),
    "miniimagenet-60/50": (24_000, 20_000, 0.39, 30, 11),
    "miniimagenet-80/50": (32_000, 10_000, 0.54, 40, 15),
    "digits": (645, 474, 0.41, 3, 2),
}


def test_the_named_settings():
    assert set(SETTINGS) == set(TABLE)
    assert all(name == setting.name for name, setting in SETTINGS.items())


@pytest.mark.parametrize("name", TABLE)
def test_the_table_of_counts(name):
    inliers, outliers, share, top_m, unknowns = TABLE[name]
    setting = get_setting(name)
    assert (setting.pool_inliers, setting.pool_outliers) == (inliers, outliers)
    assert setting.oracle_share == share
    assert setting.top_m == top_m
    assert setting.development_unknowns == unknowns


@pytest.mark.parametrize("name", TABLE)
def test_the_share_selected_is_071_of_the_inlier_share(name):
    inliers, outliers, share, _, _ = TABLE[name]
    assert round(0.71 * inliers / (inliers + outliers), 2) == share


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda setting: setting.name)
def test_every_setting_is_consistent_with_its_name(setting):
    if setting.name != "digits":
        head, labels = setting.name.split("/")
        dataset, known = head.split("-")
        assert setting.dataset == dataset
        assert (setting.num_known, setting.labelled_per_class) == (int(known), int(labels))
    assert len(setting.train_counts) == len(setting.test_counts) == setting.num_classes
    assert list(setting.known_classes) == sorted(set(setting.known_classes))
    assert setting.known_classes[0] >= 0
    assert setting.known_classes[-1] < setting.num_classes
    assert len(setting.mean) == len(setting.std)
    # A test part is either published or cut, never both and never neither.
    assert (sum(setting.test_counts) > 0) != (setting.test_cut_per_class > 0)


@pytest.mark.parametrize(("known", "last_coarse"), [(55, 10), (80, 15)])
def test_cifar100_known_classes_are_whole_superclasses(known, last_coarse):
    setting = get_setting(f"cifar100-{known}/50")
    chosen = set(setting.known_classes)
    for coarse in range(20):
        members = {fine for fine in range(100) if CIFAR100_COARSE[fine] == coarse}
        assert len(members) == 5
        assert members <= chosen if coarse <= last_coarse else not members & chosen


def test_the_first_cifar100_known_classes():
    # apple, aquarium fish, baby (superclass 14, so known among 80 only), bear, beaver
    assert get_setting("cifar100-55/50").known_classes[:4] == (0, 1, 3, 4)
    assert get_setting("cifar100-80/50").known_classes[:5] == (0, 1, 2, 3, 4)


def test_digits_statistics_are_those_of_the_data():
    digits = load_digits()
    setting = get_setting("digits")
    pixels = np.round(digits.images * 255 / 16) / 255
    assert setting.mean[0] == pytest.approx(pixels.mean(), abs=5e-5)
    assert setting.std[0] == pytest.approx(pixels.std(), abs=5e-5)
    assert setting.train_counts == tuple(np.bincount(digits.target))
    assert digits.images.shape[1:] == (setting.image_size, setting.image_size)


def test_aliases_lead_to_their_setting():
    assert get_setting("imagenet30-20/10%").name == "imagenet30-20/130"
    assert set(ALIASES.values()) <= set(SETTINGS)


def test_an_unknown_setting_suggests_a_near_one():
    with pytest.raises(ConfigError, match=r"unknown setting 'cifar100-55/'.*cifar100-55/50"):
        get_setting("cifar100-55/")
    with pytest.raises(ConfigError, match=r"unknown setting 'cifar-6/50'.*DATASET-K/n, other"):
        get_setting("cifar-6/50")


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=lambda setting: setting.name)
def test_named_settings_are_what_their_counts_make(setting):
    name = f"{setting.dataset}-{setting.num_known}/{setting.labelled_per_class}"
    made = _of_counts(setting.dataset, setting.num_known, setting.labelled_per_class)
    assert made == dataclasses.replace(setting, name=name)
    assert get_setting(name) == setting


@pytest.mark.parametrize(
    ("name", "inliers", "outliers", "share", "top_m", "unknowns"),
    [
        ("cifar10-6/4", 6 * 4946, 20_000, 0.42, 3, 2),
        ("cifar10-4/25", 4 * 4925, 30_000, 0.28, 2, 1),
        ("cifar10-2/25", 2 * 4925, 40_000, 0.14, 1, 0),
        ("cifar100-20/25", 20 * 425, 40_000, 0.12, 10, 5),
        ("cifar100-5/400", 5 * 50, 47_500, 0.01, 2, 0),
        ("cifar100-55/4", 55 * 446, 22_500, 0.37, 25, 10),
        ("imagenet30-10/50", 10 * 1120, 26_000, 0.21, 5, 2),
        ("miniimagenet-20/5", 20 * 445, 40_000, 0.13, 10, 4),
        ("digits-9/2", 969, 120, 0.63, 4, 2),
    ],
)
def test_other_counts_follow_the_same_rules(name, inliers, outliers, share, top_m, unknowns):
    setting = get_setting(name)
    assert setting.name == name
    assert (setting.pool_inliers, setting.pool_outliers) == (inliers, outliers)
    assert setting.oracle_share == share
    assert (setting.top_m, setting.development_unknowns) == (top_m, unknowns)


def test_more_known_classes_include_the_fewer():
    for dataset, counts in {
        "cifar10": range(2, 10),
        "cifar100": range(5, 100, 5),
        "digits": range(2, 10),
    }.items():
        known = [set(get_setting(f"{dataset}-{count}/3").known_classes) for count in counts]
        assert [len(classes) for classes in known] == list(counts)
        assert all(fewer < more for fewer, more in pairwise(known))
    assert get_setting("cifar100-20/3").known_classes == tuple(
        fine for fine in range(100) if CIFAR100_COARSE[fine] < 4
    )


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cifar100-21/4", "5 to 95 can be known in steps of 5"),
        ("cifar100-100/4", "5 to 95 can be known"),
        ("cifar10-1/4", "2 to 9 can be known"),
        ("cifar10-10/4", "2 to 9 can be known"),
        ("cifar10-6/4950", "4949 labelled images at most, for 50 validate or test"),
        ("digits-6/107", "106 labelled images at most"),
        ("digits-6/0", "unknown setting"),
        ("digits-06/3", "unknown setting"),
    ],
)
def test_counts_that_a_data_set_cannot_have_are_refused(name, said):
    with pytest.raises(ConfigError, match=said):
        get_setting(name)
    assert not is_setting(name)


def test_known_classes_may_be_named_by_their_numbers():
    odd = get_setting("digits-1+3+5+7+9/4")
    assert odd.known_classes == (1, 3, 5, 7, 9)
    assert (odd.labelled_per_class, odd.top_m, odd.development_unknowns) == (4, 2, 1)
    counts = (182, 183, 182, 179, 180)
    assert odd.pool_inliers == sum(counts) - 5 * (60 + 10 + 4)
    assert get_setting("digits-9+7+5+3+1/4") == odd, "in any order"
    siblings = get_setting("cifar100-4+30+55/5")  # three of five aquatic mammals
    assert siblings.class_groups is None
    assert siblings.pool_outliers == 97 * 500


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("digits-1+1/4", "different numbers from 0 to 9"),
        ("digits-3+10/4", "different numbers from 0 to 9"),
        ("digits-0+1+2+3+4+5+6+7+8+9/4", "one class at least must be unknown"),
        ("digits-1+3/500", "labelled images at most"),
        ("digits-1+/4", "unknown setting"),
        ("digits-1+03/4", "unknown setting"),
    ],
)
def test_known_classes_that_cannot_be_are_refused(name, said):
    with pytest.raises(ConfigError, match=said):
        get_setting(name)


def test_at_most_labels_a_pool_image_of_each_known_class_is_left():
    assert get_setting("cifar10-6/4949").pool_inliers == 6
    assert is_setting("digits-6/106")


def test_seeds_become_folds():
    assert [get_setting("cifar10-6/50").fold_of(seed) for seed in range(3)] == [0, 1, 2]
    assert [get_setting("imagenet30-20/130").fold_of(seed) for seed in range(3)] == [0, 0, 0]
    with pytest.raises(ConfigError, match="seed -1"):
        get_setting("cifar10-6/50").fold_of(-1)


def test_settings_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        get_setting("digits").top_m = 4
    with pytest.raises(TypeError):
        SETTINGS["mine"] = get_setting("digits")
