"""Each automatic choice, by its rule."""

import numpy as np
import pytest
import torch

from anedl.errors import ConfigError
from anedl.fit.choices import (
    COMPILING_PAYS,
    EPOCHS,
    FEWEST_EPOCH_STEPS,
    MOST_EPOCH_STEPS,
    MOST_FROZEN_EPOCH_STEPS,
    Length,
    choose_augmentation,
    choose_backbone,
    choose_batch_size,
    choose_feature_views,
    choose_folds,
    choose_frozen,
    choose_length,
    choose_selection_share,
    choose_side,
    choose_top_m,
    execution_for,
    fewest_to_certify,
    looking_overrun,
)
from anedl.fit.roles import calibration_share
from anedl.fit.wishes import Wishes
from anedl.intake.facts import ImageSizes
from anedl.networks import TrainedOn

CPU, GPU = torch.device("cpu"), torch.device("cuda")


def sizes(*short_sides):
    short = np.array(short_sides, np.int64)
    return ImageSizes(short, 2 * short)


@pytest.mark.parametrize(
    ("side", "device", "expected"),
    [(8, CPU, 8), (5, CPU, 8), (28, GPU, 32), (27, GPU, 24), (32, GPU, 32), (64, CPU, 64),
     (500, CPU, 64), (500, GPU, 224), (200, GPU, 224), (190, GPU, 192)],
)  # fmt: skip
def test_the_side_follows_the_median(side, device, expected):
    assert choose_side(sizes(side, side, 4000), device).value == expected


def test_a_wanted_side_is_taken_and_tiny_ones_are_refused():
    assert choose_side(sizes(500), CPU, 100).value == 100
    with pytest.raises(ConfigError, match="at least 8 pixels"):
        choose_side(sizes(500), CPU, 7)


def test_a_side_that_the_device_limits_says_so():
    assert "no more than 64 on this device" in choose_side(sizes(900), CPU).reason
    assert "no more" not in choose_side(sizes(64), CPU).reason


def test_views_are_cut_from_photographs_only():
    assert choose_augmentation(127).value == "small"
    assert choose_augmentation(128).value == "imagenet"
    assert choose_augmentation(128, "digits").value == "digits"


@pytest.mark.parametrize(
    ("side", "device", "expected"),
    [(16, GPU, "wrn-digits"), (24, CPU, "wrn-10-1"), (64, GPU, "wrn-28-2"), (84, GPU, "resnet18"),
     (84, CPU, "resnet18")],
)  # fmt: skip
def test_the_backbone_follows_side_and_device(side, device, expected):
    assert choose_backbone(side, device).value == expected
    assert choose_backbone(side, device, "resnet18-small").value == "resnet18-small"


@pytest.mark.parametrize(
    ("labelled", "expected"), [(6, 8), (20, 8), (31, 16), (64, 32), (128, 64), (10_000, 64)]
)
def test_batches_of_tiny_sets_are_small(labelled, expected):
    assert choose_batch_size(labelled).value == expected


def test_m_is_half_of_the_classes_and_at_most_three():
    assert [choose_top_m(k).value for k in (1, 2, 3, 6, 7, 55)] == [1, 1, 2, 3, 3, 3]
    assert choose_top_m(6, 5).value == 5
    with pytest.raises(ConfigError, match="must be 1 to 6"):
        choose_top_m(6, 7)


def test_o_follows_the_estimate_within_bounds():
    assert choose_selection_share(0.5).value == pytest.approx(0.355)
    assert choose_selection_share(0.0).value == pytest.approx(0.71)
    assert choose_selection_share(1.0).value == pytest.approx(0.05)
    assert choose_selection_share(0.5, 0.8).value == 0.8


def test_the_length_fills_the_time():
    # 600 s in 30 epochs are 20 s each, of which 2 s are not for steps: 18 s / 0.1 s.
    assert choose_length(600, 0.1, 2.0) == Length(EPOCHS, 180)
    assert choose_length(600, 0.1, 2.0).steps == EPOCHS * 180


