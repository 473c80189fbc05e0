"""A model that leaves its run: what goes along, what stays, and what it then means."""

import json
import shutil

import pytest

from anedl.errors import ConfigError, DataError
from anedl.export.card import write_card
from anedl.export.description import model_of
from anedl.export.predictor import load
from anedl.export.weights import write_weights

FIT = {
    "summary": ["the pile: 3 accept"],
    "sources": {"labelled": "/home/someone/secret", "pile": "/home/someone/pile"},
}


@pytest.fixture
def run(make_run, calibration, tmp_path):
    """A finished fit: both models, the last one calibrated."""
    folder = tmp_path / "run"
    shutil.copytree(make_run(calibration, threshold=12.0), folder)
    shutil.copyfile(folder / "model.safetensors", folder / "best.safetensors")
    (folder / "fit.json").write_text(json.dumps(FIT))
    return folder


def names_in(folder):
    return sorted(path.name for path in folder.iterdir())


def test_the_calibrated_model_takes_its_calibration_along(run, tmp_path, images):
    out = tmp_path / "out"
    assert write_weights(run, out) == "last"
    assert names_in(out) == [
        "README.md", "calibration.json", "config.json", "fit.json", "model.safetensors",
        "results.json", "split.json",
    ]  # fmt: skip
    here, there = (load(folder, device="cpu").predict(images) for folder in (run, out))
    assert there.p_value.tolist() == here.p_value.tolist()
    assert there.unknown.tolist() == here.unknown.tolist()
    for path in out.iterdir():
        assert b"someone" not in path.read_bytes(), f"{path.name} names the owner's folders"


def test_what_is_familiar_goes_along(guarded_run, tmp_path, images):
    run, out = tmp_path / "run", tmp_path / "out"
    shutil.copytree(guarded_run, run)
    (run / "results.json").write_text(json.dumps({"last": {"epoch": 2}}))
    write_weights(run, out)
    assert "familiarity.safetensors" in names_in(out)
    here, there = (load(folder, device="cpu").predict(images) for folder in (run, out))
    assert there.p_value.tolist() == here.p_value.tolist()
    assert there.familiarity.tolist() == here.familiarity.tolist()


def test_a_card_written_again_says_the_same(run, tmp_path):
    write_weights(run, tmp_path / "out", licence="cc0-1.0")
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert "3 accept" in card
    assert write_card(tmp_path / "out", "cc0-1.0").read_text(encoding="utf-8") == card


def test_the_other_model_goes_without_what_is_not_its_own(run, tmp_path, images):
    out = tmp_path / "out"
    assert write_weights(run, out, "best") == "best"
    assert "calibration.json" not in names_in(out)
    assert model_of(out, None) == "best"
    assert load(out, device="cpu").predict(images).p_value is None
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "3 accept" not in card
    assert "calibrate this model" in card


def test_a_run_that_was_cut_off_is_no_model_yet(run, tmp_path, images):
    """Its best model so far is not what a finished run would have."""
    for name in ("model.safetensors", "results.json", "calibration.json", "fit.json"):
        (run / name).unlink()
    assert model_of(run, None) == "last"
    with pytest.raises(DataError, match="--resume"):
        load(run, device="cpu")
    with pytest.raises(DataError, match="--resume"):
        write_weights(run, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_holds_something_is_left_alone(run, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match="name a new folder"):
        write_weights(run, tmp_path)
    with pytest.raises(ConfigError, match="name a new folder"):
        write_weights(run, tmp_path / "mine.txt")
