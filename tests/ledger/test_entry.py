"""From a run folder into the ledger and back."""

import hashlib
import json
from pathlib import Path

import pytest
import torch

from anedl.cli import main
from anedl.engine.differences import differing_options
from anedl.engine.spec import make_spec
from anedl.engine.train import Surroundings, train
from anedl.errors import AnedlError
from anedl.ledger import read_ledger, record_run

TINY = {"epochs": 2, "epoch_steps": 3, "pretrain_epochs": 1, "batch_size": 8}


def as_written(spec):
    return json.loads(json.dumps(spec.to_json()))


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory):
    """A real run of six steps."""
    folder = tmp_path_factory.mktemp("runs") / "digits"
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    train(make_spec("digits", train=TINY), folder, Surroundings(device="cpu", quiet=True))
    torch.set_num_threads(before)
    return folder


@pytest.fixture
def fake_run(tmp_path):
    """A run folder of a spec, with made-up figures."""

    def make(spec, name="run", error=0.25, auroc=0.875, **changes):
        folder = tmp_path / name
        folder.mkdir()
        figures = {
            "validation_error": 0.5,
            "test": {"error": error, "by_score": {"score": {"auroc": auroc}}},
        }
        results = {
            "anedl": "0.1.0", "setting": spec.setting, "method": spec.method, "seed": spec.seed,
            "fold": spec.fold, "development": spec.development, "split_hash": "s" * 64,
            "config_hash": spec.digest, "steps": spec.train.steps, "seconds": 12.5,
            "device": "a GPU", "torch": "2.9", "last": {"epoch": 3, **figures},
            "best_val": {"epoch": 1, **figures}, **changes,
        }  # fmt: skip
        (folder / "config.json").write_text(json.dumps(spec.to_json()))
        (folder / "results.json").write_text(json.dumps(results))
        return folder

    return make


def test_a_run_goes_in_and_comes_out(run_folder, tmp_path):
    path = record_run(run_folder, tmp_path, "anedl train digits")
    results = json.loads((run_folder / "results.json").read_text())
    digest = results["config_hash"]
    assert path == tmp_path / "runs" / f"digits-anedl-custom-seed0-{digest[:8]}.json"
    (run,) = read_ledger(tmp_path)
    assert (run.setting, run.method, run.seed, run.fold) == ("digits", "anedl", 0, 0)
    assert (run.config_hash, run.split_hash) == (digest, results["split_hash"])
    assert (run.budget, run.development, run.pool_limit, run.steps) == ("custom", False, None, 6)
    assert (run.wall_s, run.device, run.torch) == (
        results["seconds"], results["device"], results["torch"],
    )  # fmt: skip
    assert run.command == "anedl train digits"
    for figures, entry in ((run.last, results["last"]), (run.best_val, results["best_val"])):
        assert figures.epoch == entry["epoch"]
        assert figures.error == pytest.approx(100 * entry["test"]["error"])
        assert figures.validation_error == pytest.approx(100 * entry["validation_error"])
        areas = {k: 100 * row["auroc"] for k, row in entry["test"]["by_score"].items()}
        assert figures.auroc == pytest.approx(areas)
    # One epoch of pre-training is what two epochs have by default, so it is no difference.
    assert run.options == {"epochs": 2, "epoch_steps": 3, "batch_size": 8}
    assert json.loads(path.read_text()) == json.loads(json.dumps(run.to_json()))


def test_from_training_to_the_table_by_command(run_folder, tmp_path, capsys):
    assert main(["ledger", "--results", str(tmp_path), "--add", str(run_folder)]) == 0
    printed = capsys.readouterr()
    (path,) = (tmp_path / "runs").iterdir()
    assert f"recorded {path}" in printed.err
    command = json.loads(path.read_text())["command"]
    assert command.startswith("anedl train digits --method anedl --seed ")
    assert "--epochs 2" in command
    error = json.loads((run_folder / "results.json").read_text())["last"]["test"]["error"]
    (line,) = [line for line in printed.out.splitlines() if "anedl (" in line]
    assert f"{100 * error:.1f}" in line
    assert "batch_size=8, epoch_steps=3, epochs=2" in line
    assert "custom" in printed.out


def test_recorded_again_it_replaces_itself(run_folder, tmp_path):
    first = record_run(run_folder, tmp_path, "once")
    assert record_run(run_folder, tmp_path, "twice") == first
    (run,) = read_ledger(tmp_path)
    assert run.command == "twice"
    assert list((tmp_path / "runs").iterdir()) == [first], "no temporary file is left"


@pytest.mark.parametrize("budget", ["full", "fast"])
@pytest.mark.parametrize("method", ["anedl", "anedl-released", "mtc", "ssb", "prosub"])
def test_a_plain_run_of_a_budget_differs_in_nothing(method, budget):
    spec = make_spec("cifar100-55/50", method, seed=2, development=True, budget=budget)
    assert spec.budget == budget
    assert differing_options(as_written(spec)) == {}


