"""`anedl triage`: from a run folder to a layout, with the exit status telling what happened."""

import csv
import json
import os
import re

import numpy as np
import pytest
from PIL import Image

from anedl.cli import main
from anedl.intake.cache import build_cache
from anedl.intake.decided import Decided, write_decided
from anedl.intake.listing import Item, list_pile
from anedl.triage.table import read_table, write_table


@pytest.fixture
def run_folder(tmp_path, triage_of):
    """A run with a cache of 30 pile images and a labelled one of the same name as the first."""
    rng = np.random.default_rng(0)
    labelled = tmp_path / "labelled" / "00.png"
    pile = [tmp_path / "pile" / f"{i:02}.png" for i in range(30)]
    for path in (labelled, *pile):
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(path)
    items = [Item(labelled, "00.png", "cat"), *list_pile(tmp_path / "pile").items]
    build_cache(items, tmp_path / "run" / "cache", side=8)
    write_table(tmp_path / "run", triage_of([f"{i:02}.png" for i in range(30)]))
    return tmp_path / "run"


def test_folders_by_default_within_the_run(run_folder, capsys):
    assert main(["triage", str(run_folder), "--as", "folders"]) == 0
    out = run_folder / "triage" / "folders"
    copies = sorted(path.name for path in out.rglob("*.png"))
    assert copies == [f"{i:02}.png" for i in range(30)]
    assert "30 images in" in capsys.readouterr().out
    (first,) = out.rglob("00.png")
    assert first.read_bytes() == (run_folder.parent / "pile" / "00.png").read_bytes()
    assert main(["triage", str(run_folder), "--as", "folders"]) == 0
    assert "30 were there already" in capsys.readouterr().out


def test_states_and_folder_can_be_chosen(run_folder, tmp_path):
    arguments = ["--as", "links", "--out", str(tmp_path / "out"), "--state", "review", "unknown"]
    assert main(["triage", str(run_folder), *arguments]) == 0
    counts = read_table(run_folder).counts()
    assert len(list((tmp_path / "out").rglob("*.png"))) == counts["review"] + counts["unknown"]
    assert not (tmp_path / "out" / "accept").exists()


def test_how_fiftyone_reads_the_layout_is_told(run_folder, tmp_path, capsys):
    out = tmp_path / "out"
    assert main(["triage", str(run_folder), "--as", "fiftyone", "--out", str(out)]) == 0
    told = capsys.readouterr().out
    assert f"dataset_dir={str(out)!r}" in told
    assert 'data_path="data.json"' in told
    compile(told.split("read it by: ")[1].strip(), "call", "eval")


def test_judging_again(run_folder, tmp_path):
    """At so fine a level nothing can be flagged, so nothing is unknown."""
    arguments = ["--as", "fiftyone", "--out", str(tmp_path / "out"), "--bh", "0.0001"]
    assert read_table(run_folder).counts()["unknown"] > 0
    assert main(["triage", str(run_folder), *arguments]) == 0
    labels = json.loads((tmp_path / "out" / "labels.json").read_text())["labels"]
    assert len(labels) == 30
    assert all(target["attributes"]["state"] != "unknown" for target in labels.values())
    assert not any("cluster" in target["attributes"] for target in labels.values())


def test_judging_again_says_what_it_takes(run_folder, tmp_path, capsys):
    """30 images at 10 % by 19 hidden inliers: 30 / (0.1 · 20) of them must be strange."""
    record = {"fresh": list(range(7)), "seen": list(range(19)), "level": 0.05}
    (run_folder / "calibration.json").write_text(json.dumps(record))
    arguments = ["--as", "fiftyone", "--out", str(tmp_path / "out"), "--bh"]
    assert main(["triage", str(run_folder), *arguments, "0.1"]) == 0
    said = capsys.readouterr().out
    assert "at most 10 % are expected to be of a known class" in said
    assert "with 19 held-out inliers none is called so unless 15 or more of the 30" in said
    # Two that a person has answered are not judged.
    names = read_table(run_folder).evidence.names
    write_decided(run_folder, Decided({}, names[:2], files=("decisions.jsonl",)))
    assert main(["triage", str(run_folder), *arguments, "0.1"]) == 0
    assert "unless 14 or more of the 28" in capsys.readouterr().out


def test_judging_again_leaves_a_table_changed_by_hand_and_says_so(run_folder, tmp_path, capsys):
    arguments = ["--as", "fiftyone", "--out", str(tmp_path / "out"), "--bh", "0.0001"]
    assert main(["triage", str(run_folder), *arguments]) == 0
    assert "by hand" not in capsys.readouterr().out
    path = run_folder / "triage.csv"
    edited = path.read_bytes().replace(b"accept", b"unknown", 1)
    path.write_bytes(edited)
    assert main(["triage", str(run_folder), *arguments]) == 0
    assert f"{path} was changed by hand: it stays as it is" in capsys.readouterr().out
    assert path.read_bytes() == edited


FORMS = ["folders", "links", "label-studio", "fiftyone"]


