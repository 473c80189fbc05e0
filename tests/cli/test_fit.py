"""`anedl fit` and `anedl triage` on a pile that nobody would wish for; `anedl.fit` in Python."""

import csv

import numpy as np
import pytest
from PIL import Image

import anedl
from anedl.cli import main
from anedl.errors import ConfigError

SHORT = ["--epochs", "2", "--epoch-steps", "2", "--batch-size", "4", "--workers", "0", "--quiet"]


@pytest.fixture(scope="module")
def labelled(tmp_path_factory):
    """Two classes of noise, dark and light, ten images each."""
    root = tmp_path_factory.mktemp("labelled")
    rng = np.random.default_rng(0)
    for name, least in (("dark", 0), ("light", 100)):
        (root / name).mkdir()
        for number in range(10):
            pixels = rng.integers(least, least + 150, (12, 12, 3), np.uint8)
            Image.fromarray(pixels).save(root / name / f"{number}.png")
    return root


@pytest.fixture
def no_pages(monkeypatch):
    monkeypatch.setattr("anedl.fit.flow.write_report", lambda run: run / "report.html")


@pytest.mark.usefixtures("no_pages")
def test_two_hundred_odd_files_neither_stop_nor_corrupt_anything(
    labelled, hostile, tmp_path, capsys
):
    run = tmp_path / "run"
    assert main(["fit", str(labelled), str(hostile.root), "-o", str(run), *SHORT]) == 0
    assert "skipped:" in capsys.readouterr().out
    with (run / "triage.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    with (run / "skipped.csv").open(encoding="utf-8", newline="") as file:
        skipped = list(csv.DictReader(file))
    total = len(hostile.pixels) + len(hostile.bad) + len(hostile.either)
    assert len(rows) + len(skipped) == total
    assert len(hostile.pixels) <= len(rows) <= len(hostile.pixels) + len(hostile.either)
    assert len({row["file"] for row in rows}) == len(rows)
    for row in rows:
        assert 0 <= float(row["probability"]) <= 1
        assert 0 < float(row["p_value"]) <= 1
        assert np.isfinite(float(row["inlier_score"]))

    assert main(["triage", str(run), "--as", "folders"]) == 0
    laid = [path for path in (run / "triage" / "folders").rglob("*") if path.is_file()]
    images = [path for path in laid if path.suffix != ".csv"]
    assert len(images) >= len(rows)
    for name in hostile.pixels:
        assert hostile.path(name).exists()


def test_a_dry_run_says_what_is_there_and_stops(labelled, tmp_path, capsys):
    pile = tmp_path / "pile"
    pile.mkdir()
    Image.new("RGB", (12, 12), "red").save(pile / "a.png")
    words = ["fit", str(labelled), str(pile), "-o", str(tmp_path / "run"), "--dry-run", "--quiet"]
    assert main(words) == 0
    assert "labelled: 20 images in 2 classes" in capsys.readouterr().out
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.usefixtures("no_pages")
def test_python_does_the_same_and_loads_the_model(labelled, tmp_path, capsys):
    pile = tmp_path / "pile"
    pile.mkdir()
    pixels = np.random.default_rng(1).integers(0, 256, (9, 12, 12, 3), np.uint8)
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(pile / f"{number}.png")
    wishes = {"epochs": 2, "epoch_steps": 2, "batch_size": 4, "workers": 0}
    fitted = anedl.fit(labelled, pile, tmp_path / "run", **wishes)
    assert isinstance(fitted, anedl.Fitted)
    assert capsys.readouterr().out == ""
    # The package of the same name has been imported by now, and hides nothing.
    again = anedl.fit(str(labelled), str(pile), tmp_path / "again", **wishes)
    assert again.summary["triage"] == fitted.summary["triage"]
    predicted = anedl.load(fitted.folder).predict(pixels)
    scores = dict(zip(fitted.triage.evidence.names, fitted.triage.evidence.score, strict=True))
    np.testing.assert_allclose(
        predicted.inlier_score, [scores[f"{number}.png"] for number in range(9)], rtol=1e-4
    )


def test_a_misspelt_wish_is_refused_with_the_nearest(labelled, tmp_path):
    with pytest.raises(ConfigError, match="minutes"):
        anedl.fit(labelled, tmp_path, tmp_path / "run", minuts=3)
