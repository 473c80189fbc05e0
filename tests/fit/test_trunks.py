"""A network from nothing or a trunk that is trained already: tried on labelled images."""

import json
import shutil

import pytest
import torch

from anedl.errors import ConfigError
from anedl.fit import trunks
from anedl.fit.flow import Wishes, fit, look
from anedl.fit.trunks import Tried, can_be_tried, try_trunks
from anedl.intake.fitted import TRUNKS_FILE

CPU = torch.device("cpu")
LABELLED = 28  # of three classes: a quarter of them is 21 to judge by


@pytest.fixture
def candidate(monkeypatch, trained_backbone):
    """A small trunk in the place of the one that is tried."""
    monkeypatch.setattr(trunks, "TRAINED_TRUNK", trained_backbone)
    monkeypatch.setattr(trunks, "is_installed", lambda name: True)
    return trained_backbone


@pytest.fixture
def larger(make_folders, tmp_path):
    return make_folders(tmp_path / "images", labelled=LABELLED, known=12, strange=8, side=24)


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    return folder


def wishes(**others):
    return Wishes(**{"minutes": 0.05, "workers": 0, "quiet": True, **others})


def silent(text):
    pass


@pytest.fixture
def not_again(monkeypatch):
    def refuse(*args, **more):
        raise AssertionError("tried again")

    monkeypatch.setattr(trunks, "OpenSetClassifier", refuse)


@pytest.mark.parametrize(
    ("from_nothing", "trained", "is_taken"),
    [
        (34, 47, True),  # 16 and 3 wrong
        (30, 40, True),  # exactly half as many
        (30, 39, False),
        (47, 47, False),
        (48, 40, False),
        (47, 50, True),
        (46, 48, False),  # half as many, but two images are little
        (50, 50, False),
    ],
)
def test_a_trained_trunk_must_be_wrong_at_most_half_as_often(from_nothing, trained, is_taken):
    tried = Tried(50, from_nothing, trained, 1.0)
    assert (tried.backbone == trunks.TRAINED_TRUNK) is is_taken
    ours, other = (trained, from_nothing) if is_taken else (from_nothing, trained)
    assert tried.reason.startswith(f"names {ours} of 50 ")
    assert tried.reason.endswith(f" {other}")


def test_the_time_it_took_is_not_there_for_training():
    assert Tried(50, 1, 1, seconds=30.0).minutes_left(5) == 4.5
    assert Tried(50, 1, 1, seconds=900.0).minutes_left(5) == 1  # a fifth is always left


@pytest.mark.parametrize(
    ("asked", "device", "side", "installed", "labelled", "expected"),
    [
        ({}, "cpu", 24, True, 80, True),
        ({}, "cpu", 24, True, 79, False),
        ({}, "cpu", 16, True, 80, False),
        ({}, "cuda", 24, True, 80, False),
        ({}, "cpu", 24, False, 80, False),
        ({"backbone": "wrn-10-1"}, "cpu", 24, True, 80, False),
        ({"method": "mtc"}, "cpu", 24, True, 80, False),
        ({"options": {"rotation_weight": 0.5}}, "cpu", 24, True, 80, False),
    ],
)
def test_what_was_chosen_or_cannot_be_judged_is_not_tried(
    monkeypatch, asked, device, side, installed, labelled, expected
):
    monkeypatch.setattr(trunks, "is_installed", lambda name: installed)
    assert can_be_tried(wishes(**asked), torch.device(device), side, labelled) is expected


def test_both_are_judged_by_images_that_neither_has_seen(candidate, larger, run, monkeypatch):
    seen = []

    class Watched(trunks.OpenSetClassifier):
        def fit(self, X, y):  # noqa: N803
            self.learnt = {image.tobytes() for image in X}
            seen.append((self.options["backbone"], X.shape))
            return super().fit(X, y)

        def score(self, X, y):  # noqa: N803
            assert not self.learnt & {image.tobytes() for image in X}
            assert len(X) == len(y) == 21
            return super().score(X, y)

    monkeypatch.setattr(trunks, "OpenSetClassifier", Watched)
    said = []
    tried = try_trunks(*larger, run, wishes(), CPU, said.append)
    assert tried is not None
    assert tried.judged == 21
    assert max(tried.from_nothing, tried.trained) > 10  # seven by chance
    # The first of them measures how many steps there is time for.
    assert seen == [("wrn-10-1", (63, 24, 24, 3))] * 2 + [(candidate, (63, 16, 16, 3))]
    first, trying, named = said
    assert first.splitlines()[0] == (
        "a first look: 84 labelled files in 3 classes, 20 files in the pile, which is decoded later"
    )
    assert "on 84 labelled images" in trying
    assert f"names {tried.from_nothing} of 21" in named
    assert json.loads((run / TRUNKS_FILE).read_text())["judged"] == 21


def test_what_is_wrong_with_labelled_files_is_told_before_the_trial(candidate, larger, run):
    labelled, _ = larger
    shutil.copy(labelled / "bars" / "0.png", labelled / "rows" / "copy.png")
    (labelled / "spots" / "0.png").write_bytes(b"")
    (labelled / "notes.txt").write_text("mine")
    for path in sorted(larger[1].iterdir())[8:]:
        path.unlink()
    said = []
    try_trunks(*larger, run, wishes(), CPU, said.append)
    first = said[0].splitlines()
    assert first[0].startswith("a first look: 85 labelled files in 3 classes")
    assert first[1] == "skipped: 2 files (2 labelled, 0 in the pile)"
    assert "1  the file is empty (0 bytes)" in said[0]
    assert "bars/0.png and rows/copy.png; one of the labels is probably wrong" in first[-2]
    assert "only 8 in the pile: did you swap them?" in first[-1]
    assert said[1].startswith("trying a network")


