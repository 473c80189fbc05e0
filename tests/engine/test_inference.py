"""Running a method over many images, and judging it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score

from anedl.engine.audit import selection_audit
from anedl.engine.inference import outputs_of
from anedl.engine.judge import judge, scores_of
from anedl.engine.model import build_method
from anedl.engine.precision import Precision
from anedl.engine.spec import make_spec
from anedl.errors import ConfigError
from anedl.methods.base import Outputs

FP32 = Precision("fp32", torch.device("cpu"))


@pytest.fixture
def method(tiny_spec, problem):
    """Running statistics and weights away from their start, in training mode."""
    method = build_method(tiny_spec(), problem.setting, problem.task, torch.device("cpu"))
    method.train()
    with torch.no_grad():
        method.backbone(problem.test()[0][:50])
        method.detector.last.weight.mul_(3)
    return method


@pytest.mark.parametrize("batch", [1, 7, 40, 1000])
def test_the_size_of_batches_does_not_matter(method, problem, batch):
    images = problem.test()[0][:40]
    outputs = outputs_of(method, images, FP32, batch)
    with torch.no_grad():
        features = method.eval().backbone(images)
        alpha = method.detector(features)
    torch.testing.assert_close(outputs.features, features, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(outputs.alpha, alpha, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        outputs.logits, method.classifier(features).detach(), rtol=1e-4, atol=1e-5
    )
    torch.testing.assert_close(outputs.score, alpha.topk(3).values.sum(1), rtol=1e-4, atol=1e-4)


def test_it_leaves_no_trace(method, problem):
    before = {key: value.clone() for key, value in method.state_dict().items()}
    outputs = outputs_of(method, problem.test()[0][:20], FP32)
    assert method.training
    assert all(torch.equal(value, before[key]) for key, value in method.state_dict().items())
    assert not outputs.logits.requires_grad
    method.eval()
    outputs_of(method, problem.test()[0][:20], FP32)
    assert not method.training


def test_further_scores_of_a_method_are_measured_beside_its_own(problem):
    spec = make_spec("digits", "iomatch")
    method = build_method(spec, problem.setting, problem.task, torch.device("cpu"))
    images, targets = problem.test()
    outputs = outputs_of(method, images, FP32, batch=70)
    with torch.no_grad():
        (found,) = method.eval().outputs(images).others.values()
    torch.testing.assert_close(outputs.others["combined"], found, rtol=1e-4, atol=1e-5)
    row = judge(method, images, targets, FP32)
    expected = roc_auc_score(targets >= 0, found)
    assert row["auroc"]["combined"] == pytest.approx(expected, abs=1e-3)


def test_a_further_score_may_not_take_the_name_of_another(method, problem):
    outputs = outputs_of(method, problem.test()[0][:20], FP32)
    with pytest.raises(ConfigError, match=r"'energy'.*taken"):
        scores_of(replace(outputs, others={"energy": outputs.score}), top_m=3)


def test_half_precision_comes_back_as_float32(method, problem):
    images = problem.test()[0][:30]
    full = outputs_of(method, images, FP32)
    half = outputs_of(method, images, Precision("bf16", torch.device("cpu")))
    for name in ("features", "logits", "score", "alpha"):
        assert getattr(half, name).dtype == torch.float32
    assert not torch.equal(half.logits, full.logits)
    torch.testing.assert_close(half.alpha, full.alpha, rtol=0.2, atol=0.2)
    judged = outputs_of(method, images, Precision("bf16", torch.device("cpu"), judging="fp32"))
    assert torch.equal(judged.logits, full.logits)


def test_judging_images_with_and_without_outliers(method, problem):
    images, targets = problem.test()
    row = judge(method, images, targets, FP32)
    outputs = outputs_of(method, images, FP32)
    inlier = targets >= 0
    wrong = outputs.logits.argmax(1).numpy()[inlier] != targets[inlier]
    assert row["error"] == pytest.approx(wrong.mean())
    assert row["auroc"]["score"] == pytest.approx(roc_auc_score(inlier, outputs.score.numpy()))
    assert row["auroc"]["score"] == row["auroc"]["top_m_evidence"]
    assert "auroc" not in judge(method, *problem.validation(), FP32)


def test_every_score_is_higher_for_more_evidence_or_confidence():
    logits = torch.tensor([[9.0, 0.0, 0.0], [0.1, 0.0, 0.0]])
    alpha = torch.tensor([[90.0, 1.0, 1.0], [1.2, 1.1, 1.1]])
    named = scores_of(Outputs(torch.zeros(2, 1), logits, alpha.sum(1), alpha), 2)
    assert len(named) == 10
    for name, values in named.items():
        assert values.dtype == np.float64
        assert values[0] > values[1], name


def test_the_audit_counts_true_inliers(problem):
    truth = problem.pool_truth()
    inliers, outliers = np.flatnonzero(truth >= 0), np.flatnonzero(truth < 0)
    chosen = torch.from_numpy(np.concatenate([inliers[:6], outliers[:2]]))
    # An outlier has no class to be right about; of the six inliers four are called rightly.
    predicted = torch.from_numpy(np.where(truth < 0, 0, truth))
    predicted[inliers[:2]] += 1
    # So few that a class is starved exactly if none of them is taken for it.
    known = set(range(len(problem.split.known_classes)))
    starved = len(known - {int(predicted[n]) for n in chosen})
    assert selection_audit(chosen, predicted, problem) == {
        "count": 8.0, "starved": starved, "purity": 0.75, "precision": 0.5,
        "recall": 6 / len(inliers),
    }  # fmt: skip
    everything = selection_audit(None, predicted, problem)
    assert everything["count"] == len(truth)
    assert everything["recall"] == 1.0
    assert everything["purity"] == len(inliers) / len(truth)
    assert everything["precision"] == (len(inliers) - 2) / len(truth)
    nothing = selection_audit(torch.zeros(0, dtype=torch.int64), predicted, problem)
    assert nothing == {
        "count": 0.0, "starved": 0.0, "purity": 0.0, "precision": 0.0, "recall": 0.0,
    }  # fmt: skip


def test_the_audit_counts_classes_that_self_training_leaves_behind(problem):
    """A tenth of an even share is the least that counts as taken along."""
    classes = len(problem.split.known_classes)
    size = len(problem.split.pool)
    predicted = torch.zeros(size, dtype=torch.int64)
    few = int(0.1 * size / classes)  # just too few
    predicted[:few] = 1
    predicted[few : 2 * few + 1] = 2  # just enough
    assert few < 0.1 * size / classes <= few + 1
    assert selection_audit(None, predicted, problem)["starved"] == classes - 2
