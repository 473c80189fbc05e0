"""MTC: its terms against numpy, the memory of the domain head, its selection, and short runs."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from anedl.engine.model import load_model
from anedl.engine.problem import load_problem
from anedl.engine.spec import make_spec
from anedl.engine.train import Surroundings, train
from anedl.errors import ConfigError
from anedl.methods import mtc
from anedl.methods.base import (
    Batch,
    Labelled,
    Outputs,
    Progress,
    Source,
    Stage,
    Task,
    Unlabelled,
    Want,
)
from anedl.methods.mtc import DomainMemory, Mtc, MtcConfig, domain_loss
from anedl.networks.encoder import ImageEncoder
from anedl.views import View

CLASSES, BATCH, POOL, LABELLED = 5, 6, 40, 10
TASK = Task(
    classes=CLASSES, top_m=2, inlier_share=0.4, pool_size=POOL, labelled_size=LABELLED
)  # fmt: skip


def make_method(**options) -> Mtc:
    torch.manual_seed(0)
    encoder = ImageEncoder("wrn-digits", (0.5,), (0.25,), bn_momentum=0.1)
    return Mtc(MtcConfig(**options), encoder, TASK).train()


def images(count):
    return torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8)


def make_batch(stage, ratio=1):
    torch.manual_seed(1)
    views = 1 if stage is Stage.PRETRAIN else 2
    labelled = tuple(images(BATCH) for _ in range(views))
    count = ratio * BATCH
    parts = {"pool": Unlabelled((images(count),), torch.arange(3, 3 + count))}
    if stage is Stage.SELF_TRAIN:
        parts["selected"] = Unlabelled((images(count), images(count)), torch.arange(count))
    return Batch(Labelled(labelled, torch.arange(BATCH) % CLASSES), parts)


def at(stage, epoch=0.0, fraction=0.0):
    return Progress(stage, torch.tensor(float(epoch)), torch.tensor(float(fraction)))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(logits):
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


# The domain loss and its memory


def test_domain_loss():
    logits = np.random.default_rng(0).normal(size=20) * 3
    soft = np.random.default_rng(1).random(20)
    expected = -soft * np.log(sigmoid(logits)) - (1 - soft) * np.log(1 - sigmoid(logits))
    found = domain_loss(torch.from_numpy(logits), torch.from_numpy(soft))
    np.testing.assert_allclose(found, expected, rtol=1e-10)


@pytest.mark.parametrize("weight", [1.0, 0.1])
def test_pretraining_is_the_domain_loss_alone(weight):
    method = make_method(labelled_weight=weight, domain_weight=2.0)
    remembered = torch.rand(POOL)
    method.memory.labels.copy_(remembered)
    batch = make_batch(Stage.PRETRAIN)
    found = method.loss(batch, at(Stage.PRETRAIN))
    assert set(found.terms) == {"domain"}
    pool = batch.unlabelled["pool"]
    features = method.backbone(torch.cat([batch.labelled.views[0], pool.views[0]]))
    p = sigmoid(method.domain(features).detach().double().numpy()[:, 0])
    target = np.concatenate([np.ones(BATCH), remembered.numpy()[3 : 3 + BATCH]])
    entropy = -target * np.log(p) - (1 - target) * np.log(1 - p)
    expected = 2 * np.average(entropy, weights=[weight] * BATCH + [1.0] * BATCH)
    assert found.total().item() == pytest.approx(expected, rel=1e-5)
    assert found.monitors["inlier_pool"].item() == pytest.approx(p[BATCH:].mean(), rel=1e-5)
    # What was said of the pool is in the row of epoch 0, and nowhere else.
    history = torch.zeros(5, POOL)
    history[0, 3 : 3 + BATCH] = torch.from_numpy(p[BATCH:]).float()
    torch.testing.assert_close(method.memory.history, history)


@pytest.mark.parametrize("ratio", [1, 2])
def test_every_image_counts_alike_in_the_domain_loss(ratio):
    """As if one batch had been drawn from labelled and pool images together."""
    method = make_method(pool_ratio=ratio)
    batch = make_batch(Stage.PRETRAIN, ratio)
    found = method.loss(batch, at(Stage.PRETRAIN))
    views = [batch.labelled.views[0], batch.unlabelled["pool"].views[0]]
    logits = method.domain(method.backbone(torch.cat(views))).detach()[:, 0]
    labelled, pool = -F.logsigmoid(logits[:BATCH]).mean(), -F.logsigmoid(-logits[BATCH:]).mean()
    expected = (LABELLED * labelled + POOL * pool) / (LABELLED + POOL)
    torch.testing.assert_close(found.total(), expected)


def test_a_run_tells_the_method_how_many_images_there_are(tmp_path):
    spec = make_spec("digits", "mtc", train={"epochs": 2, "epoch_steps": 1})
    problem = load_problem(spec.terms, spec.fold)
    count = {"pool_size": len(problem.split.pool), "labelled_size": len(problem.split.labelled)}
    assert {name: getattr(problem.task, name) for name in count} == count
    train(spec, tmp_path, Surroundings("cpu", quiet=True))
    loaded = load_model(tmp_path, device="cpu").method.task
    assert {name: getattr(loaded, name) for name in count} == count


class PlainMemory:
    """The same memory with lists: an entry an epoch, NaN where nothing was ever said."""

    def __init__(self, window, size):
        self.window, self.size = window, size
        self.epochs, self.labels = [np.full(size, np.nan)], np.zeros(size)

    def begin(self, epoch):
        while len(self.epochs) <= epoch:
            if len(self.epochs) >= self.window:
                self.labels = self.mean()
            self.epochs.append(self.epochs[-1].copy())

    def record(self, positions, values):
        for position in set(positions):
            self.epochs[-1][position] = max(
                v for p, v in zip(positions, values, strict=True) if p == position
            )

    def mean(self):
        means = []
        for said in np.transpose(self.epochs[-self.window :]):
            said = said[~np.isnan(said)]
            means.append(said.mean() if len(said) else np.nan)
        seen = [mean for mean in means if not np.isnan(mean)]
        return np.nan_to_num(means, nan=np.mean(seen) if seen else 0.0)


@pytest.mark.parametrize("window", [1, 2, 5])
def test_the_memory_against_a_plain_one(window):
    """Four steps an epoch, images missing in some epochs and double in some batches."""
    rng = np.random.default_rng(window)
    memory, plain = DomainMemory(window, 12), PlainMemory(window, 12)
    for step in range(4 * 13):
        memory.begin(torch.tensor(step / 4))
        plain.begin(step // 4)
        np.testing.assert_allclose(memory.labels, plain.labels, atol=1e-6)
        positions = rng.integers(0, 12, 3)
        values = rng.random(3).astype(np.float32)
        memory.record(torch.from_numpy(positions), torch.from_numpy(values))
        plain.record(positions.tolist(), values.tolist())
        np.testing.assert_allclose(memory.mean(), plain.mean(), atol=1e-6)


def test_labels_stay_zero_until_the_window_is_full_and_still_inside_an_epoch():
    memory = DomainMemory(3, 4)
    seen = []
    for epoch in range(5):
        for part in (0.0, 0.5):
            memory.begin(torch.tensor(epoch + part))
            seen.append(memory.labels[0].item())
            memory.record(torch.tensor([0]), torch.tensor([0.1 * (epoch + 1)]))
    assert seen == pytest.approx([0, 0, 0, 0, 0, 0, 0.2, 0.2, 0.3, 0.3], abs=1e-6)
    # Of images that no batch has held yet there is nothing to say but what the others are like.
    assert memory.labels[1:].tolist() == pytest.approx([0.3] * 3, abs=1e-6)


def test_a_batch_in_parts_does_not_begin_an_epoch_twice():
    memory = DomainMemory(2, 4)
    for part in ([0, 1], [2, 3]):
        memory.begin(torch.tensor(1.0))
        memory.record(torch.tensor(part), torch.tensor([0.5, 0.5]))
    assert memory.history[1].tolist() == [0.5] * 4


# MixMatch


def test_self_training_adds_mixmatch(monkeypatch):
    method = make_method(pool_weight=10.0, temperature=0.5)
    batch = make_batch(Stage.SELF_TRAIN)
    monkeypatch.setattr(mtc, "draw_share", lambda concentration, device: torch.tensor(0.8))
    torch.manual_seed(5)
    found = method.loss(batch, at(Stage.SELF_TRAIN, 3, 0.5))
    torch.manual_seed(5)
    permutation = torch.rand(3 * BATCH).argsort().numpy()

    def floats(pixels):
        return (pixels.numpy() / 255 - 0.5) / 0.25

    kept = batch.unlabelled["selected"].views
    with torch.no_grad():
        guesses = softmax(method.classifier(method.backbone(torch.cat(kept))).double().numpy())
        guess = (guesses[:BATCH] + guesses[BATCH:]) ** 2
        guess /= guess.sum(1, keepdims=True)
        pixels = np.concatenate([floats(v) for v in (batch.labelled.views[1], *kept)])
        targets = np.concatenate([np.eye(CLASSES)[batch.labelled.labels], guess, guess])
        mixed = 0.8 * pixels + 0.2 * pixels[permutation]
        targets = 0.8 * targets + 0.2 * targets[permutation]
        domain = [batch.labelled.views[0], batch.unlabelled["pool"].views[0]]
        rows = np.concatenate([*map(floats, domain), mixed])
        features = method.backbone.trunk(torch.from_numpy(rows).float())
        p = softmax(method.classifier(features[2 * BATCH :]).double().numpy())
        inlier = sigmoid(method.domain(features[: 2 * BATCH]).double().numpy()[:, 0])
    labelled = -(targets * np.log(p)).sum(1)[:BATCH].mean()
    selected = ((p - targets) ** 2)[BATCH:].mean()
    of_domain = -np.log(np.where(np.arange(2 * BATCH) < BATCH, inlier, 1 - inlier))
    domain_term = np.average(of_domain, weights=[LABELLED / POOL] * BATCH + [1.0] * BATCH)
    assert found.terms["labelled"].item() == pytest.approx(labelled, rel=1e-4)
    assert found.terms["selected"].item() == pytest.approx(10 * selected, rel=1e-4)
    assert found.terms["domain"].item() == pytest.approx(domain_term, rel=1e-4)
    assert set(found.terms) == {"labelled", "selected", "domain"}
    assert found.monitors["pseudo_confidence"].item() == pytest.approx(
        targets[BATCH:].max(1).mean(), rel=1e-4
    )


@pytest.mark.parametrize(("fraction", "weight"), [(0.2, 0.0), (0.4, 0.5), (0.6, 1.0), (0.9, 1.0)])
def test_the_pools_weight_rises_over_a_share_of_self_training(fraction, weight):
    """Pre-training took a fifth of the run; half of the other four fifths is the ramp."""
    method = make_method(ramp_share=0.5)
    method.loss(make_batch(Stage.PRETRAIN), at(Stage.PRETRAIN, 0, 0.2))
    risen = at(Stage.SELF_TRAIN, 5, fraction).rise(method.config.ramp_share, method.pretrained)
    assert risen.item() == pytest.approx(weight, abs=1e-6)
    assert at(Stage.SELF_TRAIN).rise(0.0, method.pretrained).item() == 1


# Gradients


def test_what_each_term_trains():
    method = make_method()
    terms = method.loss(make_batch(Stage.SELF_TRAIN), at(Stage.SELF_TRAIN, 3, 0.5)).terms
    reached = {}
    for name, term in terms.items():
        reached[name] = set()
        for part in ("backbone", "classifier", "domain"):
            parameters = list(getattr(method, part).parameters())
            gradients = torch.autograd.grad(
                term, parameters, retain_graph=True, allow_unused=True, materialize_grads=True
            )
            if any(g.abs().sum() > 0 for g in gradients):
                reached[name].add(part)
    assert reached == {
        "domain": {"backbone", "domain"},
        "labelled": {"backbone", "classifier"},
        "selected": {"backbone", "classifier"},
    }


def test_guesses_are_constants():
    method = make_method()
    mixed, targets = method._mixed(make_batch(Stage.SELF_TRAIN))
    assert not mixed.requires_grad
    assert not targets.requires_grad
    torch.testing.assert_close(targets.sum(1), torch.ones(3 * BATCH))


# Wants, selection, outputs


def test_wants():
    method = make_method(pool_ratio=2, selected_ratio=3)
    weak = (View.WEAK,)
    assert method.wants(Stage.PRETRAIN) == {
        "labelled": Want(Source.LABELLED, weak),
        "pool": Want(Source.POOL, weak, 2),
    }
    assert method.wants(Stage.SELF_TRAIN) == {
        "labelled": Want(Source.LABELLED, weak * 2),
        "pool": Want(Source.POOL, weak, 2),
        "selected": Want(Source.SELECTED, weak * 2, 3),
    }


def no_outputs():
    return Outputs(torch.zeros(POOL, 2), torch.zeros(POOL, CLASSES), torch.zeros(POOL))


def test_selection_cuts_the_remembered_probabilities_in_two():
    method = make_method(score_window=2)
    high = [1, 7, 30, 39]
    for epoch in range(3):
        method.memory.begin(torch.tensor(float(epoch)))
        said = torch.full((POOL,), 0.1) + 0.01 * torch.rand(POOL)
        said[high] = 0.7 if epoch else 0.0  # what the first epoch said has left the window
        method.memory.record(torch.arange(POOL), said)
    assert method.select(no_outputs()).positions.tolist() == high


def test_selection_before_the_window_is_full_uses_the_epochs_there_are():
    method = make_method(score_window=10)
    method.memory.record(torch.tensor([2, 5, 9]), torch.tensor([0.9, 0.8, 0.1]))
    assert method.select(no_outputs()).positions.tolist() == [2, 5]


def test_selection_does_not_follow_the_order_of_visits():
    """Inliers that the second epoch comes to first have no zero of the first in their mean."""
    method = make_method(score_window=5)
    inlier = torch.arange(POOL) % 2 == 0
    for epoch, visited in enumerate((torch.arange(0, 15), torch.arange(15, 30))):
        method.memory.begin(torch.tensor(float(epoch)))
        method.memory.record(visited, torch.where(inlier[visited], 0.8, 0.3))
    expected = [n for n in range(30) if n % 2 == 0]
    assert method.select(no_outputs()).positions.tolist() == expected


def test_without_any_memory_everything_is_selected():
    assert make_method().select(no_outputs()).positions.tolist() == list(range(POOL))


def test_outputs():
    method = make_method().eval()
    pixels = images(4)
    with torch.no_grad():
        outputs = method.outputs(pixels)
        features = method.backbone(pixels)
        expected = method.domain(features).numpy()[:, 0]
        assert torch.equal(outputs.logits, method.classifier(features))
    np.testing.assert_allclose(outputs.score, expected, rtol=1e-5)
    assert outputs.alpha is None


@pytest.mark.parametrize(
    "options",
    [{"score_window": 0}, {"temperature": 0.0}, {"ramp_share": 1.5}, {"selected_ratio": 0},
     {"mix_concentration": -1.0}],
)  # fmt: skip
def test_impossible_options_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        MtcConfig(**options)


@pytest.mark.long
def test_a_step_is_one_graph():
    """No question to the host, no branch on data: the compiler finds nothing to break at."""
    stage = Stage.SELF_TRAIN
    compiled = torch.compile(make_method().loss, backend="eager", fullgraph=True, dynamic=False)
    assert torch.isfinite(compiled(make_batch(stage), at(stage, 1.5, 0.5)).total())


# Runs


def run(folder, engine, options=None):
    spec = make_spec(
        "digits", method=f"{Path(mtc.__file__)}:Mtc", train=engine, options=options or {}
    )
    results = train(spec, folder, Surroundings(device="cpu", quiet=True))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return results, [row for row in rows if "train" in row], rows


def test_both_stages_run_and_weights_move(tmp_path):
    engine = {"epochs": 2, "epoch_steps": 3, "pretrain_epochs": 1, "batch_size": 8, "log_every": 3}
    _, logged, rows = run(tmp_path, engine)
    assert [set(row["train"]) & {"domain", "labelled", "selected"} for row in logged] == [
        {"domain"},
        {"domain", "labelled", "selected"},
    ]
    counts = [row["selection"]["count"] for row in rows if "selection" in row]
    assert len(counts) == 1
    assert 1 <= counts[0] < 1119
    trained = load_file(tmp_path / "state" / "step-00000006" / "model.safetensors")
    assert trained["memory.history"].shape == (5, 1119)
    assert 0 < (trained["memory.history"][0] > 0).sum() <= 24
    assert trained["classifier.bias"].abs().max() > 0
    assert trained["domain.bias"].abs().max() > 0
    averaged = load_file(tmp_path / "state" / "step-00000006" / "average.safetensors")
    assert torch.equal(averaged["memory.history"], trained["memory.history"])


def test_losses_fall_and_digits_are_learnt(tmp_path):
    engine = {"epochs": 5, "epoch_steps": 40, "pretrain_epochs": 2, "batch_size": 24,
              "optimiser": "adam", "learning_rate": 0.002, "schedule": "constant",
              "weight_decay": 0.0, "log_every": 40, "test_while_training": False}  # fmt: skip
    results, logged, _ = run(tmp_path, engine, {"score_window": 2, "ramp_share": 0.4})
    domain = [row["train"]["domain"] for row in logged]
    labelled = [row["train"]["labelled"] for row in logged[2:]]
    assert domain[1] < domain[0]
    assert labelled[-1] < 0.85 * labelled[0]
    assert results["last"]["test"]["error"] < 0.6  # chance is 0.83
