"""SCOMatch's terms against plain loops, its queue and its threshold against a simulation."""

import json
from collections import deque
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import anedl
from anedl import losses
from anedl.engine.memory import memory_of
from anedl.engine.spec import make_spec
from anedl.engine.train import Surroundings, train
from anedl.errors import ConfigError
from anedl.methods import scomatch
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
from anedl.methods.scomatch import Scomatch, ScomatchConfig
from anedl.networks.encoder import ImageEncoder
from anedl.outlier_class import known_log_odds
from anedl.views import View

CLASSES, BATCH = 4, 6
TASK = Task(classes=CLASSES, top_m=2, inlier_share=0.4, pool_size=120, image_size=8)
FILE = Path(anedl.__file__).parent / "methods" / "scomatch.py"
BOTH_STAGES = pytest.mark.parametrize("stage", list(Stage))


def make_method(**options) -> Scomatch:
    """A head steep enough that some of its predictions are confident, even untrained."""
    torch.manual_seed(0)
    encoder = ImageEncoder("wrn-digits", (0.5,), (0.25,), bn_momentum=0.1)
    method = Scomatch(ScomatchConfig(**options), encoder, TASK)
    with torch.no_grad():
        method.classifier.weight.mul_(60)
    return method.train()


def images(count: int) -> torch.Tensor:
    return torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8)


def make_batch(seed: int = 1, ratio: int = 2) -> Batch:
    torch.manual_seed(seed)
    labelled = Labelled((images(BATCH),), torch.arange(BATCH) % CLASSES)
    count = ratio * BATCH
    parts = {
        name: Unlabelled((images(count), images(count)), torch.arange(count))
        for name in ("open", "close")
    }
    return Batch(labelled, parts)


def at(stage: Stage = Stage.SELF_TRAIN) -> Progress:
    return Progress(stage, torch.tensor(3.0), torch.tensor(0.2))


def fill_queue(method: Scomatch, count: int) -> torch.Tensor:
    """Pretend that `count` images had been pushed; their scores rise to 0.98."""
    torch.manual_seed(7)
    kept = images(count)
    with torch.no_grad():
        method.queue_images[:count] = kept
        method.queue_scores[:count] = torch.linspace(0.2, 0.98, count)
        method.pushed.fill_(count)
    return kept


def log_softmax(logits):
    logits = np.asarray(logits, dtype=np.float64)
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def number(value: torch.Tensor) -> float:
    return float(value.detach())


def close(value, expected):
    assert number(value) == pytest.approx(float(expected), rel=3e-5, abs=1e-6)


# The functions


def confident_logits(count=200):
    torch.manual_seed(5)
    return torch.randn(count, CLASSES + 1) * 4


def test_queued_outliers():
    logits, stored = confident_logits(50), torch.linspace(0.5, 1.0, 50)
    expected = [
        -log_softmax(row)[CLASSES] if score < 0.95 else 0.0
        for row, score in zip(logits, stored, strict=True)
    ]
    found = scomatch.queued_outliers(logits, stored, 0.95)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert 0 < (found == 0).sum() < 50


def test_open_pseudo_labels():
    logits = confident_logits()
    labels, used = scomatch.open_pseudo_labels(logits, 0.95, torch.tensor(0.8))
    probability = np.exp(log_softmax(logits))
    for row, label, is_used in zip(probability, labels, used, strict=True):
        best = int(row.argmax())
        assert int(label) == best
        assert bool(is_used) == (row[best] >= (0.8 if best == CLASSES else 0.95))
    known, outlier = used[labels < CLASSES], used[labels == CLASSES]
    assert 0 < known.mean() < 1
    assert 0 < outlier.mean() < 1
    _, stricter = scomatch.open_pseudo_labels(logits, 0.95, torch.tensor(0.95))
    assert stricter.sum() < used.sum()


def test_close_self_training():
    weak, strong = confident_logits(), confident_logits().flip(0)
    _, confident = losses.pseudo_labels(weak[:, :-1], 0.95)
    found = scomatch.close_self_training(strong, weak, confident)
    for i in range(len(weak)):
        known = np.exp(log_softmax(weak[i, :CLASSES]))
        counts = known.max() >= 0.95 and int(weak[i].argmax()) != CLASSES
        expected = -log_softmax(strong[i, :CLASSES])[known.argmax()] if counts else 0.0
        assert float(found[i]) == pytest.approx(expected, rel=1e-5, abs=1e-6)
    assert 0 < (found > 0).sum() < confident.sum(), "confident outliers do not count"


