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
    error = results["last"]["test"]["error"]
    assert f"| test error, known classes | {100 * error:.2f} % |" in card


def test_nothing_to_do_is_told(run, capsys):
    assert main(["export", str(run)]) == 1
    assert "--onnx FILE" in capsys.readouterr().err


def test_a_missing_run_is_told(tmp_path, capsys):
    assert main(["export", str(tmp_path / "none"), "--onnx", str(tmp_path / "m.onnx")]) == 1
    assert "there is no such" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_a_folder_is_no_file(run, tmp_path, capsys):
    assert main(["export", str(run), "--onnx", str(tmp_path)]) == 1
    assert "name a file" in capsys.readouterr().err
