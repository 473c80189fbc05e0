"""The folders of the worked example: real digits, strangers, copies and broken files."""

import csv
import json

import numpy as np
import pytest

from anedl.cli import main
from anedl.conformal import conditional_interval
from anedl.data.digits import load_digits
from anedl.errors import AnedlError, ConfigError
from anedl.intake.decoding import UnreadableError, decode
from anedl.intake.listing import list_labelled, list_pile
from anedl.presets.example import Share, compare_with_truth
from anedl.presets.folders import (
    COPIES,
    FOREIGN,
    KNOWN,
    LABELLED_PER_CLASS,
    UNREADABLE,
    WORDS,
    read_truth,
    write_digits_folders,
)
from anedl.triage.table import COLUMNS


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write_digits_folders(tmp_path_factory.mktemp("example"))


def test_labelled_images_are_the_digits_themselves(written):
    digits = load_digits().train
    listing = list_labelled(written.labelled)
    assert len(listing.items) == len(KNOWN) * LABELLED_PER_CLASS
    for item in listing.items[::17]:
        number = int(item.path.stem)
        assert WORDS[digits.labels[number]] == item.label
        np.testing.assert_array_equal(decode(item.path)[..., :1], digits.images[number])


def test_the_truth_names_every_file_of_the_pile(written):
    truth = read_truth(written.truth)
    files = {
        path.relative_to(written.pile).as_posix()
        for path in written.pile.rglob("*")
        if path.is_file()
    }
    assert set(truth) == files
    counts = {name: list(truth.values()).count(name) for name in set(truth.values())}
    labels = load_digits().train.labels
    for digit in range(6, 10):
        assert counts[WORDS[digit]] >= (labels == digit).sum()
    inliers = sum(counts[name] for name in KNOWN)
    assert inliers >= (labels < 6).sum() - len(KNOWN) * LABELLED_PER_CLASS + COPIES
    assert counts[FOREIGN] >= 5


def test_what_the_truth_calls_unreadable_is_and_nothing_else(written):
    truth = read_truth(written.truth)
    readable = set()
    for item in list_pile(written.pile).items:
        try:
            decode(item.path)
            readable.add(item.name)
        except UnreadableError:
            pass
    assert readable == {name for name, answer in truth.items() if answer != UNREADABLE}


def test_a_seed_fixes_every_byte(written, tmp_path):
    again = write_digits_folders(tmp_path)
    for path in [*written.labelled.rglob("*"), *written.pile.rglob("*")]:
        if path.is_file():
            other = tmp_path / path.relative_to(written.pile.parent)
            assert other.read_bytes() == path.read_bytes()
    assert again.truth.read_bytes() == written.truth.read_bytes()


def test_nothing_is_written_over(written):
    with pytest.raises(ConfigError, match="already"):
        write_digits_folders(written.pile.parent)


def test_more_labels_than_there_are_images_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="between 1 and"):
        write_digits_folders(tmp_path, labelled_per_class=500)


def test_the_comparison_counts_as_a_person_would(tmp_path):
    answers = [  # state, class, truth
        ("accept", "one", "one"), ("accept", "one", "two"), ("accept", "two", "seven"),
        ("review", "two", "two"), ("unknown", "two", "two"), ("unknown", "one", "nine"),
        ("unknown", "one", "foreign"), ("review", "one", "eight"),
    ]  # fmt: skip
    scores = [9.0, 7.0, 8.0, 5.0, 2.0, 1.0, 2.0, 3.0]
    rows = [
        {"file": f"{number}.png", "state": state, "class": given, "probability": 0.9,
         "inlier_score": score, "p_value": 0.5}
        for number, ((state, given, _), score) in enumerate(zip(answers, scores, strict=True))
    ]  # fmt: skip
    with (tmp_path / "triage.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows(rows)
    with (tmp_path / "truth.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [("file", "truth"), *((f"{n}.png", truth) for n, (*_, truth) in enumerate(answers))]
        )
    found = compare_with_truth(tmp_path, tmp_path / "truth.csv")
    assert found.precision == Share(2, 3)
    assert found.recall == Share(2, 4)
    assert found.accepted_right == Share(1, 3)
    assert found.accepted_known == Share(1, 2)
    assert found.inlier_loss == Share(1, 4)
    assert found.strangers == Share(4, 8)
    assert found.error == Share(1, 4)
    # of 16 pairs the known image has the higher score in 4 + 3 + 3 + 1 and ties in one
    assert found.auroc == pytest.approx(11.5 / 16)
    assert found.to_json()["error"] == {"count": 1, "of": 4, "share": 0.25}
    assert Share(0, 0).value is None


def test_a_second_example_is_refused_with_the_way_on(tmp_path, monkeypatch, capsys):
    """Cut off in the fit, cut off while the folders were written, and finished."""
    out = tmp_path / "my example"
    calls = []

    def cut(labelled, pile, run, wishes, say):
        calls.append(wishes.resume)
        raise AnedlError("cut off")

    monkeypatch.setattr("anedl.fit.flow.fit", cut)
    words = ["example", str(out), "--seed", "3"]
    assert main(words) == 1
    assert main(words) == 1
    told = capsys.readouterr().err
    assert f"go on with it: anedl example '{out}' --seed 3 --resume, or name another" in told
    assert main([*words, "--resume"]) == 1
    assert calls == [False, True]
    (out / "verdicts.json").write_text("{}")
    capsys.readouterr()
    assert main(words) == 1
    told = capsys.readouterr().err
    assert "holds a finished example" in told
    assert str(out / "run" / "report.html") in told
    for name in ("verdicts.json", "truth.csv"):
        (out / name).unlink()
    for more in ([], ["--resume"]):
        assert main([*words, *more]) == 1
        assert "cut off while they were written; remove them" in capsys.readouterr().err


@pytest.mark.long
def test_the_example_keeps_its_promise_and_finds_the_strangers(tmp_path, capsys):
    assert main(["example", str(tmp_path / "example"), "--quiet"]) == 0
    assert "the sorted pile beside the truth" in capsys.readouterr().out
    verdicts = json.loads((tmp_path / "example" / "verdicts.json").read_text())
    # The rate of one threshold from 39 images is Beta(2, 38), counted on some 800 inliers.
    low, high = conditional_interval(39, 0.05, coverage=0.999)
    assert low / 2 < verdicts["inlier_loss"]["share"] < high + 0.03
    assert verdicts["recall"]["share"] > 0.7
    assert verdicts["accepted_right"]["share"] > 0.9