def test_scores_of_the_outlier_class():
    logits = confident_logits()
    probability = torch.tensor(np.exp(log_softmax(logits)))
    found = scomatch.known_probability(logits)
    torch.testing.assert_close(found.double(), probability[:, :-1].amax(1), rtol=1e-5, atol=1e-7)
    outlier = probability[:, -1]
    odds = known_log_odds(logits)
    torch.testing.assert_close(odds.double(), torch.logit(1 - outlier), rtol=1e-4, atol=1e-4)
    sure = torch.tensor([[40.0, 0.0, 0.0], [45.0, 0.0, 0.0]])
    assert known_log_odds(sure).diff() > 0, "1 − P would be 1 for both"


def test_counts_and_the_next_threshold():
    logits = confident_logits()
    probability = np.exp(log_softmax(logits))
    sure = probability.max(1) > 0.95
    outlier = probability.argmax(1) == CLASSES
    expected = [(sure & ~outlier).sum(), (sure & outlier).sum()]
    assert scomatch.confident_counts(logits, 0.95).tolist() == expected
    cases = {(0, 0): 0.95, (5, 0): 0.95, (0, 5): 0.75, (9, 10): 0.855, (50, 10): 0.95, (1, 9): 0.75}
    for (outliers, known), value in cases.items():
        found = scomatch.next_outlier_threshold(
            torch.tensor(outliers), torch.tensor(known), 0.75, 0.95
        )
        assert float(found) == pytest.approx(value)


# The whole loss


def reference_terms(method, batch, drawn, stored, tau, open_views="both", confidence="known"):
    """All four terms in float64 numpy from a forward pass of this file's own."""
    with torch.no_grad():
        open_part, close_part = batch.unlabelled["open"].views, batch.unlabelled["close"].views
        parts = [*batch.labelled.views, drawn, *open_part, *close_part]
        logits = method.classifier(method.backbone(torch.cat(parts))).double().numpy()
    cuts = np.cumsum([len(part) for part in parts])[:-1]
    labelled, queue, open_weak, open_strong, close_weak, close_strong = np.split(logits, cuts)
    labels = batch.labelled.labels.numpy()
    terms = {"ce": -log_softmax(labelled)[range(BATCH), labels].mean()}
    terms["queue"] = (-log_softmax(queue)[:, CLASSES] * (stored < 0.95)).mean()
    rows = []
    for view in (open_weak, open_strong) if open_views == "both" else (open_strong,):
        for i, row in enumerate(np.exp(log_softmax(open_weak))):
            best = row.argmax()
            used = row[best] >= (tau if best == CLASSES else 0.95)
            rows.append(-log_softmax(view)[i, best] * used)
    terms["open"] = np.mean(rows)
    rows = []
    for i in range(len(close_weak)):
        sure = {
            "known": close_weak[i, :CLASSES], "all": close_weak[i], "official": open_weak[i]
        }[confidence]  # fmt: skip
        used = np.exp(log_softmax(sure)).max() >= 0.95 and close_weak[i].argmax() < CLASSES
        best = close_weak[i, :CLASSES].argmax()
        rows.append(-log_softmax(close_strong[i, :CLASSES])[best] * used)
    terms["close"] = np.mean(rows)
    return terms


@pytest.mark.parametrize("open_views", ["both", "strong"])
@pytest.mark.parametrize("confidence", ["known", "all", "official"])
def test_every_term(open_views, confidence):
    """With a queue of exactly one batch, whatever is drawn is all of it."""
    method = make_method(open_views=open_views, close_confidence=confidence)
    kept = fill_queue(method, BATCH)
    method.outlier_threshold.fill_(0.8)
    stored = np.linspace(0.2, 0.98, BATCH)
    batch = make_batch()
    found = method.loss(batch, at()).terms
    expected = reference_terms(method, batch, kept, stored, 0.8, open_views, confidence)
    assert list(found) == ["ce", "queue", "open", "close"]
    for name, value in expected.items():
        assert value > 0
        close(found[name], value)


def test_the_masks_of_close_self_training_differ():
    values = set()
    for confidence in ("known", "all", "official"):
        method = make_method(close_confidence=confidence)
        with torch.no_grad():
            method.classifier.weight.mul_(0.2)
        values.add(number(method.loss(make_batch(), at()).terms["close"]))
    assert len(values) == 3


@pytest.mark.parametrize("name", ["queue", "open", "close"])
def test_weights(name):
    values = []
    for weight in (1.0, 0.3):
        method = make_method(**{f"{name}_weight": weight})
        fill_queue(method, 40)
        torch.manual_seed(2)
        values.append(number(method.loss(make_batch(), at()).terms[name]))
    assert values[0] > 0
    assert values[1] == pytest.approx(0.3 * values[0], rel=1e-5)


