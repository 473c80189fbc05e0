"""`anedl fit` and `anedl triage` on a pile that nobody would wish for; `anedl.fit` in Python."""

import argparse
import csv
import json
import shlex
import shutil
from collections import Counter

import numpy as np
import pytest
from PIL import Image
from safetensors import SafetensorError

import anedl
from anedl.cli import main
from anedl.cli.fit import add_arguments
from anedl.errors import ConfigError, DataError
from anedl.fit.python import keywords
from anedl.fit.wishes import Wishes
from anedl.intake.fitted import command_to_decode, given_to_fit
from anedl.review.decisions import DecisionLog
from anedl.review.session import Review
from anedl.triage.layouts import MARKER
from anedl.triage.table import unshielded

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


# Every kind of file that a pile is known to hold, by a name it has in the fixture.
KINDS = {
    "zero bytes": b"empty.jpg", "truncated": b"cut4.jpeg", "text named .jpg": b"text.jpg",
    "1 x 1": b"size1x1.png", "20,000 x 10": b"size20000x10.png", "CMYK": b"cmyk.jpg",
    "animated": b"animated.gif", "16 bits": b"deep.png", "loop of links": b"loop.jpg",
    "folder that contains itself": b"around", "line break in the name": b"new\nline.png",
    "quotes in the name": b"quo\"te's.png", "no UTF-8 in the name": b"\xff\xfe\x80.png",
    "may not be read": b"locked.png", "folder that may not be read": b"closed/",
}  # fmt: skip


