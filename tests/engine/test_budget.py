"""How long a run and its parts are, under each budget and with lengths of one's own."""

import hashlib
import json

import pytest

from anedl.cli import main
from anedl.engine.config import TrainConfig, whole_epochs
from anedl.engine.differences import differing_options, recipe_hash
from anedl.engine.spec import default_folder, make_spec, read_spec, read_spec_to_train
from anedl.errors import ConfigError
from anedl.files import write_json
from anedl.methods.catalogue import METHODS

CIFAR, IMAGENET = "cifar100-55/50", "imagenet30-20/130"

# Epochs before self-training in 200 and in 50 epochs on CIFAR, in 100 and in 25 on ImageNet-30,
# and in 12 and 6 on the digits, worked out by hand from the published shares.
PRETRAINING = {
    "anedl": (10, 3, 10, 3, 3, 2),
    "anedl-released": (10, 3, 10, 3, 3, 2),
    "anedl-plus": (10, 3, 10, 3, 3, 2),
    "openmatch": (10, 3, 10, 3, 3, 2),
    "edl": (10, 3, 10, 3, 3, 2),
    "iedl": (10, 3, 10, 3, 3, 2),
    "mtc": (14, 4, 7, 2, 3, 2),
    "t2t": (40, 10, 20, 5, 3, 2),
    "ssb": (186, 47, 93, 23, 3, 2),
    "prosub": (20, 5, 30, 8, 3, 2),
    "supervised": (0, 0, 0, 0, 0, 0),
    "fixmatch": (0, 0, 0, 0, 0, 0),
    "iomatch": (0, 0, 0, 0, 0, 0),
    "scomatch": (0, 0, 0, 0, 0, 0),
}


@pytest.mark.parametrize("method", METHODS)
def test_pretraining_keeps_its_share_in_every_budget(method):
    found = [
        make_spec(setting, method, budget=budget).train
        for setting in (CIFAR, IMAGENET, "digits")
        for budget in ("full", "fast")
    ]
    assert [train.epochs for train in found] == [200, 50, 100, 25, 12, 6]
    assert [train.epoch_steps for train in found] == [1024] * 4 + [50] * 2
    assert tuple(train.pretrain_epochs for train in found) == PRETRAINING[method]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("epochs", [1, 2, 3, 7])
def test_any_length_alone_scales_the_rest(method, epochs):
    spec = make_spec("digits", method, train={"epochs": epochs})
    assert spec.budget == "custom"
    assert 0 <= spec.train.pretrain_epochs <= epochs - 1, "self-training is never left out"
    if PRETRAINING[method][-1] and epochs > 1:
        assert spec.train.pretrain_epochs >= 1


@pytest.mark.parametrize(
    ("share", "epochs", "whole"),
    [(0.05, 200, 10), (0.05, 50, 3), (0.05, 10, 1), (0.05, 2, 1), (0.05, 1, 0), (0.93, 6, 5),
     (0.99, 3, 2), (0.0, 9, 0), (1.0, 9, 9)],
)  # fmt: skip
def test_a_share_is_the_nearest_whole_number_that_leaves_both_stages(share, epochs, whole):
    assert whole_epochs(share, epochs) == whole


def test_what_a_method_counts_in_epochs_scales_with_the_run():
    def ramp(**keywords):
        return make_spec(**{"setting": CIFAR, **keywords}).options.kl_ramp_epochs

    assert ramp() == 10
    assert ramp(method="anedl-released") == 10
    assert ramp(setting=IMAGENET) == 10
    assert ramp(budget="fast") == 3  # 2.5 of 50
    assert ramp(train={"epochs": 100}) == 5
    assert ramp(train={"epochs": 1}) == 1
    assert ramp(budget="fast", options={"kl_ramp_epochs": 10}) == 10, "what is given stays"
    assert ramp(setting="digits") == 3
    assert ramp(setting="digits", budget="fast") == 2
    windows = [
        make_spec(CIFAR, "mtc", budget=budget).options.score_window for budget in ("full", "fast")
    ]
    assert windows == [5, 2]


def test_the_released_schedule_is_cut_at_the_same_point():
    full, fast = (make_spec(CIFAR, "anedl-released", budget=b).train for b in ("full", "fast"))
    assert full.horizon == 2**19
    assert fast.horizon / fast.steps == full.horizon / full.steps
    given = make_spec(CIFAR, "anedl-released", train={"epochs": 50, "horizon": 77}).train
    assert given.horizon == 77