def test_until_the_queue_holds_a_batch_its_term_is_zero():
    """Labelled images take the place of its images; they are not trained as outliers."""
    for held in (0, BATCH - 1):
        method = make_method()
        fill_queue(method, held)
        batch = make_batch()
        found = method.loss(batch, at()).terms
        assert number(found["queue"]) == 0
        gradients = torch.autograd.grad(
            found["queue"], list(method.parameters()), retain_graph=True
        )
        assert all((gradient == 0).all() for gradient in gradients)
        expected = reference_terms(method, batch, batch.labelled.views[0], np.ones(BATCH), 0.95)
        for name in ("ce", "open", "close"):
            close(found[name], expected[name])


def test_what_each_term_trains():
    method = make_method()
    fill_queue(method, 40)
    terms = method.loss(make_batch(), at()).terms
    weight = method.classifier.weight
    trunk = next(method.backbone.parameters())
    for name, term in terms.items():
        head, first = torch.autograd.grad(term, [weight, trunk], retain_graph=True)
        assert first.norm() > 0, name
        outlier_row = head[CLASSES].norm()
        assert (outlier_row > 0) == (name != "close"), "the K-way loss leaves the outlier class"
        assert head[:CLASSES].norm() > 0


# State


def test_the_queue_is_first_in_first_out():
    method = make_method(queue_size=9, queue_push=2)
    expected = deque(maxlen=9)
    for step in range(7):
        batch = make_batch(seed=step)
        weak = batch.unlabelled["open"].views[0]
        queued = method.queue_images.clone()
        with torch.no_grad():
            torch.manual_seed(step)
            drawn, _, available = method._draw_queued(batch.labelled.views[0])
            others = [v for part in batch.unlabelled.values() for v in part.views]
            everything = torch.cat([batch.labelled.views[0], drawn, *others])
            logits = method.classifier(method.backbone(everything))
            logits = logits[2 * BATCH : 2 * BATCH + len(weak)]
        assert torch.equal(method.queue_images, queued), "drawing changes nothing"
        score = np.exp(log_softmax(logits))[:, :CLASSES].max(1)
        torch.manual_seed(step)
        method.loss(batch, at())
        for index in np.argsort(score)[:2]:
            expected.append((weak[index], score[index]))
        assert number(method.pushed) == 2 * (step + 1)
        assert bool(available) == (2 * step >= BATCH)
        # Sorted by score, since the two of a step may lie either way round.
        held = sorted(range(len(expected)), key=lambda i: float(method.queue_scores[i]))
        for slot, (image, value) in zip(held, sorted(expected, key=lambda e: e[1]), strict=True):
            assert float(method.queue_scores[slot]) == pytest.approx(value, rel=1e-4)
            assert torch.equal(method.queue_images[slot], image)


def test_draws_are_distinct_random_and_from_what_was_pushed():
    method = make_method()
    kept = fill_queue(method, 10)
    counts = torch.zeros(10)
    for _ in range(300):
        drawn, stored, available = method._draw_queued(images(BATCH))
        assert available == 1
        found = (drawn.flatten(1)[:, None] == kept.flatten(1)[None]).all(-1)
        assert (found.sum(1) == 1).all()
        assert (found.sum(0) <= 1).all()
        torch.testing.assert_close(stored, torch.linspace(0.2, 0.98, 10)[found.int().argmax(1)])
        counts += found.sum(0)
    share = counts / counts.sum()
    assert share.min() > 0.07
    assert share.max() < 0.13


def test_a_queue_smaller_than_a_batch_is_drawn_whole():
    method = make_method(queue_size=4)
    kept = fill_queue(method, 4)
    drawn, _, available = method._draw_queued(images(BATCH))
    assert available == 1
    assert {tuple(i.flatten().tolist()) for i in drawn} == {
        tuple(i.flatten().tolist()) for i in kept
    }
    assert number(method.loss(make_batch(), at()).terms["queue"]) > 0


def test_the_outlier_threshold_follows_half_a_pass_over_the_pool():
    """120 pool images, 12 a step: every fifth step."""
    method = make_method()
    tau, known, outliers = 0.95, 0, 0
    values = []
    for step in range(1, 13):
        torch.manual_seed(step)
        logits = torch.randn(12, CLASSES + 1) * 8
        logits[:, CLASSES] += 3
        method._count(logits)
        probability = np.exp(log_softmax(logits))
        sure, outlier = probability.max(1) > 0.95, probability.argmax(1) == CLASSES
        known += (sure & ~outlier).sum()
        outliers += (sure & outlier).sum()
        if step % 5 == 0:
            tau = float(np.clip(0.95 * outliers / known, 0.75, 0.95)) if known else 0.95
            known = outliers = 0
        assert float(method.outlier_threshold) == pytest.approx(tau)
        assert method.confident_counts.tolist() == [known, outliers]
        assert int(method.counted_steps) == step % 5
        values.append(tau)
    assert len(set(values)) > 1


