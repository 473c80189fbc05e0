"""`anedl reproduce`, and budgets and users' methods from the command line."""

import json
import shlex
from dataclasses import replace

import pytest
import torch
from PIL import Image

from anedl.cli import main
from anedl.presets import reproduce
from anedl.presets.paper import EXPERIMENTS

TINY = {"epochs": 2, "epoch_steps": 3, "batch_size": 6, "test_while_training": False}
WORDS = ["--epochs", "2", "--epoch-steps", "3", "--batch-size", "6", "--quiet", "--no-report"]
USERS_FILE = '''
from anedl.methods.supervised import Supervised

class Mine(Supervised):
    """Mine."""
'''
BROKEN = (
    USERS_FILE
    + """
    def loss(self, batch, progress):
        raise RuntimeError("this method falls over")
"""
)


@pytest.fixture(autouse=True)
def tiny(monkeypatch, tmp_path):
    """A few steps a run, all in this process, in a folder of its own."""
    run_experiment, plan = reproduce.run_experiment, reproduce.plan

    def shortened(terms):
        return replace(terms, train={**terms.train, **TINY})

    def run(experiment, terms, place, told):
        here = replace(place, device="cpu", processes=0)
        return run_experiment(experiment, shortened(terms), here, told)

    monkeypatch.setattr(reproduce, "run_experiment", run)
    monkeypatch.setattr(reproduce, "plan", lambda e, terms: plan(e, shortened(terms)))
    monkeypatch.chdir(tmp_path)


def test_it_lists_what_there_is(capsys):
    for words in (["reproduce"], ["reproduce", "list"], ["reproduce", "LIST"]):
        assert main(words) == 0
        printed = capsys.readouterr().out
        for name in EXPERIMENTS:
            (block,) = [part for part in printed.split("\n\n") if part.startswith(f"{name}: ")]
            for part in ("Rows: ", f"Command: `anedl reproduce {name}`", "Published", "Expected t"):
                assert part in block


def test_a_dry_run_names_commands_and_trains_nothing(capsys, tmp_path):
    words = ["reproduce", "ablation-ano", "--setting", "digits", "--seeds", "1", "--dry-run"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "missing   anedl train digits --method anedl-released --seed 1" in printed
    assert "about 0 s (predicted from measured steps on two idle CPU cores)" in printed
    assert "3 of 3 runs to train, 18 steps" in printed
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("device", "gpus_here", "in_command", "shared"),
    [
        ("auto", 4, None, True),
        ("cuda", 0, "cuda", False),  # planned where the GPU is not
        ("cuda:0,cuda:2", 0, None, False),
        ("cuda:0,cuda:2", 4, None, True),
        ("cuda:1,cuda:1", 4, "cuda:1", False),
        ("cpu", 4, "cpu", False),
    ],
)
def test_a_dry_run_says_which_device_each_run_takes_and_which_share_them(
    capsys, monkeypatch, device, gpus_here, in_command, shared
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus_here > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus_here)
    words = ["reproduce", "ablation-ano", "--setting", "digits", "--seeds", "1", "--dry-run"]
    assert main([*words, "--device", device]) == 0
    printed = capsys.readouterr().out
    commands = [shlex.split(line) for line in printed.splitlines() if line.startswith("missing")]
    assert len(commands) == 3
    for command in commands:
        given = command[command.index("--device") + 1] if "--device" in command else None
        assert given == in_command
    assert ("GPUs share it" in printed) is shared


def test_a_dry_run_says_what_the_seeds_of_a_row_share_once(capsys):
    words = ["reproduce", "table1", "--setting", "cifar100-55/50", "digits", "--methods",
             "anedl-released", "openmatch", "--seeds", "1", "2", "3", "--dry-run"]  # fmt: skip
    assert main(words) == 0
    blocks, heading = {}, ""
    for line in capsys.readouterr().out.splitlines():
        if line.startswith("missing"):
            blocks[heading].append(line)
        elif ": " in line and "steps a run" in line:
            heading = line
            blocks[heading] = []
    assert [len(commands) for commands in blocks.values()] == [3, 3, 3, 3]
    for heading, commands in blocks.items():
        setting, _, rest = heading.partition(", ")
        method = rest.partition(":")[0]
        assert all(setting in command and method in command for command in commands)
        assert ("90.3 ± 0.1" in heading) == (setting != "digits" and method == "anedl-released")


