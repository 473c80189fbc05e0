"""`anedl ledger` as it is typed."""

import json
import shlex
import shutil
from pathlib import Path

import pytest

from anedl.cli import main
from anedl.engine.differences import differing_options
from anedl.engine.spec import make_spec
from anedl.files import write_json
from anedl.presets.experiment import command_of

PUBLISHED = Path(__file__).parents[2] / "results" / "published.json"


@pytest.fixture
def results(tmp_path, a_run):
    """A ledger of three methods with the published numbers beside them."""
    folder = tmp_path / "results"
    for run in (
        *(a_run(seed, error=27.0 + seed, auroc=90.0) for seed in (0, 1)),
        a_run(method="anedl-released", error=28.0),
        a_run(method="openmatch", setting="cifar10-6/50", error=11.0),
    ):
        write_json(folder / "runs" / run.file_name, run.to_json())
    shutil.copy(PUBLISHED, folder)
    return folder


def test_without_a_ledger_it_says_what_to_do(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["ledger"]) == 0
    assert "anedl ledger --results results --add RUN" in capsys.readouterr().out


def test_it_finds_the_ledger_below_the_current_folder(results, monkeypatch, capsys):
    monkeypatch.chdir(results.parent)
    assert main(["ledger"]) == 0
    printed = capsys.readouterr().out
    assert "27.5 ± 0.7" in printed
    assert "26.7 ± 0.2, Δ +0.8" in printed
    assert "10.4 ± 0.9, Δ +0.6" in printed


def test_settings_and_methods_can_be_chosen(results, capsys):
    assert main(["ledger", "--results", str(results), "--setting", "cifar10-6/50"]) == 0
    printed = capsys.readouterr().out
    assert "openmatch" in printed
    assert "cifar100" not in printed
    assert main(["ledger", "--results", str(results), "--method", "anedl-released"]) == 0
    printed = capsys.readouterr().out
    assert "26.7 ± 0.2, Δ +1.3" in printed, "the published number of the method it stands for"
    assert "27.5" not in printed


def test_development_runs_stand_alone_in_a_terminal_and_beside_the_others_in_a_file(
    results, a_run, tmp_path, capsys
):
    run = a_run(method="fixmatch", error=44.4, development=True)
    write_json(results / "runs" / run.file_name, run.to_json())
    words = ["ledger", "--results", str(results)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "44.4" not in printed
    assert "27.5 ± 0.7" in printed
    assert printed.endswith("Runs on development splits: 1, shown by --dev.\n")
    assert main([*words, "--dev"]) == 0
    printed = capsys.readouterr().out
    assert "44.4" in printed
    assert "27.5" not in printed
    assert "Published" not in printed
    assert main([*words, "--out", str(tmp_path / "ledger.md")]) == 0
    text = (tmp_path / "ledger.md").read_text()
    assert "44.4" in text
    assert "27.5 ± 0.7" in text


@pytest.mark.parametrize(
    ("development", "words", "said"),
    [
        (True, [], "Runs on development splits: 1, shown by --dev."),
        (False, ["--dev"], "Runs on test splits: 1, shown without --dev."),
    ],
)
def test_whoever_has_other_runs_only_is_told_of_them(
    tmp_path, a_run, capsys, development, words, said
):
    run = a_run(development=development)
    write_json(tmp_path / "runs" / run.file_name, run.to_json())
    assert main(["ledger", "--results", str(tmp_path), *words]) == 0
    printed = capsys.readouterr().out
    assert printed.count(said) == 1
    assert "--add" not in printed


@pytest.mark.parametrize("folder", ["", "./", "/elsewhere/mine/"])
def test_a_method_from_a_file_is_found_by_the_path_that_trained_it(results, a_run, capsys, folder):
    run = a_run(method="mine.py:Mine", error=33.0)
    write_json(results / "runs" / run.file_name, run.to_json())
    assert main(["ledger", "--results", str(results), "--method", f"{folder}mine.py:Mine"]) == 0
    printed = capsys.readouterr().out
    assert "33.0" in printed
    assert "27.5" not in printed


@pytest.mark.parametrize(
    ("flag", "name", "near"),
    [("--setting", "cifar10-6/", "cifar10-6/50"), ("--method", "anedel", "anedl")],
)
def test_an_unknown_name_suggests_the_nearest(results, capsys, flag, name, near):
    assert main(["ledger", "--results", str(results), flag, name]) == 1
    assert f"did you mean {near}" in capsys.readouterr().err


def test_the_form_follows_the_name_of_the_file(results, tmp_path, capsys):
    page, table = tmp_path / "ledger.html", tmp_path / "ledger.md"
    assert main(["ledger", "--results", str(results), "--out", str(page)]) == 0
    assert main(["ledger", "--results", str(results), "--out", str(table)]) == 0
    assert capsys.readouterr().out.split() == [str(page), str(table)]
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert table.read_text().startswith("# ")
    assert main(["ledger", "--results", str(results), "--format", "markdown"]) == 0
    assert capsys.readouterr().out == table.read_text()


@pytest.mark.parametrize(
    ("what", "more"),
    [
        (("cifar100-55/50", "anedl", 2), {}),
        (("cifar100-55/50", "ssb", 1), {"budget": "fast", "train": {"weight_decay": 1e-3}}),
        (
            ("digits", "anedl", 3, 1, True, 50),
            {
                "train": {"epochs": 4},
                "options": {"adaptive": False, "pool_views": ("weak", "weak")},
            },
        ),
        (("digits", "mtc", 0), {"budget": "fast", "train": {"pretrain_epochs": 1}}),
    ],
    ids=["plain", "fast", "all-else", "neither-budget"],
)
def test_a_recorded_run_has_the_command_that_repeats_it(tmp_path, monkeypatch, what, more):
    spec = make_spec(*what, **more)
    config = json.loads(json.dumps(spec.to_json()))
    command = command_of({**config, "differs": differing_options(config)})
    trained = []
    monkeypatch.setattr("anedl.engine.train.train", lambda spec, *_: trained.append(spec) or {})
    assert main([*shlex.split(command)[1:], "--out", str(tmp_path), "--no-report"]) == 0
    assert [one.digest for one in trained] == [spec.digest]
    assert trained[0].budget == spec.budget


def test_what_names_no_run_has_no_command():
    config = make_spec("digits").to_json()
    assert command_of(config) is None, "it does not say what differs"
    assert command_of({**config, "differs": {}, "setting": "my pile"}) is None


def test_a_folder_that_is_no_run_is_told(results, tmp_path, capsys):
    assert main(["ledger", "--results", str(results), "--add", str(tmp_path)]) == 1
    assert "there is no run here" in capsys.readouterr().err


def test_a_broken_entry_is_told(results, capsys):
    (results / "runs" / "broken.json").write_text(json.dumps({"setting": "digits"}))
    assert main(["ledger", "--results", str(results)]) == 1
    assert "broken.json" in capsys.readouterr().err
