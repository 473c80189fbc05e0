"""The learning rate over a run."""

import numpy as np
import pytest
import torch

from anedl.engine.config import TrainConfig
from anedl.engine.schedule import learning_rate
from anedl.engine.spec import make_spec

STEPS = [0, 1, 7, 100, 511, 512, 1000, 1023]


def rates(config: TrainConfig, steps=STEPS) -> np.ndarray:
    return np.array([float(learning_rate(config, torch.tensor(step))) for step in steps])


def config(**options) -> TrainConfig:
    return TrainConfig(**{"epochs": 4, "epoch_steps": 256, "pretrain_epochs": 0, **options})


def test_cosine_falls_to_zero():
    share = np.array(STEPS) / 1024
    expected = 0.03 * (1 + np.cos(np.pi * share)) / 2
    np.testing.assert_allclose(rates(config(schedule="cosine")), expected, rtol=1e-5, atol=1e-9)
    assert rates(config(schedule="cosine"), [1024])[0] == pytest.approx(0, abs=1e-9)


def test_released_cosine():
    share = np.array(STEPS) / 1024
    expected = 0.03 * np.cos(7 * np.pi / 16 * share)
    np.testing.assert_allclose(rates(config(schedule="cosine-7/16")), expected, rtol=1e-5)


def test_the_released_run_ends_high():
    """Stopped at epoch 200 of a cosine meant for 2^19 steps: 0.0258 of 0.03 is left."""
    released = make_spec("cifar100-80/50", "anedl-released").train
    assert released.steps == 204_800
    assert released.horizon == 2**19
    assert rates(released, [0])[0] == pytest.approx(0.03)
    last = rates(released, [204_800])[0]
    assert last == pytest.approx(0.0258, abs=5e-5)
    assert last == pytest.approx(0.03 * np.cos(7 * np.pi / 16 * 204_800 / 2**19), rel=1e-6)


@pytest.mark.parametrize("method", ["anedl", "openmatch", "fixmatch", "iomatch", "scomatch", "t2t"])
def test_on_photographs_the_rate_falls_as_fixmatch_published_it(method):
    """Over the whole run, however long that is, unless the method has a rate of its own."""
    for budget in ("full", "fast"):
        spec = make_spec("cifar100-80/50", method, budget=budget).train
        last = 0.03 * np.cos(7 * np.pi / 16)
        assert rates(spec, [0, spec.steps]) == pytest.approx([0.03, last], rel=1e-5)


def test_short_runs_fall_to_zero():
    spec = make_spec("digits", "anedl").train
    assert rates(spec, [0, spec.steps]) == pytest.approx([0.03, 0.0], abs=1e-9)


def test_horizon_shorter_than_the_run_holds_its_last_value():
    short = config(schedule="cosine", horizon=512)
    np.testing.assert_allclose(rates(short, [256]), 0.015, rtol=1e-5)
    np.testing.assert_allclose(rates(short, [512, 900]), 0.0, atol=1e-9)


def test_constant():
    np.testing.assert_allclose(rates(config(schedule="constant", learning_rate=0.2)), 0.2)


@pytest.mark.parametrize(("name", "arc"), [("cosine-7/16", 7 / 16), ("cosine-5/16", 5 / 16)])
def test_held_through_pre_training_it_falls_over_the_rest(name, arc):
    """One epoch of 256 steps is held; the other three are the fall."""
    held = config(schedule=name, hold_pretraining=True, pretrain_epochs=1)
    steps = np.array([0, 100, 256, 300, 640, 1023, 1024])
    share = np.maximum(0, steps - 256) / (1024 - 256)
    np.testing.assert_allclose(rates(held, steps), 0.03 * np.cos(arc * np.pi * share), rtol=1e-5)
    assert rates(held, [0, 255, 256]) == pytest.approx([0.03] * 3)


def test_a_run_that_only_pre_trains_is_held_to_its_end():
    held = config(schedule="cosine", hold_pretraining=True, pretrain_epochs=4)
    assert rates(held, [0, 1023]) == pytest.approx([0.03, 0.03])


@pytest.mark.parametrize(
    ("setting", "phi"),
    [("cifar10-6/50", 7 / 8), ("cifar100-55/50", 5 / 8), ("miniimagenet-50/50", 5 / 8)],
)
def test_prosub_falls_as_published(setting, phi):
    """lr·cos(φπ/2·(t−P)/(T−P)) after P steps of pre-training, a tenth of the run."""
    train = make_spec(setting, "prosub").train
    before, steps = 20 * 1024, train.steps
    at = np.array([0, before, before + 50_000, steps])
    share = np.maximum(0, at - before) / (steps - before)
    np.testing.assert_allclose(rates(train, at), 0.03 * np.cos(phi * np.pi / 2 * share), rtol=1e-5)


@pytest.mark.parametrize("schedule", ["constant", "cosine", "cosine-7/16"])
def test_warm_up_rises_in_a_line_and_then_leaves_the_schedule_alone(schedule):
    steps = [0, 1, 4, 9, 10, 500]
    plain = rates(config(schedule=schedule), steps)
    warm = rates(config(schedule=schedule, warmup_steps=10), steps)
    np.testing.assert_allclose(warm, plain * np.minimum(1, (np.array(steps) + 1) / 10), rtol=1e-6)


def test_it_stays_on_the_device_as_one_number():
    rate = learning_rate(config(), torch.tensor(3))
    assert rate.shape == ()
    assert rate.dtype == torch.float32


@pytest.mark.parametrize("schedule", ["constant", "cosine-7/16"])
def test_a_cooldown_falls_in_a_line_at_the_end(schedule):
    """A quarter of 1,024 steps; before it the schedule is left alone."""
    plain, cooled = config(schedule=schedule), config(schedule=schedule, cooldown_share=0.25)
    before = [0, 100, 767, 768]
    np.testing.assert_array_equal(rates(cooled, before), rates(plain, before))
    at = np.array([832, 896, 1023, 1024])
    expected = rates(plain, at) * (1024 - at) / 256
    np.testing.assert_allclose(rates(cooled, at), expected, rtol=1e-5, atol=1e-9)
