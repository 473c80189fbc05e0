"""`anedl evaluate` on a tiny run of the digits."""

import json

import numpy as np
import pytest
from PIL import Image

from anedl.cli import main
from anedl.scores import SCORES

FIGURES = {"auroc", "aupr_in", "aupr_out", "fpr95", "rejected"}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "anedl"
    words = ["--epochs", "2", "--epoch-steps", "3", "--pretrain-epochs", "1", "--batch-size", "8"]
    assert main(["train", "digits", *words, "--quiet", "--no-report", "--out", str(folder)]) == 0
    return folder


@pytest.fixture
def pictures(tmp_path):
    rng = np.random.default_rng(1)
    for number in range(5):
        pixels = rng.integers(0, 256, (11 + number, 17, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    return tmp_path


@pytest.mark.parametrize(("model", "key"), [("last", "last"), ("best", "best_val")])
def test_the_recorded_figures_come_out(finished, model, key, capsys):
    recorded = json.loads((finished / "results.json").read_text())[key]
    assert main(["evaluate", str(finished), "--model", model, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed.pop("unseen") == recorded["unseen"]
    assert printed == recorded["test"]


def test_outliers_from_elsewhere_change_nothing_of_the_test(finished, pictures, capsys):
    folder = f"folder:{pictures}"
    command = ["evaluate", str(finished), "--json", "--unseen"]
    assert main([*command, "none"]) == 0
    without = json.loads(capsys.readouterr().out)
    assert without.pop("unseen") == {}
    assert main([*command, "gaussian-noise", folder]) == 0
    document = json.loads(capsys.readouterr().out)
    unseen = document.pop("unseen")
    assert document == without
    assert list(unseen) == ["gaussian-noise", folder]
    assert [entry["images"] for entry in unseen.values()] == [2000, 5]
    for entry in unseen.values():
        assert set(entry) == {"images", "by_score"}
        assert set(entry["by_score"]) == {"score", *SCORES}
        for row in entry["by_score"].values():
            assert set(row) == FIGURES
            assert all(0 <= value <= 1 for value in row.values())


def test_two_tables(finished, pictures, capsys):
    words = ["evaluate", str(finished), "--unseen", "uniform-noise", f"folder:{pictures}"]
    assert main(words) == 0
    own, elsewhere = capsys.readouterr().out.split("outliers from elsewhere")
    assert "test error" in own
    assert "balanced" in own
    assert own.count("top_m_evidence") == 1
    assert "noise" not in own
    assert "uniform-noise, 2,000 images" in elsewhere
    assert f"folder:{pictures}, 5 images" in elsewhere
    assert elsewhere.count("top_m_evidence") == 2
    assert elsewhere.count("rejected") == 2


def test_quiet_says_nothing_beside_the_figures(finished, capsys):
    command = ["evaluate", str(finished), "--unseen", "uniform-noise"]
    assert main(command) == 0
    loud = capsys.readouterr()
    assert "testing on 600 images" in loud.err
    assert "uniform-noise, 2,000 images" in loud.err
    assert main([*command, "--quiet"]) == 0
    quiet = capsys.readouterr()
    assert quiet.err == ""
    assert quiet.out == loud.out


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cifar10", "anedl data fetch cifar10"),
        ("noise", "uniform-noise"),
        ("folder:/no/such/place", "no such folder"),
    ],
)
def test_sets_that_cannot_be_had_are_told(finished, name, said, tmp_path, capsys):
    words = ["evaluate", str(finished), "--data", str(tmp_path), "--unseen", name]
    assert main(words) == 1
    assert said in capsys.readouterr().err
