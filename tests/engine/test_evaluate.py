"""Testing a finished run again from its files."""

import json
import shutil

import pytest

from anedl.engine.evaluate import evaluate_run
from anedl.errors import DataError


@pytest.fixture(scope="module")
def finished(tiny_spec, tiny_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    return folder, tiny_run(tiny_spec(epochs=2), folder, save_seconds=3600.0)


@pytest.mark.parametrize(("model", "key"), [("last", "last"), ("best", "best_val")])
def test_the_figures_come_out_again(finished, model, key):
    folder, results = finished
    again = evaluate_run(folder, model, "cpu").to_json()
    expected, expected_unseen = results[key]["test"], results[key]["unseen"]
    assert again["error"] == pytest.approx(expected["error"], abs=1e-9)
    assert again["by_score"].keys() == expected["by_score"].keys()
    for name, row in expected["by_score"].items():
        # Kernels lie in another order than while training: the last digits may differ.
        assert again["by_score"][name] == pytest.approx(row, abs=5e-3), name
    assert again["unseen"].keys() == expected_unseen.keys()
    for set_name, entry in expected_unseen.items():
        for name, row in entry["by_score"].items():
            found = again["unseen"][set_name]["by_score"][name]
            assert found == pytest.approx(row, abs=5e-3), (set_name, name)


def test_a_run_that_was_not_finished(finished, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(finished[0], folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(DataError, match=r"model\.safetensors: .* holds the best one alone"):
        evaluate_run(folder, "last", "cpu")
    (folder / "results.json").unlink()
    with pytest.raises(DataError, match=r"model\.safetensors: there is no such model.*--resume"):
        evaluate_run(folder, "last", "cpu")


def test_data_that_are_not_the_runs_own(finished, tmp_path):
    """A split of another fold stands for other files."""
    folder = tmp_path / "copy"
    shutil.copytree(finished[0], folder)
    record = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(record | {"fold": 1}))
    with pytest.raises(DataError, match="not the same files"):
        evaluate_run(folder, "last", "cpu")
