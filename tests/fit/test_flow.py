"""From two folders to a sorted pile, on images that train in seconds."""

import csv
import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from anedl.calibration import Calibration
from anedl.cli import main
from anedl.conformal import benjamini_hochberg
from anedl.data.split_file import read_split
from anedl.engine.evaluate import evaluate_run
from anedl.engine.inference import outputs_of
from anedl.engine.model import load_model
from anedl.errors import ConfigError, DataError
from anedl.export.predictor import load
from anedl.fit.flow import Wishes, fit, look
from anedl.fit.training import check_options, colours
from anedl.intake.cache import open_cache
from anedl.pollution import estimate_outlier_share
from anedl.report.again import command, reservations
from anedl.report.run_folder import read_run
from anedl.review.decisions import DecisionLog
from anedl.triage.verdict import STATES

CLASSES = {"bars", "rows", "spots"}
RUN_FILES = Path(__file__).parents[2] / "docs" / "run-files.md"
SHORT_LOOK = {"workers": 0, "quiet": True}


def silent(text):
    pass


def rows_of(run):
    with (run / "triage.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_file_of_the_run_folder_is_there(finished):
    run = finished[0].folder
    for name in (
        "config.json", "split.json", "model.safetensors", "results.json", "metrics.jsonl", "cache",
        "outputs/pool-last.safetensors", "intake.json", "skipped.csv", "calibration.json",
        "familiarity.safetensors", "triage.csv", "triage.json", "triage.parquet", "fit.json",
        "README.md", "report.html", "supervised/model.safetensors", "supervised/results.json",
    ):  # fmt: skip
        assert (run / name).exists(), name


def test_every_pile_image_is_sorted_once(finished, folders):
    rows = rows_of(finished[0].folder)
    assert sorted(row["file"] for row in rows) == sorted(path.name for path in folders[1].iterdir())
    assert {row["state"] for row in rows} <= set(STATES)
    assert {row["class"] for row in rows} <= CLASSES
    assert all(row["reason"] for row in rows)


def test_training_is_chosen_without_the_images_that_calibrate(finished):
    """O follows from the estimate before training, which looks at validation images alone."""
    run = finished[0].folder
    model = load_model(run / "supervised", device="cpu")
    cache, split = open_cache(run / "cache"), read_split(run / "split.json")
    positions = {
        "validation": split.validation,
        "pile": [at for at, item in enumerate(cache.items) if item.label is None],
    }
    scores = {
        name: outputs_of(
            model.method,
            torch.from_numpy(np.stack([cache.images[int(at)] for at in where])).permute(0, 3, 1, 2),
            model.precision,
        ).score.numpy()
        for name, where in positions.items()
    }
    expected = estimate_outlier_share(scores["validation"], scores["pile"])
    assert finished[0].summary["pollution_before_training"] == expected.to_json()


def test_p_values_are_counted_from_the_hidden_images(finished):
    run = finished[0].folder
    calibration = Calibration.from_json(json.loads((run / "calibration.json").read_text()))
    seen = calibration.seen
    assert len(seen) == finished[0].summary["images"]["decoys"]
    for row in rows_of(run):
        expected = (1 + int((seen <= float(row["inlier_score"])).sum())) / (len(seen) + 1)
        assert float(row["p_value"]) == pytest.approx(expected, abs=1e-6)


def test_what_is_familiar_labelled_images_say_and_fresh_ones_calibrate(finished):
    run = finished[0].folder
    cache, split = open_cache(run / "cache"), read_split(run / "split.json")
    predictor = load(run, device="cpu", level=0.4)
    fresh, labelled = (
        np.stack([cache.images[int(at)] for at in where]) for where in (split.test, split.labelled)
    )
    found = predictor.judge(fresh)
    in_order = found.familiarity[np.argsort(found.inlier_score, kind="stable")]
    np.testing.assert_allclose(in_order, predictor.calibration.familiar, rtol=1e-5)
    pixels = torch.from_numpy(labelled).permute(0, 3, 1, 2).contiguous()
    features = outputs_of(predictor.trained.method, pixels, predictor.trained.precision).features
    torch.testing.assert_close(predictor.familiarity.centre, features.mean(0))


def test_the_summary_is_complete_and_what_was_said_agrees(finished):
    fitted, said = finished
    summary = json.loads((fitted.folder / "fit.json").read_text())
    assert summary == json.loads(json.dumps(fitted.summary))
    assert summary["images"] == {
        "labelled": 21, "validation": 6, "fresh": 5, "decoys": 4, "pile": 40, "skipped": 0,
    }  # fmt: skip
    assert set(summary["choices"]) == {
        "image size", "augmentation", "backbone", "batch size", "M", "O", "folds",
    }  # fmt: skip
    assert sum(summary["triage"].values()) == 40
    assert {name: of["steps"] for name, of in summary["training"].items()} == {
        "anedl-plus": 12, "supervised": 12,
    }  # fmt: skip
    text = "\n".join(said)
    for sentence in (summary["helped"]["note"], summary["pollution"]["note"]):
        assert sentence in text
    # Four hidden images cannot certify 5 %: it is said before and after, and nothing is rejected.
    assert "note: nothing will be rejected" in text
    assert "4 held-out images cannot certify 5 %" in text
    assert summary["triage"]["unknown"] == 0
    assert summary["unknown_as_new"] is None, "new images have no threshold"


def fields_of(value):
    """Every key of nested objects and of the objects in lists."""
    if isinstance(value, list):
        return set().union(*map(fields_of, value))
    if not isinstance(value, dict):
        return set()
    return {*value, *fields_of(list(value.values()))}


def test_every_field_of_the_summary_is_described(finished):
    summary = json.loads((finished[0].folder / "fit.json").read_text(encoding="utf-8"))
    described = RUN_FILES.read_text(encoding="utf-8")
    described = described.split("## `fit.json`\n")[1].split("\n## ")[0]
    # These are keyed by names of the user's or of options.
    by_name = {*summary["choices"], *summary["training"], *fields_of(summary["asked"])}
    assert fields_of(summary) - by_name <= set(re.findall(r"`([a-z_]+)`", described))


def test_what_makes_the_outcome_doubtful_is_told(finished):
    assert any("only 12 steps" in line for line in finished[1])


def test_the_page_shows_the_pile_without_pretending_to_know_it(finished):
    page = (finished[0].folder / "report.html").read_text(encoding="utf-8")
    assert "The surest of each class" in page
    assert "are outliers: they show no known class" not in page
    assert "purity" not in page
    assert "How many pool images are selected follows" not in page


def test_a_run_of_ones_own_is_tested_again(finished):
    fitted, _ = finished
    test = evaluate_run(fitted.folder, unseen=["none"]).test
    assert test.error == pytest.approx(fitted.summary["training"]["anedl-plus"]["fresh_error"])


def test_without_outliers_no_empty_table_is_printed(finished, capsys):
    folder = str(finished[0].folder)
    assert main(["evaluate", folder, "--unseen", "none", "--quiet"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("test error ")


def test_a_looser_level_rejects(copied, folders, no_pages, short):
    """The trainings are kept: only calibration and triage are done again."""
    before = (copied / "model.safetensors").read_bytes()
    said = []
    fitted = fit(*folders, copied, Wishes(**short, level=0.05, resume=True), said.append)
    assert (copied / "model.safetensors").read_bytes() == before
    assert not any(line.startswith("training ") for line in said)
    assert sum("trained before" in line and "takes a new folder" in line for line in said) >= 2
    assert fitted.summary["triage"] == json.loads((copied / "triage.json").read_text())["counts"]


def test_images_of_its_own_pile_are_judged_as_new_ones_and_that_is_told(
    copied, folders, tmp_path, capsys
):
    new = tmp_path / "new.png"
    shutil.copy(folders[1] / "bars-0.png", new)
    words = ["predict", str(copied), "--quiet", "--workers", "0"]
    assert main([*words, str(new)]) == 0
    assert "of the pile" not in capsys.readouterr().err
    # By another way there, and some of them twice.
    (tmp_path / "link").symlink_to(folders[1])
    assert main([*words, str(new), str(folders[1]), str(tmp_path / "link" / "bars-0.png")]) == 0
    told = [line for line in capsys.readouterr().err.splitlines() if "of the pile" in line]
    assert told == [
        "anedl: 41 images are of the pile that this run has sorted, and judged here as new: "
        "triage.csv has what the fit says of them"
    ]
    shutil.rmtree(copied / "cache")
    assert main([*words, str(folders[1] / "bars-0.png")]) == 0
    assert "of the pile" not in capsys.readouterr().err


def test_a_dry_run_trains_nothing(folders, tmp_path, short):
    said = []
    found = look(*folders, tmp_path / "run", Wishes(**short), said.append)
    assert len(found.pile) == 40
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "cache", "intake.json", "skipped.csv",
    }  # fmt: skip
    assert "labelled: 36 images in 3 classes" in "\n".join(said)
    # The same folder may then be taken for the run itself.
    look(*folders, tmp_path / "run", Wishes(**short), silent)


def test_choices_are_told_before_any_training_and_in_a_dry_run(finished, folders, tmp_path, short):
    _, said = finished
    training = next(n for n, line in enumerate(said) if line.startswith("training "))
    dry = []
    look(*folders, tmp_path / "run", Wishes(**short), dry.append)
    for told in (said[:training], dry):
        for name in ("image size", "augmentation", "backbone", "batch size", "M", "folds"):
            assert any(line.startswith(f"  {name} ") for line in told), name


@pytest.mark.parametrize(
    ("wish", "message", "read"),
    [({"backbone": "nosuch"}, "unknown backbone", False),
     ({"method": "nosuch"}, "unknown method", False),
     ({"options": {"nosuch": 1}}, "unknown option", False),
     ({"options": {"learning_rate": "abc"}}, "learning_rate", False),
     ({"options": {"learning_rate": -1.0}}, "learning_rate", False),
     ({"options": {"learning_rat": 1, "ema_decay": "quick"}},
      "'learning_rat': did you mean .*; option ema_decay: 'quick' is not", False),
     ({"top_m": 9}, "--top-m", True)],
)  # fmt: skip
def test_what_cannot_be_trained_is_refused_before_anything_is(
    folders, tmp_path, short, wish, message, read
):
    """The labels alone would train well with a wrong option, and only then would it be told."""
    run = tmp_path / "run"
    with pytest.raises(ConfigError, match=message):
        fit(*folders, run, Wishes(**{**short, **wish}), silent)
    assert run.exists() == read
    # The call without the mistake may take the same folder.
    look(*folders, run, Wishes(**short), silent)


def test_what_depends_on_images_or_length_is_not_refused_before_they_are_known():
    check_options(Wishes(options={"top_m": 3, "pretrain_epochs": 500, "accumulate": 3}))
    # The release's early views are two; whoever names other views has none of them.
    check_options(Wishes(method="anedl-released", options={"labelled_views": ["strong"]}))


def test_a_backbone_whose_package_is_missing_is_refused_before_any_file_is_read(
    folders, tmp_path, short, monkeypatch
):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(ConfigError, match="pip install timm"):
        fit(*folders, tmp_path / "run", Wishes(**short, backbone="timm:resnet50"), silent)
    assert not (tmp_path / "run").exists()


def test_false_alarms_are_promised_in_place_of_lost_inliers(folders, tmp_path, no_pages, short):
    wishes = Wishes(**short, level=0.3, benjamini_hochberg=True)
    fitted = fit(*folders, tmp_path / "run", wishes, silent)
    found = fitted.summary["calibration"]
    assert "at most 30 % are expected to be of a known class" in found["notes"][1]
    assert "is rejected" not in found["notes"][1]
    assert found["thresholds"]["pile"]["score"] is None
    inliers, images = fitted.summary["images"]["decoys"], fitted.summary["images"]["pile"]
    least = 1 / (inliers + 1)
    fewest = next(
        count
        for count in range(1, images + 1)
        if benjamini_hochberg(np.repeat([least, 1.0], [count, images - count]), 0.3).any()
    )
    assert f"unless {fewest} or more of the {images} images" in found["notes"][1]
    # New images are judged at the level itself, and the pile's are counted as if they were new.
    predictions = load(fitted.folder, device="cpu").predict(sorted(folders[1].iterdir()))
    assert fitted.summary["unknown_as_new"] == predictions.unknown.sum() > 0


def test_minutes_become_steps_and_too_few_of_them_are_told(folders, tmp_path, no_pages):
    said = []
    wishes = Wishes(minutes=0.001, batch_size=8, workers=0, quiet=True, folds=2)
    fitted = fit(*folders, tmp_path / "run", wishes, said.append)
    assert fitted.summary["training"]["anedl-plus"]["epochs"] >= 4
    first = next(line for line in said if line.startswith("note: this training"))
    assert "all trainings together more than" in first
    assert "--image-size (now 12)" in first
    takes, together = (float(s) for s in re.findall(r"(?:about|more than) ([0-9.]+) sec", first))
    assert together == pytest.approx(4 * takes, abs=0.3)
    # What it took is told last.
    assert re.fullmatch(r"took 0 min \d+ s", said[-1])
    assert fitted.summary["seconds"] > 0


def test_what_counts_as_a_copy_is_told_and_kept(folders, tmp_path, no_pages, short):
    said, run = [], tmp_path / "run"
    fitted = fit(*folders, run, Wishes(**short, near_distance=0), said.append)
    assert "  near distance  0              as asked" in said
    assert fitted.summary["near_distance"] == 0
    assert fitted.summary["choices"]["near distance"]["value"] == 0
    again = fit(*folders, run, Wishes(**short, resume=True), silent)
    assert again.summary["near_distance"] == 0
    assert " --near-distance 0 " in command(read_run(run))


def test_the_command_in_the_report_repeats_the_run(folders, tmp_path, no_pages, short):
    """Every option that changes the outcome is in it, quoted for the shell."""
    decisions = DecisionLog(tmp_path / "what people said.jsonl")
    decisions.decide(["bars-0.png", "bars-3.png"], "label", "rows")
    wishes = Wishes(
        **short, level=0.3, seed=3, folds=2, near_distance=1, device="cpu", target_precision=0.5,
        selection_share=0.3, top_m=1, augmentation="digits", decisions=decisions.path,
        options={"learning_rate": 0.005, "labelled_views": ("weak",), "schedule": "constant"},
    )  # fmt: skip
    first, second = tmp_path / "the first run", tmp_path / "the second run"
    fit(*folders, first, wishes, silent)
    run = read_run(first)
    words = shlex.split(command(run))
    words[words.index("NEW_FOLDER")] = str(second)
    assert main([*words[1:], "--workers", "0", "--quiet"]) == 0
    for name in ("config.json", "triage.csv", "triage.json", "calibration.json", "decided.json"):
        assert (second / name).read_text() == (first / name).read_text(), name
    before, after = (json.loads((at / "fit.json").read_text()) for at in (first, second))
    assert after["confidence"] == before["confidence"]
    assert reservations(run) == [
        "Decisions are read as their files hold them now; those that this run was given are in "
        "decided.json."
    ]


def test_the_command_says_what_it_cannot_repeat(copied):
    assert reservations(read_run(copied)) == []
    for name, change in (
        ("supervised/config.json", lambda record: record["train"].update(epochs=7)),
        ("fit.json", lambda record: record.pop("asked")),  # as older runs are
    ):
        record = json.loads((copied / name).read_text())
        change(record)
        (copied / name).write_text(json.dumps(record))
    older, lengths = reservations(read_run(copied))
    assert "does not record --option, --target-precision and --device" in older
    assert "(the labels alone: 7 × 4 steps)" in lengths


def test_an_occupied_folder_is_refused(copied, folders, short):
    with pytest.raises(ConfigError, match="already holds a run"):
        fit(*folders, copied, Wishes(**short), silent)


def test_a_half_finished_run_is_not_overwritten(copied, folders, short):
    for name in ("config.json", "results.json"):
        (copied / name).unlink()
    with pytest.raises(ConfigError, match="already holds a run"):
        fit(*folders, copied, Wishes(**short), silent)


def test_a_folder_with_other_files_is_refused(folders, tmp_path, short):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match="other files"):
        look(*folders, tmp_path / "run", Wishes(**short), silent)
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigError, match="is a file"):
        look(*folders, tmp_path / "file", Wishes(**short), silent)