def test_differences_are_those_that_were_asked_for():
    options = {"adaptive": False, "pool_views": ["weak", "weak"]}
    train_options = {"learning_rate": 0.01, "precision": "fp32"}
    spec = make_spec("cifar10-6/50", train=train_options, options=options, budget="fast")
    assert differing_options(as_written(spec)) == {**options, **train_options}


def test_of_another_length_only_the_length_differs():
    """EMA, BatchNorm, horizon and ramps follow the length and are no choice of their own."""
    spec = make_spec("cifar10-6/50", "anedl-released", train={"epochs": 7, "epoch_steps": 100})
    assert spec.budget == "custom"
    assert differing_options(as_written(spec)) == {"epochs": 7, "epoch_steps": 100}
    given = make_spec("cifar10-6/50", train={"epochs": 7, "ema_decay": 0.5, "pretrain_epochs": 3})
    assert differing_options(as_written(given)) == {
        "epochs": 7, "ema_decay": 0.5, "pretrain_epochs": 3,
    }  # fmt: skip


def test_the_name_tells_runs_apart(fake_run, tmp_path):
    specs = [
        make_spec("cifar100-55/50", seed=1),
        make_spec("cifar100-55/50", seed=1, development=True),
        make_spec("cifar100-55/50", seed=1, budget="fast"),
        make_spec("cifar100-55/50", seed=1, pool_limit=500),
        make_spec("cifar100-55/50", seed=1, options={"negative": False}),
    ]
    paths = [record_run(fake_run(s, str(i)), tmp_path / "led") for i, s in enumerate(specs)]
    starts = ["full", "dev-full", "fast", "full", "full"]
    assert [path.name for path in paths] == [
        f"cifar100-55-50-anedl-{start}-seed1-{spec.digest[:8]}.json"
        for start, spec in zip(starts, specs, strict=True)
    ]
    assert len(read_ledger(tmp_path / "led")) == len(specs)


def test_seeds_share_a_recipe_and_other_configurations_do_not(fake_run, tmp_path):
    specs = [make_spec("digits"), make_spec("digits", seed=1),
             make_spec("digits", options={"negative": False})]  # fmt: skip
    for number, spec in enumerate(specs):
        record_run(fake_run(spec, str(number)), tmp_path)
    recipes = {(run.seed, bool(run.options)): run.recipe_hash for run in read_ledger(tmp_path)}
    assert recipes[0, False] == recipes[1, False] != recipes[0, True]


def test_a_method_from_a_file_is_kept_without_its_folder(fake_run, tmp_path):
    source = tmp_path / "mine.py"
    source.write_text("from anedl.methods.supervised import Supervised as Mine\n")
    folder = fake_run(make_spec("digits", f"{source}:Mine"))
    path = record_run(folder, tmp_path)
    assert path.name.startswith("digits-Mine-full-seed0-")
    (run,) = read_ledger(tmp_path)
    assert run.method == "mine.py:Mine"
    assert str(tmp_path) not in path.read_text()


USERS_FILE = """
from dataclasses import dataclass
from anedl.methods.supervised import Supervised, SupervisedConfig
from anedl.options import option

@dataclass(frozen=True)
class MineConfig(SupervisedConfig):
    strength: float = option(1.0, "how much")

class Mine(Supervised):
    config_type = MineConfig
"""


def test_what_becomes_of_a_methods_file_does_not_change_a_run_that_was(tmp_path):
    source = tmp_path / "mine.py"
    source.write_text(USERS_FILE)
    spec = make_spec("digits", f"{source}:Mine", train=TINY, options={"strength": 2.0})
    train(spec, tmp_path / "run", Surroundings(device="cpu", quiet=True))
    # The parent has one stage, so the pre-training of `TINY` is a difference, too.
    differing = {"epochs": 2, "epoch_steps": 3, "batch_size": 8, "pretrain_epochs": 1,
                 "strength": 2.0}  # fmt: skip
    record_run(tmp_path / "run", tmp_path / "before")
    (before,) = read_ledger(tmp_path / "before")
    assert before.options == differing
    assert before.method_sha256 == hashlib.sha256(USERS_FILE.encode()).hexdigest()
    # Now 2.0 is the default: asked today, the run would differ in nothing.
    source.write_text(USERS_FILE.replace("1.0", "2.0"))
    record_run(tmp_path / "run", tmp_path / "after")
    source.unlink()
    record_run(tmp_path / "run", tmp_path / "without")
    assert read_ledger(tmp_path / "after") == [before] == read_ledger(tmp_path / "without")


def test_a_run_that_does_not_say_is_not_judged_by_another_file(fake_run, tmp_path):
    """Run folders from before the differences were kept."""
    source = tmp_path / "mine.py"
    source.write_text(USERS_FILE)
    folder = fake_run(make_spec("digits", f"{source}:Mine", options={"strength": 2.0}))
    record_run(folder, tmp_path)
    (run,) = read_ledger(tmp_path)
    assert run.options == {"strength": 2.0}
    source.write_text(USERS_FILE.replace("1.0", "2.0"))
    with pytest.raises(AnedlError, match="restore the file"):
        record_run(folder, tmp_path)


