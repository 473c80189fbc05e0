"""Whole runs: what must not matter does not, what goes wrong is told."""

import json
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from anedl.data.settings import get_setting
from anedl.engine.epoch import NotFiniteError
from anedl.engine.model import choose_device, wake
from anedl.engine.problem import Problem, load_problem
from anedl.engine.spec import make_spec
from anedl.engine.train import Surroundings, select, train
from anedl.errors import AnedlError, ConfigError, DataError
from anedl.methods.base import Losses
from anedl.methods.catalogue import METHODS
from anedl.methods.supervised import Supervised
from anedl.views import View

STATE = [
    *(f"state/step-00000009/{name}.safetensors" for name in ("model", "average", "optimiser")),
    "model.safetensors",
    "best.safetensors",
]


@pytest.fixture(scope="module")
def reference(tiny_spec, tiny_run, tmp_path_factory):
    """One run of each method with the true labels, made when first asked for."""
    runs = {}

    def get(method):
        if method not in runs:
            folder = tmp_path_factory.mktemp(method)
            spec = tiny_spec(method, test_while_training=method == "anedl")
            runs[method] = spec, folder, tiny_run(spec, folder, save_seconds=3600.0)
        return runs[method]

    return get


def with_labels_permuted(problem: Problem, indices: np.ndarray) -> Problem:
    """The same split of the same images, but the labels at `indices` change places."""
    labels = problem.dataset.train.labels.copy()
    labels[indices] = np.roll(labels[indices], len(indices) // 3)
    moved = (labels != problem.dataset.train.labels).mean() * len(labels) / len(indices)
    assert moved > 0.7
    train = replace(problem.dataset.train, labels=labels)
    return replace(problem, dataset=replace(problem.dataset, train=train))


def assert_same_weights(folder, reference):
    for name in STATE:
        ours, theirs = load_file(folder / name), load_file(reference / name)
        assert ours.keys() == theirs.keys()
        for key in ours:
            assert torch.equal(ours[key], theirs[key]), f"{name}: {key}"


@pytest.mark.parametrize("method", METHODS)
def test_the_labels_of_pool_images_never_reach_training(
    reference, tiny_run, problem, tmp_path, method
):
    spec, folder, results = reference(method)
    permuted = with_labels_permuted(problem, problem.split.pool)
    assert (permuted.pool_truth() != problem.pool_truth()).mean() > 0.5
    again = tiny_run(spec, tmp_path, of=permuted, save_seconds=3600.0)
    assert_same_weights(tmp_path, folder)
    assert again["last"] == results["last"]
    assert again["best_val"] == results["best_val"]


def test_the_labels_of_test_images_choose_nothing(reference, tiny_run, problem, tmp_path):
    """Even when test figures are recorded while training."""
    spec, folder, results = reference("anedl")
    permuted = with_labels_permuted(problem, problem.split.test)
    again = tiny_run(spec, tmp_path, of=permuted, save_seconds=3600.0)
    assert_same_weights(tmp_path, folder)
    for key in ("epoch", "validation_error", "thresholds"):
        assert again["best_val"][key] == results["best_val"][key]
        assert again["last"][key] == results["last"][key]
    assert again["last"]["test"]["error"] != results["last"]["test"]["error"]


def test_the_first_lowest_validation_error_is_the_best_whatever_the_test_says(
    tiny_spec, tiny_run, problem, tmp_path, monkeypatch
):
    """Figures made up so that validation and test disagree about every epoch."""
    errors = {"validation": iter([0.5, 0.3, 0.3, 0.4]), "test": iter([0.4, 0.3, 0.2, 0.1])}
    sizes = {len(problem.validation()[0]): "validation", len(problem.test()[0]): "test"}

    def judge(method, images, targets, precision):
        return {"error": next(errors[sizes[len(images)]])}

    monkeypatch.setattr("anedl.engine.train.judge", judge)
    averages = {}

    def keep(step):
        if step % 3 == 0:
            averages[step // 3 - 1] = load_file(
                tmp_path / f"state/step-{step:08d}/average.safetensors"
            )

    spec = tiny_spec("supervised", epochs=4, test_while_training=True)
    results = tiny_run(spec, tmp_path, after_save=keep)
    assert results["best_val"]["epoch"] == 1
    best = load_file(tmp_path / "best.safetensors")
    assert all(torch.equal(best[key], averages[1][key]) for key in best)
    assert not torch.equal(best["classifier.weight"], averages[2]["classifier.weight"])


def test_the_averaged_model_selects(tiny_spec, tiny_stepper):
    """By the evidence it has for the class it predicts itself, on the view the method names."""
    stepper = tiny_stepper(tiny_spec(options={"selection_view": "flip"}))
    torch.manual_seed(0)
    with torch.no_grad():
        stepper.flat_average.values.add_(0.1 * torch.randn_like(stepper.flat_average.values))
    asked = []

    def augment(images, view, seed, step, slot):
        asked.append((view, seed, step))
        return images.flip(3)

    stepper.stream.augment = augment
    found, seen = select(stepper, 7)
    assert asked == [(View.FLIP, 0, 7)]
    evidence = []
    for model in (stepper.average, stepper.method):
        model.eval()
        with torch.no_grad():
            features = model.backbone(stepper.stream.images.pool.flip(3))
            predicted = model.classifier(features).argmax(1)
            evidence.append(model.detector(features)[range(80), predicted])
            if model is stepper.average:
                assert torch.equal(seen, predicted)
    count = round(0.41 * 80)
    assert found.tolist() == sorted(evidence[0].topk(count).indices.tolist())
    assert found.tolist() != sorted(evidence[1].topk(count).indices.tolist())


def test_labels_of_labelled_images_do_matter(reference, tiny_run, problem, tmp_path):
    """The comparison above can fail: these labels are used."""
    spec, folder, _ = reference("anedl")
    tiny_run(spec, tmp_path, of=with_labels_permuted(problem, problem.split.labelled))
    with pytest.raises(AssertionError, match="model"):
        assert_same_weights(tmp_path, folder)


def test_the_same_spec_gives_the_same_run(reference, tiny_run, tmp_path, rows_of, without_seconds):
    spec, folder, results = reference("anedl")
    torch.manual_seed(4711)
    np.random.seed(4711)  # noqa: NPY002 - a global state that must not matter
    again = tiny_run(spec, tmp_path, save_seconds=3600.0)
    assert without_seconds(again) == without_seconds(results)
    assert rows_of(tmp_path) == rows_of(folder)
    assert_same_weights(tmp_path, folder)


def test_another_seed_gives_another_run(reference, tiny_spec, tiny_run, tmp_path):
    _, folder, _ = reference("anedl")
    tiny_run(tiny_spec(seed=1, test_while_training=True), tmp_path, save_seconds=3600.0)
    first, second = (load_file(run / "model.safetensors") for run in (folder, tmp_path))
    weights = [key for key in first if key.endswith("weight")]
    assert weights
    assert not any(torch.equal(first[key], second[key]) for key in weights)


def test_what_a_run_leaves_behind(reference):
    spec, folder, results = reference("anedl")
    assert sorted(path.name for path in folder.iterdir()) == [
        "best.safetensors", "config.json", "metrics.jsonl", "model.safetensors", "outputs",
        "results.json", "split.json", "state", "tensorboard",
    ]  # fmt: skip
    config = json.loads((folder / "config.json").read_text())
    assert config.pop("differs")["epoch_steps"] == 3
    assert (config.pop("restarts"), config.pop("pretraining")) == ([], 1)
    assert config == json.loads(json.dumps(spec.to_json()))
    assert json.loads((folder / "results.json").read_text()) == json.loads(json.dumps(results))
    last, model = load_file(folder / STATE[1]), load_file(folder / "model.safetensors")
    assert all(torch.equal(last[key], model[key]) for key in last), "the averaged model is kept"


def test_the_log(reference, problem):
    _, folder, results = reference("anedl")
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    training = [row for row in rows if "loss" in row]
    judged = [row for row in rows if "validation" in row]
    assert [(row["step"], row["epoch"], row["stage"]) for row in training] == [
        (2, 0, 1), (3, 0, 1), (5, 1, 2), (6, 1, 2), (8, 2, 2), (9, 2, 2),
    ]  # fmt: skip
    assert [row["step"] for row in judged] == [3, 6, 9]
    assert [row["step"] for row in training if "selection" in row] == [5, 8]
    for row in training:
        terms = {k: v for k, v in row["train"].items() if "_" not in k or k[:2] in ("p_", "n_")}
        assert row["loss"] == pytest.approx(sum(terms.values()), rel=1e-5)
        assert row["images_per_second"] > 0
        assert ("fixmatch" in row["train"]) == (row["stage"] == 2)
    selection = training[2]["selection"]
    assert selection["count"] == round(0.41 * 80)
    assert 0 <= selection["purity"] <= 1
    inliers = (problem.pool_truth() >= 0).sum()
    assert selection["recall"] == pytest.approx(
        selection["purity"] * selection["count"] / inliers, rel=1e-6
    )
    errors = [row["validation"]["error"] for row in judged]
    assert results["best_val"]["epoch"] == int(np.argmin(errors)), "the first of equal ones"
    assert results["best_val"]["validation_error"] == min(errors)
    assert all("auroc" in row["test"] for row in judged)


def test_evaluation_less_often_still_judges_the_end(tiny_spec, tiny_run, tmp_path, rows_of):
    results = tiny_run(tiny_spec("supervised", evaluate_every=2), tmp_path, save_seconds=3600.0)
    judged = [row["epoch"] for row in rows_of(tmp_path) if "validation" in row]
    assert judged == [1, 2]
    assert results["best_val"]["epoch"] in judged


def test_self_training_from_the_first_step_and_never(tiny_spec, tiny_run, tmp_path, rows_of):
    tiny_run(tiny_spec(pretrain_epochs=0, epochs=1), tmp_path / "first", save_seconds=3600.0)
    assert {row["stage"] for row in rows_of(tmp_path / "first")} == {2}
    results = tiny_run(tiny_spec(pretrain_epochs=1, epochs=1), tmp_path / "never")
    assert {row["stage"] for row in rows_of(tmp_path / "never")} == {1}
    assert results["steps"] == 3


def test_the_development_split_trains_on_fewer_classes(tiny_spec, tmp_path, problem):
    spec = tiny_spec("anedl", development=True, epochs=2)
    results = train(spec, tmp_path, Surroundings(device="cpu", quiet=True))
    small = load_problem(problem.setting, 0, development=True, pool_limit=80)
    assert load_file(tmp_path / "model.safetensors")["classifier.weight"].shape[0] == 4
    assert small.task.classes == 4
    assert results["development"] is True
    assert results["split_hash"] == small.split.digest != problem.split.digest


def test_a_loss_that_is_not_finite_stops_the_run(
    tiny_spec, tiny_run, tmp_path, monkeypatch, reference
):
    """The error names the term and the checkpoint, which is the one of an undisturbed run."""
    original = Supervised.loss

    def poisoned(self, batch, progress):
        found = original(self, batch, progress)
        bad = torch.where(progress.epoch * 3 >= 4, torch.nan, 1.0)
        return Losses({"ce": found.terms["ce"] * bad, "other": found.terms["ce"] * 0})

    spec = tiny_spec("supervised")
    undisturbed = {}

    def keep(step):
        undisturbed[step] = load_file(tmp_path / f"good/state/step-{step:08d}/model.safetensors")

    tiny_run(spec, tmp_path / "good", after_save=keep)
    monkeypatch.setattr(Supervised, "loss", poisoned)
    with pytest.raises(NotFiniteError) as caught:
        tiny_run(spec, tmp_path / "bad")
    assert isinstance(caught.value, AnedlError)
    message = str(caught.value)
    assert "not finite" in message
    assert "ce" in message
    assert "other" not in message
    assert str(tmp_path / "bad" / "state") in message
    assert "--learning-rate" in message
    kept = load_file(tmp_path / "bad/state/step-00000003/model.safetensors")
    for key, value in undisturbed[3].items():
        assert torch.equal(kept[key], value), key
    rows = (tmp_path / "bad" / "metrics.jsonl").read_text().splitlines()
    assert json.loads(rows[-1])["step"] == 3
    assert not (tmp_path / "bad" / "results.json").exists()


def test_not_finite_before_any_checkpoint(tiny_spec, tiny_run, tmp_path, monkeypatch):
    original = Supervised.loss

    def poisoned(self, batch, progress):
        return Losses({"ce": original(self, batch, progress).terms["ce"] * torch.nan})

    monkeypatch.setattr(Supervised, "loss", poisoned)
    with pytest.raises(NotFiniteError, match="no checkpoint had been written yet"):
        tiny_run(tiny_spec("supervised"), tmp_path)


def test_devices():
    assert choose_device("cpu") == torch.device("cpu")
    with pytest.raises(ConfigError, match="take cpu or cuda"):
        choose_device("quantum")
    if not torch.cuda.is_available():
        assert choose_device("auto") == torch.device("cpu")
        with pytest.raises(ConfigError, match="no GPU"):
            choose_device("cuda")


def test_only_a_gpu_is_woken_and_its_failure_is_left_to_the_caller(monkeypatch):
    """Without a GPU the thread finds none, and must not say so into the caller's output."""
    started, failed = [], []
    begin = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", lambda t: (started.append(t), begin(t)))
    monkeypatch.setattr(threading, "excepthook", failed.append)
    wake(torch.device("cpu"))
    assert not started
    wake(torch.device("cuda"))
    for thread in started:
        thread.join()
    assert len(started) == 1
    assert not failed


def test_fp16_is_refused_on_a_cpu_and_the_folder_stays_free(tiny_spec, tiny_run, tmp_path):
    with pytest.raises(ConfigError, match="fp16 needs a GPU"):
        tiny_run(tiny_spec("supervised", precision="fp16"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_bf16_and_accumulation_train_to_the_end(tiny_spec, tiny_run, tmp_path):
    spec = tiny_spec(precision="bf16", accumulate=2, epochs=2, clip_norm=1.0)
    results = tiny_run(spec, tmp_path, save_seconds=3600.0)
    assert 0 <= results["last"]["test"]["error"] <= 1


def test_a_run_does_not_go_on_with_other_images(tmp_path):
    spec = make_spec(
        "digits", "supervised", train={"epochs": 1, "epoch_steps": 2, "pretrain_epochs": 1}
    )
    train(spec, tmp_path, Surroundings(quiet=True))
    problem = load_problem(get_setting("digits"), spec.fold)
    other = replace(problem, split=replace(problem.split, pool=problem.split.pool[1:]))
    with pytest.raises(DataError, match="another split"):
        train(spec, tmp_path, Surroundings(quiet=True, resume=True), problem=other)


def test_only_the_traceback_of_an_earlier_try_is_removed(tiny_spec, tiny_run, tmp_path):
    path = tmp_path / "error.txt"
    path.write_text("as in `2> run/error.txt`\n")
    tiny_run(tiny_spec("supervised"), tmp_path)
    assert path.exists()
    path.write_text("Traceback (most recent call last):\n")
    tiny_run(tiny_spec("supervised"), tmp_path, resume=True)
    assert not path.exists()