@pytest.mark.usefixtures("no_pages", "alarm")
def test_two_hundred_odd_files_neither_stop_nor_corrupt_anything(
    labelled, forbidden, tmp_path, capsys
):
    hostile, run = forbidden, tmp_path / "run"
    names = {*hostile.pixels, *hostile.bad, *hostile.either}
    assert len(names) >= 200
    assert names >= set(KINDS.values())
    # The content of all that is a file with content of its own.
    before = {name: hostile.path(name).read_bytes() for name in hostile.pixels}

    assert main(["fit", str(labelled), str(hostile.root), "-o", str(run), *SHORT]) == 0
    assert "skipped:" in capsys.readouterr().out
    with (run / "triage.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    with (run / "skipped.csv").open(encoding="utf-8", newline="") as file:
        skipped = list(csv.DictReader(file))
    assert len(rows) + len(skipped) == len(names)
    assert len(hostile.pixels) <= len(rows) <= len(hostile.pixels) + len(hostile.either)
    assert len({row["file"] for row in rows} | {row["name"] for row in skipped}) == len(names)
    for row in rows:
        assert 0 <= float(row["probability"]) <= 1
        assert 0 < float(row["p_value"]) <= 1
        assert np.isfinite(float(row["inlier_score"]))
    reasons = {row["name"]: row["reason"] for row in skipped}
    assert reasons["locked.png"] == "the file may not be read (permission denied)"
    assert reasons["closed/"] == "the folder cannot be read (Permission denied)"

    _check_predictions(run, hostile, {unshielded(row["file"]): row for row in rows}, capsys)
    _check_folders(run, before, len(rows))
    for name, content in before.items():
        assert hostile.path(name).read_bytes() == content


def _check_predictions(run, hostile, rows, capsys):
    """`anedl predict` says of every file of the pile what the fit said of it."""
    words = ["--format", "jsonl", "--workers", "0", "--device", "cpu", "--quiet"]
    assert main(["predict", str(run), str(hostile.root), *words]) == 1  # some are not read
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    by_name = {row["file"].removeprefix(f"{hostile.root}/"): row for row in told}
    assert len(by_name) == len(told)
    assert {name for name, row in by_name.items() if row["error"] is None} == set(rows)
    for name, row in rows.items():
        score = float(row["inlier_score"])
        assert by_name[name]["inlier_score"] == pytest.approx(score, rel=1e-3, abs=1e-4), name
    for row in told:
        assert row["error"] is None or (row["class"] is None and row["error"].isprintable())


def _check_folders(run, before, count):
    """`anedl triage --as folders` copies every image of the table, to the last byte."""
    assert main(["triage", str(run), "--as", "folders"]) == 0
    laid = [path for path in (run / "triage" / "folders").rglob("*") if path.is_file()]
    copies = [path.read_bytes() for path in laid if path.name != MARKER]
    assert len(copies) == count
    assert not Counter(before.values()) - Counter(copies)


def test_a_dry_run_says_what_is_there_and_stops(labelled, tmp_path, capsys):
    pile = tmp_path / "pile"
    pile.mkdir()
    Image.new("RGB", (12, 12), "red").save(pile / "a.png")
    words = ["fit", str(labelled), str(pile), "-o", str(tmp_path / "run"), "--dry-run", "--quiet"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "labelled: 20 images in 2 classes" in said
    assert "run the same command without --dry-run" in said.splitlines()[-1]
    assert not (tmp_path / "run" / "config.json").exists()
    # Whatever wants a model or a sorted pile says the same of it.
    run = str(tmp_path / "run")
    for others in (
        ["predict", run, str(pile)], ["triage", run, "--as", "links"], ["review", run],
        ["export", run, "--card"], ["export", run, "--onnx", str(tmp_path / "x.onnx")],
        ["report", run], ["evaluate", run],
        ["calibrate", run, str(pile), "-o", str(tmp_path / "other")],
    ):  # fmt: skip
        assert main(others) == 1
        assert capsys.readouterr().err == (
            f"anedl: {run}: only a dry run was made here: run the same command without --dry-run\n"
        )
    # And the fit that follows may take it.
    assert main([*words, "--near-distance", "0"]) == 0


@pytest.mark.usefixtures("no_pages")
def test_a_full_disk_is_told_in_a_line_and_the_run_goes_on(labelled, tmp_path, capsys, monkeypatch):
    pile, run = tmp_path / "pile", tmp_path / "run"
    pile.mkdir()
    for name, colour in (("a.png", "red"), ("b.png", "blue"), ("c.png", "white")):
        Image.new("RGB", (12, 12), colour).save(pile / name)

    def full(*arguments):
        raise SafetensorError("I/O error: No space left on device (os error 28)")

    words = ["fit", str(labelled), str(pile), "-o", str(run), *SHORT]
    with monkeypatch.context() as patch:
        patch.setattr("anedl.engine.checkpoint.save_file", full)
        assert main(words) == 1
    (told,) = capsys.readouterr().err.splitlines()
    assert "No space left on device" in told
    assert str(run / "supervised") in told
    assert told.endswith("--resume goes on once there is room")
    assert main([*words, "--resume"]) == 0


def test_what_counts_as_a_copy_can_be_asked_for(labelled, tmp_path, capsys):
    pile = tmp_path / "pile"
    pile.mkdir()
    Image.new("RGB", (12, 12), "red").save(pile / "a.png")
    words = ["fit", str(labelled), str(pile), "-o", str(tmp_path / "run"), "--dry-run", "--quiet"]
    assert main([*words, "--near-distance", "0"]) == 0
    assert "near distance  0" in capsys.readouterr().out
    assert json.loads((tmp_path / "run" / "intake.json").read_text())["near_distance"] == 0
    assert main([*words, "--near-distance", "64"]) == 1
    assert "--near-distance 64" in capsys.readouterr().err


def test_the_next_round_is_told_with_what_counts_as_a_copy(tmp_path):
    said = {"sources": {"labelled": "my labelled", "pile": "pile"}}
    for distance, words in ((None, ""), (4, ""), (0, " --near-distance 0")):
        kept = said if distance is None else said | {"near_distance": distance}
        (tmp_path / "fit.json").write_text(json.dumps(kept))
        assert given_to_fit(tmp_path) == f"'my labelled' pile{words}"
    (tmp_path / "fit.json").unlink()
    assert given_to_fit(tmp_path) == "LABELLED PILE"


@pytest.mark.usefixtures("no_pages")
@pytest.mark.parametrize(
    "wishes", [[], ["--seed", "3", "--target-inlier-loss", "0.3", "--folds", "0",
                    "--image-size", "8", "--near-distance", "0"]]
)  # fmt: skip
def test_images_that_were_deleted_come_back_by_the_command_that_is_told(
    labelled, tmp_path, capsys, wishes
):
    pile, run = tmp_path / "the pile's", tmp_path / "a run"
    pile.mkdir()
    rng = np.random.default_rng(2)
    for number in range(6):
        pixels = rng.integers(0, 256, (12, 12, 3), np.uint8)
        Image.fromarray(pixels).save(pile / f"{number}.png")
    assert main(["fit", str(labelled), str(pile), "-o", str(run), *SHORT, *wishes]) == 0
    split, table = ((run / name).read_bytes() for name in ("split.json", "triage.csv"))
    pixels = (run / "cache" / "pixels.npy").read_bytes()
    edited = table.replace(b"review", b"accept", 1)
    (run / "triage.csv").write_bytes(edited)
    shutil.rmtree(run / "cache")
    capsys.readouterr()
    assert main(["triage", str(run), "--as", "links"]) == 1
    told = capsys.readouterr().err.strip()
    start = f"anedl: {run / 'cache'}: no complete image cache; build it again: "
    assert told.startswith(start)
    with pytest.raises(DataError, match="build it again: anedl fit"):
        Review(run)
    command, *words = shlex.split(told.removeprefix(start))
    assert command == "anedl"
    assert main(words) == 0
    # The very same images and roles; nothing was trained or sorted.
    assert (run / "cache" / "pixels.npy").read_bytes() == pixels
    assert (run / "split.json").read_bytes() == split
    assert (run / "triage.csv").read_bytes() == edited
    assert main(["triage", str(run), "--as", "links"]) == 0


def test_where_a_run_does_not_know_its_images_the_manual_speaks(tmp_path):
    command = f"anedl fit LABELLED PILE -o {tmp_path} --resume --dry-run"
    assert command_to_decode(tmp_path) == command
    (tmp_path / "fit.json").write_text('{"seed": 0, "level": 0.05}')
    assert command_to_decode(tmp_path) == command


def test_decisions_are_read_wherever_they_stand(labelled, tmp_path, capsys):
    pile = tmp_path / "pile"
    pile.mkdir()
    for name, colour in (("a.png", "red"), ("b.png", "blue"), ("c.png", "white")):
        Image.new("RGB", (12, 12), colour).save(pile / name)
    (tmp_path / "one").mkdir()
    log = DecisionLog(tmp_path / "one" / "decisions.jsonl")
    log.decide(["a.png"], "label", "dark")
    two = DecisionLog(tmp_path / "two.jsonl")
    two.decide(["b.png"], "unknown")
    words = ["--decisions", str(tmp_path / "one"), "--decisions", str(two.path), "--dry-run"]
    assert main(["fit", *words, str(labelled), str(pile), "-o", str(tmp_path / "run")]) == 0
    assert "1 image labelled, 1 called unknown" in capsys.readouterr().out
    assert main(["fit", str(labelled), str(pile), "-o", str(tmp_path / "new"), *words[:1],
                 str(tmp_path / "none.jsonl")]) == 1  # fmt: skip
    assert "`anedl review` writes one" in capsys.readouterr().err


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
    with pytest.warns(UserWarning, match="cannot certify 5 %"):
        predicted = anedl.load(fitted.folder).predict(pixels)
    scores = dict(zip(fitted.triage.evidence.names, fitted.triage.evidence.score, strict=True))
    np.testing.assert_allclose(
        predicted.inlier_score, [scores[f"{number}.png"] for number in range(9)], rtol=1e-4
    )


def test_the_next_step_is_told_as_the_shell_takes_it(labelled, tmp_path, monkeypatch, capsys):
    told = {"triage": {"review": 1}}
    fitted = anedl.Fitted(tmp_path / "my run", told, None)
    monkeypatch.setattr("anedl.fit.flow.fit", lambda *given: fitted)
    assert main(["fit", str(labelled), str(tmp_path), "-o", str(tmp_path / "my run")]) == 0
    expected = f"settle the 1 doubtful image: anedl review '{tmp_path / 'my run'}'"
    assert capsys.readouterr().out.splitlines()[-1] == expected


def test_options_of_the_command_are_the_keywords_of_python(labelled, tmp_path, monkeypatch):
    parser = argparse.ArgumentParser()
    add_arguments(parser, [])
    of_command = {action.dest for action in parser._actions}
    of_command -= {"help", "labelled", "pile", "out", "dry_run"}
    assert set(keywords()) == of_command
    taken = []
    monkeypatch.setattr("anedl.fit.python.run_fit", lambda *given: taken.append(given[3]))
    anedl.fit(labelled, tmp_path, tmp_path / "run", target_inlier_loss=0.1, false_alarms=True)
    assert taken == [Wishes(level=0.1, benjamini_hochberg=True, quiet=True)]


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"minuts": 3}, "did you mean minutes"),
        ({"level": 0.1}, "target_inlier_loss"),
        ({"benjamini_hochberg": True}, "false_alarms"),
        ({"dry_run": True}, "--dry-run"),
    ],
)
def test_an_option_that_there_is_not_is_refused_with_the_one_there_is(
    labelled, tmp_path, wish, said
):
    with pytest.raises(ConfigError, match=said):
        anedl.fit(labelled, tmp_path, tmp_path / "run", **wish)
