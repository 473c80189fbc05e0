"""The next round: what people decided in a review becomes labels, and judges nothing."""

import csv
import json
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

import anedl
from anedl.engine.evaluate import evaluate_run
from anedl.engine.load import problem_of
from anedl.engine.spec import read_spec
from anedl.errors import ConfigError, DataError
from anedl.fit.decisions import match_decisions
from anedl.fit.flow import Wishes, fit, look
from anedl.fit.gather import gather
from anedl.intake.cache import open_cache
from anedl.intake.decided import read_decided
from anedl.review.decisions import FILE_NAME, DecisionLog, read_labels
from anedl.review.session import Review
from anedl.triage.table import read_parquet, read_table

STRANGE = [f"strange-{number}.png" for number in range(16)]
NEW_CLASS, UNKNOWN, SKIPPED = STRANGE[:7], STRANGE[7:10], STRANGE[10:11]
RENAMED = {"bars-0.png": "rows", "spots-2.png": "spots"}  # one against what it shows


def silent(text):
    pass


def rows_of(run):
    with (run / "triage.csv").open(encoding="utf-8", newline="") as file:
        return {row["file"]: row for row in csv.DictReader(file)}


def decide(run, labelled=RENAMED, new=NEW_CLASS, unknown=UNKNOWN, skipped=SKIPPED):
    """The decisions of a person who went through the run; the file."""
    log = DecisionLog(run / FILE_NAME)
    for name, label in labelled.items():
        log.decide([name], "label", label)
    for files, do, label in ((new, "label", "strange"), (unknown, "unknown", None),
                             (skipped, "skip", None)):  # fmt: skip
        if files:
            log.decide(files, do, label)
    return log.path


def gathered(folders, run, decisions, level=0.05):
    wishes = Wishes(level=level, quiet=True, workers=0, decisions=decisions)
    return gather(*folders, run, wishes, torch.device("cpu"), silent)