@pytest.mark.parametrize(
    ("seconds", "step", "epoch"), [(60, 0.5, 1), (120, 1.0, 5), (30, 0.05, 2), (3000, 0.01, 9)]
)
def test_the_time_is_kept_and_nearly_used_up(seconds, step, epoch):
    length = choose_length(seconds, step, epoch)
    taken = length.epochs * (length.epoch_steps * step + epoch)
    if length.epoch_steps not in (FEWEST_EPOCH_STEPS, MOST_EPOCH_STEPS):
        assert seconds - length.epochs * step < taken <= seconds


def test_what_compiling_takes_is_not_there_to_train():
    """Spent once when the speed was measured, and once more in the other stage."""
    assert choose_length(600, 0.1, 2.0, start_seconds=60.0) == choose_length(480, 0.1, 2.0)
    assert choose_length(600, 0.1, 2.0, start_seconds=500.0) == choose_length(200, 0.1, 2.0)


def test_steps_are_compiled_where_the_training_is_long_enough_to_repay_it():
    gpu = torch.device("cuda")
    assert execution_for(COMPILING_PAYS - 1, gpu) == "eager"
    assert execution_for(COMPILING_PAYS, gpu) == "auto"
    assert execution_for(1.0, torch.device("cpu")) == "auto"


def test_too_little_time_still_gives_a_run():
    assert choose_length(1, 10.0, 100.0) == Length(4, FEWEST_EPOCH_STEPS)
    assert choose_length(10**9, 0.001, 0.0) == Length(EPOCHS, MOST_EPOCH_STEPS)


def test_that_it_takes_longer_than_asked_is_said_beforehand():
    assert choose_length(600, 0.1, 2.0).overrun(600, 0.1, 2.0) == ""
    said = choose_length(6, 1.0, 2.0).overrun(6, 1.0, 2.0)  # 4 epochs of 10 steps and 2 s
    assert "about 48.0 seconds, where there are 6.0 seconds for it" in said


@pytest.mark.parametrize(("looking", "told"), [(60, False), (311, False), (313, True), (960, True)])
def test_that_looking_alone_takes_too_long_is_said_beforehand(looking, told):
    """Of 4 minutes no less than a fifth is for training, so 6 minutes are reached with 312 s."""
    said = looking_overrun(looking, 4.0, 160)
    assert bool(said) == told
    if looking == 960:
        assert said.startswith("note: from here this fit will take about 16.8 minutes, where 4.0")
        assert "16.0 minutes to look" in said
        assert "48.0 seconds to train" in said
        assert "--image-size (now 160)" in said


def test_pictures_that_are_no_squares_are_said_to_be_squeezed():
    sides = {"square": (100, 110), "oblong": (3000, 500)}
    reasons = {
        name: choose_side(ImageSizes(np.array([w] * 3), np.array([h] * 3)), CPU).reason
        for name, (w, h) in sides.items()
    }
    assert "squeezed" in reasons["oblong"]
    assert "squeezed" not in reasons["square"]


def test_calibration_takes_what_its_level_needs_within_bounds():
    assert calibration_share(10_000, 0.05) == 0.25
    assert calibration_share(100, 0.05) == 0.4
    # Both halves of 19 images and a tenth more: 41.8 of 130.
    assert calibration_share(130, 0.05) == pytest.approx(41.8 / 130)


