"""SSB's terms against loops in numpy, its two stages, its idle detector and a short run."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from anedl.data.settings import get_setting
from anedl.engine.precision import Precision
from anedl.engine.problem import load_problem
from anedl.engine.spec import make_spec
from anedl.engine.train import Surroundings, build_stepper, train
from anedl.errors import ConfigError
from anedl.methods import ssb
from anedl.methods.base import Batch, Labelled, Progress, Source, Stage, Task, Unlabelled, Want
from anedl.methods.ssb import Ssb, SsbConfig
from anedl.networks.encoder import ImageEncoder
from anedl.views import View

CLASSES, BATCH, RATIO, HIDDEN = 4, 5, 2, 16
TASK = Task(classes=CLASSES, top_m=2, inlier_share=0.5, dataset="cifar10")
FILE = Path(ssb.__file__)
# With these thresholds some images of the fixed batch pass and some do not.
SOME_PASS = {"fixmatch_threshold": 0.4, "pseudo_negative_threshold": 0.4}
BOTH_STAGES = pytest.mark.parametrize("stage", list(Stage))


def make_method(task: Task = TASK, **options) -> Ssb:
    """The same weights whatever the options, with logits that differ from image to image."""
    torch.manual_seed(0)
    encoder = ImageEncoder("wrn-digits", (0.5,), (0.25,), bn_momentum=0.1)
    method = Ssb(SsbConfig(**{"hidden_width": HIDDEN, **options}), encoder, task)
    with torch.no_grad():
        method.classifier[-1].weight.mul_(4)
        method.detector[-1].weight.mul_(4)
    return method.train()


def images(count: int) -> torch.Tensor:
    return torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8)


def make_batch(stage: Stage) -> Batch:
    torch.manual_seed(1)
    second = stage is Stage.SELF_TRAIN
    many = BATCH * RATIO
    labelled = tuple(images(BATCH) for _ in range(4 if second else 1))
    parts = {"fixmatch": Unlabelled((images(many), images(many)), torch.arange(many))}
    if second:
        views = tuple(images(many) for _ in range(3))
        parts["detector"] = Unlabelled(views, torch.arange(many))
    return Batch(Labelled(labelled, torch.arange(BATCH) % CLASSES), parts)


def at(stage: Stage) -> Progress:
    return Progress(stage, torch.tensor(3.0), torch.tensor(0.5))


def softmax(values: np.ndarray, axis: int = -1) -> np.ndarray:
    raised = np.exp(values - values.max(axis, keepdims=True))
    return raised / raised.sum(axis, keepdims=True)


def pairs_of(method: Ssb, features: torch.Tensor) -> np.ndarray:
    """(N, 2, K) probabilities from the detector's layers one by one, in float64."""
    hidden = features.detach().double().numpy()
    layers = [layer for layer in method.detector if hasattr(layer, "weight")]
    for number, layer in enumerate(layers):
        hidden = hidden @ layer.weight.detach().double().numpy().T + layer.bias.detach().numpy()
        if number < 2:
            hidden = np.maximum(hidden, 0)
    return softmax(hidden.reshape(-1, 2, CLASSES), 1)


