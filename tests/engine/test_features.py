"""Training behind a frozen trunk, whose features are made once."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from anedl.engine import features as making
from anedl.engine.features import with_features
from anedl.engine.inference import outputs_of
from anedl.engine.model import build_method, load_model
from anedl.engine.precision import Precision
from anedl.engine.spec import make_spec
from anedl.engine.train import Surroundings, build_stepper, train
from anedl.errors import ConfigError
from anedl.methods.base import Stage
from anedl.networks.frozen_encoder import FrozenEncoder

FP32 = Precision("fp32", torch.device("cpu"))
TINY = {
    "epochs": 3, "epoch_steps": 3, "pretrain_epochs": 1, "batch_size": 6, "log_every": 2,
    "ema_decay": 0.6, "bn_momentum": 0.3, "frozen": True, "feature_views": 2,
}  # fmt: skip


@pytest.fixture
def spec_of(trained_backbone):
    def make(method="anedl-plus", options=None, **train):
        return make_spec("digits", method, 0, pool_limit=80,
                         train={**TINY, "backbone": trained_backbone, **train},
                         options=options)  # fmt: skip

    return make


@pytest.fixture
def looked_at(problem, spec_of):
    return with_features(problem, spec_of(), FP32)


def no_look(*args):
    raise AssertionError("the trunk was asked")


def test_without_a_frozen_trunk_images_stay_images(problem, spec_of):
    assert with_features(problem, spec_of(frozen=False), FP32) is problem


def test_every_used_image_has_features_of_each_view_and_no_other(problem, looked_at):
    bank, used = looked_at.features, problem.used_of_train()
    assert bank.views.shape == (len(problem.dataset.train.images), 5, 24)
    there = bank.plain.isfinite().all(1).nonzero().flatten().numpy()
    assert np.array_equal(there, used)
    some = bank.views_of(used)
    assert some.isfinite().all()
    assert not torch.equal(some[:, 1], some[:, 2]), "views are drawn apart"
    torch.testing.assert_close(some[:, 0].float(), bank.plain_of(used), rtol=1e-3, atol=1e-3)


def test_a_model_says_the_same_of_images_and_of_their_features(problem, looked_at, spec_of):
    method = build_method(spec_of(), problem.setting, problem.task, FP32.device)
    by_images = outputs_of(method, problem.pool(), FP32)
    by_features = outputs_of(method, looked_at.pool(), FP32)
    assert looked_at.pool().ndim == 2
    torch.testing.assert_close(by_features.logits, by_images.logits, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(by_features.score, by_images.score, rtol=1e-4, atol=1e-4)


def test_steps_change_what_is_behind_the_trunk_and_nothing_of_it(looked_at, spec_of):
    stepper = build_stepper(spec_of(), looked_at, FP32)
    before = {name: value.clone() for name, value in stepper.method.state_dict().items()}
    chosen = torch.arange(30)
    stepper.begin_epoch(Stage.SELF_TRAIN, 1, 0, chosen)
    stepper.take_many(3)
    for model in (stepper.method, stepper.average):
        for name, value in model.state_dict().items():
            same = torch.equal(value, before[name])
            assert same == name.startswith(("backbone.trunk.", "backbone.normalise.")), name


def test_a_run_is_trained_loaded_and_judged(problem, spec_of, tmp_path):
    spec = spec_of()
    results = train(spec, tmp_path / "run", Surroundings(quiet=True, device="cpu"), problem)
    assert results["steps"] == 9
    assert json.loads((tmp_path / "run" / "config.json").read_text())["train"]["frozen"] is True
    trained = load_model(tmp_path / "run", device="cpu")
    assert isinstance(trained.method.backbone, FrozenEncoder)
    error = float((outputs_of(trained.method, problem.test()[0], trained.precision).logits.argmax(1)
                   .numpy() != problem.test()[1])[problem.test()[1] >= 0].mean())  # fmt: skip
    assert error == pytest.approx(results["last"]["test"]["error"], abs=1e-6)


@pytest.mark.parametrize("method", ["supervised", "fixmatch", "openmatch", "iomatch", "ssb", "edl"])
def test_other_methods_learn_from_features_too(looked_at, spec_of, method):
    stepper = build_stepper(spec_of(method), looked_at, FP32)
    stepper.begin_epoch(Stage.SELF_TRAIN, 1, 0, torch.arange(30))
    assert np.isfinite(stepper.take_many(2).loss)


def test_kept_features_are_read_again(problem, spec_of, tmp_path, monkeypatch):
    spec = spec_of()
    first = with_features(problem, spec, FP32, kept=tmp_path, images_digest="these").features
    assert len(list(tmp_path.iterdir())) == 5
    monkeypatch.setattr(FrozenEncoder, "trunk_features", no_look)
    again = with_features(problem, spec, FP32, kept=tmp_path, images_digest="these").features
    assert torch.equal(again.plain, first.plain)
    assert torch.equal(again.views, first.views)
    with pytest.raises(AssertionError, match="was asked"):
        with_features(problem, spec, FP32, kept=tmp_path, images_digest="others")


def test_what_was_cut_off_or_damaged_is_made_again(problem, spec_of, tmp_path, monkeypatch):
    spec = spec_of()
    first = with_features(problem, spec, FP32, kept=tmp_path).features
    (tmp_path / "03-strong.safetensors").unlink()
    (tmp_path / "01-weak.safetensors").write_bytes(b"half of it")
    made = []
    real = making._features
    monkeypatch.setattr(making, "_features", lambda *args: made.append(args[1].view) or real(*args))
    again = with_features(problem, spec, FP32, kept=tmp_path).features
    assert made == ["weak", "strong"]
    assert torch.equal(again.views, first.views)


def test_a_trunk_without_training_is_not_kept_frozen(problem, spec_of):
    with pytest.raises(ConfigError, match="begins with random weights"):
        with_features(problem, spec_of(backbone="wrn-10-1"), FP32)


@pytest.mark.parametrize(
    ("method", "options"),
    [("mtc", {}), ("t2t", {}), ("scomatch", {}), ("anedl-plus", {"rotation_weight": 0.5}),
     ("anedl-plus", {"cutmix": 0.5})],
)  # fmt: skip
def test_methods_that_change_pixels_are_refused_before_a_look(
    problem, spec_of, method, options, monkeypatch
):
    monkeypatch.setattr(FrozenEncoder, "trunk_features", no_look)
    with pytest.raises(ConfigError, match="there are only features"):
        with_features(problem, spec_of(method, options=options), FP32)


def test_views_of_an_image_do_not_depend_on_the_others(problem, looked_at, spec_of):
    split = replace(problem.split, pool=problem.split.pool[::2])
    fewer = with_features(replace(problem, split=split), spec_of(), FP32).features
    assert torch.equal(fewer.views_of(split.pool), looked_at.features.views_of(split.pool))


def test_what_a_longer_try_left_behind_is_removed(problem, spec_of, tmp_path):
    with_features(problem, spec_of(), FP32, kept=tmp_path)
    with_features(problem, spec_of(feature_views=1), FP32, kept=tmp_path)
    left = sorted(path.stem for path in tmp_path.iterdir())
    assert left == ["00-plain", "01-weak", "02-strong"]


def test_statistics_of_a_frozen_trunk_are_not_measured_anew(spec_of):
    with pytest.raises(ConfigError, match="keeps the statistics it came with"):
        spec_of(fresh_statistics=5)


def test_crops_of_larger_images_need_no_stream(files_problem, trained_backbone):
    """Views are cut once, so what trains lies in memory."""
    problem = files_problem("imagenet")
    setting = problem.setting
    spec = make_spec(setting, "supervised", 0, train={**TINY, "backbone": trained_backbone})
    stepper = build_stepper(spec, with_features(problem, spec, FP32), FP32)
    assert stepper.stream.capturable
    stepper.begin_epoch(Stage.SELF_TRAIN, 1, 0, None)
    assert np.isfinite(stepper.take_many(2).loss)
