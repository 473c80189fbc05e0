"""ProSub's terms, scores and distributions against numpy and torch.distributions."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.distributions import Beta

import anedl
from anedl.engine.spec import make_spec
from anedl.engine.train import Surroundings, train
from anedl.errors import ConfigError
from anedl.methods import prosub
from anedl.methods.base import (
    Batch,
    Labelled,
    Progress,
    Source,
    Stage,
    Task,
    Unlabelled,
    Want,
)
from anedl.methods.prosub import Prosub, ProsubConfig
from anedl.networks.encoder import ImageEncoder
from anedl.views import View

CLASSES, BATCH, RATIO = 4, 8, 7
TASK = Task(classes=CLASSES, top_m=2, inlier_share=0.4)
FILE = Path(anedl.__file__).parent / "methods" / "prosub.py"
BOTH_STAGES = pytest.mark.parametrize("stage", list(Stage))


def make_method(ready: bool = True, **options) -> Prosub:
    """A steep classifier; prototypes already there unless told otherwise."""
    torch.manual_seed(0)
    encoder = ImageEncoder("wrn-digits", (0.5,), (0.25,), bn_momentum=0.1)
    method = Prosub(ProsubConfig(**options), encoder, TASK)
    with torch.no_grad():
        method.classifier.weight.mul_(30)
        if ready:
            method.prototypes.copy_(torch.randn(method.prototypes.shape).abs())
            method.seen.fill_(1)
            method.basis.copy_(prosub.orthonormal_basis(method.prototypes))
            method.beta.copy_(torch.tensor([[6.0, 3.0], [3.0, 3.5]]))
    return method.train()


def images(count: int) -> torch.Tensor:
    return torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8)


def make_batch(labels=None, seed: int = 1) -> Batch:
    torch.manual_seed(seed)
    labels = torch.arange(BATCH) % CLASSES if labels is None else torch.tensor(labels)
    labelled = Labelled((images(len(labels)),), labels)
    count = RATIO * BATCH
    pool = Unlabelled((images(count), images(count)), torch.arange(count))
    return Batch(labelled, {"pool": pool})


def at(stage: Stage) -> Progress:
    return Progress(stage, torch.tensor(3.0), torch.tensor(0.2))


def features_of(method: Prosub, batch: Batch):
    """Labelled, weak and strong features from a forward pass of this file's own."""
    parts = [*batch.labelled.views, *batch.unlabelled["pool"].views]
    with torch.no_grad():
        features = method.backbone(torch.cat(parts))
    return torch.split(features, [len(part) for part in parts])


def least_squares_score(features, prototypes):
    """Cosine between each feature and its best approximation by a mixture of prototypes."""
    spanning = np.asarray(prototypes, dtype=np.float64).T
    rows = np.asarray(features, dtype=np.float64)
    weights = np.linalg.lstsq(spanning, rows.T, rcond=None)[0]
    near = (spanning @ weights).T
    return (near * rows).sum(1) / (np.linalg.norm(near, axis=1) * np.linalg.norm(rows, axis=1))


def beta_density(s, a, b):
    return s ** (a - 1) * (1 - s) ** (b - 1) * math.gamma(a + b) / math.gamma(a) / math.gamma(b)


def number(value: torch.Tensor) -> float:
    return float(value.detach())


def close(value, expected, tolerance=3e-5):
    assert number(value) == pytest.approx(float(expected), rel=tolerance, abs=1e-6)


# The subspace


def test_the_score_is_the_cosine_to_the_best_approximation():
    torch.manual_seed(0)
    prototypes, features = torch.randn(5, 20), torch.randn(40, 20)
    basis = prosub.orthonormal_basis(prototypes)
    torch.testing.assert_close(basis.T @ basis, torch.eye(5), rtol=0, atol=1e-5)
    found = prosub.subspace_score(features, basis)
    np.testing.assert_allclose(found, least_squares_score(features, prototypes), rtol=1e-5)
    # A prototype's length does not matter, nor does that of a feature.
    shorter = prosub.orthonormal_basis(prototypes * torch.logspace(-9, 3, 5)[:, None])
    torch.testing.assert_close(prosub.subspace_score(features * 7, shorter), found)
    inside = torch.randn(6, 5) @ prototypes
    torch.testing.assert_close(prosub.subspace_score(inside, basis), torch.ones(6))


def test_the_gradient_of_the_score():
    """Also where the basis is zero: no class has been seen and nothing may become NaN."""
    torch.manual_seed(0)
    basis = prosub.orthonormal_basis(torch.randn(3, 9)).double()
    features = torch.randn(4, 9, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda z: prosub.subspace_score(z, basis), features)
    score = prosub.subspace_score(features, torch.zeros_like(basis))
    (gradient,) = torch.autograd.grad(score.sum(), features)
    assert (score == 0).all()
    assert (gradient == 0).all()
    assert torch.isfinite(prosub.orthonormal_basis(torch.zeros(3, 9))).all()