def expected_terms(batch: Batch, stage: Stage, **options) -> dict[str, float]:
    """Every term by a forward pass of its own and loops over images and classes."""
    method = make_method(**options)
    config = method.config
    labels = batch.labelled.labels.tolist()
    views = batch.labelled.views
    fix = batch.unlabelled["fixmatch"].views
    many = BATCH * RATIO
    if stage is Stage.PRETRAIN:
        features = method.backbone(torch.cat([*views, *fix]))
        labelled, fix_features = features[:BATCH], features[BATCH:]
    else:
        features = method.backbone(torch.cat([*views, *batch.unlabelled["detector"].views]))
        labelled = features[: 2 * BATCH]
        fix_features = method.backbone(torch.cat(fix))

    def probabilities(some):
        return softmax(method.classifier(some).detach().double().numpy())

    twice = labels * (1 if stage is Stage.PRETRAIN else 2)
    terms = {
        "ce": np.mean([-np.log(p[y]) for p, y in zip(probabilities(labelled), twice, strict=True)])
    }
    weak, strong = np.split(probabilities(fix_features), 2)
    values = [
        -np.log(strong[i, weak[i].argmax()]) if weak[i].max() >= config.fixmatch_threshold else 0.0
        for i in range(many)
    ]
    terms["fixmatch"] = np.mean(values)
    if stage is Stage.PRETRAIN:
        return terms

    pairs = pairs_of(method, features)
    terms["ova_positive"] = np.mean([-np.log(pairs[i, 1, y]) for i, y in enumerate(twice)])
    negative = 0.0
    for i, y in enumerate(labels * 4):
        negative += sum(-np.log(pairs[i, 0, k]) for k in range(CLASSES) if k != y)
    terms["ova_negative"] = negative / (4 * BATCH * CLASSES)
    pool = pairs[4 * BATCH :]
    weak, flip, strong = pool[:many], pool[many : 2 * many], pool[2 * many :]
    entropies = [
        -sum(q * math.log(q) for q in view[i, :, k])
        for view in (weak, flip)
        for i in range(many)
        for k in range(CLASSES)
    ]
    terms["entropy"] = config.entropy_weight * np.mean(entropies)
    terms["consistency"] = config.consistency_weight * np.sum((weak - flip) ** 2) / many
    mined = 0.0
    for i in range(many):
        for k in range(CLASSES):
            if weak[i, 1, k] <= config.pseudo_negative_threshold:
                mined -= np.log(strong[i, 0, k])
    terms["pseudo_negative"] = config.pseudo_negative_weight * mined / many
    return terms


def terms_of(stage=Stage.SELF_TRAIN, **options):
    found = make_method(**SOME_PASS, **options).loss(make_batch(stage), at(stage))
    return {name: value.item() for name, value in found.terms.items()}


# The pieces


def test_negatives_count_every_wrong_class_and_divide_by_all():
    logits = torch.zeros(2, 2, 3)  # n_k = 1/2 everywhere
    labels = torch.tensor([0, 2])
    expected = 2 / 3 * math.log(2)
    assert ssb.negative_loss(logits, labels).tolist() == pytest.approx([expected] * 2)
    assert ssb.positive_loss(logits, labels).tolist() == pytest.approx([math.log(2)] * 2)
    logits[0, 1, 0] = 50.0  # the true class alone: the negatives do not look at it
    assert ssb.negative_loss(logits, labels)[0].item() == pytest.approx(expected)
    assert ssb.positive_loss(logits, labels)[0].item() == pytest.approx(0)


def test_pseudo_negatives_on_a_constructed_case():
    probability = torch.tensor([[0.009, 0.5, 0.02], [0.011, 0.99, 0.0]], dtype=torch.float64)
    logits = torch.stack([torch.zeros_like(probability), torch.logit(probability)], 1)
    negatives = ssb.pseudo_negatives(logits, 0.01)
    assert negatives.tolist() == [[1, 0, 0], [0, 0, 1]]
    strong = torch.stack([torch.zeros(2, 3), torch.tensor([[0.0, 9.0, 9.0], [9.0, 9.0, 1.0]])], 1)
    expected = [math.log(2), math.log(1 + math.e)]
    assert ssb.pseudo_negative_loss(strong, negatives).tolist() == pytest.approx(expected)


def test_an_image_with_no_pseudo_negative_gives_nothing_and_several_add_up():
    logits = torch.zeros(2, 2, 3)
    negatives = torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])
    found = ssb.pseudo_negative_loss(logits, negatives)
    assert found.tolist() == pytest.approx([0, 3 * math.log(2)])


# The loss


@BOTH_STAGES
def test_every_term_against_loops(stage):
    batch = make_batch(stage)
    found = make_method(**SOME_PASS).loss(batch, at(stage))
    expected = expected_terms(batch, stage, **SOME_PASS)
    assert set(found.terms) == set(expected)
    for name, value in expected.items():
        assert found.terms[name].item() == pytest.approx(value, rel=5e-5), name
    assert 0 < found.monitors["confident_share"].item() < 1, "some pass and some do not"
    if stage is Stage.SELF_TRAIN:
        assert 0 < found.monitors["negative_share"].item() < 1