@pytest.fixture(scope="module")
def second(finished, folders, tmp_path_factory, short):
    """The first run with decisions, and the round after it; nobody may change them."""
    root = tmp_path_factory.mktemp("rounds")
    shutil.copytree(finished[0].folder, root / "first")
    path, said = decide(root / "first"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("anedl.fit.flow.write_report", lambda run: run / "report.html")
        fitted = fit(*folders, root / "second", Wishes(**short, decisions=path), said.append)
    return fitted, said


def test_people_have_the_last_word_in_the_table(second):
    rows = rows_of(second[0].folder)
    assert len(rows) == 40
    for name, label in (RENAMED | dict.fromkeys(NEW_CLASS, "strange")).items():
        assert (rows[name]["state"], rows[name]["class"]) == ("accept", label)
        assert rows[name]["reason"].startswith(f"a person said {label}")
        assert rows[name]["labelled_duplicate"] == ""
    for name in UNKNOWN:
        assert rows[name]["state"] == "unknown"
        assert rows[name]["reason"] == "unknown: a person said so"
    for name in rows.keys() - {*RENAMED, *NEW_CLASS, *UNKNOWN}:
        assert "a person" not in rows[name]["reason"]
    again = read_table(second[0].folder)
    assert again.state == second[0].triage.state


def test_decided_images_train_and_judge_nothing(second):
    run = second[0].folder
    split = json.loads((run / "split.json").read_text())
    names = [item.name for item in open_cache(run / "cache").items]
    pile = {n for n, item in enumerate(open_cache(run / "cache").items) if item.label is None}
    role = {part: {names[n] for n in split[part] if n in pile}
            for part in ("labelled", "validation", "pool", "test")}  # fmt: skip
    assert role["labelled"] == {*RENAMED, *NEW_CLASS}
    assert role["validation"] == role["test"] == set()
    assert role["pool"].isdisjoint({*RENAMED, *NEW_CLASS, *UNKNOWN})
    assert role["pool"] >= {*SKIPPED}
    # The others keep the roles and the classes the numbers they had in the first round.
    first = json.loads((run.parent / "first" / "split.json").read_text())
    for part in ("validation", "test"):
        assert split[part] == first[part]
    assert split["known_names"] == ["bars", "rows", "spots", "strange"]


def test_what_was_decided_is_said_and_counted(second):
    fitted, said = second
    text = "\n".join(said)
    assert "decisions of a person: 9 images labelled, 3 called unknown" in text
    assert "they neither validate nor calibrate" in text
    assert "new class 'strange' (7 images): it has no held-out images" in text
    assert "how dirty is the rest of the pile" in text
    assert "New class 'strange' (7 images)" in (fitted.folder / "README.md").read_text()
    counts = fitted.summary["decisions"]
    assert [counts[name] for name in ("labelled", "unknown", "gone", "changed")] == [9, 3, 0, 0]
    assert fitted.summary["pollution"]["pile"] == 40 - 12
    assert fitted.summary["classes"] == ["bars", "rows", "spots", "strange"]


def test_the_run_stands_alone(second):
    """It is evaluated, predicts and is reviewed with the classes people made."""
    run = second[0].folder
    problem = problem_of(read_spec(run / "config.json"), run)
    labels = dict(zip([i.name for i in open_cache(run / "cache").items if i.label is None],
                      problem.dataset.train.labels[-40:], strict=True))  # fmt: skip
    assert [labels[name] for name in (*NEW_CLASS, *RENAMED)] == [3] * 7 + [1, 2]
    assert labels[UNKNOWN[0]] == labels[SKIPPED[0]] == 4
    assert evaluate_run(run, unseen=["none"]).test.error == pytest.approx(
        second[0].summary["training"]["anedl-plus"]["fresh_error"]
    )
    pixels = np.random.default_rng(0).integers(0, 256, (3, 12, 12, 3), np.uint8)
    with pytest.warns(UserWarning, match="nothing is rejected, for 5 held-out images"):
        predictor = anedl.load(run)
    assert predictor.predict(pixels).probabilities.shape == (3, 4)
    assert read_labels(run / FILE_NAME) == read_labels(run.parent / "first" / FILE_NAME)


def test_a_review_of_the_next_round_begins_where_the_last_one_ended(second):
    review = Review(second[0].folder)
    now = review.state()
    assert len(now["standings"]) == 12
    # But what was decided before the model was trained does not speak for the model.
    assert now["effect"]["settled"] == (0, 0, 0)
    assert sum(now["effect"]["total"]) == 28


def test_a_cut_run_goes_on_with_the_decisions_it_began_with(
    second, folders, tmp_path, monkeypatch, no_pages, short
):
    first = tmp_path / "first"
    shutil.copytree(second[0].folder.parent / "first", first)
    path, run = first / FILE_NAME, tmp_path / "run"
    wishes = {**short, "decisions": path}

    def stop(*arguments, **keywords):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("anedl.fit.flow.estimate_before", stop)
        with pytest.raises(KeyboardInterrupt):
            fit(*folders, run, Wishes(**wishes), silent)
    DecisionLog(path).decide(["rows-1.png"], "label", "rows")  # the review goes on meanwhile
    said = []
    fit(*folders, run, Wishes(**wishes, resume=True), said.append)
    assert any("those made since are for the next" in line for line in said)
    expected = second[0].folder
    assert (run / "triage.csv").read_bytes() == (expected / "triage.csv").read_bytes()
    # Neither does it take the file to go on.
    path.unlink()
    fit(*folders, run, Wishes(**short, resume=True), silent)
    assert (run / "triage.csv").read_bytes() == (expected / "triage.csv").read_bytes()


def test_a_run_begun_without_decisions_does_not_go_on_with_some(copied, folders, short):
    path = decide(copied)
    with pytest.raises(ConfigError, match="begun without decisions"):
        fit(*folders, copied, Wishes(**short, resume=True, decisions=path), silent)


def test_what_looks_like_a_decided_image_judges_nothing(folders, tmp_path):
    """Copies of pile images among the labelled ones: their twins are decided about."""
    labelled = tmp_path / "labelled"
    shutil.copytree(folders[0], labelled)
    twins = [f"bars-{3 * number}.png" for number in range(6)]
    for name in twins:
        bright = np.asarray(Image.open(folders[1] / name)).astype(int) + 2
        Image.fromarray(np.clip(bright, 0, 255).astype(np.uint8)).save(labelled / "bars" / name)
    places = labelled, folders[1]
    (tmp_path / "old").mkdir()
    path = decide(
        tmp_path / "old", dict.fromkeys(twins[:3], "bars"), new=[], unknown=twins[3:], skipped=[]
    )
    found = gathered(places, tmp_path / "run", [path])
    judges = {*found.split.validation, *found.fresh, *found.decoys}
    copies = [n for n, item in enumerate(found.cache.items) if item.name in
              {f"bars/{name}" for name in twins}]  # fmt: skip
    assert len(copies) == 6
    assert judges.isdisjoint(copies)
    assert {*copies} <= {*found.split.labelled.tolist()}
    # Without decisions some of them do judge.
    plain = gathered(places, tmp_path / "plain", [])
    assert not {*plain.split.validation, *plain.fresh, *plain.decoys}.isdisjoint(copies)


def test_copies_of_an_image_called_unknown_are_not_accepted(folders, tmp_path, no_pages, short):
    """A copy in the pile of what a person has settled: the table says whose it is."""
    pile, old = tmp_path / "pile", tmp_path / "old"
    shutil.copytree(folders[1], pile)
    shutil.copy(pile / "bars-0.png", pile / "again.png")
    shutil.copy(pile / "rows-1.png", pile / "once more.png")
    old.mkdir()
    path = decide(old, {"rows-1.png": "rows"}, [], ["bars-0.png"], [])
    run = tmp_path / "run"
    fit(folders[0], pile, run, Wishes(**short, decisions=path), silent)
    rows = rows_of(run)
    assert rows["again.png"]["state"] == "review"
    assert "bars-0.png, which a person called unknown" in rows["again.png"]["reason"]
    twin = rows["once more.png"]
    assert (twin["labelled_duplicate"], twin["labelled_duplicate_class"]) == ("rows-1.png", "rows")
    assert read_table(run).evidence.twin == read_parquet(run).evidence.twin


def test_a_new_class_needs_as_many_images_as_any(finished, folders, tmp_path, short):
    (tmp_path / "old").mkdir()
    path = decide(tmp_path / "old", {}, STRANGE[:4], [], [])
    with pytest.raises(DataError, match=r"'strange' has 4 .*at least 5 different"):
        look(*folders, tmp_path / "run", Wishes(**short, decisions=path), silent)
    decide(tmp_path / "old", {}, STRANGE[4:5], [], [])
    found = look(*folders, tmp_path / "run", Wishes(**short, decisions=path), silent)
    assert found.names == ("bars", "rows", "spots", "strange")
    # The dry run may be followed by one without them.
    assert read_decided(tmp_path / "run") is not None
    look(*folders, tmp_path / "run", Wishes(**short), silent)
    assert read_decided(tmp_path / "run") is None


@pytest.fixture
def changed(finished, folders, tmp_path):
    """A review of the first run, and its pile with one file gone, one replaced, one broken."""
    old, pile = tmp_path / "old", tmp_path / "pile"
    shutil.copytree(finished[0].folder / "cache", old / "cache")
    shutil.copytree(folders[1], pile)
    path = decide(old, {f"bars-{n}.png": "bars" for n in range(0, 18, 3)}, [], UNKNOWN, [])
    (pile / "bars-0.png").unlink()
    shutil.copy(pile / "spots-2.png", pile / "bars-3.png")
    (pile / UNKNOWN[0]).write_bytes(b"")
    return path, (folders[0], pile)


def test_files_that_went_or_changed_are_told_and_not_used(changed, tmp_path):
    path, places = changed
    found = gathered(places, tmp_path / "run", [path])
    assert found.decided.gone == ("bars-0.png", UNKNOWN[0])
    assert found.decided.changed == ("bars-3.png",)
    assert set(found.decided.classes) == {"bars-6.png", "bars-9.png", "bars-12.png", "bars-15.png"}
    text = "\n".join(found.told_of_decisions)
    assert "2 decisions not used, no longer in the pile or not readable: bars-0.png" in text
    assert "1 decision not used, another picture under the same name since: bars-3.png" in text
    assert "bars-3.png" in {found.cache.items[n].name for n in found.split.pool}


def test_decisions_about_another_pile_are_refused(changed, folders, tmp_path):
    path, (labelled, _) = changed
    renamed, mixed = tmp_path / "renamed", tmp_path / "mixed"
    rng = np.random.default_rng(5)
    for pile in (renamed, mixed):
        pile.mkdir()
    for number, image in enumerate(sorted(folders[1].iterdir())):
        shutil.copy(image, renamed / f"photo {number}.png")
        # The same names, as cameras give them, but other pictures.
        Image.fromarray(rng.integers(0, 256, (12, 12, 3), np.uint8)).save(mixed / image.name)
    for pile in (renamed, mixed):
        with pytest.raises(DataError, match="about another pile: of 9 files"):
            gathered((labelled, pile), tmp_path / f"run of {pile.name}", [path])


def test_what_names_tell_of_decisions_is_told_before_anything_is_decoded(
    finished, folders, tmp_path
):
    (tmp_path / "old").mkdir()
    path = decide(tmp_path / "old", {}, STRANGE[:2], [], [])
    few = tmp_path / "few"
    shutil.copytree(folders[0], few)
    for image in sorted((few / "bars").iterdir())[3:]:
        image.unlink()
    run = tmp_path / "run"
    with pytest.raises(DataError, match=r"'bars' has 3; .* in the review: 'strange' has 2"):
        gathered((few, folders[1]), run, [path])
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(folders[1] / "bars-0.png", other / "elsewhere.png")
    with pytest.raises(DataError, match="another pile: of 2 files 2 are not in this one"):
        gathered((folders[0], other), run, [path])
    assert not run.exists()


def test_of_several_files_the_later_wins_and_a_run_folder_will_do(finished, tmp_path):
    cache = open_cache(finished[0].folder / "cache")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    first = decide(tmp_path / "one", {"bars-0.png": "bars", "rows-1.png": "rows"}, [], [], [])
    decide(tmp_path / "two", {"bars-0.png": "rows"}, [], ["rows-1.png"], [])
    decided = match_decisions([first, tmp_path / "two"], cache)
    assert decided.answers == {"bars-0.png": "rows", "rows-1.png": None}


def test_what_is_no_file_of_decisions_is_refused(finished, tmp_path):
    cache = open_cache(finished[0].folder / "cache")
    with pytest.raises(DataError, match="no such file"):
        match_decisions([tmp_path / "none.jsonl"], cache)
    (tmp_path / "other.jsonl").write_text("hello\n")
    with pytest.raises(DataError, match="none of its lines is a decision"):
        match_decisions([tmp_path / "other.jsonl"], cache)


def test_a_missing_file_is_told_before_anything_is_decoded(folders, tmp_path):
    with pytest.raises(DataError, match=r"anedl review. writes one"):
        gathered(folders, tmp_path / "run", [tmp_path / "decisions.jsonl"])
    assert not (tmp_path / "run").exists()


def test_a_pile_that_is_wholly_decided_about_is_refused(folders, tmp_path):
    (tmp_path / "old").mkdir()
    names = [path.name for path in folders[1].iterdir()]
    path = decide(tmp_path / "old", {}, [], names, [])
    with pytest.raises(DataError, match="nothing is left"):
        gathered(folders, tmp_path / "run", [path])
