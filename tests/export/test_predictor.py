"""One interface for two runtimes, and images in every form."""

import json
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from PIL import Image

from anedl import dirichlet
from anedl.calibration import Calibration
from anedl.engine.model import load_model
from anedl.errors import ConfigError, DataError
from anedl.export.description import Rejection
from anedl.export.framing import Framing, luminance
from anedl.export.images import classify
from anedl.export.predictor import OnnxPredictor, Predictor, load, uncertainties
from anedl.intake.decoding import UnreadableError, decode
from anedl.views import View

COLUMNS = (
    "probability", "probabilities", "inlier_score", "p_value", "unknown", "epistemic", "aleatoric",
)  # fmt: skip


@pytest.fixture(scope="module")
def frames():
    return np.random.default_rng(2).integers(0, 256, (300, 8, 8, 3), dtype=np.uint8)


def test_both_runtimes_say_the_same(digits_run, frames):
    by_torch, by_onnx = (load(digits_run, runtime, "cpu") for runtime in ("torch", "onnx"))
    assert isinstance(by_torch, Predictor)
    assert isinstance(by_onnx, OnnxPredictor)
    assert by_torch.class_names == by_onnx.class_names == tuple("012345")
    one, other = by_torch.predict(frames), by_onnx.predict(frames)
    assert len(one) == 300  # more than a batch
    np.testing.assert_array_equal(one.class_index, other.class_index)
    for name in COLUMNS:
        left, right = getattr(one, name), getattr(other, name)
        assert left.dtype == right.dtype
        if name not in ("p_value", "unknown"):
            np.testing.assert_allclose(left, right, rtol=2e-5, atol=2e-6)
    assert (one.unknown != other.unknown).mean() <= 0.01  # a score may lie on the threshold
    assert (np.abs(one.p_value - other.p_value) <= 1.01 / 40).all()


def test_predictions_are_those_of_the_method(digits_run, calibration, frames):
    """Grey by Pillow, the network by hand, the p-value by its definition."""
    grey = np.stack([np.asarray(Image.fromarray(frame).convert("L")) for frame in frames])
    method = load_model(digits_run, "last", "cpu").method
    with torch.no_grad():
        outputs = method.outputs(torch.from_numpy(grey[:, None]))
    found = load(digits_run, device="cpu").predict(frames)
    score = outputs.score.double().numpy()
    np.testing.assert_allclose(found.inlier_score, score, rtol=1e-5)
    np.testing.assert_array_equal(found.class_index, outputs.logits.argmax(1))
    np.testing.assert_allclose(found.probability, outputs.logits.softmax(1).amax(1), rtol=1e-5)
    expected = [(1 + (calibration.fresh <= value).sum()) / 40 for value in found.inlier_score]
    np.testing.assert_array_equal(found.p_value, expected)
    np.testing.assert_array_equal(found.unknown, found.p_value <= 0.2)
    epistemic = dirichlet.mutual_information(outputs.alpha.double())
    np.testing.assert_allclose(found.epistemic, epistemic, rtol=1e-4)
    aleatoric = dirichlet.expected_entropy(outputs.alpha.double())
    np.testing.assert_allclose(found.aleatoric, aleatoric, rtol=1e-4)


def test_what_the_method_computes_is_there_for_research(digits_run, frames):
    grey = np.stack([np.asarray(Image.fromarray(frame).convert("L")) for frame in frames])
    method = load_model(digits_run, "last", "cpu").method
    with torch.no_grad():
        outputs = method.outputs(torch.from_numpy(grey[:, None]))
    found = load(digits_run, device="cpu").outputs(frames)
    for name in ("features", "logits", "alpha", "score"):
        np.testing.assert_allclose(found[name], getattr(outputs, name), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["max_softmax"], outputs.logits.softmax(1).amax(1), rtol=1e-4)
    with pytest.raises(DataError, match="no image"):
        load(digits_run, device="cpu").outputs(frames[:0])


