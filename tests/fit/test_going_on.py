"""A fit that was cut, or is asked to go on: with what it goes on, and what it refuses."""

import csv
import json
import shutil
import subprocess
import sys
from functools import partial
from hashlib import sha256

import numpy as np
import pytest
from PIL import Image

from anedl.cli import main
from anedl.engine.train import Surroundings
from anedl.errors import ConfigError, DataError, Notice
from anedl.export.predictor import load
from anedl.fit.flow import Wishes, fit, look
from anedl.fit.training import recorded_share
from anedl.intake.cache import open_cache
from anedl.intake.fitted import TRUNKS_FILE

SHORT_LOOK = {"workers": 0, "quiet": True}


def silent(text):
    pass


def rows_of(run):
    with (run / "triage.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_going_on_keeps_a_table_that_was_changed_by_hand(copied, folders, no_pages, short):
    path, said = copied / "triage.csv", []
    edited = path.read_bytes().replace(b'"review"', b'"unknown"', 1)
    for content, kept in ((path.read_bytes(), 0), (edited, 1), (edited, 2)):
        path.write_bytes(content)
        wishes = Wishes(**short, target_precision=0.5, resume=True)
        fit(*folders, copied, wishes, said.append)
        assert sum("was changed by hand; it is kept as" in line for line in said) == kept
        assert len(list(copied.glob("triage.edited*.csv"))) == kept
        assert path.read_bytes() != edited
    assert all(found.read_bytes() == edited for found in copied.glob("triage.edited*.csv"))


def contents(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_a_refusal_to_go_on_leaves_the_run_as_it_was(copied, folders, tmp_path, short):
    before = contents(copied)
    with pytest.raises(ConfigError, match="--seed 0 then, 1 now"):
        fit(*folders, copied, Wishes(**short, seed=1, resume=True), silent)
    assert contents(copied) == before
    other = tmp_path / "other"
    shutil.copytree(folders[1], other)
    sorted(other.iterdir())[0].rename(other / "renamed.png")
    with pytest.raises(ConfigError, match="1 of its 76 are not there"):
        fit(folders[0], other, copied, Wishes(**short, resume=True), silent)
    assert contents(copied) == before


def test_new_images_and_another_size_are_refused_before_anything_is_decoded(
    copied, folders, tmp_path, short
):
    before = contents(copied / "cache")
    with pytest.raises(ConfigError, match="--image-size 12 "):
        fit(*folders, copied, Wishes(**{**short, "image_size": 9}, resume=True), silent)
    pile = tmp_path / "pile"
    shutil.copytree(folders[1], pile)
    shutil.copy(next(pile.glob("*.png")), pile / "aaa.png")
    with pytest.raises(ConfigError, match=r"aaa\.png is new"):
        fit(folders[0], pile, copied, Wishes(**short, resume=True), silent)
    assert contents(copied / "cache") == before


def test_photographs_that_a_run_was_begun_without_stay_unread(copied, folders, tmp_path, short):
    """Also where they were not even listed when it was begun, as in earlier versions."""
    labelled, pile = tmp_path / "labelled", tmp_path / "pile"
    shutil.copytree(folders[0], labelled)
    shutil.copytree(folders[1], pile)
    split = (copied / "split.json").read_bytes()
    # A picture that can be read under that name stands for one that now can.
    shutil.copy(next(pile.glob("*.png")), pile / "AAA.heic")
    wishes = Wishes(**short, resume=True)
    for _ in range(2):
        look(labelled, pile, copied, wishes, silent)
        assert len(open_cache(copied / "cache").items) == 36 + 40
        shutil.rmtree(copied / "cache")  # then only skipped.csv knows
    assert (copied / "split.json").read_bytes() == split


def test_going_on_sweeps_what_a_killed_process_left(copied, folders, no_pages, short):
    left = [copied / f".{name}.999999.tmp" for name in ("triage.csv", "fit.json")]
    left[0].mkdir()
    (left[0] / "triage.csv").write_text("half of th")
    left[1].write_text("as earlier versions left it")
    fit(*folders, copied, Wishes(**short, resume=True), silent)
    assert not any(path.exists() for path in left)


class Cut(BaseException):
    """As Ctrl-C, but only ours."""


def cut_at(monkeypatch, target, call=1):
    """Interrupt at the n-th call of a function."""
    module, _, name = target.rpartition(".")
    import importlib

    owner = importlib.import_module(module) if not module[module.rfind(".") + 1].isupper() else None
    if owner is None:
        where, _, class_name = module.rpartition(".")
        owner = getattr(importlib.import_module(where), class_name)
    real, calls = getattr(owner, name), []

    def counted(*arguments, **keywords):
        calls.append(1)
        if len(calls) == call:
            raise Cut
        return real(*arguments, **keywords)

    monkeypatch.setattr(owner, name, counted)


MOMENTS = {
    "decoding": ("anedl.fit.gather.build_cache", 1),
    "first steps of the labels alone": ("anedl.engine.step.Stepper.take_many", 1),
    "middle of the labels alone": ("anedl.engine.step.Stepper.take_many", 3),
    "results of the labels alone": ("anedl.engine.train.write_results", 1),
    "estimate": ("anedl.fit.flow.estimate_before", 1),
    "first steps": ("anedl.engine.step.Stepper.take_many", 4),
    "middle": ("anedl.engine.step.Stepper.take_many", 6),
    "results": ("anedl.engine.train.write_results", 2),
    "judging": ("anedl.fit.flow.judge_all", 1),
    "table": ("anedl.fit.flow.write_table", 1),
    "sheets": ("anedl.fit.flow.write_sheets", 1),
    "summary": ("anedl.fit.flow.summarise", 1),
}


OFTEN = {"decoding", "middle of the labels alone", "estimate", "middle", "table"}


@pytest.mark.parametrize(
    "moment",
    [
        moment if moment in OFTEN else pytest.param(moment, marks=pytest.mark.long)
        for moment in MOMENTS
    ],
)
def test_a_cut_run_goes_on_to_the_same_table(
    moment, finished, folders, tmp_path, monkeypatch, no_pages, short
):
    monkeypatch.setattr("anedl.fit.training.Surroundings", partial(Surroundings, save_seconds=0))
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        cut_at(patch, *MOMENTS[moment])
        with pytest.raises(Cut):
            fit(*folders, run, Wishes(**short), silent)
    fit(*folders, run, Wishes(**short, resume=True), silent)
    expected = finished[0].folder
    assert (run / "triage.csv").read_bytes() == (expected / "triage.csv").read_bytes()
    assert (run / "calibration.json").read_bytes() == (expected / "calibration.json").read_bytes()


def test_a_cut_in_the_probe_leaves_the_folder_free(
    finished, folders, tmp_path, monkeypatch, no_pages, short
):
    run = tmp_path / "run"
    timed = {name: value for name, value in short.items() if not name.startswith("epoch")}
    with monkeypatch.context() as patch:
        cut_at(patch, "anedl.fit.training.measure_speed")
        with pytest.raises(Cut):
            fit(*folders, run, Wishes(**timed), silent)
    fit(*folders, run, Wishes(**short), silent)
    assert (run / "triage.csv").read_bytes() == (finished[0].folder / "triage.csv").read_bytes()


def test_a_run_in_which_another_process_trains_is_refused_before_anything_is_listed(
    copied, folders, tmp_path, short
):
    holder = (
        "import pathlib, sys; from anedl.engine.lock import sole_training\n"
        "with sole_training(pathlib.Path(sys.argv[1])): print(flush=True); sys.stdin.read()"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(
        [sys.executable, "-c", holder, str(copied / "supervised")], text=True, **pipes
    ) as other:
        other.stdout.readline()
        with pytest.raises(ConfigError, match=f"process {other.pid} is training in this folder"):
            fit(tmp_path / "none", folders[1], copied, Wishes(**short, resume=True), silent)
        other.stdin.close()


def test_going_on_with_other_choices_is_refused(copied, folders, short):
    with pytest.raises(ConfigError, match=r"other choices \(epochs 3, now 5"):
        fit(*folders, copied, Wishes(**{**short, "epochs": 5}, resume=True), silent)
    with pytest.raises(ConfigError, match="method anedl-plus, now openmatch"):
        fit(*folders, copied, Wishes(**short, method="openmatch", resume=True), silent)
    with pytest.raises(ConfigError, match="--seed 0 then, 1 now"):
        fit(*folders, copied, Wishes(**short, seed=1, resume=True), silent)


def test_going_on_with_a_method_whose_file_has_changed_is_told_of_the_copy(
    copied, folders, short, tmp_path, no_pages, monkeypatch
):
    text = "from anedl.methods.anedl import Anedl\n\nclass Mine(Anedl):\n    like = 'anedl-plus'\n"
    file, copy = tmp_path / "mine.py", copied / "method.py"
    copy.write_text(text)
    file.write_text(text + "# another thought\n")
    config = json.loads((copied / "config.json").read_text())
    config |= {"method": f"{file}:Mine", "method_sha256": sha256(text.encode()).hexdigest()}
    (copied / "config.json").write_text(json.dumps(config))
    monkeypatch.setenv("ANEDL_RUN_METHOD", config["method_sha256"])  # as if trained with here
    with pytest.raises(ConfigError, match=f"; --method {copy}:Mine is the file as it was"):
        fit(*folders, copied, Wishes(**short, method=f"{file}:Mine", resume=True), silent)
    with pytest.warns(Notice, match="using the copy"):
        fit(*folders, copied, Wishes(**short, method=f"{copy}:Mine", resume=True), silent)


def test_going_on_with_other_images_is_refused(copied, folders, tmp_path, short):
    more = tmp_path / "more"
    shutil.copytree(folders[1], more)
    noise = np.random.default_rng(99).integers(0, 256, (12, 12, 3), np.uint8)
    Image.fromarray(noise).save(more / "another.png")
    with pytest.raises(ConfigError, match="other images"):
        fit(folders[0], more, copied, Wishes(**short, resume=True), silent)


def test_a_fit_that_was_cut_in_its_folds_remembers_its_share(tmp_path):
    """The last bits of the estimate may differ on another machine; the folds' models may not."""
    assert recorded_share(tmp_path) is None
    for folder, share in ((tmp_path / "fold-1", 0.31), (tmp_path, 0.32)):
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps({"own": {"oracle_share": share}}))
        assert recorded_share(tmp_path) == share


def test_a_pile_is_not_laid_out_in_a_form_that_nobody_chose(copied, capsys):
    assert main(["triage", str(copied)]) == 1
    assert "there are folders, links, label-studio, fiftyone" in capsys.readouterr().err
    assert not (copied / "triage").exists()


def test_moved_images_are_missed_by_name_and_found_by_the_command_that_is_told(
    copied, folders, tmp_path, capsys, short
):
    before = rows_of(copied)
    for part in folders:
        shutil.copytree(part, tmp_path / "elsewhere" / part.name)
    cache = copied / "cache" / "index.jsonl"
    gone = tmp_path / "gone"
    cache.write_text(cache.read_text().replace(str(folders[1].parent), str(gone)))
    assert main(["triage", str(copied), "--as", "folders", "--out", str(tmp_path / "out")]) == 1
    said = capsys.readouterr().err
    assert f"{len(before)} of {len(before)} files are no longer where the run found them" in said
    assert f"such as {gone}" in said
    assert f"anedl fit LABELLED PILE -o {copied} --resume" in said
    moved = [tmp_path / "elsewhere" / part.name for part in folders]
    fit(*moved, copied, Wishes(**short, resume=True), silent)
    assert rows_of(copied) == before
    assert main(["triage", str(copied), "--as", "links", "--out", str(tmp_path / "links")]) == 0


def test_a_fit_that_has_not_come_to_its_end_is_told_from_no_run(make_folders, tmp_path):
    look(*make_folders(tmp_path), tmp_path / "run", Wishes(**SHORT_LOOK), silent)
    with pytest.raises(DataError, match="only a dry run was made here: run the same"):
        load(tmp_path / "run", device="cpu")
    (tmp_path / "run" / TRUNKS_FILE).write_text("{}")
    with pytest.raises(DataError, match="this fit has not ended; go on with"):
        load(tmp_path / "run", device="cpu")
    with pytest.raises(DataError, match="not the folder of a run"):
        load(tmp_path, device="cpu")


def test_a_level_out_of_reach_of_a_run_that_has_begun_takes_a_new_folder(copied, folders, short):
    said = []
    look(*folders, copied, Wishes(**short, resume=True), said.append)
    assert any("label more, in a new folder" in line for line in said)