def test_one_data_set_may_change_the_engine():
    assert make_spec(CIFAR, "iomatch").train.weight_decay == 1e-3
    assert make_spec("cifar10-6/50", "iomatch").train.weight_decay == 5e-4
    imagenet = make_spec(IMAGENET, "iomatch").train
    assert (imagenet.weight_decay, imagenet.batch_size) == (3e-4, 32)
    assert make_spec(CIFAR, "mtc").train.multiplicative_decay == 0.02
    assert make_spec(CIFAR, "prosub").train.weight_decay == 1e-3
    assert make_spec("cifar10-6/50", "prosub").train.weight_decay == 5e-4


@pytest.mark.parametrize(
    "given",
    [{"epochs": 49}, {"epoch_steps": 512}, {"pretrain_epochs": 1}, {"pretrain_share": 0.5},
     {"horizon": 9}, {"warmup_steps": 9}],
    ids=str,
)  # fmt: skip
def test_who_changes_a_length_leaves_the_budget(given):
    assert make_spec(CIFAR, train=given).budget == "custom"
    assert make_spec(CIFAR, train=given, budget="fast").train != make_spec(CIFAR).train


def test_other_options_and_repeated_lengths_do_not():
    assert make_spec(CIFAR, train={"learning_rate": 0.1}).budget == "full"
    assert make_spec(CIFAR, train={"epochs": 200, "pretrain_epochs": 10}).budget == "full"
    assert make_spec(CIFAR, budget="fast", options={"kl": "original"}).budget == "fast"


def test_the_name_of_a_budget_is_not_in_the_digest_but_its_lengths_are():
    fast, same = make_spec(CIFAR, budget="fast"), make_spec(CIFAR, train={"epochs": 50})
    assert fast.digest == same.digest
    assert fast.digest != make_spec(CIFAR).digest
    assert fast.to_json()["budget"] == "fast"


@pytest.mark.parametrize("setting", ["digits", CIFAR, IMAGENET])
@pytest.mark.parametrize("method", METHODS)
def test_equal_runs_have_equal_names_however_their_length_was_asked_for(method, setting):
    full, fast = (make_spec(setting, method, budget=budget) for budget in ("full", "fast"))
    shortened = make_spec(setting, method, train={"epochs": fast.train.epochs})
    lengthened = make_spec(setting, method, train={"epochs": full.train.epochs}, budget="fast")
    for asked, named in ((shortened, fast), (lengthened, full)):
        assert asked.digest == named.digest
        assert asked.budget == named.budget
    assert [full.budget, fast.budget] == ["full", "fast"]


def test_an_unknown_budget_and_two_words_for_one_length_are_refused():
    with pytest.raises(ConfigError, match="did you mean fast"):
        make_spec(CIFAR, budget="fats")
    with pytest.raises(ConfigError, match="give one of them"):
        make_spec(CIFAR, train={"pretrain_share": 0.1, "pretrain_epochs": 3})
    with pytest.raises(ConfigError, match="pretrain_share"):
        TrainConfig(pretrain_share=1.5)


def test_a_config_from_before_budgets_is_read(tmp_path):
    record = make_spec("digits", "ssb", seed=2).to_json()
    del record["budget"]
    record["train"]["pretrain_epochs"] = 3
    write_json(tmp_path / "config.json", record)
    spec = read_spec(tmp_path / "config.json")
    assert spec.budget == "custom"
    assert spec.train.pretrain_epochs == 3
    # Its checkpoint knows it by this digest: of the whole record but the version and the log.
    del record["anedl"], record["train"]["log_every"]
    assert spec.digest == hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()


def test_folders_of_the_budgets_do_not_meet():
    names = {
        default_folder("digits", "anedl", 1, development, budget).as_posix()
        for development in (False, True)
        for budget in ("full", "fast")
    }
    kinds = ("", "-dev", "-fast", "-fast-dev")
    assert names == {f"runs/digits/anedl{kind}-seed1" for kind in kinds}


USERS_FILE = '''
from anedl.methods.supervised import Supervised

class Mine(Supervised):
    """Mine."""
'''


@pytest.fixture
def users_method(tmp_path, monkeypatch):
    path = tmp_path / "there" / "mine.py"
    path.parent.mkdir()
    path.write_text(USERS_FILE)
    monkeypatch.chdir(path.parent)
    return path