def test_new_images_are_judged_by_their_familiarity_too(guarded_run, frames):
    """By both runtimes alike, and by the definition of the p-value."""
    record = json.loads((guarded_run / "calibration.json").read_text())
    calibration = Calibration.from_json(record)
    limit = calibration.threshold("new")
    flagged = []
    for runtime in ("torch", "onnx"):
        found = load(guarded_run, runtime, "cpu").predict(frames)
        exact = calibration.p_values(found.inlier_score, "new", found.familiarity)
        np.testing.assert_array_equal(found.p_value, exact)
        low = (found.inlier_score < limit.value) | (found.familiarity < limit.familiarity)
        np.testing.assert_array_equal(found.unknown, low)
        np.testing.assert_array_equal(found.unknown, found.p_value <= 0.3)
        flagged.append(found.inlier_score >= limit.value)
        assert (found.unknown & flagged[-1]).any(), "familiarity alone rejects none here"
    assert (flagged[0] != flagged[1]).mean() <= 0.01
    one, other = (load(guarded_run, name, "cpu").predict(frames) for name in ("torch", "onnx"))
    np.testing.assert_allclose(one.familiarity, other.familiarity, rtol=2e-5, atol=2e-6)


def test_what_is_familiar_must_not_be_lost(guarded_run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(guarded_run, folder)
    (folder / "familiarity.safetensors").write_bytes(b"damaged")
    with pytest.raises(DataError, match=r"familiarity\.safetensors: cannot be read"):
        load(folder)
    (folder / "familiarity.safetensors").unlink()
    with pytest.raises(DataError, match=r"familiarity\.safetensors: is missing"):
        load(folder)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3, 1e6])
def test_uncertainties_over_all_magnitudes(scale):
    alpha = 1 + scale * np.random.default_rng(0).random((50, 7))
    exact = torch.from_numpy(alpha)
    epistemic, aleatoric = uncertainties(alpha)
    np.testing.assert_allclose(epistemic, dirichlet.mutual_information(exact), rtol=1e-7)
    np.testing.assert_allclose(aleatoric, dirichlet.expected_entropy(exact), rtol=1e-9)


@pytest.mark.parametrize("runtime", ["torch", "onnx"])
def test_another_level(digits_run, frames, runtime):
    found = load(digits_run, runtime, "cpu", level=0.5).predict(frames)
    np.testing.assert_array_equal(found.unknown, found.p_value <= 0.5)
    assert 0 < found.unknown.mean() < 1


@pytest.mark.parametrize("runtime", ["torch", "onnx"])
def test_a_level_too_fine_for_the_images_held_out_warns(digits_run, frames, runtime):
    """39 of them certify 1/40 at the finest."""
    with pytest.warns(
        UserWarning, match=r"39 held-out images cannot certify 2 %.*0\.025 or"
    ) as told:
        found = load(digits_run, runtime, "cpu", level=0.02).predict(frames)
    assert [warning.filename for warning in told] == [__file__]
    assert not found.unknown.any()
    assert load(digits_run, runtime, "cpu", level=0.025).shortfall == ""


def test_the_level_that_is_advised_suffices():
    for images in range(1, 3000):
        rejection = Rejection(float("-inf"), "", 1e-9, images)
        advised = float(re.search(r"a level of ([0-9.]+) or", rejection.shortfall())[1])
        assert 1 / (images + 1) <= advised <= 1.011 / (images + 1)
        assert rejection.shortfall(advised) == ""
    assert Rejection.of_validation(3.0).shortfall() == ""


def test_a_level_needs_a_calibration(own_run):
    with pytest.raises(ConfigError, match="not calibrated"):
        load(own_run, level=0.1)
    with pytest.raises(ConfigError, match="between 0 and 1"):
        load(own_run, level=1.5)


@pytest.mark.parametrize("runtime", ["torch", "onnx"])
def test_a_run_without_calibration_has_its_validation_threshold(own_run, own_threshold, runtime):
    frames = np.random.default_rng(3).integers(0, 256, (60, 16, 16, 3), dtype=np.uint8)
    found = load(own_run, runtime, "cpu").predict(frames)
    assert found.p_value is None
    assert found.epistemic is None
    np.testing.assert_array_equal(found.unknown, found.inlier_score < own_threshold)


