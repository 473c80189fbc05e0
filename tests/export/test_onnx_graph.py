"""The exported graph against PyTorch, through onnxruntime."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from anedl import conformal
from anedl.calibration import Calibration
from anedl.engine.model import load_model
from anedl.errors import ConfigError
from anedl.export.images import classify
from anedl.export.onnx_graph import OpenSetGraph, export_onnx
from anedl.export.predictor import load
from anedl.methods.catalogue import METHODS

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "onnx_inference.py"


def session_of(path):
    return onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])


def run(session, pixels):
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"images": pixels}), strict=True))


def agree(trained, path, pixels, calibration=None, threshold=None):
    """Every output is PyTorch's within rounding; decisions are equal away from the threshold."""
    found = run(session_of(path), pixels)
    with torch.no_grad():
        outputs = trained.method.outputs(torch.from_numpy(pixels))
    logits = outputs.logits.double()
    np.testing.assert_allclose(found["probabilities"], logits.softmax(-1), atol=2e-6)
    assert ("alpha" in found) == (outputs.alpha is not None)
    if outputs.alpha is not None:
        # Rounding in a network is relative to its largest outputs, not to each of them.
        largest = float(outputs.alpha.max())
        np.testing.assert_allclose(found["alpha"], outputs.alpha, rtol=2e-5, atol=1e-5 * largest)
    score = outputs.score.double().numpy()
    np.testing.assert_allclose(found["inlier_score"], score, rtol=2e-5, atol=2e-6)
    limit = threshold if calibration is None else calibration.threshold("new").value
    sure = np.abs(score - limit) > 1e-4 * max(1, abs(limit))
    assert (found["unknown"] == (score < limit))[sure].all()
    if calibration is not None:
        # The p-values are exact for the graph's own scores.
        exact = calibration.p_values(found["inlier_score"].astype(np.float64), "new")
        np.testing.assert_array_equal(found["p_value"], exact)
    return found


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_a_calibrated_graph_agrees(digits_run, calibration, images, batch):
    pixels = images[:batch].transpose(0, 3, 1, 2).copy()
    found = agree(
        load_model(digits_run, "last", "cpu"), digits_run / "model.onnx", pixels, calibration
    )
    assert set(found) == {"probabilities", "alpha", "inlier_score", "p_value", "unknown"}
    assert found["p_value"].dtype == np.float64


@pytest.mark.parametrize("batch", [1, 2, 7])
def test_a_colour_graph_agrees(own_run, own_threshold, batch):
    pixels = np.random.default_rng(batch).integers(0, 256, (batch, 3, 16, 16), dtype=np.uint8)
    trained = load_model(own_run, "last", "cpu")
    found = agree(trained, own_run / "model.onnx", pixels, threshold=own_threshold)
    assert set(found) == {"probabilities", "inlier_score", "unknown"}


def test_both_verdicts_occur(digits_run, own_run):
    rng = np.random.default_rng(9)
    for folder, shape in ((digits_run, (200, 1, 8, 8)), (own_run, (200, 3, 16, 16))):
        pixels = rng.integers(0, 256, shape, dtype=np.uint8)
        assert set(run(session_of(folder / "model.onnx"), pixels)["unknown"]) == {True, False}


def test_the_metadata_say_how_to_use_it(digits_run, calibration):
    model = onnx.load(digits_run / "model.onnx")
    onnx.checker.check_model(model, full_check=True)
    (entry,) = [entry for entry in model.metadata_props if entry.key == "anedl"]
    about = json.loads(entry.value)
    assert about["class_names"] == list("012345")
    assert about["unknown"]["level"] == 0.2
    # The 8th of 39: ⌊0.2 · 40⌋.
    assert about["unknown"]["threshold"] == np.sort(calibration.fresh)[7]
    assert about["preprocessing"]["crop_box"] == [0, 0, 8, 8]
    assert "Apache-2.0" in about["licence"]
    assert set(about["versions"]) == {"anedl", "torch", "onnx"}


def test_the_file_is_whole_and_holds_no_paths_of_this_machine(digits_run):
    content = (digits_run / "model.onnx").read_bytes()
    assert b"site-packages" not in content
    assert b".py" not in content
    assert [path.name for path in digits_run.glob("*.data")] == []
    shape = session_of(digits_run / "model.onnx").get_inputs()[0].shape
    assert shape[1:] == [1, 8, 8]
    assert isinstance(shape[0], str)


def graph_of(make_model, calibration=None, threshold=None, **model):
    from anedl.export.description import Description

    trained = make_model(**model)
    return OpenSetGraph(
        trained.method, calibration, Description.of(trained, calibration, threshold)
    )