def test_a_method_from_a_file_is_known_by_its_absolute_path_and_its_bytes(users_method, tmp_path):
    spec = make_spec("digits", "mine.py:Mine")
    assert spec.method == f"{users_method}:Mine"
    write_json(tmp_path / "config.json", spec.to_json())
    assert read_spec_to_train(tmp_path / "config.json") == spec
    elsewhere = tmp_path / "elsewhere.py"
    elsewhere.write_text(USERS_FILE)
    assert make_spec("digits", f"{elsewhere}:Mine").digest == spec.digest
    elsewhere.write_text(USERS_FILE + "\n# changed\n")
    assert make_spec("digits", f"{elsewhere}:Mine").digest != spec.digest


def test_a_changed_file_is_warned_of_and_not_trained_on(users_method, tmp_path):
    write_json(tmp_path / "config.json", make_spec("digits", "mine.py:Mine").to_json())
    users_method.write_text(USERS_FILE.replace("Mine.", "Else"))  # as many bytes as before
    with pytest.warns(UserWarning, match=r"mine\.py has changed since"):
        spec = read_spec(tmp_path / "config.json")
    assert spec.digest != make_spec("digits", "mine.py:Mine").digest
    with pytest.raises(ConfigError, match="restore the file"):
        read_spec_to_train(tmp_path / "config.json")


STATED = (
    USERS_FILE
    + """
    engine = {"schedule": "constant", "weight_decay": 0.0, "pretrain_share": 0.5, "horizon": 1200}
"""
)


def test_a_method_from_a_file_states_its_own_options_of_the_engine(users_method):
    plain = make_spec("digits", "mine.py:Mine").train
    assert (plain.schedule, plain.weight_decay, plain.pretrain_epochs) == ("cosine", 1e-4, 0)
    users_method.write_text(STATED)
    spec = make_spec("digits", "mine.py:Mine")
    assert (spec.train.schedule, spec.train.weight_decay) == ("constant", 0.0)
    assert (spec.train.pretrain_epochs, spec.train.horizon, spec.budget) == (6, 1200, "full")
    fast = make_spec("digits", "mine.py:Mine", budget="fast").train
    assert (fast.pretrain_epochs, fast.horizon) == (3, 600), "in proportion, as in the catalogue"
    given = make_spec("digits", "mine.py:Mine", train={"weight_decay": 0.1}).train
    assert given.weight_decay == 0.1, "the command line has the last word"


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ('{"wieght_decay": 0.0}', "did you mean weight_decay"),
        ('{"schedule": "linear"}', "schedule: 'linear' is not one of"),
        ("7", "engine must map names"),
    ],
)
def test_what_a_file_states_wrongly_is_told_with_its_name(users_method, engine, said):
    users_method.write_text(USERS_FILE + f"\n    engine = {engine}\n")
    with pytest.raises(ConfigError, match=said) as told:
        make_spec("digits", "mine.py:Mine")
    assert "mine.py" in str(told.value)


def test_what_only_a_log_shows_makes_no_other_run():
    """A run goes on with another interval, and the ledger finds it whatever it was."""
    one, other = (make_spec("digits", train={"log_every": every}) for every in (25, 7))
    assert one.digest == other.digest
    assert differing_options(other.to_json()) == {}
    assert recipe_hash(one.to_json()) == recipe_hash(other.to_json())
    assert make_spec("digits", train={"weight_decay": 7.0}).digest != one.digest


# Digests of recorded runs: an option that is added later must leave them alone.
RECORDED = {
    "anedl": "7f9eabe6",
    "mtc": "f48342b3",
    "prosub": "50c436f9",
    "ssb": "f6820d1a",
    "t2t": "9e99e315",
}


@pytest.mark.parametrize("method", RECORDED)
def test_recorded_runs_keep_their_digest(method):
    assert make_spec("digits", method, seed=2).digest.startswith(RECORDED[method])


def test_an_option_called_as_one_of_the_engines_is_refused(users_method, capsys):
    """The command could not tell the two apart, and Python would set the engine's alone."""
    users_method.write_text(
        "from dataclasses import dataclass\n"
        "from anedl.methods.fixmatch import FixMatch, FixMatchConfig\n"
        "from anedl.options import option\n"
        "@dataclass(frozen=True)\n"
        "class MineConfig(FixMatchConfig):\n"
        '    momentum: float = option(0.99, "of my own")\n'
        "class Mine(FixMatch):\n"
        "    config_type = MineConfig\n"
    )
    said = r"mine\.py: option 'momentum' of MineConfig is called as one of the engine's"
    with pytest.raises(ConfigError, match=said):
        make_spec("digits", "mine.py:Mine")
    for words in (["train", "digits"], ["reproduce", "table1", "--setting", "digits"]):
        assert main([*words, "--method", "mine.py:Mine"]) == 1
        assert "give it another name" in capsys.readouterr().err
