"""Experiments on the digits, whole, at a few steps a run."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from anedl.engine import features
from anedl.engine.spec import make_spec, read_spec
from anedl.engine.train import Surroundings, train
from anedl.errors import AnedlError, ConfigError, DataError
from anedl.evaluation.metrics import auroc
from anedl.ledger.entry import read_ledger
from anedl.ledger.published import published_file, read_published
from anedl.methods.catalogue import METHODS
from anedl.presets.cells import COLUMNS
from anedl.presets.drawings import outcome_figure, save_figure
from anedl.presets.experiment import Experiment, Row, distinct_names
from anedl.presets.figure_files import figure_name
from anedl.presets.jobs import Job, Place, train_jobs
from anedl.presets.paper import EXPERIMENTS
from anedl.presets.reproduce import Outcome, Terms, plan, run_experiment, spec_of, to_train
from anedl.presets.tables import auroc_over_m, markdown
from anedl.presets.times import expected_time
from anedl.report.run_folder import read_run

TINY = {"epochs": 2, "epoch_steps": 3, "batch_size": 6, "test_while_training": False}
# Starting processes that import torch takes longer than these runs.
CPU = Place(device="cpu", processes=0)
BROKEN = '''
from anedl.methods.supervised import Supervised

class Broken(Supervised):
    """Falls over."""

    def loss(self, batch, progress):
        raise RuntimeError("this method falls over")
'''
SLIPPING = '''
from anedl.methods.supervised import Supervised

class Slipping(Supervised):
    """Cannot be built."""

    def __init__(self, *arguments):
        raise ValueError("a slip of its author's")
'''
# With a stand-in for timm, as the fixture is of this process alone.
LOOKING = '''
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import torch

from anedl.methods.supervised import Supervised


def note(name):
    with (Path(__file__).parent / name).open("a") as file:
        print(os.getpid(), file=file)


class Trunk(torch.nn.Module):
    num_features = 4

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1, 4))

    def forward(self, images):
        if len(images) > 2:  # else its width is being found out
            note("looked")
        return images.mean((1, 2, 3))[:, None] * self.weight


class Looking(Supervised):
    """Notes which process its trunk looks in, and which it learns in."""

    def loss(self, batch, progress):
        note("trained")
        return super().loss(batch, progress)


sys.modules["timm"] = SimpleNamespace(
    create_model=lambda *_, **__: Trunk(),
    get_pretrained_cfg=lambda name: SimpleNamespace(
        fixed_input_size=False, input_size=(3, 16, 16), mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4)
    ),
)
'''


def terms(folder, seeds=(1,), train=TINY):
    return Terms(seeds, runs=folder / "runs", results=folder / "results", train=train)


def on_digits(name):
    return EXPERIMENTS[name]().with_settings(["digits"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """One place for all experiments that agree, so that they share runs as they would."""
    return tmp_path_factory.mktemp("experiments")


@pytest.mark.parametrize(
    "name", [n for n in EXPERIMENTS if not n.startswith("table") and n not in COLUMNS]
)
def test_every_experiment_runs_on_the_digits(name, folder):
    outcome = run_experiment(on_digits(name), terms(folder), CPU)
    assert not outcome.failures
    text = markdown(outcome)
    if outcome.experiment.drawing == "bars":
        for row in outcome.experiment.rows:
            assert f"| {row.label} | 1 | " in text
        assert "published" not in text, "of the digits nothing is"
    assert "of the one seed 1;" in text
    picture = save_figure(outcome).path
    assert picture.parent == folder / "results" / "figures"
    pixels = np.asarray(Image.open(picture).convert("L"))
    assert min(pixels.shape) > 150
    assert pixels.std() > 5, "an empty page"
    assert not to_train(plan(on_digits(name), terms(folder))), "a second call trains nothing"


def test_table_1_and_2_share_their_runs_over_all_methods(folder):
    first, second = on_digits("table1"), on_digits("table2")
    assert {row.method for row in first.rows} == set(METHODS)
    planned = plan(first, terms(folder))
    assert len(planned) == len(METHODS)
    assert [one.spec.digest for one in planned] == [
        one.spec.digest for one in plan(second, terms(folder))
    ]


def test_only_what_is_missing_is_trained(tmp_path):
    rows = tuple(
        Row("digits", "supervised", f"{views} by {score}", {"labelled_views": views}, score)
        for views in (("weak",), ("strong",))
        for score in ("score", "energy")
    )
    experiment = Experiment("x", "X", rows, ("auroc",), "")
    heard = []
    run_experiment(experiment, terms(tmp_path), CPU, heard.append)
    assert len(heard) == 2, "four rows of two runs: two differ in the score alone"
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("model.safetensors")}
    heard.clear()
    outcome = run_experiment(experiment, terms(tmp_path, (1, 2)), CPU, heard.append)
    assert len(heard) == 2, "those of the second seed"
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in before.items())
    assert [len(outcome.runs_of(row)) for row in experiment.rows] == [2, 2, 2, 2]


def test_a_run_that_lies_elsewhere_counts(tmp_path):
    experiment, agreed = on_digits("ablation-m"), terms(tmp_path)
    elsewhere = agreed.runs / "by" / "hand"
    train(spec_of(experiment.rows[0], 1, agreed), elsewhere, Surroundings("cpu", quiet=True))
    (one,) = plan(experiment, agreed)
    assert (one.state, one.folder) == ("finished", elsewhere)
    outcome = run_experiment(experiment, agreed, CPU)
    assert [run.seed for run in read_ledger(agreed.results)] == [1], "and is recorded"
    assert outcome.folders_of(experiment.rows[0]) == [elsewhere]


def test_an_entry_of_the_ledger_counts_unless_images_are_shown(tmp_path):
    agreed = terms(tmp_path)
    experiment = Experiment("x", "X", (Row("digits", "supervised", "supervised"),), ("error",), "")
    run_experiment(experiment, agreed, CPU)
    (one,) = plan(experiment, agreed)
    for path in one.folder.iterdir():
        if path.is_file():
            path.unlink()
    assert [p.state for p in plan(experiment, agreed)] == ["recorded"]
    assert len(run_experiment(experiment, agreed, CPU).done) == 1
    looking = Experiment("x", "X", experiment.rows, ("error",), "", needs_outputs=True)
    assert [p.state for p in plan(looking, agreed)] == ["missing"]


def test_a_run_that_was_cut_goes_on_to_the_same_result(tmp_path):
    class CutError(Exception):
        pass

    def cut(step):
        if step >= 3:
            raise CutError

    agreed = terms(tmp_path)
    experiment = Experiment("x", "X", (Row("digits", "anedl", "anedl"),), ("error",), "")
    (one,) = plan(experiment, agreed)
    assert one.state == "missing"
    with pytest.raises(CutError):
        train(one.spec, one.folder, Surroundings("cpu", quiet=True, save_seconds=0.0), None, cut)
    assert [p.state for p in plan(experiment, agreed)] == ["cut"]
    outcome = run_experiment(experiment, agreed, CPU)
    assert not outcome.failures
    train(one.spec, tmp_path / "whole", Surroundings("cpu", quiet=True))
    name = "model.safetensors"
    assert (one.folder / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_the_folder_of_another_run_is_left_alone(tmp_path):
    experiment = Experiment("x", "X", (Row("digits", "supervised", "supervised"),), ("error",), "")
    run_experiment(experiment, terms(tmp_path), CPU)
    longer = terms(tmp_path, train={**TINY, "epoch_steps": 4})
    (one,) = plan(experiment, longer)
    assert one.state == "missing"
    assert one.folder.name == f"supervised-seed1-{one.spec.digest[:8]}"
    run_experiment(experiment, longer, CPU)
    (shorter,) = plan(experiment, terms(tmp_path))
    assert read_spec(shorter.folder / "config.json").train.epoch_steps == 3
    (plain,) = plan(experiment, terms(tmp_path, train={}))
    assert plain.folder.name == "supervised-seed1", "left free by runs with options of the engine"
    plain.folder.mkdir()
    (plain.folder / "config.json").write_text("{}")
    (plain,) = plan(experiment, terms(tmp_path, train={}))
    assert plain.folder.name == f"supervised-seed1-{plain.spec.digest[:8]}"


def test_a_run_that_fails_loses_no_other(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(BROKEN)
    broken = f"{file}:Broken"
    experiment = on_digits("table2").with_methods([broken, "supervised"])
    outcome = run_experiment(experiment, terms(tmp_path), CPU)
    (failure,) = outcome.failures
    assert "RuntimeError: this method falls over" in failure.error
    bad, good = experiment.rows
    assert outcome.runs_of(bad) == []
    assert len(outcome.runs_of(good)) == 1
    assert "| Broken | 0 | – |" in markdown(outcome)


# Fails on its second step, the first time, somewhere in torch.
ONCE = '''
from pathlib import Path
import torch
from anedl.methods.supervised import Supervised

class Once(Supervised):
    """Falls over once."""

    def loss(self, batch, progress):
        done = Path(__file__).with_suffix(".done")
        if not done.exists():
            done.touch()
            torch.nn.functional.cross_entropy(batch.labelled.labels, None)
        return super().loss(batch, progress)
'''


def test_a_failure_names_the_line_and_keeps_the_traceback_until_the_run_succeeds(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(ONCE)
    line = 1 + ONCE.splitlines().index(next(x for x in ONCE.splitlines() if "cross_entropy" in x))
    experiment = on_digits("table2").with_methods([f"{file}:Once"])
    (failure,) = run_experiment(experiment, terms(tmp_path), CPU).failures
    told = failure.job.folder / "error.txt"
    assert failure.error.endswith(f"({file}, line {line}; traceback in {told})")
    assert "\n" not in failure.error
    text = told.read_text()
    assert text.startswith("Traceback")
    assert "cross_entropy(batch.labelled.labels, None)" in text
    assert failure.error.startswith(text.splitlines()[-1])
    outcome = run_experiment(experiment, terms(tmp_path), CPU)
    assert not outcome.failures
    assert outcome.folders_of(experiment.rows[0]) == [failure.job.folder]
    assert not told.exists()


def test_a_failure_whose_traceback_cannot_be_written_is_told(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("anedl.files.write_text", full)
    (tmp_path / "mine.py").write_text(SLIPPING)
    job = Job(tmp_path / "run", {"setting": "digits", "method": f"{tmp_path}/mine.py:Slipping",
                                 "train": TINY})  # fmt: skip
    (done,) = train_jobs([job], CPU)
    assert done.error == f"ValueError: a slip of its author's ({tmp_path}/mine.py, line 8)"


@pytest.fixture
def frozen(tmp_path, trained_backbone, monkeypatch):
    monkeypatch.setenv("ANEDL_DATA", str(tmp_path))
    return {**TINY, "frozen": True, "backbone": trained_backbone, "feature_views": 1,
            "frozen_side": 0}  # fmt: skip


@pytest.mark.parametrize(
    ("method", "words"),
    [("mtc", "option frozen: mtc"), ("mine.py:Slipping", "ValueError: a slip of its author's")],
)
def test_a_method_without_features_loses_no_other(tmp_path, frozen, method, words):
    (tmp_path / "mine.py").write_text(SLIPPING)
    method = f"{tmp_path}/{method}" if ":" in method else method
    experiment = on_digits("table2").with_methods([method, "supervised"])
    for _ in range(2):  # the second time it is all that is left
        outcome = run_experiment(experiment, terms(tmp_path, train=frozen), CPU)
        (failure,) = outcome.failures
        assert words in failure.error
        assert len(outcome.runs_of(experiment.rows[1])) == 1


def test_features_are_made_in_a_process_that_ends_before_any_run_begins(tmp_path, frozen):
    """So that a GPU has the memory back that looking at images took."""
    (tmp_path / "mine.py").write_text(LOOKING)
    experiment = on_digits("table2").with_methods([f"{tmp_path / 'mine.py'}:Looking"])
    agreed = terms(tmp_path, seeds=(1, 2), train=frozen)
    outcome = run_experiment(experiment, agreed, Place("cpu", processes=1))
    assert not outcome.failures
    looked, trained = ((tmp_path / name).read_text().split() for name in ("looked", "trained"))
    assert len(set(looked)) == 1, "whoever trains finds them made"
    assert len(set(trained)) == 2
    assert not {*looked, str(os.getpid())} & {*trained}
    assert looked[0] != str(os.getpid())


def test_images_that_a_trunk_cannot_look_at_are_told_by_the_runs(tmp_path, frozen, monkeypatch):
    looked = []

    def unreadable(*_):
        looked.append(1)
        raise DataError("8.png: cannot be decoded as an image")

    monkeypatch.setattr(features, "_features", unreadable)
    experiment = on_digits("table2").with_methods(["supervised", "fixmatch"])
    outcome = run_experiment(experiment, terms(tmp_path, train=frozen), CPU)
    assert [done.error for done in outcome.failures] == ["8.png: cannot be decoded as an image"] * 2
    assert len(looked) == 3, "once for all, and once by each run"


def test_auroc_over_m_is_that_of_sums_of_the_largest(folder):
    experiment = on_digits("ablation-m")
    outcome = run_experiment(experiment, terms(folder), CPU)
    (path,) = outcome.folders_of(experiment.rows[0])
    run = read_run(path)
    alpha = np.sort(run.test["alpha"].astype(np.float64), axis=1)[:, ::-1]
    curve = auroc_over_m([path])[0]
    assert len(curve) == 6
    for m in (1, 4, 6):
        assert curve[m - 1] == pytest.approx(100 * auroc(alpha[:, :m].sum(1), run.test_targets))
    results = json.loads((path / "results.json").read_text())
    assert curve[2] == pytest.approx(100 * results["last"]["test"]["by_score"]["score"]["auroc"])


def test_published_numbers_stand_beside_runs_of_their_like_only(folder, monkeypatch):
    row = Row("digits", "anedl", "anedl")
    agreed = terms(folder)
    experiment = Experiment("x", "X", (row,), ("auroc", "error"), "made-up")
    figures = {"error": 26.7, "error_std": 0.2, "auroc": 90.3, "auroc_std": 0.1}
    record = {"setting": "digits", "method": "anedl", **figures, "what": "made-up",
              "variant": None, "options": {}, "score": "score", "comparable": ["error"],
              "source": "nowhere", "note": ""}  # fmt: skip
    agreed.results.mkdir(exist_ok=True)
    (agreed.results / "published.json").write_text(json.dumps([record]))
    outcome = run_experiment(experiment, agreed, CPU)
    (agreed.results / "published.json").unlink()
    assert outcome.published_of(row) is None, "runs of a length of their own"
    assert "26.7" not in markdown(outcome)
    object.__setattr__(outcome.runs_of(row)[0], "budget", "full")
    assert outcome.published_of(row) is None, "trained with options of their own"
    monkeypatch.setattr(Terms, "comparable", True)
    assert outcome.published_of(row).error == 26.7
    text = markdown(outcome)
    assert "26.7 ± 0.2" in text
    ours = np.mean([run.last.error for run in outcome.runs_of(row)])
    assert f"{ours - 26.7:+.1f}" in text
    assert "90.3" not in text, "not comparable"


def test_commands_repeat_their_run():
    for make in EXPERIMENTS.values():
        for row in make().rows:
            assert row.command(1, "fast").startswith(f"anedl train {row.setting} --method")
            row.spec(1, "fast")
    row = EXPERIMENTS["ablation-ano"]().rows[0]
    ending = "--dev --no-negative --no-adaptive --kl original"
    assert row.command(3, "full", True).endswith(ending)
    assert row.command(3, "full", train={"epochs": 2}, more=["--out", "a b"]).endswith(
        "--seed 3 --epochs 2 --no-negative --no-adaptive --kl original --out 'a b'"
    )
    views = Row("digits", "anedl", "x", {"labelled_views": ("weak", "strong"), "top_m": 2})
    assert views.command(0, "full").endswith("--seed 0 --labelled-views weak strong --top-m 2")


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_experiment_is_documented(name):
    words = EXPERIMENTS[name].__doc__
    for part in (f"`anedl reproduce {name}`", "Published", "Expected time:"):
        assert part in words


@pytest.mark.parametrize("setting", COLUMNS)
def test_every_cell_states_the_published_scores(setting, folder):
    """The docstrings are written by hand and the numbers of the file are too: they must agree."""
    words = " ".join(COLUMNS[setting].__doc__.split())
    names = {"fixmatch": "FixMatch", "mtc": "MTC", "t2t": "T2T", "openmatch": "OpenMatch"}
    numbers = read_published(published_file(folder))
    found = [row.published(numbers, "tables-1-2") for row in COLUMNS[setting]().rows]
    cells = {cell.method: cell for cell in found if cell and cell.what == "tables-1-2"}
    assert cells.keys() == {*names, "anedl"}
    for cell in cells.values():
        name = names.get(cell.method, "ANEDL")
        scores = f"{cell.auroc}±{cell.auroc_std} / {cell.error}±{cell.error_std}"
        assert f"{name} {scores}" in words


def test_the_figure_of_a_column_has_a_file_name(folder):
    column = COLUMNS["cifar100-55/50"]().with_settings(["digits"]).with_methods(["supervised"])
    outcome = run_experiment(column, terms(folder), CPU)
    path = save_figure(outcome).path
    assert path.parent == folder / "results" / "figures"
    assert path.name.startswith("cifar100-55-50")


def test_a_setting_or_method_that_is_not_is_told():
    with pytest.raises(ConfigError, match="did you mean digits"):
        EXPERIMENTS["table1"]().with_settings(["digit"])
    with pytest.raises(ConfigError, match="did you mean anedl"):
        EXPERIMENTS["table1"]().with_methods(["anedel"])


def test_settings_and_methods_named_twice_count_once():
    experiment = EXPERIMENTS["table1"]()
    assert experiment.with_settings(["digits", "digits"]) == experiment.with_settings(["digits"])
    alias = experiment.with_settings(["imagenet30-20/10%", "imagenet30-20/130"])
    assert alias.settings == ("imagenet30-20/130",)
    assert len(alias.rows) == len(METHODS)
    twice = on_digits("table1").with_methods(["anedl", "supervised", "anedl"])
    assert [row.method for row in twice.rows] == ["anedl", "supervised"]


def test_an_ablation_is_made_of_a_variant_too(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text("from anedl.methods.anedl import Anedl\n\nclass Mine(Anedl):\n    pass\n")
    plain = on_digits("ablation-ano")
    for method in ("anedl", f"{file}:Mine"):
        name = method.rpartition(":")[2]
        varied = plain.with_methods([method])
        assert [row.options for row in varied.rows] == [row.options for row in plain.rows]
        assert {row.method for row in varied.rows} == {method}
        assert [row.label for row in varied.rows] == [f"{name}: {row.label}" for row in plain.rows]
        digests = {row.spec(1, "full").digest for row in varied.rows}
        assert len(digests) == 3
    both = plain.with_methods(["anedl-released", "anedl"])
    assert [row.method for row in both.rows] == ["anedl-released"] * 3 + ["anedl"] * 3
    beside = on_digits("ablation-debias").with_methods(["anedl", "fixmatch"])
    assert [row.label for row in beside.rows] == [
        "anedl: without DebiasPL",
        "anedl: with DebiasPL (whole method)",
        "fixmatch",
    ]
    judged = on_digits("ablation-metric").with_methods(["anedl"])
    assert [row.score for row in judged.rows] == [
        row.score for row in EXPERIMENTS["ablation-metric"]().rows
    ]


def test_more_options_count_for_every_row_that_has_them(folder):
    experiment = on_digits("ablation-debias").with_options({"kl_weight": 0.5})
    assert [dict(row.options) for row in experiment.rows] == [
        {},  # OpenMatch has no such weight
        {"debias": False, "kl_weight": 0.5},
        {"kl_weight": 0.5},
    ]
    with pytest.raises(ConfigError, match="did you mean kl_weight"):
        experiment.with_options({"kl_wieght": 1.0})
    with pytest.raises(ConfigError, match="differ in it"):
        experiment.with_options({"debias": True})
    fewer = experiment.with_methods(["openmatch"])
    assert "kl_weight = 0.5" in markdown(run_experiment(fewer, terms(folder), CPU))


def test_no_published_number_stands_beside_another_recipe(folder):
    row = EXPERIMENTS["ablation-ano"]().rows[2]
    agreed = terms(folder, train={"weight_decay": 0.5})
    assert not agreed.comparable
    assert terms(folder, train={"precision": "fp32"}).comparable
    assert not Terms((1,), development=True).comparable
    assert row.published(read_published(published_file(folder)), "ablation-ano").auroc == 90.3


def test_a_figure_of_more_runs_is_kept(tmp_path):
    experiment = on_digits("table2").with_methods(["supervised", "fixmatch"])
    outcome = run_experiment(experiment, terms(tmp_path, seeds=(1, 2)), CPU)
    whole = save_figure(outcome)
    name = "table2-digits-epochs-2-epoch-steps-3-batch-size-6"
    assert (whole.runs, whole.kept, whole.path.name) == (4, None, f"{name}.png")
    assert str(whole) == f"{whole.path} (of 4 runs)"
    content = whole.path.read_bytes()
    with Image.open(whole.path) as image:
        assert image.info["anedl-runs"] == "4"

    part = run_experiment(experiment.with_methods(["fixmatch"]), terms(tmp_path, (2,)), CPU)
    beside = save_figure(part)
    assert beside.path == whole.path.with_name(f"{name}-1-runs-seeds-2.png")
    assert (beside.kept, beside.kept_runs) == (whole.path, 4)
    assert f"{whole.path}, of 4 runs, is kept" in str(beside)
    assert whole.path.read_bytes() == content

    assert save_figure(outcome).path == whole.path, "as many take its place"
    old = whole.path.read_bytes()
    whole.path.write_bytes(old.replace(b"anedl-runs", b"nothing-at"))
    unsaid = save_figure(outcome)
    assert unsaid.kept == whole.path
    assert "unknown" in str(unsaid)


def test_a_figure_of_other_rows_is_kept_and_one_of_more_takes_its_place(tmp_path):
    def drawn(*methods):
        experiment = on_digits("table2").with_methods(methods)
        return save_figure(run_experiment(experiment, terms(tmp_path), CPU))

    first = drawn("supervised", "fixmatch")
    other = drawn("supervised", "openmatch")
    assert (other.kept, other.kept_runs) == (first.path, 2)
    assert other.path.name.startswith(f"{first.path.stem}-rows-")
    assert drawn("supervised", "openmatch").path == other.path, "the same rows, the same name"
    more = drawn("supervised", "fixmatch", "openmatch")
    assert (more.path, more.kept) == (first.path, None)


def test_figures_with_other_options_have_other_names_and_say_them(tmp_path):
    def drawn(**options):
        experiment = on_digits("table2").with_methods(["fixmatch"]).with_options(options)
        agreed = terms(tmp_path, train={**TINY, "weight_decay": 0.5})
        outcome = run_experiment(experiment, agreed, CPU)
        return save_figure(outcome).path, outcome_figure(outcome, list(outcome.experiment.rows))

    half, figure = drawn(fixmatch_threshold=0.5)
    third, _ = drawn(fixmatch_threshold=0.3)
    assert half != third
    assert "fixmatch_threshold = 0.5" in figure.get_supxlabel().replace("\n", " ")
    short = on_digits("table2").with_methods(["fixmatch"]).with_options({"fixmatch_threshold": 0.5})
    outcome = Outcome(short, Terms((1,), train={"precision": "fp32"}), {}, {}, [], [])
    assert figure_name(outcome, list(short.rows)) == "table2-digits-fixmatch-threshold-0.5"


def test_methods_of_one_name_are_called_by_their_paths():
    names = distinct_names(["/a/lab/mine.py:Mine", "/a/home/mine.py:Mine", "anedl", "/a/b.py:Mine"])
    assert names == {
        "/a/lab/mine.py:Mine": "lab/mine.py:Mine", "/a/home/mine.py:Mine": "home/mine.py:Mine",
        "anedl": "anedl", "/a/b.py:Mine": "b.py:Mine",
    }  # fmt: skip
    assert distinct_names(["anedl", "/a/b.py:Mine"]) == {"anedl": "anedl", "/a/b.py:Mine": "Mine"}


def test_a_folder_that_cannot_be_written_is_told_before_anything_is_trained(tmp_path):
    experiment = Experiment("x", "X", (Row("digits", "supervised", "supervised"),), ("error",), "")
    for name in ("runs", "results"):
        (tmp_path / "a-file").write_text("")
        agreed = replace(terms(tmp_path), **{name: tmp_path / "a-file" / name})
        with pytest.raises(AnedlError, match=f"{name}.*cannot be written"):
            run_experiment(experiment, agreed, CPU)
        assert not list(tmp_path.rglob("config.json"))


def test_all_data_are_looked_for_before_anything_is_trained(tmp_path):
    settings = ["digits", "cifar100-55/50", "cifar100-80/50", "imagenet30-20/130"]
    experiment = EXPERIMENTS["table1"]().with_settings(settings).with_methods(["supervised"])
    place = Place(device="cpu", processes=0, data_root=tmp_path / "data")
    with pytest.raises(DataError) as told:
        run_experiment(experiment, terms(tmp_path), place)
    said = str(told.value)
    assert "cifar100-55/50, cifar100-80/50: " in said, "once a data set"
    assert "`anedl data fetch cifar100`" in said
    assert "`anedl data fetch imagenet30`" in said
    assert "digits" not in said
    assert not list(tmp_path.rglob("config.json"))
    here = experiment.with_settings(["digits"])
    assert not run_experiment(here, terms(tmp_path), place).failures


def test_seeds_on_one_fold_are_runs_of_their_own(tmp_path):
    """ImageNet-30 keeps its draw: two seeds share a fold and are two runs all the same."""
    experiment = EXPERIMENTS["table1"]().with_settings(["imagenet30-20/130"])
    planned = plan(experiment.with_methods(["anedl"]), terms(tmp_path, seeds=(1, 2)))
    assert [(one.seed, one.spec.fold) for one in planned] == [(1, 0), (2, 0)]
    assert len({one.folder for one in planned}) == 2


def test_a_time_is_that_of_recorded_runs_or_of_measured_steps(folder):
    spec = make_spec("cifar100-55/50", budget="full")
    predicted = expected_time(spec)
    by_hand = 10 * 1024 * 0.00276 + 190 * 1024 * 0.00475 + 200 * 0.4  # from measured steps
    assert predicted.seconds == pytest.approx(by_hand, rel=0.01)
    assert str(predicted).startswith("about 17 min (predicted")
    assert "about 4 min" in str(expected_time(make_spec("cifar10-6/50", budget="fast")))
    assert expected_time(make_spec("miniimagenet-50/50")) is None
    # 64 labelled images and 128 of the pool under two views, for 51,200 steps.
    fixmatch = expected_time(make_spec("cifar100-55/50", "fixmatch", budget="fast"))
    assert fixmatch.seconds == pytest.approx(51200 * 320 * 0.00475 / 640 + 50 * 0.4, rel=0.01)
    assert "images a step" in str(fixmatch)
    experiment = Experiment("x", "X", (Row("digits", "supervised", "supervised"),), ("error",), "")
    outcome = run_experiment(experiment, terms(folder), CPU)
    (run,) = outcome.done.values()
    recorded = expected_time(make_spec("digits", "supervised", 7, train=TINY), [run])
    assert recorded.seconds == run.wall_s
    assert run.device in str(recorded)
    frozen = {**TINY, "frozen": True, "backbone": "efficientnet-lite0"}
    assert expected_time(make_spec("digits", "supervised", 7, train=frozen), [run]) is None
    assert "two idle CPU cores" in str(expected_time(make_spec("digits", "anedl", train=TINY)))
    assert expected_time(make_spec("digits", "anedl", train=frozen)) is None, "none was measured"


def test_a_method_that_changes_in_between_is_told_and_not_mixed(tmp_path):
    file = tmp_path / "mine.py"
    text = "from anedl.methods.supervised import Supervised\n\nclass Mine(Supervised):\n    pass\n"
    file.write_text(text)
    experiment = Experiment(
        "mine", "Mine", (Row("digits", f"{file}:Mine", "mine"),), ("error",), "mine"
    )

    def change(_done):
        file.write_text(text + "# other text\n")

    with pytest.raises(AnedlError, match="has changed since"):
        run_experiment(experiment, terms(tmp_path, seeds=(1, 2)), CPU, change)
    recorded = read_ledger(tmp_path / "results")
    assert [run.seed for run in recorded] == [1], "the second seed was not trained by other text"