def test_with_few_labels_nothing_is_tried(candidate, make_folders, run, tmp_path, not_again):
    for labelled in (12, 5):
        few = make_folders(tmp_path / str(labelled), labelled=labelled, side=24)
        assert try_trunks(*few, run, wishes(), CPU, silent) is None
    assert not (run / TRUNKS_FILE).exists()


def test_many_labels_are_tried_in_part(monkeypatch):
    monkeypatch.setattr(trunks, "MOST_IMAGES", 40)
    items = [trunks.Item(None, f"{n}", "ab"[n % 2]) for n in range(100)]
    sample = trunks._sample(items, seed=0)
    assert len(sample) == len({item.name for item in sample}) == 40
    assert sum(item.label == "a" for item in sample) == 20
    assert sample != trunks._sample(items, seed=1)


@pytest.mark.parametrize(("right", "backbone"), [((10, 20), True), ((20, 20), False)])
def test_a_fit_takes_what_did_better_and_says_why(
    candidate, larger, tmp_path, no_pages, monkeypatch, short, right, backbone
):
    tried = Tried(21, *right, seconds=0.5)
    monkeypatch.setattr("anedl.fit.flow.try_trunks", lambda *args: tried)
    fitted = fit(*larger, tmp_path / "run", Wishes(**short), silent)
    config = json.loads((fitted.folder / "config.json").read_text())
    assert config["train"]["backbone"] == (candidate if backbone else "wrn-10-1")
    assert config["train"].get("frozen", False) is backbone
    choice = fitted.summary["choices"]["backbone"]
    assert choice == {"value": config["train"]["backbone"], "reason": tried.reason}


@pytest.fixture
def begun(candidate, larger, tmp_path, no_pages, short, not_again, monkeypatch):
    """A finished fit behind the trained trunk, and what goes on with it."""
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("anedl.fit.flow.try_trunks", lambda *args: Tried(21, 10, 20, 0.5))
        fit(*larger, run, Wishes(**short), silent)
    return run


def test_a_fit_that_goes_on_keeps_its_trunk(begun, larger, short, candidate):
    before = (begun / "triage.csv").read_bytes()
    summary = fit(*larger, begun, Wishes(**short, resume=True), silent).summary
    assert (begun / "triage.csv").read_bytes() == before
    assert summary["choices"]["backbone"] == {"value": candidate, "reason": "as the run began"}
    said = []
    look(*larger, begun, Wishes(**short, resume=True), said.append)
    assert any(candidate in line for line in said)


def test_another_trunk_is_refused_by_its_name(begun, larger, short, candidate):
    for call in (fit, look):
        with pytest.raises(ConfigError, match=f"--backbone wrn-10-1: .* begun with {candidate}"):
            call(*larger, begun, Wishes(**short, resume=True, backbone="wrn-10-1"), silent)


def test_what_was_tried_is_forgotten_where_the_run_took_another_trunk(begun, larger, short):
    record = {"judged": 21, "from_nothing": 20, "trained": 20, "seconds": 0.5}
    (begun / TRUNKS_FILE).write_text(json.dumps(record))
    summary = fit(*larger, begun, Wishes(**short, resume=True), silent).summary
    assert summary["choices"]["backbone"]["reason"] == "as the run began"


def test_a_trial_of_the_same_images_is_not_made_again(candidate, larger, run, monkeypatch):
    tried = try_trunks(*larger, run, wishes(), CPU, silent)
    assert sorted(path.name for path in run.iterdir()) == [TRUNKS_FILE]
    with monkeypatch.context() as patch:
        patch.setattr(trunks, "OpenSetClassifier", None)
        assert try_trunks(*larger, run, wishes(resume=True), CPU, silent) == tried
    next(larger[0].rglob("*.png")).unlink()
    again = try_trunks(*larger, run, wishes(resume=True), CPU, silent)
    assert again.images != tried.images


def test_what_a_killed_trial_left_is_taken_away(candidate, larger, run):
    (run / trunks.TRIAL_FOLDER / "24").mkdir(parents=True)
    (run / trunks.TRIAL_FOLDER / "24" / "pixels.npy").write_bytes(b"half")
    said = []
    assert try_trunks(*larger, run, wishes(), CPU, said.append) is not None
    assert "cut off here" in said[0]
    assert not (run / trunks.TRIAL_FOLDER).exists()


def test_a_fit_that_was_cut_after_its_trial_does_not_start_over(larger, run, short):
    (run / TRUNKS_FILE).write_text("{}")
    with pytest.raises(ConfigError, match="begun here and has not ended: go on"):
        fit(*larger, run, Wishes(**short), silent)


def test_files_that_cannot_be_read_leave_it_to_the_fit_to_tell(candidate, larger, run, not_again):
    for path in larger[0].rglob("*.png"):
        path.write_bytes(b"no image")
    assert try_trunks(*larger, run, wishes(), CPU, silent) is None


def test_a_dry_run_says_that_both_will_be_tried(candidate, larger, tmp_path, not_again):
    said = []
    look(*larger, tmp_path / "run", wishes(), said.append)
    (line,) = (line for line in said if line.split()[0] == "backbone")
    assert "both are tried" in line
    assert not (tmp_path / "run" / TRUNKS_FILE).exists()
