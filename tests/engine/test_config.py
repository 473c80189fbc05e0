"""Options of the engine: what is refused, and what fills itself in."""

import pytest

from anedl.data.settings import SETTINGS
from anedl.engine.config import TrainConfig, train_defaults
from anedl.errors import ConfigError


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epochs", 0),
        ("epoch_steps", 0),
        ("batch_size", 0),
        ("accumulate", 0),
        ("evaluate_every", 0),
        ("log_every", 0),
        ("pretrain_epochs", -1),
        ("pretrain_epochs", 201),
        ("horizon", -1),
        ("warmup_steps", -1),
        ("ema_decay", 1.5),
        ("ema_decay", float("nan")),
        ("bn_momentum", -0.1),
        ("momentum", 2.0),
        ("beta_2", -1.0),
        ("learning_rate", 0.0),
        ("learning_rate", float("nan")),
        ("learning_rate", float("inf")),
        ("weight_decay", -1e-4),
        ("weight_decay", float("nan")),
        ("clip_norm", -1.0),
        ("accumulate", 3),  # does not divide 64
    ],
)
def test_a_value_out_of_range_names_its_option(name, value):
    with pytest.raises(ConfigError, match=name):
        TrainConfig(**{name: value})


def test_a_long_run_keeps_the_released_memory():
    config = TrainConfig().resolved("wrn-28-2")
    assert config.steps == 204_800
    assert config.ema_decay == pytest.approx(0.999)
    assert config.bn_momentum == pytest.approx(0.001)
    assert config.backbone == "wrn-28-2"


def test_a_short_run_remembers_a_twentieth_of_itself():
    config = TrainConfig(epochs=12, epoch_steps=50, pretrain_epochs=3).resolved("wrn-digits")
    assert 1 / (1 - config.ema_decay) == pytest.approx(30)
    assert 1 / config.bn_momentum == pytest.approx(30)
    one_step = TrainConfig(epochs=1, epoch_steps=1, pretrain_epochs=0).resolved("wrn-digits")
    assert (one_step.ema_decay, one_step.bn_momentum) == (0.0, 1.0)


def test_what_was_given_stays():
    config = TrainConfig(ema_decay=0.5, bn_momentum=0.25, backbone="resnet18").resolved("other")
    assert (config.ema_decay, config.bn_momentum, config.backbone) == (0.5, 0.25, "resnet18")
    assert config.resolved("yet-another") == config


@pytest.mark.parametrize("dataset", sorted({setting.dataset for setting in SETTINGS.values()}))
def test_the_defaults_of_every_data_set_are_options(dataset):
    assert TrainConfig(**train_defaults(dataset)).steps > 0