def test_the_queue_and_its_counters_are_remembered_but_in_no_saved_model():
    method = make_method()
    kept = memory_of(method)
    assert kept["queue_images"].shape == (256, 1, 8, 8)
    assert kept["queue_images"].dtype == torch.uint8
    assert kept.keys() == {
        "queue_images", "queue_scores", "pushed", "confident_counts", "counted_steps",
    }  # fmt: skip
    assert "outlier_threshold" in method.state_dict()


# The contract


@BOTH_STAGES
def test_wants(stage):
    pool = Want(Source.POOL, (View.WEAK, View.STRONG), 2)
    assert make_method().wants(stage) == {
        "labelled": Want(Source.LABELLED, (View.WEAK,)), "open": pool, "close": pool,
    }  # fmt: skip
    other = make_method(labelled_views=("flip", "weak"), pool_ratio=3).wants(stage)
    assert other["labelled"].views == (View.FLIP, View.WEAK)
    assert other["open"].ratio == other["close"].ratio == 3


def test_outputs():
    method = make_method().eval()
    some = images(5)
    with torch.no_grad():
        outputs = method.outputs(some)
        logits = method.classifier(method.backbone(some))
    assert torch.equal(outputs.logits, logits[:, :CLASSES])
    outlier = logits.double().softmax(1)[:, CLASSES]
    assert outputs.score.argsort().tolist() == outlier.argsort(descending=True).tolist()
    assert outputs.alpha is None


@pytest.mark.parametrize(
    ("dataset", "classes", "expected"),
    [
        ("cifar10", 6, (256, "strong", False)),
        ("cifar100", 55, (440, "both", False)),
        ("cifar100", 80, (640, "both", False)),
        ("imagenet30", 20, (256, "both", True)),
    ],
)
def test_what_the_task_decides(dataset, classes, expected):
    task = Task(classes=classes, top_m=1, inlier_share=0.5, dataset=dataset)
    config = ScomatchConfig().resolved(task)
    assert (config.queue_size, config.open_views, config.head_bias) == expected
    chosen = ScomatchConfig(queue_size=9, open_views="strong", head_bias=True)
    assert chosen.resolved(task) == chosen


def test_the_head():
    assert make_method().classifier.bias is None
    with_bias = make_method(head_bias=True).classifier
    assert with_bias.out_features == CLASSES + 1
    assert (with_bias.bias == 0).all()


@pytest.mark.parametrize(
    "options",
    [
        {"labelled_views": ()},
        {"queue_size": 0},
        {"queue_push": 0},
        {"pool_ratio": 0},
        {"least_outlier_threshold": 0.99},
        {"threshold": 1.5},
    ],
    ids=str,
)
def test_impossible_values_are_refused(options):
    (name,) = options
    with pytest.raises(ConfigError, match=name):
        ScomatchConfig(**options)


def test_a_push_must_fit_the_queue():
    with pytest.raises(ConfigError, match="queue_push"):
        make_method(queue_size=2, queue_push=3)


def test_it_trains_on_digits(tmp_path):
    spec = make_spec(
        "digits", f"{FILE}:Scomatch", pool_limit=200,
        train={"epochs": 5, "epoch_steps": 8, "pretrain_epochs": 1, "batch_size": 12,
               "log_every": 8, "learning_rate": 0.1, "test_while_training": False},
    )  # fmt: skip
    train(spec, tmp_path / "run", Surroundings(device="cpu", quiet=True))
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    rows = [row for row in map(json.loads, lines) if "train" in row]
    assert [row["stage"] for row in rows] == [1, 2, 2, 2, 2]
    assert rows[-1]["train"]["ce"] < 0.6 * rows[0]["train"]["ce"]
    assert rows[0]["train"]["queue"] == 0
    assert 0 < rows[-1]["train"]["queue"] < rows[2]["train"]["queue"]
    assert "queue_images" not in load_file(tmp_path / "run" / "model.safetensors")
    state = load_file(next((tmp_path / "run" / "state").glob("step-*")) / "optimiser.safetensors")
    assert int(state["memory.pushed"]) == 40
    assert state["memory.queue_images"][:40].flatten(1).any(1).all()
    assert not state["memory.queue_images"][40:].any()
