"""`anedl export` on a tiny run of the digits."""

import json

import numpy as np
import pytest

from anedl.cli import main
from anedl.export.predictor import load

onnxruntime = pytest.importorskip("onnxruntime")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "supervised"
    words = ["--method", "supervised", "--epochs", "2", "--epoch-steps", "3", "--batch-size", "8"]
    assert main(["train", "digits", *words, "--quiet", "--no-report", "--out", str(folder)]) == 0
    return folder


def test_a_graph_and_a_card(run, tmp_path, capsys):
    target = tmp_path / "new" / "digits.onnx"
    assert main(["export", str(run), "--onnx", str(target), "--model", "best", "--card"]) == 0
    said = capsys.readouterr().out
    assert f"{target}: the best model, 6 classes" in said
    assert "95 % of the validation images" in said
    assert str(run / "README.md") in said
    assert [path.name for path in target.parent.iterdir()] == ["digits.onnx"]
    session = onnxruntime.InferenceSession(str(target))
    about = json.loads(session.get_modelmeta().custom_metadata_map["anedl"])
    results = json.loads((run / "results.json").read_text())
    assert about["unknown"]["threshold"] == results["best_val"]["thresholds"]["score"]
    frames = np.random.default_rng(0).integers(0, 256, (9, 8, 8, 1), dtype=np.uint8)
    (found,) = session.run(["probabilities"], {"images": frames.transpose(0, 3, 1, 2)})
    expected = load(run, device="cpu", model="best").predict(frames)
    np.testing.assert_allclose(found, expected.probabilities, atol=2e-6)
    card = (run / "README.md").read_text()
    assert "the best model" in card
    error = results["best_val"]["test"]["error"]
    assert f"| test error, known classes | {100 * error:.2f} % |" in card


def test_weights_alone_are_a_run(run, tmp_path, capsys):
    folder = tmp_path / "published"
    assert main(["export", str(run), "--weights", str(folder), "--model", "best"]) == 0
    assert f"{folder}: the best model, with its card" in capsys.readouterr().out
    names = sorted(path.name for path in folder.iterdir())
    expected = ["README.md", "best.safetensors", "config.json", "results.json", "split.json"]
    assert names == expected
    assert main(["evaluate", str(folder), "--unseen", "none", "--json", "--quiet"]) == 0
    found = json.loads(capsys.readouterr().out)
    recorded = json.loads((folder / "results.json").read_text())["best_val"]["test"]
    assert found["error"] == pytest.approx(recorded["error"])
    frames = np.random.default_rng(1).integers(0, 256, (5, 8, 8, 1), dtype=np.uint8)
    expected = load(run, device="cpu", model="best").predict(frames)
    np.testing.assert_array_equal(
        load(folder, device="cpu").predict(frames).probabilities, expected.probabilities
    )


def test_weights_go_into_a_new_folder_only(run, tmp_path, capsys):
    (tmp_path / "mine.txt").write_text("mine")
    assert main(["export", str(run), "--weights", str(tmp_path)]) == 1
    assert "name a new folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_an_unfinished_run_has_no_weights_to_give(run, tmp_path, capsys):
    (tmp_path / "run").mkdir()
    for name in ("config.json", "split.json"):
        (tmp_path / "run" / name).write_bytes((run / name).read_bytes())
    assert main(["export", str(tmp_path / "run"), "--weights", str(tmp_path / "new")]) == 1
    assert "--resume" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_nothing_to_do_is_told(run, capsys):
    assert main(["export", str(run)]) == 1
    assert "--onnx FILE" in capsys.readouterr().err


def test_a_missing_run_is_told(tmp_path, capsys):
    assert main(["export", str(tmp_path / "none"), "--onnx", str(tmp_path / "m.onnx")]) == 1
    assert "none: not the folder of a run" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_file(run, tmp_path, capsys):
    assert main(["export", str(run), "--onnx", str(tmp_path)]) == 1
    assert "name a file" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["--weights", "new"], ["--onnx", "new.onnx"], ["--card"]])
def test_a_file_is_no_run(tmp_path, capsys, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.onnx").write_bytes(b"exported before")
    assert main(["export", "model.onnx", *words]) == 1
    assert capsys.readouterr().err == "anedl: model.onnx: a file, not the folder of a run\n"
    assert [path.name for path in tmp_path.iterdir()] == ["model.onnx"]


@pytest.mark.parametrize("name", ["m.txt", "m", "m.ONNX"])
def test_a_name_that_predict_does_not_take_is_refused(run, tmp_path, capsys, name):
    assert main(["export", str(run), "--onnx", str(tmp_path / name)]) == 1
    assert f"{name}: name it .onnx" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
