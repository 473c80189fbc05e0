"""A threshold that is set after training: by whom, what it promises, and what it refuses."""

import json
import shutil

import numpy as np
import pytest
from PIL import Image

import anedl
from anedl.cli import main
from anedl.conformal import p_values
from anedl.errors import AnedlError, ConfigError, DataError
from anedl.export.calibrating import calibrate
from anedl.export.description import read_calibration
from anedl.export.predictor import load
from anedl.export.weights import write_weights

SHORT = {"epochs": 2, "epoch_steps": 3, "pretrain_epochs": 1, "batch_size": 8}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A short run on the digits, not calibrated."""
    return anedl.train("digits", out=tmp_path_factory.mktemp("runs") / "run", **SHORT).folder


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """Files of 60 images."""
    folder = tmp_path_factory.mktemp("known")
    for number, pixels in enumerate(noise(60, 1)):
        Image.fromarray(pixels).save(folder / f"{number:02}.png")
    return folder


def noise(count, seed):
    return np.random.default_rng(seed).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)


def test_images_that_are_named_set_the_threshold(run, known, tmp_path):
    made = calibrate(run, [known], out=tmp_path / "out", level=0.1, device="cpu", workers=0)
    assert (made.folder, made.model) == (tmp_path / "out", "last")
    model = load(tmp_path / "out", device="cpu")
    scores = load(run, device="cpu").predict(sorted(known.iterdir())).inlier_score
    assert model.calibration.fresh.tolist() == sorted(scores)
    # Six of 61 may be lost; of these six, the two that set a threshold are accepted themselves.
    again = model.predict(sorted(known.iterdir()))
    assert (again.p_value <= 0.1).sum() == 4
    assert again.unknown.tolist() == (again.p_value <= 0.1).tolist()
    assert (
        "60 different images that were said to be of known classes" in made.calibration.describe()
    )
    assert not (run / "calibration.json").exists(), "the run stays as it is"


def test_without_images_a_benchmark_is_calibrated_by_its_validation_images(run, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["calibrate", str(run), "-o", str(out), "--device", "cpu"]) == 0
    outputs = load(out, device="cpu")
    problem = anedl.engine.load.problem_of(outputs.trained.spec, run)
    frames = problem.validation()[0].permute(0, 2, 3, 1).numpy()
    found = outputs.judge(frames)
    assert outputs.calibration.fresh == pytest.approx(np.sort(found.inlier_score), rel=1e-5)
    assert len(outputs.calibration.familiar) == len(frames)
    told = capsys.readouterr()
    assert "validation images, which chose nothing in it" in told.out
    assert "for what is familiar" in told.err
    card = (out / "README.md").read_text(encoding="utf-8")
    assert "has to be calibrated again" in card
    assert "which chose nothing in it" in card


def test_the_best_model_says_that_it_was_chosen_by_the_same_images(run, tmp_path):
    made = calibrate(run, out=tmp_path / "out", model="best", device="cpu")
    assert "also chose this model" in made.calibration.describe()
    assert load(tmp_path / "out", device="cpu").predict(noise(2, 3)).p_value is not None
    assert read_calibration(tmp_path / "out", "best").notes == made.calibration.notes
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert card.count("also chose this model") == 1
    assert "calibration after training" in card


def test_another_source_is_told_from_the_former_one(run, known, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    dark = tmp_path / "dark"
    dark.mkdir()
    for number, pixels in enumerate(noise(60, 2) // 16):
        Image.fromarray(pixels).save(dark / f"{number}.png")
    calibrate(run, [dark], out=first, level=0.1, device="cpu", workers=0)
    former = load(first, device="cpu")
    made = calibrate(first, [known], out=second, device="cpu", workers=0)
    assert made.calibration.level == 0.1, "the level is the former one"
    lost = (former.predict(sorted(known.iterdir())).p_value <= 0.1).mean()
    (about, against) = made.calibration.notes
    assert "60 different images" in about
    assert f"{100 * lost:.3g} % of these images would be lost" in against
    assert "where 10 % may be, more than chance explains" in against
    assert "differ from those of the 60 images" in against
    others = tmp_path / "others"
    others.mkdir()
    for number, pixels in enumerate(noise(60, 11)):
        Image.fromarray(pixels).save(others / f"{number}.png")
    alike = calibrate(second, others, out=tmp_path / "third", device="cpu", workers=0)
    assert "no difference shows" in alike.calibration.notes[1]
    assert "more than chance" not in alike.calibration.notes[1]
    higher = calibrate(second, dark, out=tmp_path / "fifth", device="cpu", workers=0)
    assert "0 % of these images would be lost" in higher.calibration.notes[1]
    assert "where 10 % may be, and no more are" in higher.calibration.notes[1]
    same = calibrate(second, str(known), out=tmp_path / "fourth", device="cpu", workers=0)
    assert same.calibration.notes[1] == "these are the images that had calibrated it before"


def test_a_burst_counts_as_one_picture(run, known, tmp_path):
    """Else one odd scene would set the threshold by itself."""
    many = tmp_path / "many"
    shutil.copytree(known, many)
    scene = np.asarray(Image.open(known / "00.png")).astype(int)
    draw = np.random.default_rng(3)
    for number in range(20):
        frame = np.clip(scene + draw.integers(-1, 2, scene.shape), 0, 255).astype(np.uint8)
        Image.fromarray(frame).save(many / f"burst{number}.png")
    made = calibrate(run, many, out=tmp_path / "out", device="cpu", workers=0)
    assert len(made.calibration.fresh) == 60
    assert any("20 of the images are copies of others, or nearly" in line for line in made.told)
    every = calibrate(run, many, out=tmp_path / "all", device="cpu", workers=0, near_distance=0)
    assert len(every.calibration.fresh) == 80


def test_the_other_model_keeps_the_level_of_the_run(run, known, tmp_path):
    last = tmp_path / "run"
    shutil.copytree(run, last)
    record = {"fresh": [1.0, 2.0, 3.0], "seen": [], "level": 0.3, "model": "last"}
    (last / "calibration.json").write_text(json.dumps(record))
    made = calibrate(last, known, out=tmp_path / "out", model="best", device="cpu", workers=0)
    assert (made.model, made.calibration.level) == ("best", 0.3)
    assert len(made.calibration.notes) == 1, "of the other model's images nothing is said"


def test_exported_it_judges_the_same_and_says_by_whom_it_was_calibrated(run, known, tmp_path):
    pytest.importorskip("onnxscript")
    calibrate(run, known, out=tmp_path / "out", level=0.2, device="cpu", workers=0)
    torch_, onnx = (load(tmp_path / "out", runtime, device="cpu") for runtime in ("torch", "onnx"))
    images = noise(40, 12)
    here, there = torch_.predict(images), onnx.predict(images)
    assert there.p_value == pytest.approx(here.p_value)
    assert there.unknown.tolist() == here.unknown.tolist()
    assert "that were said to be of known classes" in onnx.description.rejection.promise


def test_what_cannot_be_read_or_occurs_twice_is_told_and_left_out(run, known, tmp_path):
    mixed = tmp_path / "mixed"
    shutil.copytree(known, mixed)
    shutil.copyfile(mixed / "00.png", mixed / "copy.png")
    (mixed / "broken.png").write_bytes(b"no image")
    (mixed / "notes.txt").write_text("no image either")
    said = []
    made = calibrate(run, [mixed], out=tmp_path / "out", device="cpu", workers=0, say=said.append)
    assert len(made.calibration.fresh) == 60
    assert any("1 of the images is a copy of another, or nearly" in line for line in said)
    assert any("1 image could not be read" in line and "broken.png" in line for line in said)
    assert "1 file is no image and was passed over" in said
    assert "looking at 62 images" in said


def test_a_benchmark_without_its_data_is_judged_by_its_score_alone(run, known, tmp_path):
    """A split of another fold stands for other files."""
    other, said = tmp_path / "run", []
    shutil.copytree(run, other)
    record = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(record | {"fold": 1}))
    made = calibrate(other, known, out=tmp_path / "out", device="cpu", workers=0, say=said.append)
    assert len(made.calibration.familiar) == 0
    assert any("the data here are not those of this run" in line for line in said)
    assert any("cannot be told here" in line for line in said)
    with pytest.raises(DataError, match="not those of this run"):
        calibrate(other, out=tmp_path / "none", device="cpu")


def test_an_own_run_without_its_images_is_judged_by_its_score_alone(make_run, known, tmp_path):
    """Labelled images say what is familiar; where they are not at hand, that is said."""
    run = make_run(threshold=1.0, own=True, method="supervised")
    said = []
    made = calibrate(run, [known], out=tmp_path / "out", device="cpu", workers=0, say=said.append)
    assert len(made.calibration.familiar) == 0
    assert any("by their score alone" in line for line in said)
    assert any("cannot be told here" in line for line in said)
    model = load(tmp_path / "out", device="cpu")
    images = noise(9, 8)
    found = model.predict(images)
    assert found.p_value.tolist() == p_values(made.calibration.fresh, found.inlier_score).tolist()
    assert not (tmp_path / "out" / "familiarity.safetensors").exists()


def test_a_licence_stays_and_what_a_fit_said_of_its_calibration_goes(make_run, known, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(make_run(threshold=1.0, own=True, method="supervised"), run)
    told = {"summary": ["the pile: 3 accept"], "calibration": {"notes": ["a", "an old promise"]}}
    (run / "fit.json").write_text(json.dumps(told))
    (run / "README.md").write_text('---\nlicense: "cc0-1.0"\n---\n')
    calibrate(run, [known], out=tmp_path / "out", device="cpu", workers=0)
    card = (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
    assert 'license: "cc0-1.0"' in card
    assert "3 accept" in card
    assert "an old promise" not in card
    write_weights(run, tmp_path / "plain")
    assert 'license: "cc0-1.0"' in (tmp_path / "plain" / "README.md").read_text(encoding="utf-8")


def test_what_is_refused(run, known, own_run, tmp_path):
    out = tmp_path / "out"
    few = sorted(known.iterdir())[:18]
    empty = tmp_path / "empty"
    empty.mkdir()
    cases = [
        (lambda: calibrate(run, few, out=out, workers=0), DataError, "18 held-out images cannot"),
        (lambda: calibrate(run, [known], out=out, level=1.5), AnedlError, "between 0 and 1"),
        (lambda: calibrate(run, [known], out=known), ConfigError, "name a new folder"),
        (lambda: calibrate(run, out=known / "00.png" / "x"), ConfigError, "lies below a file"),
        (lambda: calibrate(tmp_path / "no", [known], out=out), DataError, "not the folder of"),
        (lambda: calibrate(own_run, out=out), ConfigError, "name images of its classes"),
        (lambda: calibrate(run, [empty], out=out, workers=0), DataError, "none of what"),
        (lambda: calibrate(run, out=out, data=tmp_path, model="other"), ConfigError, "`last`"),
    ]
    for call, kind, message in cases:
        with pytest.raises(kind, match=message):
            call()
        assert not out.exists(), message


def test_a_path_that_is_not_there_is_refused_before_any_work(run, known, tmp_path, monkeypatch):
    """Among others, too: half of what was meant would set another threshold."""
    monkeypatch.setattr("anedl.export.calibrating.load_model", lambda *_: pytest.fail("work"))
    (tmp_path / "link.png").symlink_to(tmp_path / "gone.png")
    for name in ("no", "link.png"):
        with pytest.raises(DataError, match=f"{name}: there is no such file or folder"):
            calibrate(run, [known, tmp_path / name], out=tmp_path / "out", workers=0)
    assert not (tmp_path / "out").exists()


def test_a_named_file_that_cannot_be_read_is_refused(run, known, tmp_path, capsys):
    """In a folder it is left out; named itself, it was meant to count."""
    broken, out = tmp_path / "broken.png", tmp_path / "out"
    broken.write_bytes(b"no image")
    words = [run, *sorted(known.iterdir()), broken, "-o", out, "--device", "cpu", "--workers", 0]
    assert main(["calibrate", *map(str, words)]) == 1
    told = capsys.readouterr()
    assert f"what was named cannot be read: {broken} (" in told.err
    assert told.out == ""
    assert not out.exists()