def test_a_tie_with_a_calibration_score_counts_as_in_numpy(make_model, images):
    pixels = torch.from_numpy(images.transpose(0, 3, 1, 2).copy())
    with torch.no_grad():
        scores = make_model().method.outputs(pixels).score.double().numpy()
        calibration = Calibration(scores, np.zeros(0), 0.3)
        *_, p_value, unknown = graph_of(make_model, calibration)(pixels)
    np.testing.assert_array_equal(p_value, conformal.p_values(scores, scores))
    np.testing.assert_array_equal(unknown, conformal.p_values(scores, scores) <= 0.3)


def test_too_few_images_reject_nothing(make_model, images):
    calibration = Calibration(np.full(5, 1e9), np.zeros(0), 0.01)
    graph = graph_of(make_model, calibration)
    *_, p_value, unknown = graph(torch.from_numpy(images.transpose(0, 3, 1, 2).copy()))
    assert not unknown.any()
    np.testing.assert_allclose(p_value, 1 / 6)


def test_a_score_that_is_no_number_is_unknown(make_model):
    graph = graph_of(make_model, threshold=0.0)
    with torch.no_grad():
        for parameter in graph.method.parameters():
            parameter.fill_(float("nan"))
        *_, unknown = graph(torch.zeros((1, 1, 8, 8), dtype=torch.uint8))
    assert unknown.tolist() == [True]


def test_without_threshold_there_is_no_verdict(make_model):
    assert graph_of(make_model).output_names == ("probabilities", "alpha", "inlier_score")


def test_missing_packages_are_named(make_model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(ConfigError, match=r'onnxscript.*pip install "anedl\[onnx\]"'):
        export_onnx(make_model(), None, tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["digits_run", "own_run"])
def test_the_example_runs_without_torch(kind, request, pictures):
    folder = request.getfixturevalue(kind)
    paths = sorted(pictures.iterdir())
    block = "import sys, runpy; sys.modules.update(torch=None, anedl=None); sys.argv[:1] = []; "
    result = subprocess.run(
        [sys.executable, "-c", block + "runpy.run_path(sys.argv[0])", str(EXAMPLE),
         str(folder / "model.onnx"), *map(str, paths)],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    expected = classify(load(folder, device="cpu"), paths)
    names = load_model(folder, "last", "cpu").class_names
    assert [row["class"] for row in rows] == [names[i] for i in expected.class_index]
    for name in ("probabilities", "inlier_score"):
        values = [row[name] for row in rows]
        np.testing.assert_allclose(values, getattr(expected, name), rtol=2e-5, atol=2e-6)
    assert [row["unknown"] for row in rows] == expected.unknown.tolist()
    assert len(EXAMPLE.read_text().splitlines()) <= 20


@pytest.mark.long
@pytest.mark.parametrize("method", METHODS)
def test_every_method_exports(make_model, tmp_path, method):
    every_batch_agrees(make_model(method), tmp_path / "model.onnx")


@pytest.mark.long
@pytest.mark.parametrize("backbone", ["resnet18", "resnet18-small", "wrn-28-2"])
def test_every_backbone_exports(make_model, tmp_path, backbone):
    trained = make_model("anedl", own=True, backbone=backbone)
    every_batch_agrees(trained, tmp_path / "model.onnx", (3, 16, 16))


@pytest.mark.parametrize("done", [1, 2])
def test_networks_that_judge_together_export(make_model, tmp_path, done):
    """A model may have been the best one before every place was filled."""
    trained = make_model("anedl", options={"networks": 3})
    pixels = torch.randint(0, 256, (5, 1, 8, 8), dtype=torch.uint8)
    with torch.no_grad():
        alone = trained.method.outputs(pixels).score
        trained.method.elders.count.fill_(done)
        assert not torch.allclose(trained.method.outputs(pixels).score, alone)
    every_batch_agrees(trained, tmp_path / "model.onnx")


def every_batch_agrees(trained, path, shape=(1, 8, 8)):
    rng = np.random.default_rng(4)
    held_out = torch.from_numpy(rng.integers(0, 256, (19, *shape), dtype=np.uint8))
    with torch.no_grad():
        scores = trained.method.outputs(held_out).score.double().numpy()
    assert len(set(scores)) > 10
    calibration = Calibration(scores, np.zeros(0), 0.25)
    export_onnx(trained, calibration, path)
    for batch in (1, 2, 7):
        pixels = rng.integers(0, 256, (batch, *shape), dtype=np.uint8)
        agree(trained, path, pixels, calibration)
