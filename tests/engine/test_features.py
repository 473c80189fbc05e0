"""Training behind a frozen trunk, whose features are made once."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from anedl.data.dataset import ArrayImages, Dataset, LabelledImages
from anedl.data.settings import get_setting
from anedl.engine import inference
from anedl.engine.differences import differing_options
from anedl.engine.features import with_features
from anedl.engine.inference import outputs_of
from anedl.engine.model import build_method, load_model, scale_of
from anedl.engine.precision import Precision
from anedl.engine.problem import load_problem
from anedl.engine.spec import make_spec
from anedl.engine.train import Surroundings, build_stepper, train
from anedl.errors import ConfigError
from anedl.methods.base import Stage
from anedl.networks.frozen_encoder import FrozenEncoder

FP32 = Precision("fp32", torch.device("cpu"))
TINY = {
    "epochs": 3, "epoch_steps": 3, "pretrain_epochs": 1, "batch_size": 6, "log_every": 2,
    "ema_decay": 0.6, "bn_momentum": 0.3, "frozen": True, "feature_views": 2, "frozen_side": 0,
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


def test_a_trunk_without_training_is_not_kept_frozen(problem, spec_of):
    with pytest.raises(ConfigError, match="begins with random weights"):
        with_features(problem, spec_of(backbone="wrn-10-1"), FP32)


@pytest.mark.parametrize(
    ("method", "options"),
    [("mtc", {}), ("t2t", {}), ("scomatch", {}), ("anedl-plus", {"rotation_weight": 0.5}),
     ("anedl-plus", {"cutmix": 0.5, "selected_evidence": 0.0})],
)  # fmt: skip
def test_methods_that_change_pixels_are_refused_before_a_look(
    problem, spec_of, method, options, monkeypatch
):
    monkeypatch.setattr(FrozenEncoder, "trunk_features", no_look)
    with pytest.raises(ConfigError, match="there are only features"):
        with_features(problem, spec_of(method, options=options), FP32)


def test_images_are_judged_by_features_in_the_arithmetic_of_judging(problem, looked_at, spec_of):
    precision = Precision("bf16", FP32.device, judging="fp32")
    mixed = with_features(problem, spec_of(), precision).features
    used = problem.used_of_train()
    assert torch.equal(mixed.plain[used], looked_at.features.plain[used])
    ours, theirs = mixed.views_of(used), looked_at.features.views_of(used)
    assert not torch.equal(ours, theirs)
    torch.testing.assert_close(ours, theirs, rtol=0.1, atol=0.1)


def test_views_of_an_image_do_not_depend_on_the_others(problem, looked_at, spec_of):
    split = replace(problem.split, pool=problem.split.pool[::2])
    fewer = with_features(replace(problem, split=split), spec_of(), FP32).features
    assert torch.equal(fewer.views_of(split.pool), looked_at.features.views_of(split.pool))


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


@pytest.fixture
def tested_problem():
    """A problem of colour images in memory whose test images are a part of their own."""
    rng = np.random.default_rng(0)

    def part(a_class):
        labels = np.repeat(np.arange(10), a_class)
        pixels = rng.integers(0, 256, (len(labels), 8, 8, 3), np.uint8)
        return LabelledImages(ArrayImages(pixels), labels)

    setting = replace(
        get_setting("digits"), train_counts=(20,) * 10, test_counts=(4,) * 10,
        validation_per_class=2, test_cut_per_class=0, mean=(0.5,) * 3, std=(0.25,) * 3,
    )  # fmt: skip
    names = tuple("0123456789")
    return load_problem(setting, 0, dataset=Dataset("colours", names, part(20), part(4)))


def test_a_test_part_has_features_too(tested_problem, trained_backbone):
    spec = make_spec(tested_problem.setting, "supervised", 0,
                     train={**TINY, "backbone": trained_backbone, "frozen_side": 16})  # fmt: skip
    looked = with_features(tested_problem, spec, FP32)
    method = build_method(spec, tested_problem.setting, tested_problem.task, FP32.device)
    by_images = outputs_of(method, tested_problem.test()[0], FP32)
    by_features = outputs_of(method, looked.test()[0], FP32)
    assert looked.test()[0].shape == (len(tested_problem.split.test), 24)
    torch.testing.assert_close(by_features.logits, by_images.logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("setting", "train", "side"),
    [("cifar100-55/50", {"frozen": True}, 128), ("cifar100-55/50", {}, 0),
     ("cifar100-55/50", {"frozen": True, "frozen_side": 96}, 96),
     ("imagenet30-20/130", {"frozen": True}, 0)],
)  # fmt: skip
def test_small_images_of_a_setting_are_enlarged_for_a_frozen_trunk(setting, train, side):
    backbone = {"backbone": "efficientnet-lite0"}
    assert (
        make_spec(setting, "supervised", 0, train={**train, **backbone}).train.frozen_side == side
    )


def test_only_a_frozen_trunk_enlarges():
    with pytest.raises(ConfigError, match="is for a frozen trunk"):
        make_spec("digits", "supervised", 0, train={"frozen_side": 64})


@pytest.mark.parametrize(
    ("setting", "frozen", "expected"),
    [("cifar100-55/50", True, (0.01, 0.0, 0.0)), ("cifar100-55/50", False, (0.00125, 0.0, 0.5)),
     ("digits", True, (0.01, 0.3, 0.0))],
)  # fmt: skip
def test_our_recipe_behind_a_frozen_trunk(setting, frozen, expected, trained_backbone):
    train = {"frozen": frozen, "backbone": trained_backbone}
    options = make_spec(setting, "anedl-plus", 0, train=train).options
    assert (options.kl_weight, options.selected_evidence, options.rotation_weight) == expected


def test_of_ones_own_images_those_selected_teach_evidence_too(files_problem, trained_backbone):
    setting = replace(files_problem().setting, dataset="own")
    train = {"frozen": True, "backbone": trained_backbone}
    assert make_spec(setting, "anedl-plus", 0, train=train).options.selected_evidence == 0.3
    given = {"selected_evidence": 0.5}
    options = make_spec(setting, "anedl-plus", 0, train=train, options=given).options
    assert options.selected_evidence == 0.5


def test_pixels_are_scaled_as_a_trained_trunk_knows_them(trained_backbone):
    setting = get_setting("cifar100-55/50")
    assert scale_of("wrn-28-2", setting) == (setting.mean, setting.std)
    assert scale_of(trained_backbone, setting) == ((0.4, 0.5, 0.6), (0.2, 0.3, 0.4))
    grey = get_setting("digits")
    assert scale_of(trained_backbone, grey) == (grey.mean, grey.std)


def test_what_a_method_has_behind_a_frozen_trunk_is_no_difference(trained_backbone):
    train = {"frozen": True, "backbone": trained_backbone, "epochs": 20}
    spec = make_spec("cifar100-55/50", "anedl-plus", 0, train=train)
    assert differing_options(spec.to_json()) == {
        "frozen": True, "backbone": trained_backbone, "epochs": 20,
    }  # fmt: skip
    released = {"kl_weight": 0.00125}
    other = make_spec("cifar100-55/50", "anedl-plus", 0, train=train, options=released)
    assert differing_options(other.to_json())["kl_weight"] == 0.00125


def test_nothing_is_enlarged_to_less(trained_backbone):
    train = {"frozen": True, "backbone": trained_backbone, "frozen_side": 24}
    with pytest.raises(ConfigError, match="24 is less than the 32 pixels"):
        make_spec("cifar100-55/50", "supervised", 0, train=train)


def test_what_is_judged_at_once_goes_by_what_the_trunk_sees(problem, spec_of, monkeypatch):
    sizes = []
    real = FrozenEncoder.trunk_features

    def counted(self, images):
        sizes.append(len(images))
        return real(self, images)

    monkeypatch.setattr(FrozenEncoder, "trunk_features", counted)
    monkeypatch.setattr(inference, "MOST_PIXELS", 3 * 16 * 16)
    method = build_method(spec_of(frozen_side=16), problem.setting, problem.task, FP32.device)
    outputs_of(method, problem.pool(), FP32)
    assert max(sizes) == 3


def test_a_run_gives_back_the_views_that_its_steps_have_copied(looked_at):
    judged = looked_at.to_be_judged()
    assert judged.features.views.numel() == 0
    assert torch.equal(judged.pool(), looked_at.pool())
    assert torch.equal(judged.validation()[0], looked_at.validation()[0])