def test_class_means():
    torch.manual_seed(0)
    features, labels = torch.randn(7, 3), torch.tensor([0, 2, 2, 0, 4, 2, 0])
    means, present = prosub.class_means(features, labels, 5)
    assert present.tolist() == [1, 0, 1, 0, 1]
    for label in (0, 2, 4):
        torch.testing.assert_close(means[label], features[labels == label].mean(0))
    assert torch.isfinite(means).all()


def test_prototypes_move_only_for_classes_in_the_batch():
    method = make_method(prototype_momentum=0.9)
    before = method.prototypes.clone()
    batch = make_batch(labels=[0, 0, 2, 0, 2, 2, 2, 0])
    method.loss(batch, at(Stage.PRETRAIN))
    labelled, _, _ = features_of(method, batch)
    for label in range(CLASSES):
        expected = before[label]
        if label in (0, 2):
            expected = 0.9 * expected + 0.1 * labelled[batch.labelled.labels == label].mean(0)
        torch.testing.assert_close(method.prototypes[label], expected, rtol=1e-4, atol=1e-5)
    score = prosub.subspace_score(labelled, method.basis)
    expected = least_squares_score(labelled, method.prototypes)
    np.testing.assert_allclose(score, expected, rtol=1e-4)


# The distributions


def test_the_log_density_is_torchs():
    score = torch.linspace(0.01, 0.99, 33)
    for a, b in ((10.0, 2.0), (0.5, 0.5), (1.0, 1.0), (3000.0, 200.0)):
        found = prosub.beta_log_density(score, torch.tensor([a, b]))
        expected = Beta(torch.tensor(a).double(), torch.tensor(b).double()).log_prob(score.double())
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_the_ends_of_the_interval_are_finite():
    ends = torch.tensor([0.0, 1.0, 1.0000001, -1e-9])
    beta = torch.tensor([[0.5, 0.3], [2e5, 1e5]])
    for row in beta:
        assert torch.isfinite(prosub.beta_log_density(ends, row)).all()
    probability = prosub.inlier_probability(ends, beta, 0.5, 0.1)
    assert torch.isfinite(probability).all()
    assert (probability >= 0).all()
    assert (probability <= 1).all()


@pytest.mark.parametrize("floor", [0.1, 1e-8])
def test_the_probability_of_an_inlier(floor):
    score = torch.linspace(0.05, 0.95, 19)
    beta = torch.tensor([[6.0, 3.0], [2.0, 5.0]])
    found = prosub.inlier_probability(score, beta, 0.3, floor)
    for s, probability in zip(score.double().tolist(), found, strict=True):
        inlier, outlier = 0.3 * beta_density(s, 6, 3), 0.7 * beta_density(s, 2, 5)
        assert float(probability) == pytest.approx(inlier / (inlier + outlier + floor), rel=1e-5)


def test_low_densities_count_as_outliers():
    beta = torch.tensor([[200.0, 100.0], [100.0, 200.0]])
    high = torch.tensor([0.99])  # far from both, and nearer to the inliers
    assert prosub.inlier_probability(high, beta, 0.5, 0.1) < 1e-6
    assert prosub.inlier_probability(high, beta, 0.5, 1e-300) > 0.999


def test_moments_recover_a_distribution():
    torch.manual_seed(0)
    score = Beta(5.0, 2.0).sample((200_000,))
    found = prosub.fit_beta(score, torch.ones_like(score))
    np.testing.assert_allclose(found, [5.0, 2.0], rtol=0.02)


def test_weighted_moments():
    rng = np.random.default_rng(0)
    score, weight = rng.uniform(0.2, 0.9, 50), rng.uniform(0, 1, 50)
    mean = np.average(score, weights=weight)
    variance = np.average((score - mean) ** 2, weights=weight)
    a, b = prosub.fit_beta(torch.tensor(score), torch.tensor(weight)).tolist()
    assert a / (a + b) == pytest.approx(mean)
    assert a * b / ((a + b) ** 2 * (a + b + 1)) == pytest.approx(variance)


def test_moments_of_odd_scores():
    some = torch.tensor([0.2, 0.6])
    assert prosub.fit_beta(some, torch.zeros(2)).tolist() == [1, 1]
    a, b = prosub.fit_beta(torch.full((5,), 0.5), torch.ones(5)).tolist()
    assert a == b == pytest.approx((0.25 / 1e-6 - 1) / 2, rel=1e-4)
    for value in (0.0, 1.0):
        assert (prosub.fit_beta(torch.full((5,), value), torch.ones(5)) > 0).all()