@pytest.mark.parametrize(
    ("option", "default", "terms"),
    [
        ("fixmatch_weight", 1.0, {"fixmatch"}),
        ("one_vs_all_weight", 1.0, {"ova_positive", "ova_negative"}),
        ("entropy_weight", 0.1, {"entropy"}),
        ("consistency_weight", 0.5, {"consistency"}),
        ("pseudo_negative_weight", 1.0, {"pseudo_negative"}),
    ],
)
def test_a_weight_scales_its_own_terms(option, default, terms):
    base, found = terms_of(), terms_of(**{option: 3 * default})
    for term in terms:
        assert found.pop(term) == pytest.approx(3 * base.pop(term), rel=1e-5)
    assert found == base


def test_the_defaults_are_the_released_ones():
    config = SsbConfig().resolved(TASK)
    assert (config.fixmatch_threshold, config.pseudo_negative_threshold) == (0.95, 0.01)
    assert (config.hidden_width, config.pool_ratio) == (1024, 2)


@pytest.mark.parametrize(
    ("dataset", "weight", "width"),
    [("cifar10", 0.5, 1024), ("cifar100", 1.0, 1024), ("imagenet30", 0.5, 4096)],
)
def test_the_data_set_says_what_was_left_open(dataset, weight, width):
    task = replace(TASK, dataset=dataset)
    config = SsbConfig().resolved(task)
    assert (config.consistency_weight, config.hidden_width) == (weight, width)
    chosen = SsbConfig(consistency_weight=0.0, hidden_width=7)
    assert chosen.resolved(task) == chosen


@pytest.mark.parametrize("name", ["hidden_width", "pool_ratio"])
def test_impossible_values_are_refused(name):
    with pytest.raises(ConfigError, match=name):
        SsbConfig(**{name: 0})


# Stages


def test_what_a_batch_holds_in_each_stage():
    method = make_method(pool_ratio=3)
    fixmatch = Want(Source.POOL, (View.WEAK, View.STRONG), 3)
    assert method.wants(Stage.PRETRAIN) == {
        "labelled": Want(Source.LABELLED, (View.WEAK,)),
        "fixmatch": fixmatch,
    }
    second = method.wants(Stage.SELF_TRAIN)
    assert second == {
        "labelled": Want(Source.LABELLED, (View.WEAK, View.FLIP, View.STRONG, View.STRONG)),
        "fixmatch": fixmatch,
        "detector": Want(Source.POOL, (View.WEAK, View.FLIP, View.STRONG), 3),
    }
    assert list(second)[1] == "fixmatch", "in its place, so that its images go on where they were"


REACHED = {
    "ce": {"classifier", "backbone"},
    "fixmatch": {"classifier", "backbone"},
    "ova_positive": {"detector", "backbone"},
    "ova_negative": {"detector", "backbone"},
    "entropy": {"detector", "backbone"},
    "consistency": {"detector", "backbone"},
    "pseudo_negative": {"detector", "backbone"},
}


def trained_by(method: Ssb, value: torch.Tensor) -> set[str]:
    names = [name for name, _ in method.named_parameters()]
    gradients = torch.autograd.grad(value, list(method.parameters()), allow_unused=True)
    return {
        name.split(".")[0]
        for name, gradient in zip(names, gradients, strict=True)
        if gradient is not None and gradient.abs().max() > 0
    }


@pytest.mark.parametrize("term", REACHED)
def test_what_each_term_trains(term):
    method = make_method(**SOME_PASS)
    value = method.loss(make_batch(Stage.SELF_TRAIN), at(Stage.SELF_TRAIN)).terms[term]
    assert trained_by(method, value) == REACHED[term]


def test_the_detector_has_no_gradient_in_the_first_stage():
    method = make_method(**SOME_PASS)
    total = method.loss(make_batch(Stage.PRETRAIN), at(Stage.PRETRAIN)).total()
    gradients = torch.autograd.grad(total, list(method.detector.parameters()), allow_unused=True)
    assert gradients == (None,) * 6
    method = make_method(**SOME_PASS)
    total = method.loss(make_batch(Stage.PRETRAIN), at(Stage.PRETRAIN)).total()
    assert trained_by(method, total) == {"classifier", "backbone"}