def test_a_run_folder_among_the_images_is_refused(folders, short):
    with pytest.raises(ConfigError, match="choose a place outside"):
        look(*folders, folders[1] / "run", Wishes(**short), silent)
    assert not (folders[1] / "run").exists()


def test_a_pile_without_inliers(tmp_path, no_pages, short, make_folders):
    labelled, pile = make_folders(tmp_path, known=0, strange=20)
    fitted = fit(labelled, pile, tmp_path / "run", Wishes(**short, level=0.3), silent)
    assert len(rows_of(fitted.folder)) == 20


def test_a_pile_of_copies_of_the_labelled_images(folders, tmp_path, no_pages, short):
    pile = tmp_path / "pile"
    for path in folders[0].rglob("*.png"):
        pile.mkdir(exist_ok=True)
        shutil.copy(path, pile / f"{path.parent.name}-{path.name}")
    fitted = fit(folders[0], pile, tmp_path / "run", Wishes(**short), silent)
    rows = rows_of(fitted.folder)
    assert len(rows) == 36
    for row in rows:
        assert row["labelled_duplicate_class"] == row["file"].split("-")[0]


def test_large_images_train_through_the_mapped_cache(tmp_path, no_pages, short, make_folders):
    labelled, pile = make_folders(tmp_path, labelled=6, known=4, strange=2, side=150)
    wishes = Wishes(**{**short, "epochs": 2, "epoch_steps": 1, "batch_size": 2}, image_size=128,
                    backbone="wrn-10-1")  # fmt: skip
    fitted = fit(labelled, pile, tmp_path / "run", wishes, silent)
    assert fitted.summary["choices"]["augmentation"]["value"] == "imagenet"
    assert np.load(fitted.folder / "cache" / "pixels.npy", mmap_mode="r").shape[1:3] == (146, 146)
    assert len(rows_of(fitted.folder)) == 6