@BOTH_STAGES
def test_the_mixture_follows_the_scores(stage):
    method = make_method(beta_momentum=0.8, inlier_prior=0.4)
    before = method.beta.double().numpy().copy()
    prototypes = method.prototypes.clone()
    batch = make_batch()
    method.loss(batch, at(stage))
    labelled, weak, _ = features_of(method, batch)
    own = least_squares_score(labelled, prototypes)
    pool = least_squares_score(weak, prototypes)
    inlier = 0.4 * beta_density(pool, *before[0])
    share = inlier / (inlier + 0.6 * beta_density(pool, *before[1]) + 1e-8)
    rows = [
        (np.concatenate([pool, own]), np.concatenate([share, np.ones(len(own))])),
        (pool, 1 - share),
    ]
    for row, (score, weight) in enumerate(rows):
        mean = np.average(score, weights=weight)
        variance = np.average((score - mean) ** 2, weights=weight)
        scale = mean * (1 - mean) / variance - 1
        fitted = np.array([mean * scale, (1 - mean) * scale])
        expected = 0.8 * before[row] + 0.2 * fitted
        np.testing.assert_allclose(method.beta[row], expected, rtol=1e-3)


# The whole loss


@BOTH_STAGES
def test_every_term(stage):
    method = make_method(
        self_supervision_weight=3.0, fixmatch_weight=0.5, subspace_weight=2.0, inlier_prior=0.4
    )
    prototypes, beta = method.prototypes.clone(), method.beta.tolist()
    batch = make_batch()
    torch.manual_seed(9)
    found = method.loss(batch, at(stage)).terms
    labelled, weak, strong = features_of(method, batch)
    with torch.no_grad():
        log_probability = method.classifier(labelled).double().log_softmax(1).numpy()
        projected = method.projection(strong).double().numpy()
        strong_log = method.classifier(strong).double().log_softmax(1).numpy()
        weak_probability = method.classifier(weak).double().softmax(1).numpy()
    weak = weak.double().numpy()
    close(found["ce"], -log_probability[range(BATCH), batch.labelled.labels].mean())
    lengths = np.linalg.norm(projected, axis=1) * np.linalg.norm(weak, axis=1)
    close(found["self_supervision"], 3 * (1 - (projected * weak).sum(1) / lengths).mean())
    if stage is Stage.PRETRAIN:
        assert set(found) == {"ce", "self_supervision"}
        return
    torch.manual_seed(9)
    uniform = torch.rand(RATIO * BATCH).numpy()
    score = least_squares_score(weak, prototypes)
    inlier = 0.4 * beta_density(score, *beta[0])
    drawn = uniform <= inlier / (inlier + 0.6 * beta_density(score, *beta[1]) + 0.1)
    confident = weak_probability.max(1) >= 0.95
    assert 0 < (drawn & confident).sum() < confident.sum() < len(score)
    rows = -strong_log[range(len(score)), weak_probability.argmax(1)] * (drawn & confident)
    close(found["fixmatch"], 0.5 * rows.mean())
    close(found["subspace"], 2 * np.where(drawn, -score, score).mean())


def test_what_each_term_trains():
    method = make_method()
    terms = method.loss(make_batch(), at(Stage.SELF_TRAIN)).terms
    parts = {
        "backbone": next(method.backbone.parameters()),
        "classifier": method.classifier.weight,
        "projection": method.projection.weight,
    }
    reached = {}
    for name, term in terms.items():
        gradients = torch.autograd.grad(
            term, list(parts.values()), retain_graph=True, materialize_grads=True, allow_unused=True
        )
        reached[name] = {
            part for part, gradient in zip(parts, gradients, strict=True) if gradient.norm() > 0
        }
    assert reached == {
        "ce": {"backbone", "classifier"},
        "self_supervision": {"backbone", "projection"},
        "fixmatch": {"backbone", "classifier"},
        "subspace": {"backbone"},
    }


def test_the_weak_view_is_a_constant_of_self_supervision():
    strong, weak = torch.randn(3, 5, requires_grad=True), torch.randn(3, 5, requires_grad=True)
    value = prosub.self_supervision(strong, weak).sum()
    for_strong, for_weak = torch.autograd.grad(value, [strong, weak], allow_unused=True)
    assert for_strong.norm() > 0
    assert for_weak is None


def test_nothing_is_drawn_before_every_class_was_seen():
    method = make_method(ready=False)
    first = method.beta.clone()
    assert first.tolist() == [[10, 2], [2, 10]]
    for seen, labels in ((2, [0, 1] * 4), (3, [0, 2] * 4), (4, [3, 3] * 4)):
        found = method.loss(make_batch(labels), at(Stage.SELF_TRAIN))
        assert number(found.terms["fixmatch"]) == number(found.terms["subspace"]) == 0
        for name in ("fixmatch", "subspace"):
            (gradient,) = torch.autograd.grad(
                found.terms[name], [next(method.backbone.parameters())], retain_graph=True
            )
            assert (gradient == 0).all()
        assert torch.equal(method.beta, first)
        assert method.seen.sum() == seen
        assert method.basis.any() == (seen == 4)
    found = method.loss(make_batch(), at(Stage.SELF_TRAIN))
    assert number(found.terms["subspace"]) != 0
    assert not torch.equal(method.beta, first)


