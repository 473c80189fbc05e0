"""What a finished run says of itself, recomputed from its files."""

import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from sklearn.metrics import roc_auc_score

from anedl.data.outliers import NoiseImages
from anedl.engine import judge
from anedl.engine.checkpoint import load_module
from anedl.engine.inference import outputs_of
from anedl.engine.model import build_method
from anedl.engine.precision import Precision
from anedl.engine.results import describe_machine, write_results
from anedl.scores import SCORES


@pytest.fixture(scope="module")
def finished(tiny_spec, tiny_run, tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    spec = tiny_spec(options={"top_m": 2}, epochs=4, learning_rate=0.3, schedule="constant")
    # Made up, so that the best model is surely not the last one.
    errors = iter([0.5, 0.2, 0.3, 0.4])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("anedl.engine.train.judge", lambda *_: {"error": next(errors)})
        return spec, folder, tiny_run(spec, folder, save_seconds=3600.0)


@pytest.mark.parametrize(("key", "name", "file"), [
    ("last", "last", "model.safetensors"), ("best_val", "best", "best.safetensors"),
])  # fmt: skip
def test_figures_are_those_of_the_saved_model(finished, problem, key, name, file):
    """Load the model, run it, and compute error, AUROC and threshold by hand."""
    spec, folder, results = finished
    method = build_method(spec, problem.setting, problem.task, torch.device("cpu"))
    load_module(method, load_file(folder / file))
    method.eval()
    images, targets = problem.test()
    with torch.no_grad():
        outputs = method.outputs(images)
    predicted = outputs.logits.argmax(1).numpy()
    inlier = targets >= 0
    figures = results[key]
    error = (predicted[inlier] != targets[inlier]).mean()
    assert figures["test"]["error"] == pytest.approx(error, abs=1e-9)
    by_score = figures["test"]["by_score"]
    assert set(by_score) == {"score", *SCORES}
    top_two = np.sort(outputs.alpha.numpy(), 1)[:, -2:].sum(1)
    for score in ("score", "top_m_evidence"):
        auroc = roc_auc_score(inlier, top_two)
        assert by_score[score]["auroc"] == pytest.approx(auroc, abs=2e-4)
    validation_images, validation_targets = problem.validation()
    with torch.no_grad():
        validation = method.outputs(validation_images)
    accepted = (validation.score.numpy() >= figures["thresholds"]["score"] - 1e-4).mean()
    assert 0.95 <= accepted <= 0.97
    wrong = validation.logits.argmax(1).numpy() != validation_targets
    assert figures["validation_error"] == pytest.approx(wrong.mean(), abs=1e-9)

    saved = load_file(folder / "outputs" / f"test-{name}.safetensors")
    torch.testing.assert_close(saved["logits"], outputs.logits, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(saved["alpha"], outputs.alpha, rtol=1e-4, atol=1e-4)
    assert torch.equal(saved["targets"], torch.from_numpy(targets))


def test_last_and_best_are_both_told(finished):
    _, folder, results = finished
    assert results["last"]["epoch"] == 3
    assert results["best_val"]["epoch"] == 1
    last, best = (load_file(folder / f"{name}.safetensors") for name in ("model", "best"))
    assert not torch.equal(last["classifier.weight"], best["classifier.weight"])


def test_the_record_says_what_was_run(finished, problem):
    spec, _, results = finished
    assert results["config_hash"] == spec.digest
    assert results["split_hash"] == problem.split.digest
    assert (results["setting"], results["method"], results["seed"], results["fold"]) == (
        "digits", "anedl", 0, 0,
    )  # fmt: skip
    assert results["steps"] == 12
    assert results["seconds"] > 0
    assert results["torch"] == torch.__version__
    assert results["device"].startswith("CPU")


def test_what_the_last_model_says_of_the_pool(finished, problem):
    spec, folder, _ = finished
    pool = load_file(folder / "outputs" / "pool-last.safetensors")
    method = build_method(spec, problem.setting, problem.task, torch.device("cpu"))
    load_module(method, load_file(folder / "model.safetensors"))
    method.eval()
    with torch.no_grad():
        outputs = method.outputs(problem.training_images(torch.device("cpu")).pool)
    probability, predicted = outputs.logits.softmax(1).max(1)
    assert torch.equal(pool["predicted"], predicted)
    torch.testing.assert_close(pool["probability"], probability, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(pool["score"], outputs.score, rtol=1e-4, atol=1e-4)
    evidence = outputs.alpha[range(80), predicted]
    torch.testing.assert_close(pool["evidence_predicted"], evidence, rtol=1e-4, atol=1e-4)
    assert torch.equal(pool["truth"], torch.from_numpy(problem.pool_truth()))
    assert len(pool["selected"]) == round(0.41 * 80)
    assert torch.equal(pool["selected"], pool["selected"].unique())
    assert (pool["epistemic"] > 0).all()
    assert (pool["aleatoric"] > 0).all()


def test_a_method_without_evidence_or_selection(tiny_spec, tiny_run, tmp_path):
    results = tiny_run(tiny_spec("supervised", epochs=1), tmp_path, save_seconds=3600.0)
    assert set(results["last"]["test"]["by_score"]) == {"score", "max_softmax", "energy"}
    pool = load_file(tmp_path / "outputs" / "pool-last.safetensors")
    assert set(pool) == {"score", "predicted", "probability", "truth"}
    assert "alpha" not in load_file(tmp_path / "outputs" / "test-last.safetensors")


@pytest.mark.parametrize(("key", "file"), [
    ("last", "model.safetensors"), ("best_val", "best.safetensors"),
])  # fmt: skip
def test_noise_is_told_apart_from_the_test(finished, problem, key, file):
    """Each model's own figures on noise, recomputed from the noise and the saved model."""
    spec, folder, results = finished
    figures = results[key]
    assert list(figures["unseen"]) == ["uniform-noise", "gaussian-noise"]
    method = build_method(spec, problem.setting, problem.task, torch.device("cpu"))
    load_module(method, load_file(folder / file))
    method.eval()
    images, targets = problem.test()
    noise = NoiseImages("gaussian-noise", 2000, 8, 1)
    outliers = torch.stack([torch.from_numpy(noise[i][None, :, :, 0]) for i in range(2000)])
    with torch.no_grad():
        inside = method.outputs(images[torch.from_numpy(targets >= 0)]).score.numpy()
        outside = method.outputs(outliers).score.numpy()
    entry = figures["unseen"]["gaussian-noise"]
    assert entry["images"] == 2000
    row = entry["by_score"]["score"]
    inlier = np.repeat([1, 0], [len(inside), 2000])
    assert row["auroc"] == pytest.approx(
        roc_auc_score(inlier, np.concatenate([inside, outside])), abs=1e-3
    )
    assert row["rejected"] == pytest.approx(
        (outside < figures["thresholds"]["score"]).mean(), abs=2e-3
    )


def results_again(spec, folder, problem, best, monkeypatch):
    """Write a finished run's results again; give them, what was said and the sizes of sets seen."""
    looked_at, said = [], []
    monkeypatch.setattr(
        judge, "outputs_of", lambda *args: looked_at.append(len(args[1])) or outputs_of(*args)
    )
    device = torch.device("cpu")
    average = build_method(spec, problem.setting, problem.task, device)
    load_module(average, load_file(folder / "model.safetensors"))
    written = write_results(
        folder, spec, problem, average, best, None, Precision("fp32", device), 1.0, said.append
    )
    return written, said, looked_at


def test_a_best_model_that_is_the_last_is_tested_once(finished, problem, monkeypatch, tmp_path):
    spec, done, _ = finished
    folder = tmp_path / "run"
    shutil.copytree(done, folder, ignore=shutil.ignore_patterns("outputs"))
    best = {"epoch": 3, "validation_error": 0.4}
    written, said, looked_at = results_again(spec, folder, problem, best, monkeypatch)
    assert looked_at == [60, 600, 2000, 2000]
    assert written["best_val"] == written["last"]
    outputs = folder / "outputs"
    for part in ("test", "validation"):
        first, second = (outputs / f"{part}-{name}.safetensors" for name in ("last", "best"))
        assert first.read_bytes() == second.read_bytes()
    assert any("600 images" in line for line in said)


def test_another_best_model_is_tested_too(finished, problem, monkeypatch, tmp_path):
    spec, done, results = finished
    folder = tmp_path / "run"
    shutil.copytree(done, folder)
    best = {"epoch": 1, "validation_error": 0.2}
    written, said, looked_at = results_again(spec, folder, problem, best, monkeypatch)
    assert looked_at == [60, 600, 2000, 2000] * 2
    assert any("epoch 2" in line for line in said)
    assert written["last"]["test"]["error"] == results["last"]["test"]["error"]
    assert written["best_val"]["test"]["error"] == results["best_val"]["test"]["error"]


@pytest.mark.parametrize(("name", "end"), [("fp32", "threads"), ("bf16", "threads, bf16")])
def test_a_cpu_says_when_it_computed_in_bf16(name, end):
    assert describe_machine(Precision(name, torch.device("cpu"))).endswith(end)


@pytest.mark.parametrize(("name", "said"), [("bf16", "A GPU"), ("fp32", "A GPU, fp32")])
def test_a_gpu_says_when_it_did_not(monkeypatch, name, said):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "A GPU")
    assert describe_machine(Precision(name, torch.device("cuda"))) == said
