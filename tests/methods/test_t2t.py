"""T2T: its terms against numpy, its negatives, its filter, and short runs."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from anedl.engine.spec import make_spec
from anedl.engine.train import Surroundings, train
from anedl.errors import ConfigError
from anedl.methods import t2t
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
from anedl.methods.t2t import (
    T2t,
    T2tConfig,
    hard_negative,
    matching_entropy,
    matching_loss,
    other_class,
    uda,
)
from anedl.networks.encoder import ImageEncoder
from anedl.views import View

CLASSES, BATCH = 5, 6
BN_MOMENTUM = 0.03  # of the trunk; none that is anybody's default
TASK = Task(classes=CLASSES, top_m=2, inlier_share=0.4)


def make_method(task=TASK, **options) -> T2t:
    torch.manual_seed(0)
    encoder = ImageEncoder("wrn-digits", (0.5,), (0.25,), bn_momentum=BN_MOMENTUM)
    return T2t(T2tConfig(**options), encoder, task).train()


def images(count):
    return torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8)


def make_batch(stage):
    torch.manual_seed(1)
    labelled = Labelled((images(BATCH),), torch.arange(BATCH) % CLASSES)
    parts = {"pool": Unlabelled((images(BATCH),), torch.arange(BATCH))}
    if stage is Stage.SELF_TRAIN:
        count = 5 * BATCH
        parts["selected"] = Unlabelled((images(count), images(count)), torch.arange(count))
    return Batch(labelled, parts)


def at(stage, epoch=3.0, fraction=0.5):
    return Progress(stage, torch.tensor(epoch), torch.tensor(fraction))


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(logits):
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


# Negatives and rotations


def test_the_hard_negative_is_the_strongest_wrong_class():
    logits = torch.tensor([[5.0, 3.0, 4.0], [5.0, 3.0, 4.0], [5.0, 3.0, 4.0], [-9.0, -8.0, -7.0]])
    labels = torch.tensor([0, 1, 2, 2])
    assert hard_negative(logits, labels).tolist() == [2, 0, 0, 1]


def test_the_easy_negative_is_uniform_over_what_is_left():
    torch.manual_seed(0)
    for label in range(CLASSES):
        for hard in range(CLASSES):
            if hard == label:
                continue
            pairs = (torch.full((3000,), label), torch.full((3000,), hard))
            counts = torch.bincount(other_class(pairs, CLASSES), minlength=CLASSES)
            assert counts[label] == counts[hard] == 0
            assert sorted(counts.tolist())[2:] == pytest.approx([1000] * 3, abs=120)


def test_where_one_class_is_left_it_is_drawn():
    assert other_class((torch.tensor([0, 1]),), 2).tolist() == [1, 0]
    left = other_class((torch.tensor([0, 2, 1]), torch.tensor([1, 0, 2])), 3)
    assert left.tolist() == [2, 1, 0]


# Terms


def test_matching_loss():
    logits = np.array([-3.0, -0.2, 0.0, 4.0])
    belongs = np.array([1.0, 0.0, 1.0, 0.0])
    found = matching_loss(torch.from_numpy(logits), torch.from_numpy(belongs))
    p = sigmoid(logits)
    np.testing.assert_allclose(found, -np.log(np.where(belongs == 1, p, 1 - p)), rtol=1e-10)


def test_matching_entropy():
    logits = torch.linspace(-8, 8, 33, dtype=torch.float64)
    p = sigmoid(logits.numpy())
    expected = -p * np.log(p) - (1 - p) * np.log(1 - p)
    np.testing.assert_allclose(matching_entropy(logits), expected, rtol=1e-9)


def test_matching_entropy_far_out():
    logits = torch.tensor([-1e4, -200.0, 0.0, 200.0, 1e4], requires_grad=True)
    value = matching_entropy(logits)
    assert value.tolist() == pytest.approx([0, 0, np.log(2), 0, 0], abs=1e-6)
    (gradient,) = torch.autograd.grad(value.sum(), logits)
    assert gradient.tolist() == [0] * 5


def test_its_gradient_makes_answers_more_decided():
    """It is the gradient of the entropy: a target that moves along, not a constant one."""
    logits = torch.tensor([-2.0, -0.5, 0.5, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(matching_entropy, logits)
    (gradient,) = torch.autograd.grad(matching_entropy(logits).sum(), logits)
    assert (gradient * logits.detach() < 0).all()


def test_uda():
    rng = np.random.default_rng(0)
    weak, strong = rng.normal(size=(20, CLASSES)) * 4, rng.normal(size=(20, CLASSES))
    divergence, sure = uda(torch.from_numpy(strong), torch.from_numpy(weak), 0.4, 0.8)
    target, p = softmax(weak / 0.4), softmax(strong)
    np.testing.assert_allclose(divergence, (target * np.log(target / p)).sum(1), rtol=1e-9)
    assert sure.tolist() == (softmax(weak).max(1) >= 0.8).tolist()
    assert 0 < sure.sum() < 20


def test_uda_trains_the_strong_view_alone():
    weak = torch.randn(4, CLASSES, requires_grad=True)
    strong = torch.randn(4, CLASSES, requires_grad=True)
    divergence, _ = uda(strong, weak, 0.4, 0.8)
    for_weak, for_strong = torch.autograd.grad(divergence.sum(), [weak, strong], allow_unused=True)
    assert for_weak is None
    assert for_strong.norm() > 0


def test_uda_of_what_is_certain_is_finite():
    divergence, sure = uda(torch.tensor([[0.0, 300.0]]), torch.tensor([[300.0, 0.0]]), 0.4, 0.8)
    assert divergence.tolist() == pytest.approx([300.0])
    assert sure.tolist() == [1.0]


# The whole loss


WEIGHTS = {"matching_weight": 2.0, "rotation_weight": 3.0, "entropy_weight": 5.0, "uda_weight": 7.0}


@pytest.mark.parametrize("stage", list(Stage))
def test_the_terms_against_a_forward_pass_of_our_own(stage):
    method = make_method(**WEIGHTS, uda_threshold=0.24, ramp_share=0.8)
    batch = make_batch(stage)
    method.pretrained.fill_(0.2)
    torch.manual_seed(7)
    found = method.loss(batch, at(stage, fraction=0.52))
    torch.manual_seed(7)

    labels = batch.labelled.labels.numpy()
    kept = batch.unlabelled["selected"].views if stage is Stage.SELF_TRAIN else ()
    pool = batch.unlabelled["pool"].views[0]
    with torch.no_grad():
        features = method.backbone(torch.cat([*batch.labelled.views, *kept]))
        logits = method.classifier(features).double().numpy()
        whole = torch.cat([torch.from_numpy(np.rot90(pool, k, (2, 3)).copy()) for k in range(4)])
        turned_features = method.backbone(whole)
        rotations = softmax(method.rotation(turned_features).double().numpy())
        hard = [max(set(range(CLASSES)) - {y}, key=lambda k, r=row: logits[r, k])
                for row, y in enumerate(labels)]  # fmt: skip
        easy = other_class((torch.from_numpy(labels), torch.tensor(hard)), CLASSES).numpy()
        predicted = method.classifier(turned_features[:BATCH]).argmax(1)
        pairs = [(features[:BATCH], k) for k in (labels, hard, easy)]
        if stage is Stage.SELF_TRAIN:
            other = other_class((predicted,), CLASSES)
            pairs += [(turned_features[:BATCH], k) for k in (predicted, other)]
        rows = torch.cat([torch.cat([f, method.match.embed(torch.eye(CLASSES)[np.asarray(k)])], 1)
                          for f, k in pairs])  # fmt: skip
        hidden = method.match.norm(method.match.hidden(rows)).clamp(min=0)
        match = sigmoid(method.match.last(hidden).double().numpy()[:, 0])

    n = BATCH
    expected = {
        "ce": -np.log(softmax(logits[:n])[range(n), labels]).mean(),
        "matching": 2 * -np.log(np.r_[match[:n], 1 - match[n : 3 * n]]).mean(),
        "rotation": 3 * -np.log(rotations[range(4 * n), np.repeat(range(4), n)]).mean(),
    }
    if stage is Stage.SELF_TRAIN:
        m = match[3 * n :]
        weak, strong = logits[n : 6 * n], logits[6 * n :]
        target = softmax(weak / 0.4)
        divergence = (target * np.log(target / softmax(strong))).sum(1)
        sure = softmax(weak).max(1) >= 0.24
        assert 0 < sure.sum() < 5 * n
        # 0.4 of self-training is done, half of its ramp.
        expected["entropy"] = 0.5 * 5 * (-m * np.log(m) - (1 - m) * np.log(1 - m)).mean()
        expected["uda"] = 0.5 * 7 * divergence[sure].mean()
        assert found.monitors["sure_share"].item() == pytest.approx(sure.mean())
    assert {k: v.item() for k, v in found.terms.items()} == pytest.approx(expected, rel=1e-4)


def test_without_a_sure_image_uda_is_zero():
    method = make_method(uda_threshold=1.1)
    terms = method.loss(make_batch(Stage.SELF_TRAIN), at(Stage.SELF_TRAIN)).terms
    assert terms["uda"].item() == 0


@pytest.mark.parametrize(("fraction", "weight"), [(0.2, 0.0), (0.28, 0.5), (0.36, 1.0), (0.9, 1.0)])
def test_the_pools_terms_rise_over_a_fifth_of_self_training(fraction, weight):
    method = make_method()
    method.loss(make_batch(Stage.PRETRAIN), at(Stage.PRETRAIN, fraction=0.2))
    now = at(Stage.SELF_TRAIN, fraction=fraction)
    assert now.rise(method.config.ramp_share, method.pretrained).item() == pytest.approx(
        weight, abs=1e-6
    )
    assert now.rise(0.0, method.pretrained).item() == 1


def test_what_each_term_trains():
    method = make_method(uda_threshold=0.0)
    terms = method.loss(make_batch(Stage.SELF_TRAIN), at(Stage.SELF_TRAIN)).terms
    reached = {}
    for name, term in terms.items():
        reached[name] = set()
        for part in ("backbone", "classifier", "rotation", "match"):
            parameters = list(getattr(method, part).parameters())
            gradients = torch.autograd.grad(
                term, parameters, retain_graph=True, allow_unused=True, materialize_grads=True
            )
            if any(g.abs().sum() > 0 for g in gradients):
                reached[name].add(part)
    assert reached == {
        "ce": {"backbone", "classifier"},
        "matching": {"backbone", "match"},
        "rotation": {"backbone", "rotation"},
        "entropy": {"backbone", "match"},
        "uda": {"backbone", "classifier"},
    }


# Wants, selection, outputs


def test_wants():
    method = make_method()
    first = {
        "labelled": Want(Source.LABELLED, (View.WEAK,)),
        "pool": Want(Source.POOL, (View.WEAK,), 1),
    }
    assert method.wants(Stage.PRETRAIN) == first
    selected = Want(Source.SELECTED, (View.WEAK, View.STRONG), 5)
    assert method.wants(Stage.SELF_TRAIN) == {**first, "selected": selected}


def test_the_filter_keeps_what_matches():
    score = torch.tensor([0.9, 0.1, 0.8, 0.15, 0.85, 0.2, 0.05]).logit()
    score[0] = 50.0  # so sure that a cut between logits would keep it alone
    outputs = Outputs(torch.zeros(7, 2), torch.zeros(7, CLASSES), score)
    assert make_method().select(outputs).positions.tolist() == [0, 2, 4]


def test_the_filter_keeps_everything_where_all_match_alike():
    outputs = Outputs(torch.zeros(7, 2), torch.zeros(7, CLASSES), torch.full((7,), 0.3))
    assert make_method().select(outputs).positions.tolist() == list(range(7))


def test_outputs_match_each_image_with_its_predicted_class():
    method = make_method().eval()
    pixels = images(9)
    with torch.no_grad():
        outputs = method.outputs(pixels)
        features = method.backbone(pixels)
        logits = method.classifier(features)
        every = torch.stack([method.match(features, torch.full((9,), k)) for k in range(CLASSES)])
    assert torch.equal(outputs.logits, logits)
    expected = every.numpy()[logits.argmax(1), range(9)]
    np.testing.assert_allclose(outputs.score, expected, rtol=1e-5)


@pytest.mark.parametrize(("given", "expected"), [(None, BN_MOMENTUM), (0.1, 0.1)])
def test_the_matching_heads_statistics_are_as_slow_as_the_trunks(given, expected):
    method = make_method(match_bn_momentum=given)
    assert method.match.norm.momentum == expected


def test_two_classes_are_too_few():
    with pytest.raises(ConfigError, match="three known classes"):
        make_method(Task(classes=2, top_m=1, inlier_share=0.5))


@pytest.mark.parametrize(
    "options",
    [{"match_width": 0}, {"uda_temperature": 0.0}, {"ramp_share": -0.1}, {"selected_ratio": 0},
     {"match_bn_momentum": 2.0}],
)  # fmt: skip
def test_impossible_options_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        T2tConfig(**options)


@pytest.mark.long
def test_a_step_is_one_graph():
    """No question to the host, no branch on data: the compiler finds nothing to break at."""
    stage = Stage.SELF_TRAIN
    compiled = torch.compile(make_method().loss, backend="eager", fullgraph=True, dynamic=False)
    assert torch.isfinite(compiled(make_batch(stage), at(stage)).total())


# Runs


def run(folder, engine, options=None):
    spec = make_spec(
        "digits", method=f"{Path(t2t.__file__)}:T2t", train=engine, options=options or {}
    )
    results = train(spec, folder, Surroundings(device="cpu", quiet=True))
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return results, [row for row in rows if "train" in row], rows


def test_both_stages_run_and_weights_move(tmp_path):
    engine = {"epochs": 2, "epoch_steps": 3, "pretrain_epochs": 1, "batch_size": 8, "log_every": 3}
    _, logged, rows = run(tmp_path, engine)
    first = {"ce", "matching", "rotation"}
    second = {"entropy", "uda"}
    assert [set(row["train"]) & (first | second) for row in logged] == [first, first | second]
    counts = [row["selection"]["count"] for row in rows if "selection" in row]
    assert len(counts) == 1
    assert 1 <= counts[0] <= 1119
    trained = load_file(tmp_path / "state" / "step-00000006" / "model.safetensors")
    assert trained["classifier.bias"].abs().max() > 0
    assert trained["pretrained"].item() == pytest.approx(2 / 6)


def test_losses_fall_and_digits_are_learnt(tmp_path):
    engine = {"epochs": 4, "epoch_steps": 25, "pretrain_epochs": 2, "batch_size": 16,
              "learning_rate": 0.1, "log_every": 25, "test_while_training": False}  # fmt: skip
    results, logged, _ = run(tmp_path, engine, {"selected_ratio": 2})
    for name in ("ce", "matching", "rotation"):
        values = [row["train"][name] for row in logged]
        assert values[-1] < 0.8 * values[0], name
    assert results["last"]["test"]["error"] < 0.6  # chance is 0.83