@pytest.mark.parametrize(
    ("wish", "message"),
    [({"minutes": 0}, "--minutes"), ({"minutes": float("nan")}, "--minutes"),
     ({"minutes": float("inf")}, "--minutes inf"), ({"minutes": 1e308}, "--minutes"),
     ({"level": 0}, "--target-inlier-loss"), ({"level": 1}, "--target-inlier-loss"),
     ({"target_precision": 1}, "--target-precision"), ({"selection_share": 0}, "--selection"),
     ({"folds": 1}, "--folds"), ({"near_distance": -1}, "--near-distance"),
     ({"near_distance": 17}, "0 .only equal pixels. to 16"),
     ({"folds": 2, "benjamini_hochberg": True}, "--false-alarms"),
     ({"method": "supervised"}, "--method"),
     ({"epochs": 0}, "--epochs"), ({"batch_size": 0}, "--batch-size"), ({"seed": -1}, "--seed")],
)  # fmt: skip
def test_wishes_that_cannot_be_are_refused_before_anything_is_read(wish, message):
    with pytest.raises(ConfigError, match=message):
        Wishes(**wish)


@pytest.mark.parametrize(
    ("labelled", "held_out", "level", "expected"),
    [(400, 50, 0.05, 0), (95, 19, 0.05, 0), (94, 18, 0.05, 3), (60, 12, 0.05, 2),
     (38, 7, 0.05, 2), (37, 7, 0.05, 0), (44, 8, 0.1, 3), (900, 90, 0.01, 5)],
)  # fmt: skip
def test_folds_come_where_images_cannot_be_held_out(labelled, held_out, level, expected):
    choice = choose_folds(labelled, held_out, level)
    assert choice.value == expected
    if expected:
        # By the p-value of an image below all labelled ones: K/(n + K), from its definition.
        assert expected / (labelled + expected) <= level
        assert "twice that" in choice.reason
    assert choose_folds(labelled, held_out, level, 0).value == 0
    assert choose_folds(labelled, held_out, level, 4).value == 4


@pytest.mark.parametrize(("level", "images"), [(0.05, 19), (0.1, 9), (0.01, 99), (0.3, 3)])
def test_as_many_images_as_a_level_needs(level, images):
    assert fewest_to_certify(level) == images
    assert 1 / (images + 1) <= level < 1 / images


PHOTOGRAPHS = TrainedOn(224, (0.5,) * 3, (0.5,) * 3, "photographs")


@pytest.mark.parametrize(
    ("trained", "device", "wanted", "expected"),
    [(None, CPU, None, False), (PHOTOGRAPHS, CPU, None, True), (PHOTOGRAPHS, GPU, None, False),
     (PHOTOGRAPHS, GPU, True, True), (PHOTOGRAPHS, CPU, False, False)],
)  # fmt: skip
def test_a_trained_trunk_is_frozen_where_nothing_could_train_it(trained, device, wanted, expected):
    assert choose_frozen(trained, device, wanted).value is expected


def test_images_are_shown_to_a_trained_trunk_as_large_as_it_knows_them():
    assert choose_side(sizes(32, 500), GPU, trained=PHOTOGRAPHS).value == 224
    small = choose_side(sizes(32, 500), CPU, trained=PHOTOGRAPHS)
    assert small.value == 160
    assert "takes long without a GPU" in small.reason
    assert choose_side(sizes(500), CPU, trained=PHOTOGRAPHS._replace(side=96)).value == 96
    assert choose_side(sizes(500), CPU, 64, PHOTOGRAPHS).value == 64


def test_a_frozen_trunk_sees_as_many_views_as_the_time_allows():
    # 1,000 images at 0.01 s are 10 s a view; 0.4 of ten minutes are 240 s: 24 views, 8 + 8 + 1.
    assert choose_feature_views(1000, 0.01, 10).value == 8
    assert choose_feature_views(1000, 0.03, 10).value == 3  # 30 s a view, eight of them
    long = choose_feature_views(100_000, 0.01, 10)
    assert long.value == 1
    assert "about 50.0 minutes" in long.reason
    assert choose_feature_views(100_000, 0.0, 10, 5).value == 5


def test_behind_a_frozen_trunk_a_training_is_short():
    assert choose_length(3600, 0.01, 0, most=MOST_FROZEN_EPOCH_STEPS).steps == 1200