def test_entries_from_before_the_hash_was_kept_are_read(fake_run, tmp_path):
    path = record_run(fake_run(make_spec("digits")), tmp_path)
    assert "method_sha256" not in json.loads(path.read_text()), "of the package: none to keep"
    (run,) = read_ledger(tmp_path)
    assert run.method_sha256 is None


def test_an_option_that_a_record_leaves_out_can_be_the_difference():
    """MTC's decay is on by default, and a record leaves out what is off."""
    off = make_spec("cifar100-55/50", "mtc", train={"multiplicative_decay": 0.0})
    assert "multiplicative_decay" not in off.to_json()["train"]
    assert differing_options(as_written(off)) == {"multiplicative_decay": 0.0}
    assert differing_options(as_written(make_spec("cifar100-55/50", "mtc"))) == {}


def test_the_committed_ledger_is_read_and_is_of_todays_methods():
    runs = read_ledger(Path(__file__).parents[2] / "results")
    assert len(runs) > 60
    for run in runs:
        if run.setting == "digits" and run.budget == "full":
            assert make_spec("digits", run.method, run.seed).digest == run.config_hash


def test_what_is_said_of_unseen_outliers_passes_through(fake_run, tmp_path):
    figures = {"validation_error": 0.5, "test": {"error": 0.25, "by_score": {}}}
    unseen = {"svhn": {"auroc": {"score": 0.9}}}
    folder = fake_run(
        make_spec("digits"),
        last={"epoch": 3, **figures, "unseen": unseen},
        best_val={"epoch": 1, **figures, "unseen": {}},
    )
    record_run(folder, tmp_path)
    (run,) = read_ledger(tmp_path)
    assert run.last.unseen == unseen
    assert run.last.auroc == {}
    assert run.best_val.unseen is None


def test_a_run_without_a_best_epoch_has_none(fake_run, tmp_path):
    record_run(fake_run(make_spec("digits"), best_val=None), tmp_path)
    (run,) = read_ledger(tmp_path)
    assert run.best_val is None


def test_a_run_that_says_nothing_of_its_budget_is_custom(fake_run, tmp_path):
    folder = fake_run(make_spec("digits"))
    config = json.loads((folder / "config.json").read_text())
    del config["budget"]
    (folder / "config.json").write_text(json.dumps(config))
    record_run(folder, tmp_path)
    (run,) = read_ledger(tmp_path)
    assert (run.budget, run.options) == ("custom", {})


def test_what_is_not_a_finished_run_is_refused(fake_run, tmp_path):
    with pytest.raises(AnedlError, match="there is no run here"):
        record_run(tmp_path, tmp_path)
    folder = fake_run(make_spec("digits"))
    results = (folder / "results.json").read_text()
    (folder / "results.json").unlink()
    with pytest.raises(AnedlError, match="has not ended"):
        record_run(folder, tmp_path)
    (folder / "results.json").write_text(results[:-20])
    with pytest.raises(AnedlError, match=r"results\.json"):
        record_run(folder, tmp_path)
    (folder / "results.json").write_text('{"setting": "digits"}')
    with pytest.raises(AnedlError, match="not what a finished run writes"):
        record_run(folder, tmp_path)
    (folder / "results.json").write_text(results.replace('"seed": 0', '"seed": 4'))
    with pytest.raises(AnedlError, match="different runs"):
        record_run(folder, tmp_path)
    assert read_ledger(tmp_path) == []


@pytest.mark.parametrize(
    "broken",
    [
        "{",
        "[]",
        lambda entry: entry.pop("steps"),
        lambda entry: entry.update(seed="one"),
        lambda entry: entry["last"].update(error=None),
        lambda entry: entry["last"].update(error=float("nan")),
        lambda entry: entry["last"].update(auroc=[1]),
        lambda entry: entry.update(best_val=7),
        lambda entry: entry.update(options=None),
    ],
)
def test_a_broken_file_is_named(fake_run, tmp_path, broken):
    path = record_run(fake_run(make_spec("digits")), tmp_path)
    if callable(broken):
        entry = json.loads(path.read_text())
        broken(entry)
        broken = json.dumps(entry)
    path.write_text(broken)
    with pytest.raises(AnedlError, match=path.name):
        read_ledger(tmp_path)


def test_keys_of_a_later_version_do_no_harm(fake_run, tmp_path):
    path = record_run(fake_run(make_spec("digits")), tmp_path)
    entry = json.loads(path.read_text())
    path.write_text(json.dumps({**entry, "colour": "green"}))
    (run,) = read_ledger(tmp_path)
    assert run.last.error == 25.0


def test_a_run_under_two_names_is_not_counted_twice(fake_run, tmp_path):
    path = record_run(fake_run(make_spec("digits")), tmp_path)
    path.with_name("copy.json").write_bytes(path.read_bytes())
    with pytest.raises(AnedlError, match="count twice"):
        read_ledger(tmp_path)
