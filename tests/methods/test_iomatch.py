"""IOMatch's terms against loops in numpy, its masks, its memory, its gradients and a short run."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from anedl.engine.spec import make_spec
from anedl.engine.train import Surroundings, train
from anedl.errors import ConfigError
from anedl.methods import iomatch
from anedl.methods.base import Batch, Labelled, Progress, Source, Stage, Task, Unlabelled, Want
from anedl.methods.iomatch import IoMatch, IoMatchConfig
from anedl.networks.encoder import ImageEncoder
from anedl.outlier_class import known_log_odds
from anedl.views import View

CLASSES, BATCH, RATIO = 4, 5, 2
TASK = Task(classes=CLASSES, top_m=2, inlier_share=0.5, dataset="cifar10")
FILE = Path(iomatch.__file__)
# With this open threshold some images of the fixed batch pass each mask and some do not.
HALF_OPEN = {"closed_threshold": 0.35, "open_threshold": 0.505, "outlier_threshold": 0.5}


def make_method(task: Task = TASK, **options) -> IoMatch:
    """The same weights whatever the options, with logits that differ from image to image."""
    torch.manual_seed(0)
    encoder = ImageEncoder("wrn-digits", (0.5,), (0.25,), bn_momentum=0.1)
    method = IoMatch(IoMatchConfig(**{"pool_ratio": RATIO, **options}), encoder, task)
    with torch.no_grad():
        method.classifier.weight.mul_(3)
        method.one_vs_all.weight.mul_(3)
        method.open.weight.mul_(3)
    return method.train()


def images(count: int) -> torch.Tensor:
    return torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8)


def make_batch() -> Batch:
    torch.manual_seed(1)
    labelled = Labelled((images(BATCH),), torch.arange(BATCH) % CLASSES)
    pool = Unlabelled((images(BATCH * RATIO), images(BATCH * RATIO)), torch.arange(BATCH * RATIO))
    return Batch(labelled, {"pool": pool})


def at(fraction: float = 0.5, stage: Stage = Stage.SELF_TRAIN) -> Progress:
    return Progress(stage, torch.tensor(20 * fraction), torch.tensor(fraction))


def softmax(values: np.ndarray, axis: int = -1) -> np.ndarray:
    raised = np.exp(values - values.max(axis, keepdims=True))
    return raised / raised.sum(axis, keepdims=True)


class Reference:
    """Every head's output for one batch, by a forward pass of its own; sums are loops, float64."""

    def __init__(self, method: IoMatch, batch: Batch) -> None:
        weak, strong = batch.unlabelled["pool"].views
        features = method.backbone(torch.cat([batch.labelled.views[0], weak, strong]))
        projected = method.projection(features)

        def parts(tensor):
            array = tensor.detach().double().numpy()
            return array[:BATCH], array[BATCH : BATCH + len(weak)], array[BATCH + len(weak) :]

        self.labels = batch.labelled.labels.numpy()
        self.closed = parts(method.classifier(features))
        pairs = torch.nn.functional.linear(projected, method.one_vs_all.weight)
        self.pairs = parts(pairs.view(-1, 2, CLASSES))
        self.open = parts(method.open(projected))
        self.p = softmax(self.closed[1])
        self.weak_is_class = softmax(self.pairs[1], 1)[:, 1]

    def cross_entropy(self):
        rows = softmax(self.closed[0])
        return np.mean([-np.log(row[y]) for row, y in zip(rows, self.labels, strict=True)])

    def one_vs_all(self):
        values = []
        for pair, y in zip(softmax(self.pairs[0], 1), self.labels, strict=True):
            hardest = max(-np.log(pair[0, k]) for k in range(CLASSES) if k != y)
            values.append(-np.log(pair[1, y]) + hardest)
        return np.mean(values)

    def target(self):
        rows = []
        for p, o in zip(self.p, self.weak_is_class, strict=True):
            known = [p[k] * o[k] for k in range(CLASSES)]
            rows.append([*known, sum(p[k] * (1 - o[k]) for k in range(CLASSES))])
        return np.array(rows)

    def closed_term(self, confidence, outlier):
        chosen = (self.p.max(1) >= confidence) & (self.target()[:, -1] < outlier)
        values = -(self.p * np.log(softmax(self.closed[2]))).sum(1)
        return values[chosen].sum() / len(values), chosen.mean()

    def open_term(self, confidence):
        target = self.target()
        chosen = target.max(1) >= confidence
        values = -(target * np.log(softmax(self.open[2]))).sum(1)
        return values[chosen].sum() / len(values), chosen.mean()


