"""What determines a run, to and from config.json."""

import json
from dataclasses import replace

import pytest

from anedl.data.settings import SETTINGS
from anedl.engine.spec import make_spec, read_spec
from anedl.engine.task import task_of
from anedl.errors import ConfigError
from anedl.files import write_json
from anedl.methods.catalogue import METHODS


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("method", METHODS)
def test_every_pair_makes_a_spec_that_survives_its_file(tmp_path, setting, method):
    spec = make_spec(setting, method, seed=3, development=True, pool_limit=100)
    write_json(tmp_path / "config.json", spec.to_json())
    again = read_spec(tmp_path / "config.json")
    assert again == spec
    assert again.digest == spec.digest


@pytest.mark.parametrize("method", ["anedl", "anedl-released", "openmatch", "edl", "iedl"])
def test_labelled_views_that_are_given_hold_from_the_start(method):
    """The release's early views are for its own; none of ours would want them mixed in."""
    plain = make_spec("cifar100-55/50", method).options
    assert (plain.early_labelled_views, plain.early_share) == (("flip", "strong"), 55 / 200)
    given = make_spec("cifar100-55/50", method, options={"labelled_views": ["weak"]}).options
    assert (given.labelled_views, given.early_labelled_views) == (("weak",), ())
    both = {"labelled_views": ["weak"], "early_labelled_views": ["strong"], "early_share": 0.5}
    options = make_spec("cifar100-55/50", method, options=both).options
    assert (options.early_labelled_views, options.early_share) == (("strong",), 0.5)
    assert make_spec("cifar100-80/50", method, development=True).options.early_share < 80 / 200
    assert make_spec("digits", "anedl").options.early_labelled_views == ()


def test_defaults_come_in_layers():
    plain = make_spec("cifar100-55/50").train
    assert (plain.epochs, plain.epoch_steps, plain.batch_size, plain.pretrain_epochs) == (
        200, 1024, 64, 10,
    )  # fmt: skip
    assert plain.learning_rate == 0.03
    assert make_spec("imagenet30-20/130").train.epochs == 100, "the data set's"
    assert make_spec("cifar100-55/50", "anedl").train.weight_decay == 1e-4, "the method's"
    given = make_spec("imagenet30-20/130", "anedl", train={"epochs": 7, "pretrain_epochs": 2,
                                                           "weight_decay": 0.5})  # fmt: skip
    assert (given.train.epochs, given.train.weight_decay) == (7, 0.5)
    released = make_spec("cifar100-55/50", "anedl-released").options
    assert released.label_target == "plus-uniform"
    chosen = make_spec("cifar100-55/50", "anedl-released", options={"label_target": "one-hot"})
    assert chosen.options.label_target == "one-hot"
    assert chosen.options.consistency_from == "self-training"


def test_nothing_is_left_open_in_a_spec():
    """config.json says every number that was used, not how it would be found."""
    spec = make_spec("cifar100-80/50", "anedl-released")
    assert spec.train.ema_decay == pytest.approx(0.999)
    assert spec.train.backbone == "wrn-28-2"
    assert (spec.options.top_m, spec.options.selection_share) == (40, 0.54)
    assert spec.options.consistency_weight == 0.03
    assert make_spec("cifar10-6/50", "anedl-released").options.consistency_weight == 0.015


def test_the_development_split_shrinks_m_and_o_with_the_classes():
    setting = SETTINGS["cifar100-55/50"]
    full, small = task_of(setting, False), task_of(setting, True)
    assert (full.classes, full.top_m, full.inlier_share) == (55, 25, 0.35)
    assert (small.classes, small.top_m) == (45, 20)
    assert small.inlier_share == pytest.approx(0.35 * 45 / 55)


def test_the_fold_belongs_to_the_seed_where_there_are_folds():
    assert make_spec("digits", seed=4).fold == 4
    assert make_spec("digits", seed=4, fold=1).fold == 1
    assert make_spec("imagenet30-20/130", seed=4).fold == 0


def test_an_alias_is_written_out():
    assert make_spec("imagenet30-20/10%").setting == "imagenet30-20/130"


def test_the_digest_depends_on_all_that_matters_and_not_on_the_version(monkeypatch):
    spec = make_spec("digits", seed=1, fold=0)
    others = [
        make_spec("digits", seed=2, fold=0),
        make_spec("digits", seed=1, fold=1),
        make_spec("digits", seed=1, fold=0, development=True),
        make_spec("digits", seed=1, fold=0, pool_limit=50),
        make_spec("digits", "anedl-released", seed=1, fold=0),
        make_spec("digits", seed=1, fold=0, train={"learning_rate": 0.031}),
        make_spec("digits", seed=1, fold=0, options={"kl": "original"}),
    ]
    assert len({spec.digest, *(other.digest for other in others)}) == 8
    assert spec.digest == make_spec("digits", seed=1, fold=0).digest
    before = spec.digest
    monkeypatch.setattr("anedl.engine.spec.__version__", "99.9")
    assert spec.to_json()["anedl"] == "99.9"
    assert spec.digest == before


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"setting": "digitz"}, "did you mean digits"),
        ({"method": "anedl2"}, "did you mean anedl"),
        ({"train": {"epoch": 3}}, "did you mean epochs"),
        ({"options": {"epoch": 3}}, "did you mean epochs"),
        ({"options": {"learning_rat": 3}}, "did you mean learning_rate"),
        ({"options": {"kl_wait": 3}}, "did you mean kl_weight"),
        ({"train": {"epochs": 3, "pretrain_epochs": 4}}, "pretrain_epochs"),
        ({"train": {"epochs": "3"}}, "option epochs"),
        ({"options": {"lambda_q": 1}}, "lambda_"),
        ({"options": {"top_m": 99}}, "top_m"),
        ({"seed": -1}, "seed -1"),
        ({"seed": -1, "fold": 0}, "seed -1"),
    ],
    ids=str,
)
def test_what_cannot_be_is_told(keywords, message):
    with pytest.raises(ConfigError, match=message):
        make_spec(**{"setting": "digits", **keywords})


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"setting": "digits"}', "null", "\x00"])
def test_a_file_that_is_no_config(tmp_path, content):
    path = tmp_path / "config.json"
    path.write_text(content)
    with pytest.raises(ConfigError, match="not the configuration of a run"):
        read_spec(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="no such configuration"):
        read_spec(tmp_path / "config.json")


def test_a_changed_file_is_a_changed_spec(tmp_path):
    spec = make_spec("digits")
    record = json.loads(json.dumps(spec.to_json()))
    record["train"]["learning_rate"] = 0.5
    record["options"]["labelled_views"] = ["strong"]
    write_json(tmp_path / "config.json", record)
    again = read_spec(tmp_path / "config.json")
    assert again.train == replace(spec.train, learning_rate=0.5)
    assert again.options.labelled_views == ("strong",)
    assert again.digest != spec.digest