def test_colours_are_those_of_all_pixels():
    pixels = np.random.default_rng(0).integers(0, 256, (9, 5, 4, 3), np.uint8)
    chosen = np.array([0, 3, 8])
    mean, std = colours(pixels, chosen)
    flat = pixels[chosen].reshape(-1, 3) / 255
    np.testing.assert_allclose(mean, flat.mean(0), atol=6e-5)
    np.testing.assert_allclose(std, flat.std(0), atol=6e-5)
    grey = np.full((2, 4, 4, 3), 128, np.uint8)
    assert colours(grey, np.array([0, 1]))[1] == (0.02, 0.02, 0.02)


def test_no_labelled_images_are_refused(tmp_path, folders, short):
    (tmp_path / "labelled").mkdir()
    with pytest.raises(DataError):
        look(tmp_path / "labelled", folders[1], tmp_path / "run", Wishes(**short), silent)


@pytest.mark.parametrize("name", ["epochs", "epoch_steps", "batch_size", "backbone"])
def test_what_holds_for_every_training_is_no_option_of_one(name):
    with pytest.raises(ConfigError, match=f"--{name.replace('_', '-')}, which holds for every"):
        Wishes(options={name: 3})


def test_a_class_called_unknown_is_refused_before_anything_is_decoded(make_folders, tmp_path):
    labelled, pile = make_folders(tmp_path)
    (labelled / "rows").rename(labelled / "Unknown")
    with pytest.raises(DataError, match=r"a class called 'Unknown'.*give the class another name"):
        look(labelled, pile, tmp_path / "run", Wishes(**SHORT_LOOK), silent)
    assert not (tmp_path / "run" / "cache").exists()