def terms_of(fraction=0.5, task=TASK, **options):
    found = make_method(task, **options).loss(make_batch(), at(fraction))
    return {name: value.item() for name, value in found.terms.items()}


# The pieces


def test_the_open_target_is_a_distribution_over_one_class_more():
    generator = np.random.default_rng(0)
    p = torch.from_numpy(generator.dirichlet(np.ones(6), 20)).float()
    o = torch.from_numpy(generator.uniform(size=(20, 6))).float()
    found = iomatch.open_target(p, o)
    assert found.shape == (20, 7)
    torch.testing.assert_close(found.sum(1), torch.ones(20))
    for row in range(20):
        for k in range(6):
            assert found[row, k].item() == pytest.approx(p[row, k].item() * o[row, k].item())
    sure = iomatch.open_target(torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]]))
    assert sure.tolist() == [[0.0, 0.0, 1.0]]


def test_the_masks_on_a_constructed_case():
    probability = torch.tensor([[0.95, 0.05], [0.94, 0.06], [1.0, 0.0], [0.0, 1.0]])
    target = torch.tensor([[0.51, 0.0, 0.49], [0.9, 0.0, 0.1], [0.5, 0.0, 0.5], [0.02, 0.49, 0.49]])
    assert iomatch.closed_mask(probability, target, 0.95, 0.5).tolist() == [1, 0, 0, 1]
    assert iomatch.open_mask(target, 0.5).tolist() == [1, 1, 1, 0]


# The loss


def test_every_term_against_loops():
    method, batch = make_method(**HALF_OPEN), make_batch()
    expected = Reference(make_method(), batch)
    found = method.loss(batch, at())
    closed, closed_share = expected.closed_term(0.35, 0.5)
    opened, open_share = expected.open_term(0.505)
    assert 0 < closed_share < 1, "the masks must have something to tell apart"
    assert 0 < open_share < 1
    values = {
        "ce": expected.cross_entropy(),
        "one_vs_all": expected.one_vs_all(),
        "closed": closed,
        "open": opened,
    }
    assert set(found.terms) == set(values)
    for name, value in values.items():
        assert found.terms[name].item() == pytest.approx(value, rel=2e-5), name
    assert found.monitors["closed_share"].item() == pytest.approx(closed_share)
    assert found.monitors["open_share"].item() == pytest.approx(open_share)
    outlier = expected.target()[:, -1].mean()
    assert found.monitors["outlier_probability"].item() == pytest.approx(outlier, rel=2e-5)


@pytest.mark.parametrize(
    ("option", "term"),
    [("one_vs_all_weight", "one_vs_all"), ("closed_weight", "closed"), ("open_weight", "open")],
)
def test_a_weight_scales_its_own_term(option, term):
    base, found = terms_of(**HALF_OPEN), terms_of(**HALF_OPEN, **{option: 3.0})
    assert found.pop(term) == pytest.approx(3 * base.pop(term), rel=1e-5)
    assert found == base


def test_the_open_term_sets_in_after_its_share_of_the_run():
    early, late = terms_of(fraction=0.0039, **HALF_OPEN), terms_of(fraction=0.00391, **HALF_OPEN)
    assert early.pop("open") == 0
    assert late.pop("open") > 0
    assert early == late
    assert terms_of(fraction=0.2, **HALF_OPEN, open_start=0.3)["open"] == 0


def test_both_stages_are_the_same():
    method = make_method()
    assert method.wants(Stage.PRETRAIN) == method.wants(Stage.SELF_TRAIN) == {
        "labelled": Want(Source.LABELLED, (View.WEAK,)),
        "pool": Want(Source.POOL, (View.WEAK, View.STRONG), RATIO),
    }  # fmt: skip
    first = method.loss(make_batch(), at(stage=Stage.PRETRAIN)).total()
    assert first.item() == make_method().loss(make_batch(), at()).total().item()