def told_counts(text):
    """How many images were laid out, and how many of each state."""
    found = re.search(r"(\d+) images? in .*: (\d+) accept, (\d+) review, (\d+) unknown", text)
    return [int(number) for number in found.groups()]


@pytest.mark.parametrize("form", FORMS)
def test_a_missing_image_shows_in_counts_and_exit_status(run_folder, capsys, form):
    (run_folder.parent / "pile" / "07.png").unlink()
    assert main(["triage", str(run_folder), "--as", form]) == 1
    captured = capsys.readouterr()
    total, *states = told_counts(captured.out)
    assert total == sum(states) == 29
    assert captured.err.splitlines() == [
        "1 image is left out:",
        "  07.png: cannot be read any more: the file is not there (removed since it was listed, "
        "or a link to nothing)",
    ]


@pytest.mark.parametrize("form", FORMS)
def test_an_image_replaced_since_is_not_laid_out_under_the_old_verdict(run_folder, capsys, form):
    pile = run_folder.parent / "pile"
    Image.new("RGB", (8, 8), "red").save(pile / "07.png")
    (pile / "08.png").write_text("no picture any more")
    # Touched, or written anew with the same pixels, it is the picture that was judged.
    os.utime(pile / "09.png", (0, 0))
    Image.open(pile / "10.png").save(pile / "10.png", compress_level=0)
    out = run_folder.parent / "out"
    assert main(["triage", str(run_folder), "--as", form, "--out", str(out)]) == 1
    captured = capsys.readouterr()
    total, *states = told_counts(captured.out)
    assert total == sum(states) == 28
    assert "2 images are left out:" in captured.err
    assert "07.png: shows another picture than the one that was judged" in captured.err
    assert "08.png: cannot be read any more: its content is not an image" in captured.err
    written = [path.name for path in out.rglob("*.png")]
    written += [text for path in out.glob("*.json") for text in path.read_text().split("/")]
    assert not any(name.startswith(("07.png", "08.png")) for name in written)
    assert sum(name.startswith(("09.png", "10.png")) for name in written) >= 2


@pytest.mark.parametrize("form", ["label-studio", "fiftyone"])
def test_a_pile_out_of_reach_does_not_empty_what_was_written(run_folder, capsys, form):
    assert main(["triage", str(run_folder), "--as", form]) == 0
    out = run_folder / "triage" / form
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    (run_folder.parent / "pile").rename(run_folder.parent / "elsewhere")
    capsys.readouterr()
    assert main(["triage", str(run_folder), "--as", form]) == 1
    assert "none of the 30 images can be laid out; the first, " in capsys.readouterr().err
    assert {path: path.read_bytes() for path in before} == before


def test_what_was_laid_out_before_an_image_was_replaced(run_folder, capsys):
    """A copy is still the picture that was judged; a link is not."""
    for form in ("folders", "links"):
        assert main(["triage", str(run_folder), "--as", form]) == 0
    Image.new("RGB", (8, 8), "red").save(run_folder.parent / "pile" / "07.png")
    capsys.readouterr()
    assert main(["triage", str(run_folder), "--as", "folders"]) == 0
    assert told_counts(capsys.readouterr().out)[0] == 30
    assert main(["triage", str(run_folder), "--as", "links"]) == 1
    captured = capsys.readouterr()
    assert told_counts(captured.out)[0] == 29
    assert "07.png: shows another picture than the one that was judged; a link" in captured.err


def test_errors_are_told_plainly(run_folder, tmp_path, capsys):
    assert main(["triage", str(tmp_path), "--as", "folders"]) == 1
    assert "no triage here" in capsys.readouterr().err
    path = run_folder / "triage.csv"
    rows = list(csv.reader(path.read_text(encoding="utf-8").splitlines()))
    rows[1][0] = "other.png"
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    assert main(["triage", str(run_folder), "--as", "folders"]) == 1
    assert "1 file is not in the pile of this run, the first is 'other.png'" in (
        capsys.readouterr().err
    )


def test_judging_again_leaves_what_people_said(run_folder, tmp_path):
    names = read_table(run_folder).evidence.names
    write_decided(run_folder, Decided({}, names[:2], files=("decisions.jsonl",)))
    arguments = ["--as", "fiftyone", "--out", str(tmp_path / "out"), "--bh", "0.0001"]
    assert main(["triage", str(run_folder), *arguments]) == 0
    labels = json.loads((tmp_path / "out" / "labels.json").read_text())["labels"]
    states = [target["attributes"]["state"] for target in labels.values()]
    assert states.count("unknown") == 2


def test_p_values_of_folds_are_not_judged_again(run_folder, tmp_path, capsys):
    document = json.loads((run_folder / "triage.json").read_text())
    document["rules"]["folds"] = 2
    (run_folder / "triage.json").write_text(json.dumps(document))
    arguments = ["--as", "links", "--out", str(tmp_path / "out"), "--bh", "0.1"]
    assert main(["triage", str(run_folder), *arguments]) == 1
    assert "fit with --folds 0" in capsys.readouterr().err