def test_memory_is_batchnorms_unless_chosen():
    """One step after a start at zero leaves bn_momentum × the mean."""
    for options, weight in (({}, 0.1), ({"prototype_momentum": 0.999}, 0.001)):
        method = make_method(ready=False, **options)
        batch = make_batch()
        method.loss(batch, at(Stage.PRETRAIN))
        labelled, _, _ = features_of(method, batch)
        expected = weight * labelled[batch.labelled.labels == 1].mean(0)
        torch.testing.assert_close(method.prototypes[1], expected, rtol=1e-4, atol=1e-6)


# The contract


@BOTH_STAGES
def test_wants(stage):
    assert make_method().wants(stage) == {
        "labelled": Want(Source.LABELLED, (View.WEAK,)),
        "pool": Want(Source.POOL, (View.WEAK, View.STRONG), 7),
    }
    other = make_method(labelled_views=("flip", "weak"), pool_ratio=2).wants(stage)
    assert other["labelled"].views == (View.FLIP, View.WEAK)
    assert other["pool"].ratio == 2


def test_outputs():
    method = make_method().eval()
    some = images(9)
    with torch.no_grad():
        outputs = method.outputs(some)
        features = method.backbone(some)
    assert torch.equal(outputs.logits, method.classifier(features))
    expected = least_squares_score(features, method.prototypes)
    np.testing.assert_allclose(outputs.score, expected, rtol=1e-4)
    assert outputs.alpha is None
    assert all(buffer.is_floating_point() for buffer in (method.basis, method.seen, method.beta))


@pytest.mark.parametrize(
    ("dataset", "weight"), [("cifar10", 10), ("cifar100", 15), ("imagenet30", 20), ("digits", 10)]
)
def test_self_supervision_weighs_as_released(dataset, weight):
    task = Task(classes=6, top_m=1, inlier_share=0.5, dataset=dataset)
    assert ProsubConfig().resolved(task).self_supervision_weight == weight
    assert ProsubConfig(self_supervision_weight=2.5).resolved(task).self_supervision_weight == 2.5


@pytest.mark.parametrize(
    "options",
    [
        {"labelled_views": ()},
        {"pool_ratio": 0},
        {"inlier_prior": 0.0},
        {"inlier_prior": 1.0},
        {"density_floor": 0.0},
        {"first_inlier": (1.0,)},
        {"first_outlier": (0.0, 1.0)},
        {"prototype_momentum": 1.0},
        {"beta_momentum": -0.1},
    ],
    ids=str,
)
def test_impossible_values_are_refused(options):
    (name,) = options
    with pytest.raises(ConfigError, match=name):
        ProsubConfig(**options)


def test_prototypes_must_leave_room_outside_their_span():
    encoder = ImageEncoder("wrn-digits", (0.5,), (0.25,), bn_momentum=0.1)
    task = Task(classes=encoder.feature_width, top_m=2, inlier_share=0.4)
    with pytest.raises(ConfigError, match="wider backbone"):
        Prosub(ProsubConfig(), encoder, task)


def test_it_trains_on_digits(tmp_path):
    spec = make_spec(
        "digits", f"{FILE}:Prosub", pool_limit=200, options={"pool_ratio": 2},
        train={"epochs": 4, "epoch_steps": 10, "pretrain_epochs": 2, "batch_size": 16,
               "log_every": 10, "learning_rate": 0.1, "test_while_training": False},
    )  # fmt: skip
    train(spec, tmp_path / "run", Surroundings(device="cpu", quiet=True))
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if "train" in row]
    assert [row["stage"] for row in rows] == [1, 1, 2, 2]
    assert rows[-1]["train"]["ce"] < 0.6 * rows[0]["train"]["ce"]
    assert rows[1]["train"]["self_supervision"] < rows[0]["train"]["self_supervision"]
    assert 0 < rows[-1]["train"]["drawn_inliers"] < 1
    # What inference needs has reached the averaged model.
    checkpoint = next((tmp_path / "run" / "state").glob("step-*"))
    average = load_file(checkpoint / "average.safetensors")
    online = load_file(checkpoint / "model.safetensors")
    assert online["basis"].any()
    assert torch.equal(average["basis"], online["basis"])
    assert not torch.equal(average["classifier.weight"], online["classifier.weight"])
