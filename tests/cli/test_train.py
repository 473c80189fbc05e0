"""The commands around training, on tiny runs."""

import json
from dataclasses import fields

import pytest

from anedl.cli import main
from anedl.engine.spec import default_folder
from anedl.methods.catalogue import METHODS

TINY = ["--epochs", "2", "--epoch-steps", "3", "--pretrain-epochs", "1", "--batch-size", "8"]
TINY += ["--quiet", "--no-report"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "anedl"
    assert main(["train", "digits", *TINY, "--kl", "original", "--out", str(folder)]) == 0
    return folder


def test_train_prints_both_models_and_the_folder(tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["train", "digits", "--method", "supervised", *TINY, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "last epoch" in printed
    assert "best validation" in printed
    assert str(out) in printed


def test_every_flag_reaches_the_config(finished):
    config = json.loads((finished / "config.json").read_text())
    assert config["options"]["kl"] == "original"
    assert config["train"]["epoch_steps"] == 3


@pytest.mark.parametrize("method", METHODS)
def test_every_option_of_every_method_has_a_flag_with_help(method, capsys):
    with pytest.raises(SystemExit):
        main(["train", "--method", method, "--help"])
    printed = capsys.readouterr().out
    for name in (a.name for a in fields(METHODS[method].method.config_type)):
        assert f"--{name.replace('_', '-')}" in printed


def test_config_repeats_a_run_to_the_same_bits(finished, tmp_path):
    again = tmp_path / "again"
    words = ["train", "--config", str(finished / "config.json"), "--out", str(again)]
    assert main([*words, "--quiet", "--no-report"]) == 0
    for name in ("model.safetensors", "split.json", "config.json"):
        assert (again / name).read_bytes() == (finished / name).read_bytes()


def test_config_takes_no_other_option(finished, capsys):
    assert main(["train", "--config", str(finished / "config.json"), "--epochs", "3"]) == 1
    assert "give no setting or option" in capsys.readouterr().err


def test_a_second_run_into_the_same_folder_is_refused(finished, capsys):
    assert main(["train", "digits", *TINY, "--kl", "original", "--out", str(finished)]) == 1
    assert "--resume" in capsys.readouterr().err


def test_dev_trains_on_the_development_split(tmp_path):
    words = ["train", "digits", "--dev", "--method", "supervised", *TINY, "--out", str(tmp_path)]
    assert main(words) == 0
    split = json.loads((tmp_path / "split.json").read_text())
    assert split["development"] is True
    assert len(split["known_classes"]) == 4


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "digit"], "did you mean digits"),
        (["train", "digits", "--method", "anedel"], "did you mean anedl"),
        (["train"], "which setting"),
        (["train", "cifar100-55/50", "--data", "nowhere"], "anedl data fetch cifar100"),
        (["train", "digits", "--device", "gpu"], "not one that torch knows"),
        (["evaluate", "nowhere"], "no such configuration"),
        (["methods", "anedel"], "did you mean anedl"),
    ],
)
def test_bad_input_is_told_plainly(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(words) == 1
    assert said in capsys.readouterr().err


def test_doctor_knows_what_is_here(capsys):
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    assert "torch" in printed
    assert "digits" in printed


def test_methods_lists_all_and_explains_one(capsys):
    assert main(["methods"]) == 0
    listed = capsys.readouterr().out
    assert all(name in listed for name in METHODS)
    assert main(["methods", "anedl-released"]) == 0
    assert "variance_weight = 1.25" in capsys.readouterr().out


@pytest.mark.parametrize("words", [["--seed", "5"], ["--method", "supervised"], ["--dev"]])
def test_config_does_not_swallow_what_is_given_beside_it(finished, words, capsys):
    assert main(["train", "--config", str(finished / "config.json"), *words]) == 1
    assert words[0].removeprefix("--") in capsys.readouterr().err


def test_config_with_resume_goes_on_in_that_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "elsewhere"
    assert main(["train", "digits", "--method", "supervised", *TINY, "--out", str(folder)]) == 0
    (folder / "results.json").unlink()
    words = ["train", "--config", str(folder / "config.json"), "--resume", "--no-report"]
    assert main([*words, "--quiet"]) == 0
    assert (folder / "results.json").exists()
    assert not (tmp_path / "runs").exists()


def test_a_method_from_a_file_gets_a_folder_named_after_its_class():
    folder = default_folder("digits", "/some/where/file.py:MyMethod", 3, development=False)
    assert folder.as_posix() == "runs/digits/MyMethod-seed3"


def test_a_file_that_does_not_load_is_told(tmp_path, capsys):
    broken = tmp_path / "broken.py"
    broken.write_text("def (:\n")
    assert main(["train", "digits", "--method", f"{broken}:Method"]) == 1
    assert "does not load" in capsys.readouterr().err


@pytest.mark.parametrize(
    "options",
    [
        ["--lambda-p", "nan"],
        ["--kl-ramp-epochs", "-3"],
        ["--debias-momentum", "7"],
        ["--fixmatch-threshold", "9"],
        ["--target-evidence", "-5"],
        ["--device", "meta"],
    ],
    ids=lambda words: words[0],
)
def test_values_that_make_no_sense_are_refused(options, tmp_path, capsys):
    assert main(["train", "digits", *options, "--out", str(tmp_path / "run")]) == 1
    assert not (tmp_path / "run" / "config.json").exists()


def test_a_folder_that_is_a_file_is_told(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["train", "digits", *TINY, "--out", str(tmp_path / "file" / "run")]) == 1
    assert "file" in capsys.readouterr().err