def test_calibration_of_the_other_model_is_not_used(digits_run, tmp_path):
    folder = shutil.copytree(digits_run, tmp_path / "run")
    shutil.copy(folder / "model.safetensors", folder / "best.safetensors")
    record = json.loads((folder / "calibration.json").read_text())
    (folder / "calibration.json").write_text(json.dumps({**record, "model": "best"}))
    frames = np.zeros((1, 8, 8, 3), np.uint8)
    assert load(folder, model="last", device="cpu").predict(frames).p_value is None
    assert load(folder, model="best", device="cpu").predict(frames).p_value is not None
    assert load(folder, device="cpu").predict(frames).p_value is not None


def test_an_exported_model_is_kept_while_it_is_up_to_date(digits_run, tmp_path, monkeypatch):
    folder = shutil.copytree(digits_run, tmp_path / "run")
    exports = []

    def export(folder, path, model):
        exports.append(model)

    monkeypatch.setattr("anedl.export.onnx_graph.export_run", export)
    load(folder, "onnx")
    assert exports == []
    record = json.loads((folder / "calibration.json").read_text())
    (folder / "calibration.json").write_text(json.dumps({**record, "level": 0.3}))
    load(folder, "onnx")
    assert exports == ["last"]
    (folder / "calibration.json").write_text(json.dumps(record))
    load(folder, "onnx")
    assert exports == ["last"]
    (folder / "model.onnx").write_bytes(b"damaged")
    with pytest.raises(DataError, match="not a model"):  # for nothing was written in its place
        load(folder, "onnx")
    assert exports == ["last", "last"]