def test_a_table_says_where_the_other_measure_of_its_runs_is(capsys, tmp_path):
    words = ["--setting", "digits", "--methods", "supervised", "--seeds", "1", "--quiet"]
    assert main(["reproduce", "table1", *words]) == 0
    printed = capsys.readouterr().out
    assert "AUROC, last" in printed
    assert "error of the same runs: the same command with table2" in printed
    folders = list(tmp_path.rglob("config.json"))
    assert main(["reproduce", "table2", *words]) == 0
    printed = capsys.readouterr().out
    assert "error, last" in printed
    assert "AUROC of the same runs: the same command with table1" in printed
    assert list(tmp_path.rglob("config.json")) == folders


def test_a_printed_command_lands_where_the_experiment_looks_for_it(capsys, tmp_path):
    words = ["reproduce", "ablation-ano", "--setting", "digits", "--seeds", "1", "--runs",
             "some where", "--device", "cpu", "--epochs", "2", "--epoch-steps", "3",
             "--batch-size", "6", "--no-test-while-training", "--dry-run"]  # fmt: skip
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("missing")]
    assert len(commands) == 3
    assert len({command[command.index("--out") + 1] for command in commands}) == 3
    for command in commands:
        assert command[0] == "anedl"
        assert main([*command[1:], "--quiet", "--no-report"]) == 0
    capsys.readouterr()
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert printed.count("finished  anedl train") == 3
    assert "0 of 3 runs to train" in printed


def test_a_dry_run_says_which_data_are_missing(capsys, tmp_path):
    words = ["reproduce", "ablation-kl", "--seeds", "1", "--data", "here", "--dry-run"]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "run `anedl data fetch cifar100`" in printed
    assert "--data here --out " in printed
    assert main(words[:-1]) == 1
    assert "nothing was trained" in capsys.readouterr().err


def test_a_variant_and_more_options_are_taken(capsys, tmp_path):
    words = ["reproduce", "ablation-kl", "--method", "anedl", "--setting", "digits",
             "digits", "--seeds", "1", "--kl-weight", "0.5", "--weight-decay", "0.001",
             "--labelled-views", "weak", "flip", "--quiet"]  # fmt: skip
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert printed.count("### digits") == 1
    assert printed.count("| anedl: ") == 3
    assert "weight_decay = 0.001" in printed
    assert "kl_weight = 0.5" in printed
    configs = [json.loads(path.read_text()) for path in tmp_path.rglob("config.json")]
    assert len(configs) == 3
    for config in configs:
        assert (config["method"], config["train"]["weight_decay"]) == ("anedl", 0.001)
        assert config["options"]["kl_weight"] == 0.5
        assert config["options"]["labelled_views"] == ["weak", "flip"]
    for path in (tmp_path / "results" / "runs").iterdir():
        command = json.loads(path.read_text())["command"]
        assert "--weight-decay 0.001" in command
        assert "--labelled-views weak flip" in command


def test_a_table_of_a_users_method_beside_another(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(USERS_FILE)
    words = ["reproduce", "table2", "--setting", "digits", "--methods", "mine.py:Mine",
             "supervised", "--seeds", "1", "1"]  # fmt: skip
    assert main(words) == 0
    printed = capsys.readouterr()
    assert "| Mine | 1 |" in printed.out
    assert "| supervised | 1 |" in printed.out
    assert "0 of 2 runs are there, 2 to train (12 steps)" in printed.err
    (figure,) = (tmp_path / "results" / "figures").iterdir()
    assert figure.name.startswith("table2-digits")
    assert figure.stat().st_size > 5_000
    assert len(list((tmp_path / "results" / "runs").glob("*.json"))) == 2
    assert main(words) == 0
    assert "2 of 2 runs are there, 0 to train" in capsys.readouterr().err


def test_a_failing_run_gives_status_1_and_the_table_of_the_others(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(BROKEN)
    words = ["reproduce", "table2", "--setting", "digits", "--methods", "mine.py:Mine",
             "supervised", "--seeds", "1", "--quiet"]  # fmt: skip
    assert main(words) == 1
    printed = capsys.readouterr()
    assert "| supervised | 1 |" in printed.out
    assert "this method falls over" in printed.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tabel1"], "did you mean table1"),
        (["table1", "--setting", "digit"], "did you mean digits"),
        (["table1", "--methods", "anedel"], "did you mean anedl"),
        (["table1", "--methods", "nowhere.py:Mine"], "no such file"),
        (["ablation-ano", "--no-adaptive"], "the rows of ablation-ano differ in it"),
        (["table1", "--device", "cpu,cpu", "--dry-run"], "only GPUs can be several"),
    ],
)
def test_bad_input_is_told_plainly(words, said, capsys):
    assert main(["reproduce", *words]) == 1
    assert said in capsys.readouterr().err


