"""Runs made without training: random weights and statistics, so that every output varies."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file

from anedl.calibration import Calibration
from anedl.data.protocol import Split
from anedl.data.settings import get_setting
from anedl.data.split_file import write_split
from anedl.engine.model import TrainedModel, build_method
from anedl.engine.precision import Precision
from anedl.engine.run_files import FAMILIARITY_FILE
from anedl.engine.spec import make_spec
from anedl.engine.task import task_of
from anedl.export.onnx_graph import export_run
from anedl.familiarity import Familiarity

ODD_NAMES = ("a b", 'x: "y" # z', "-|*[link](http://a.b)<b>", "naïve ☃")
CPU = torch.device("cpu")


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def own_setting(backbone):
    """Terms of a user's own images: four classes, colour, cropped at the centre."""
    return replace(
        get_setting("digits"), name="own", dataset="own", train_counts=(30,) * 5,
        known_classes=(0, 1, 2, 3), image_size=16, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.25),
        augmentation="imagenet", backbone=backbone, top_m=2,
    )  # fmt: skip


@pytest.fixture(scope="session")
def make_model():
    """A method with random weights, as if it were trained."""

    def make(method="anedl", own=False, backbone=None, options=None):
        setting = own_setting(backbone or "wrn-10-1") if own else get_setting("digits")
        train = {"backbone": backbone} if backbone else {}
        spec = make_spec(setting, method, 0, 0, False, None, train, options or {})
        known = len(setting.known_classes)
        split = Split(
            setting.name, 0, False, tuple(range(known)),
            ODD_NAMES if own else tuple("012345"[:known]),
            np.arange(12), np.arange(12, 20), np.arange(20, 100), np.arange(100, 110), "train",
        )  # fmt: skip
        task = replace(task_of(setting, False), pool_size=len(split.pool))
        module = build_method(spec, setting, task, CPU).eval()
        generator = torch.Generator().manual_seed(3)
        for name, value in module.state_dict().items():
            if name.endswith("running_var"):
                value.uniform_(0.5, 2.0, generator=generator)
            elif value.is_floating_point() and not name.endswith((".mean", ".std")):
                spread = 0.05 + 0.3 * value.std(correction=0)
                value.add_(spread * torch.randn(value.shape, generator=generator))
        return TrainedModel(spec, split, module, Precision("fp32", CPU))

    return make


@pytest.fixture(scope="session")
def make_run(make_model, tmp_path_factory):
    """Write such a model into a run folder."""

    def make(calibration=None, threshold=None, **model):
        folder = tmp_path_factory.mktemp("run")
        trained = make_model(**model)
        (folder / "config.json").write_text(json.dumps(trained.spec.to_json()))
        write_split(trained.split, folder / "split.json")
        tensors = {key: value.clone() for key, value in trained.method.state_dict().items()}
        save_file(tensors, folder / "model.safetensors")
        if threshold is not None:
            results = {"last": {"epoch": 2, "thresholds": {"score": threshold}}}
            (folder / "results.json").write_text(json.dumps(results))
        if calibration is not None:
            (folder / "calibration.json").write_text(json.dumps(calibration.to_json()))
        return folder

    return make


@pytest.fixture(scope="session")
def images():
    """Random frames (7, 8, 8, 1) of which several look alike."""
    return np.random.default_rng(0).integers(0, 256, (7, 8, 8, 1), dtype=np.uint8)


@pytest.fixture(scope="session")
def calibration(make_model):
    """Scores between which those of other images fall."""
    pixels = np.random.default_rng(5).integers(0, 256, (39, 1, 8, 8), dtype=np.uint8)
    with torch.no_grad():
        scores = make_model().method.outputs(torch.from_numpy(pixels)).score.double().numpy()
    return Calibration(scores, scores[:10] + 0.5, 0.2)


@pytest.fixture(scope="session")
def digits_run(make_run, calibration):
    """A calibrated run of one channel, exported."""
    pytest.importorskip("onnxscript")
    folder = make_run(calibration)
    export_run(folder, folder / "model.onnx")
    return folder


@pytest.fixture(scope="session")
def guarded_run(make_model, make_run):
    """The same, and new images are judged by their familiarity too."""
    pytest.importorskip("onnxscript")
    pixels = np.random.default_rng(7).integers(0, 256, (79, 1, 8, 8), dtype=np.uint8)
    with torch.no_grad():
        outputs = make_model().method.outputs(torch.from_numpy(pixels))
    familiarity = Familiarity.of(outputs.features[39:])
    folder = make_run(
        Calibration(
            outputs.score[:39].double().numpy(),
            np.zeros(0),
            0.3,
            familiarity.score(outputs.features[:39]).double().numpy(),
        )
    )
    save_file(familiarity.tensors(), folder / FAMILIARITY_FILE)
    export_run(folder, folder / "model.onnx")
    return folder


@pytest.fixture(scope="session")
def own_threshold(make_model):
    """Midway between the scores of random images."""
    pixels = np.random.default_rng(6).integers(0, 256, (40, 3, 16, 16), dtype=np.uint8)
    with torch.no_grad():
        outputs = make_model("supervised", own=True).method.outputs(torch.from_numpy(pixels))
    low, high = outputs.score.double().quantile(torch.tensor([0.4, 0.6]).double()).tolist()
    assert high - low > 1e-3
    return (low + high) / 2


@pytest.fixture(scope="session")
def own_run(make_run, own_threshold):
    """A run on three channels with a centre crop, not calibrated and not evidential, exported."""
    pytest.importorskip("onnxscript")
    folder = make_run(threshold=own_threshold, own=True, method="supervised")
    export_run(folder, folder / "model.onnx")
    return folder


@pytest.fixture(scope="session")
def pictures(tmp_path_factory):
    """Five pictures of several sizes and kinds."""
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(1)
    for number in range(4):
        pixels = rng.integers(0, 256, (11 + 9 * number, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    Image.fromarray(rng.integers(0, 256, (30, 20), dtype=np.uint8)).save(folder / "grey.png")
    return folder