def test_a_file_is_a_model_too_and_needs_no_torch(digits_run):
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np\n"
        "from anedl.export.images import classify\n"
        "from anedl.export.predictor import load\n"
        "found = classify(load(sys.argv[1]), np.zeros((3, 9, 7, 3), np.uint8))\n"
        "print(len(found), found.unknown.dtype)"
    )
    words = [sys.executable, "-c", code, str(digits_run / "model.onnx")]
    result = subprocess.run(words, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["3", "bool"]


def test_what_is_not_a_run_is_told(tmp_path, digits_run):
    with pytest.raises(DataError, match=r"no config\.json"):
        load(tmp_path)
    (tmp_path / "other.onnx").write_bytes(b"not a model")
    with pytest.raises(DataError, match="not a model that onnxruntime reads"):
        load(tmp_path / "other.onnx")
    with pytest.raises(DataError, match="no such model"):
        load(tmp_path / "missing.onnx")
    with pytest.raises(ConfigError, match="unknown runtime"):
        load(digits_run, "tensorflow")
    with pytest.raises(DataError, match="no such model"):
        load(digits_run, "onnx", model="best")


def test_a_missing_runtime_is_told(digits_run, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ConfigError, match=r'pip install "anedl\[onnx\]"'):
        load(digits_run, "onnx")


@pytest.mark.parametrize("kind", ["digits_run", "own_run"])
def test_frames_are_the_plain_view_of_training(kind, request, pictures):
    trained = load_model(request.getfixturevalue(kind), "last", "cpu")
    framing = Framing.of(trained)
    for path in pictures.glob("[0-9].png"):
        image = np.asarray(Image.open(path))
        plain = trained.augment.apply(image, View.PLAIN, np.random.default_rng(0))
        np.testing.assert_array_equal(framing.frame(image), plain)


def test_luminance_is_that_of_pillow():
    pixels = np.random.default_rng(0).integers(0, 256, (50, 60, 3), dtype=np.uint8)
    pixels[0, :3] = [[255, 255, 255], [0, 0, 0], [77, 77, 77]]
    expected = np.asarray(Image.fromarray(pixels).convert("L"))
    np.testing.assert_array_equal(luminance(pixels)[..., 0], expected)


def test_images_in_any_form_and_mixture(own_run, pictures):
    predictor = load(own_run, device="cpu")
    paths = sorted(pictures.iterdir())
    by_path = classify(predictor, paths)
    pictures_ = [Image.open(path) for path in paths]
    arrays = [np.asarray(picture) for picture in pictures_]
    mixture = [str(paths[0]), pictures_[1], arrays[2], paths[3], arrays[4][:, :, None]]
    for images in (mixture, pictures_, arrays, iter(paths)):
        found = classify(predictor, images)
        np.testing.assert_allclose(found.probabilities, by_path.probabilities, rtol=1e-5)
    twice = np.stack([arrays[0], arrays[0][:, ::-1]])
    assert len(classify(predictor, [twice, arrays[1]])) == 3
    np.testing.assert_allclose(
        classify(predictor, twice).probabilities[0], by_path.probabilities[0], rtol=1e-5
    )
    assert len(classify(predictor, paths[0])) == 1
    assert classify(predictor, []).probabilities.shape == (0, 4)


@pytest.mark.parametrize("runtime", ["torch", "onnx"])
def test_a_loaded_run_takes_images_as_its_model_card_says(own_run, pictures, runtime):
    """Paths, and arrays of another size than the model's own."""
    predictor = load(own_run, runtime, "cpu")
    paths = sorted(pictures.iterdir())
    found = predictor.predict([str(path) for path in paths])
    frames = [predictor.framing.frame(decode(path)) for path in paths]
    np.testing.assert_array_equal(
        found.probabilities, predictor.judge(np.stack(frames)).probabilities
    )
    odd = np.random.default_rng(0).integers(0, 256, (2, 9, 23, 3), dtype=np.uint8)
    by_hand = predictor.judge(np.stack([predictor.framing.frame(image) for image in odd]))
    np.testing.assert_array_equal(predictor.predict(odd).inlier_score, by_hand.inlier_score)


def test_pillow_images_look_as_their_files_do(own_run, tmp_path):
    """Transparency on white, turned upright, 16 bits kept."""
    rng = np.random.default_rng(8)
    see_through = Image.fromarray(rng.integers(0, 256, (20, 30, 4), dtype=np.uint8), "RGBA")
    see_through.save(tmp_path / "a.png")
    turned = Image.fromarray(rng.integers(0, 256, (16, 40, 3), dtype=np.uint8))
    exif = Image.Exif()
    exif[0x0112] = 6
    turned.save(tmp_path / "b.png", exif=exif)
    Image.fromarray(rng.integers(0, 65536, (20, 20), dtype=np.uint16)).save(tmp_path / "c.png")
    paths = [tmp_path / name for name in ("a.png", "b.png", "c.png")]
    predictor = load(own_run, device="cpu")
    opened = classify(predictor, [Image.open(path) for path in paths])
    np.testing.assert_array_equal(opened.probabilities, classify(predictor, paths).probabilities)


@pytest.mark.parametrize(
    ("image", "said"),
    [
        (np.zeros((4, 4, 3), np.float32), "uint8"),
        (np.zeros((4, 4, 2), np.uint8), "channels"),
        (np.zeros((0, 4, 3), np.uint8), "without pixels"),
        (7, "not int"),
        (torch.zeros(3, 4, 4), r"not a torch tensor: give `tensor\.cpu\(\)\.numpy\(\)`"),
    ],
)
def test_what_is_no_image_is_told(own_run, image, said):
    with pytest.raises(DataError, match=said):
        classify(load(own_run, device="cpu"), [image])


@pytest.mark.parametrize("kind", [str, object])
def test_an_array_of_paths_is_a_list_of_them(own_run, pictures, kind):
    """As a column of a table gives it."""
    predictor = load(own_run, device="cpu")
    paths = sorted(str(path) for path in pictures.iterdir())
    found = predictor.predict(np.array(paths, dtype=kind))
    np.testing.assert_array_equal(found.probabilities, predictor.predict(paths).probabilities)


def test_a_folder_is_no_image_and_what_to_do_is_told(own_run, pictures):
    with pytest.raises(DataError, match=r"a folder; name its files, such as .*rglob"):
        load(own_run, device="cpu").predict(pictures)


def test_an_exported_model_has_no_outputs_and_says_what_has(digits_run, frames):
    for model, runtime in ((digits_run, "onnx"), (digits_run / "model.onnx", "torch")):
        with pytest.raises(ConfigError, match="predictions only: for outputs load the folder"):
            load(model, runtime, "cpu").outputs(frames)


def test_an_unreadable_file_is_told(own_run, tmp_path):
    (tmp_path / "broken.jpg").write_bytes(b"")
    with pytest.raises(UnreadableError, match="empty"):
        classify(load(own_run, device="cpu"), [tmp_path / "broken.jpg"])


def test_frames_of_another_size_are_refused(own_run):
    with pytest.raises(DataError, match="16 × 16"):
        load(own_run, device="cpu").judge(np.zeros((1, 8, 8, 3), np.uint8))