REACHED = {
    "ce": {"classifier", "backbone"},
    "one_vs_all": {"one_vs_all", "projection", "backbone"},
    "closed": {"classifier", "backbone"},
    "open": {"open", "projection", "backbone"},
}


@pytest.mark.parametrize("term", REACHED)
def test_what_each_term_trains(term):
    method = make_method(**HALF_OPEN)
    value = method.loss(make_batch(), at()).terms[term]
    names = [name for name, _ in method.named_parameters()]
    gradients = torch.autograd.grad(value, list(method.parameters()), allow_unused=True)
    moved = {
        name.split(".")[0]
        for name, gradient in zip(names, gradients, strict=True)
        if gradient is not None and gradient.abs().max() > 0
    }
    assert moved == REACHED[term]


def test_half_precision_trains_the_same_heads():
    method = make_method(**HALF_OPEN)
    with torch.autocast("cpu", torch.bfloat16):
        found = method.loss(make_batch(), at())
    assert all(value.dtype == torch.float32 for value in found.terms.values())
    heads = [method.classifier, method.projection, method.one_vs_all, method.open]
    parameters = [parameter for head in heads for parameter in head.parameters()]
    gradients = torch.autograd.grad(found.total(), parameters)
    assert all(gradient.abs().max() > 0 for gradient in gradients)
    exact = terms_of(**HALF_OPEN)
    for name in ("ce", "one_vs_all"):
        assert found.terms[name].item() == pytest.approx(exact[name], rel=0.03)


def test_the_weak_view_gives_targets_and_no_gradient():
    method, batch = make_method(**HALF_OPEN), make_batch()
    seen = []

    def keep(module, arguments, features):
        features.retain_grad()
        seen.append(features)

    method.backbone.register_forward_hook(keep)
    found = method.loss(batch, at())
    (found.terms["closed"] + found.terms["open"]).backward()
    gradient = seen[0].grad
    assert len(seen) == 1, "one forward pass"
    assert gradient[: BATCH + BATCH * RATIO].abs().max() == 0
    assert gradient[BATCH + BATCH * RATIO :].abs().max() > 0


# Alignment


def test_alignment_changes_the_targets_by_the_batches_so_far():
    method, batch = make_method(alignment=True, alignment_batches=3, **HALF_OPEN), make_batch()
    expected = Reference(make_method(), batch)
    earlier = np.array([0.7, 0.1, 0.1, 0.1])
    with torch.no_grad():
        method.memory[0] = torch.from_numpy(earlier)
        method.memory_slot.fill_(1)
    found = method.loss(batch, at())
    mean = expected.p.mean(0)
    ratio = expected.p * (1 / CLASSES + 1e-6) / ((earlier + mean + 0) / 3 + 1e-6)
    expected.p = ratio / ratio.sum(1, keepdims=True)
    assert found.terms["closed"].item() == pytest.approx(
        expected.closed_term(0.35, 0.5)[0], rel=5e-5
    )
    assert found.terms["open"].item() == pytest.approx(expected.open_term(0.505)[0], rel=5e-5)
    np.testing.assert_allclose(
        method.memory.numpy(), [earlier, mean, np.zeros(CLASSES)], rtol=1e-5, atol=1e-7
    )
    assert method.memory_slot.item() == 2
    assert {"memory", "memory_slot"} <= set(method.state_dict()), "it must be in a checkpoint"


def test_without_alignment_the_memory_is_left_alone():
    method = make_method(alignment=False)
    method.loss(make_batch(), at())
    assert method.memory.abs().max() == 0
    assert method.memory_slot.item() == 0


@pytest.mark.parametrize(
    ("dataset", "alignment", "batches"),
    [("cifar10", False, 128), ("cifar100", True, 128), ("imagenet30", True, 32)],
)
def test_the_data_set_says_whether_to_align(dataset, alignment, batches):
    config = IoMatchConfig().resolved(replace(TASK, dataset=dataset))
    assert (config.alignment, config.alignment_batches) == (alignment, batches)
    chosen = IoMatchConfig(alignment=True, alignment_batches=7)
    assert chosen.resolved(replace(TASK, dataset=dataset)) == chosen
    assert config.resolved(TASK) == config