def test_one_epoch_is_no_trouble(tmp_path, capsys):
    words = ["train", "digits", *WORDS, "--epochs", "1", "--out", str(tmp_path / "run")]
    assert main(words) == 0
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    assert (config["train"]["pretrain_epochs"], config["budget"]) == (0, "custom")
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["budget"] == "custom"


def test_train_takes_a_budget(capsys, monkeypatch):
    heard = []

    def train(spec, folder, surroundings):
        heard.append((spec, folder))
        return {}

    monkeypatch.setattr("anedl.engine.train.train", train)
    assert main(["train", "cifar100-55/50", "--budget", "fast", "--no-report"]) == 0
    ((spec, folder),) = heard
    assert (spec.budget, spec.train.epochs, spec.train.pretrain_epochs) == ("fast", 50, 3)
    assert folder.as_posix() == "runs/cifar100-55-50/anedl-plus-fast-seed0"


def test_a_users_method_trains_evaluates_and_goes_on(tmp_path, capsys):
    file, out = tmp_path / "mine.py", tmp_path / "run"
    file.write_text(USERS_FILE)
    words = ["train", "digits", "--method", "mine.py:Mine", *WORDS, "--out", str(out)]
    assert main(words) == 0
    config = json.loads((out / "config.json").read_text())
    assert config["method"] == f"{file}:Mine"
    assert len(config["method_sha256"]) == 64
    assert main(["methods", "mine.py:Mine"]) == 0
    assert "Mine" in capsys.readouterr().out
    assert main(["evaluate", str(out)]) == 0
    assert main([*words, "--resume"]) == 0
    file.write_text("this is no Python any more")
    kept = f"{file} has changed since this run: training with the copy in {out / 'method.py'}; to t"
    again = tmp_path / "again"
    for more in (["--resume"], ["--out", str(again), "--quiet", "--no-report"]):
        capsys.readouterr()
        assert main(["train", "--config", str(out / "config.json"), *more]) == 0
        assert kept in capsys.readouterr().err
    for name in ("model.safetensors", "method.py", "config.json"):
        assert (again / name).read_bytes() == (out / name).read_bytes()


def test_a_run_goes_on_with_the_file_that_it_began_with(tmp_path, capsys):
    file, out = tmp_path / "mine.py", tmp_path / "run"
    file.write_text(USERS_FILE)
    words = ["train", "digits", "--method", "mine.py:Mine", *WORDS, "--out", str(out)]
    assert main(words) == 0
    (out / "results.json").unlink()
    file.write_text(USERS_FILE + "# another thought\n")
    assert main([*words, "--resume"]) == 0
    said = capsys.readouterr().err
    assert (
        f"{file} has changed since this run: training with the copy in {out}/method.py; to" in said
    )
    assert (out / "results.json").exists()
    (out / "method.py").unlink()  # as of a run from before there were copies
    assert main([*words, "--resume"]) == 1
    assert "restore the file" in capsys.readouterr().err
    with pytest.warns(UserWarning, match="has changed since"):
        assert main(["evaluate", str(out)]) == 0


@pytest.mark.parametrize("fate", ["has changed since this run", "is gone"])
def test_every_command_takes_the_copy_of_a_file_that_is_another_or_gone(tmp_path, capsys, fate):
    file, out = tmp_path / "mine.py", tmp_path / "run"
    file.write_text(USERS_FILE)
    words = ["train", "digits", "--method", "mine.py:Mine", *WORDS, "--out"]
    assert main([*words, str(out)]) == 0
    assert main([*words, str(tmp_path / "other"), "--seed", "1"]) == 0
    assert main(["evaluate", str(out), "--unseen", "none"]) == 0
    before = capsys.readouterr().out.splitlines()[-3:]
    file.unlink()
    if fate != "is gone":
        file.write_text("this is no Python any more")
    Image.new("L", (8, 8)).save(tmp_path / "new.png")
    weights = tmp_path / "weights"
    for command in (
        ["evaluate", str(out), "--unseen", "none"],
        ["predict", str(out), "new.png"],
        ["calibrate", str(out), "--out", "calibrated", "--level", "0.2"],
        ["export", str(out), "--weights", str(weights), "--card"],
    ):
        assert main(command) == 0, command
        said = capsys.readouterr()
        line = f"anedl: {file} {fate}: using the copy in {out / 'method.py'}"
        assert said.err.splitlines().count(line) == 1, "once a command"
        if command[0] == "evaluate":
            assert said.out.splitlines()[-3:] == before
    for command in (["report", str(out)], ["compare", str(out), "other", "--out", "side"]):
        assert main(command) == 0, command
    assert main(["predict", str(weights), "new.png"]) == 0, "what it needs lies with the weights"
    assert f"the copy in {weights / 'method.py'}" in capsys.readouterr().err
