"""Folds for sets too small to hold images out, and other methods than the usual one."""

import csv
import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from anedl.cli import main
from anedl.errors import ConfigError
from anedl.fit.flow import Wishes, fit, look
from anedl.intake.cache import open_cache


def silent(text):
    pass


def rows_of(run):
    with (run / "triage.csv").open(encoding="utf-8", newline="") as file:
        return {row["file"]: row for row in csv.DictReader(file)}


@pytest.fixture(scope="module")
def small(tmp_path_factory, make_folders, short):
    """Sixty labelled images: twelve of them hidden cannot certify 5 %, two folds of sixty can."""
    root, said = tmp_path_factory.mktemp("small"), []
    folders = make_folders(root, labelled=20)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("anedl.fit.flow.write_report", lambda run: run / "report.html")
        return fit(*folders, root / "run", Wishes(**short), said.append), said, folders


def fold_scores(run):
    """Of each fold's model: scores by position in the cache, and the positions of its fold."""
    for number in (1, 2):
        folder = run / f"fold-{number}"
        split = json.loads((folder / "split.json").read_text())
        saved = load_file(folder / "outputs" / "pool-last.safetensors")
        yield dict(zip(split["pool"], saved["score"].tolist(), strict=True)), split


def test_p_values_are_those_of_the_folds(small):
    run = small[0].folder
    items = open_cache(run / "cache").items
    position = {item.name: n for n, item in enumerate(items) if item.label is None}
    models = list(fold_scores(run))
    for name, row in rows_of(run).items():
        below = 0
        for scores, split in models:
            own = scores[position[name]]
            below += sum(scores[n] <= own for n in split["validation"])
        assert float(row["p_value"]) == pytest.approx((2 + below) / (60 + 2), abs=1e-6)
        assert (row["state"] == "unknown") <= (float(row["p_value"]) <= 0.05)


def test_every_labelled_image_is_judged_once_by_a_model_that_has_not_seen_its_label(small):
    labelled = {n for n, i in enumerate(open_cache(small[0].folder / "cache").items) if i.label}
    folds = []
    for _, split in fold_scores(small[0].folder):
        hidden = set(split["validation"])
        assert hidden.isdisjoint(split["labelled"])
        assert hidden | set(split["labelled"]) == labelled
        assert hidden <= set(split["pool"])  # as the pile's own known images do
        folds.append(hidden)
    assert folds[0].isdisjoint(folds[1])
    assert folds[0] | folds[1] == labelled


def test_the_weaker_promise_is_told(small):
    fitted, said, _ = small
    text = "\n".join(said)
    assert "folds          2" in text
    assert "rejecting at 5 % is sure to reject at most 10 % of true inliers on average" in text
    found = fitted.summary["calibration"]
    assert found["folds"] == 2
    assert found["thresholds"]["pile"]["certified"] == pytest.approx(0.1)
    assert found["thresholds"]["pile"]["images"] == 60
    card = (fitted.folder / "README.md").read_text(encoding="utf-8")
    assert "Images of the pile: cross-conformal, 60 images in 2 folds" in card
    assert "Images of the pile: nothing" not in card
    # Every fold's model estimates how dirty the pile is.
    assert fitted.summary["pollution"]["inliers"] == 60
    # Half of a quarter stays fresh: fifteen could not certify 5 % for new images either.
    images = fitted.summary["images"]
    assert (images["fresh"], images["decoys"]) == (8, 0)
    written = json.loads((fitted.folder / "calibration.json").read_text())
    assert sorted(map(len, written["folds"])) == [30, 30]
    assert json.loads((fitted.folder / "triage.json").read_text())["rules"]["folds"] == 2


def test_a_cut_between_folds_goes_on_to_the_same_table(
    small, tmp_path, monkeypatch, no_pages, short
):
    fitted, _, folders = small

    def stop(*arguments, **keywords):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("anedl.fit.flow.judge_all", stop)
        with pytest.raises(KeyboardInterrupt):
            fit(*folders, tmp_path / "run", Wishes(**short), silent)
    (tmp_path / "run" / "fold-2" / "results.json").unlink()
    said = []
    fit(*folders, tmp_path / "run", Wishes(**short, resume=True), said.append)
    assert sum(line.startswith("training anedl-plus, fold 2 of 2") for line in said) == 1
    assert (tmp_path / "run" / "triage.csv").read_bytes() == (
        fitted.folder / "triage.csv"
    ).read_bytes()
    with pytest.raises(ConfigError, match="number of folds"):
        fit(*folders, tmp_path / "run", Wishes(**short, resume=True, folds=3), silent)


def test_no_folds_on_request_and_no_folds_with_false_alarms(small, tmp_path, no_pages, short):
    for name, wish in (("none", {"folds": 0}), ("alarms", {"benjamini_hochberg": True})):
        fitted = fit(*small[2], tmp_path / name, Wishes(**short, **wish), silent)
        assert fitted.summary["calibration"]["folds"] == 0
        assert not list((tmp_path / name).glob("fold-*"))


def test_more_folds_than_images_are_refused(small, tmp_path, short):
    with pytest.raises(ConfigError, match="--folds 70: there are only 60"):
        look(*small[2], tmp_path / "run", Wishes(**short, folds=70), silent)


def test_another_method_with_options_of_its_own(small, tmp_path, no_pages, capsys):
    words = ["--epochs", "2", "--epoch-steps", "2", "--batch-size", "8", "--workers", "0"]
    words += ["--folds", "0", "--quiet", "--method", "anedl-released", "--option",
              "learning-rate=0.02", "--option", "kl_weight=0.5"]  # fmt: skip
    run = tmp_path / "run"
    assert main(["fit", *map(str, small[2]), "-o", str(run), *words]) == 0
    config = json.loads((run / "config.json").read_text())
    assert config["method"] == "anedl-released"
    assert (config["train"]["learning_rate"], config["options"]["kl_weight"]) == (0.02, 0.5)
    plain = json.loads((run / "supervised" / "config.json").read_text())
    assert plain["train"]["learning_rate"] != 0.02
    assert set(json.loads((run / "fit.json").read_text())["training"]) == {
        "anedl-released", "supervised",
    }  # fmt: skip
    assert "training anedl-released" in capsys.readouterr().out
    for wrong, said in ((["--option", "kl_wait=1"], "kl_weight"), (["--option", "x"], "NAME=")):
        out = str(tmp_path / f"{wrong[1]}-run")
        assert main(["fit", *map(str, small[2]), "-o", out, *words[:8], *wrong]) == 1
        assert said in capsys.readouterr().err


def test_a_method_without_evidence_sorts_the_pile_too(small, tmp_path, no_pages, short):
    wishes = Wishes(**short, method="openmatch", folds=0, level=0.2)
    fitted = fit(*small[2], tmp_path / "run", wishes, silent)
    assert np.isfinite([float(row["p_value"]) for row in rows_of(fitted.folder).values()]).all()