def test_the_strong_view_alone_learns_from_pseudo_negatives():
    method = make_method(**SOME_PASS)
    seen = []

    def keep(module, arguments, features):
        features.retain_grad()
        seen.append(features)

    method.backbone.register_forward_hook(keep)
    found = method.loss(make_batch(Stage.SELF_TRAIN), at(Stage.SELF_TRAIN))
    found.terms["pseudo_negative"].backward()
    assert len(seen) == 2, "FixMatch's images pass by themselves"
    strong = 4 * BATCH + 2 * BATCH * RATIO
    assert seen[0].grad[:strong].abs().max() == 0
    assert seen[0].grad[strong:].abs().max() > 0
    assert seen[1].grad is None


def test_weight_decay_does_not_wear_out_the_idle_detector():
    problem = load_problem(get_setting("digits"), 0, pool_limit=80)
    engine = {"epochs": 2, "epoch_steps": 20, "pretrain_epochs": 1, "batch_size": 2,
              "weight_decay": 0.1, "learning_rate": 0.1, "backbone": "wrn-digits"}  # fmt: skip
    options = {"hidden_width": 8, "pool_ratio": 1}
    spec = make_spec("digits", f"{FILE}:Ssb", pool_limit=80, train=engine, options=options)
    stepper = build_stepper(spec, problem, Precision("fp32", torch.device("cpu")))
    before = [p.detach().clone() for p in stepper.method.detector.parameters()]
    stepper.begin_epoch(Stage.PRETRAIN, 0, 0, None)
    for _ in range(20):
        stepper.take()
    for now, then in zip(stepper.method.detector.parameters(), before, strict=True):
        assert torch.equal(now, then)


# Heads and inference


def test_the_heads_are_those_of_the_paper():
    method = make_method()
    width = method.backbone.feature_width
    for head, last in ((method.classifier, CLASSES), (method.detector, 2 * CLASSES)):
        shapes = [tuple(parameter.shape) for parameter in head.parameters()]
        assert shapes == [(HIDDEN, width), (HIDDEN,), (HIDDEN, HIDDEN), (HIDDEN,),
                          (last, HIDDEN), (last,)]  # fmt: skip
        assert all(bool((p == 0).all()) for p in head.parameters() if p.ndim == 1)


def test_hidden_layers_start_xavier_normal():
    torch.manual_seed(0)
    encoder = ImageEncoder("wrn-digits", (0.5,), (0.25,), bn_momentum=0.1)
    method = Ssb(SsbConfig(hidden_width=256), encoder, TASK)
    for layer in (method.classifier[2], method.detector[2]):
        assert layer.weight.std().item() == pytest.approx(math.sqrt(2 / 512), rel=0.02)
        assert layer.weight.abs().max().item() > 3 * math.sqrt(2 / 512), "normal, not uniform"


def test_inference():
    method = make_method().eval()
    torch.manual_seed(3)
    some = images(9)
    with torch.no_grad():
        outputs = method.outputs(some)
        features = method.backbone(some)
        logits = method.classifier(features)
    assert torch.equal(outputs.features, features)
    assert torch.equal(outputs.logits, logits)
    pairs = pairs_of(method, features)
    expected = [1 - pairs[i, 0, k] for i, k in enumerate(logits.argmax(1).tolist())]
    np.testing.assert_allclose(outputs.score.sigmoid().numpy(), expected, rtol=1e-5)
    assert outputs.alpha is None
    assert method.select(outputs) is None


# Training


def test_a_short_run_learns_in_both_stages(tmp_path):
    engine = {"epochs": 4, "epoch_steps": 15, "pretrain_epochs": 2, "batch_size": 8,
              "learning_rate": 0.1, "log_every": 15}  # fmt: skip
    # A threshold that a few steps of training reach.
    options = {"hidden_width": 32, "fixmatch_threshold": 0.6}
    spec = make_spec("digits", f"{FILE}:Ssb", train=engine, options=options)
    train(spec, tmp_path / "run", Surroundings(device="cpu", quiet=True))
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    rows = [row for row in rows if "train" in row]
    assert [row["stage"] for row in rows] == [1, 1, 2, 2]
    assert set(rows[0]["train"]) == {"ce", "fixmatch", "gradient_norm", "confident_share"}
    assert rows[-1]["train"]["ce"] < 0.7 * rows[0]["train"]["ce"]
    assert rows[-1]["train"]["ova_positive"] < rows[-2]["train"]["ova_positive"]
    assert rows[-1]["train"]["fixmatch"] > 0
    state = load_file(tmp_path / "run/model.safetensors")
    assert all(bool(value.isfinite().all()) for value in state.values())