# Heads, inference and options


def test_the_heads_are_those_of_the_paper():
    method = make_method()
    shapes = {
        name: tuple(p.shape) for name, p in method.named_parameters() if "backbone" not in name
    }
    width = method.backbone.feature_width
    assert shapes == {
        "classifier.weight": (CLASSES, width),
        "classifier.bias": (CLASSES,),
        "projection.0.weight": (width, width),
        "projection.0.bias": (width,),
        "projection.2.weight": (128, width),
        "projection.2.bias": (128,),
        "one_vs_all.weight": (2 * CLASSES, 128),
        "open.weight": (CLASSES + 1, 128),
        "open.bias": (CLASSES + 1,),
    }
    assert make_method(projection_width=9).open.weight.shape == (CLASSES + 1, 9)


@pytest.mark.parametrize("score", ["open", "combined"])
def test_inference(score):
    method = make_method(score=score).eval()
    torch.manual_seed(3)
    some = images(7)
    with torch.no_grad():
        outputs = method.outputs(some)
        features = method.backbone(some)
        projected = method.projection(features)
        logits = method.classifier(features)
        outlier = softmax(method.open(projected).double().numpy())[:, CLASSES]
        o = softmax(method.one_vs_all(projected).numpy(), 1)[:, 1]
        expected = {
            "open": np.log((1 - outlier) / outlier),
            "combined": (softmax(logits.numpy()) * o).sum(1),
        }
    assert torch.equal(outputs.features, features)
    assert torch.equal(outputs.logits, logits)
    np.testing.assert_allclose(outputs.score.numpy(), expected.pop(score), rtol=1e-5)
    ((other, values),) = expected.items()
    assert outputs.others.keys() == {other}
    np.testing.assert_allclose(outputs.others[other].numpy(), values, rtol=1e-5)
    assert outputs.alpha is None
    assert method.select(outputs) is None


def test_less_of_the_outlier_class_is_a_higher_score():
    logits = torch.tensor([[0.0, 0.0, 3.0], [0.0, 0.0, 0.0], [5.0, 0.0, 0.0]])
    first, second, third = known_log_odds(logits).tolist()
    assert first < second < third
    assert torch.tensor(second).sigmoid() == pytest.approx(2 / 3)


@pytest.mark.parametrize("name", ["alignment_batches", "projection_width", "pool_ratio"])
def test_impossible_values_are_refused(name):
    with pytest.raises(ConfigError, match=name):
        IoMatchConfig(**{name: 0})


# Training


def run(folder, options=None, **engine):
    engine = {"epochs": 2, "epoch_steps": 3, "pretrain_epochs": 1, "batch_size": 8, **engine}
    options = {"pool_ratio": 2, **(options or {})}
    spec = make_spec("digits", f"{FILE}:IoMatch", train=engine, options=options)
    return train(spec, folder, Surroundings(device="cpu", quiet=True))


def test_a_short_run_learns_and_keeps_its_memory(tmp_path):
    # Masks that open early: 60 steps are too few for a confidence of 0.95.
    results = run(
        tmp_path / "run", {"closed_threshold": 0.6}, epochs=4, epoch_steps=15, learning_rate=0.1,
        log_every=15,
    )  # fmt: skip
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "train" in row]
    assert [row["stage"] for row in rows] == [1, 2, 2, 2]
    assert rows[-1]["train"]["ce"] < 0.7 * rows[0]["train"]["ce"]
    assert rows[-1]["train"]["one_vs_all"] < rows[0]["train"]["one_vs_all"]
    assert rows[-1]["train"]["closed_share"] > 0
    assert rows[-1]["train"]["closed"] > 0
    assert results is not None
    state = load_file(next((tmp_path / "run/state").glob("step-*")) / "model.safetensors")
    assert state["memory_slot"].item() == 60
    torch.testing.assert_close(state["memory"].sum(1), (torch.arange(128) < 60).float())
