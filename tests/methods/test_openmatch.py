"""OpenMatch against sums over its probabilities, its selection, and a training on the digits."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from anedl.engine.spec import make_spec
from anedl.engine.train import Surroundings, train
from anedl.errors import ConfigError
from anedl.methods import openmatch
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
from anedl.methods.openmatch import OpenMatch, OpenMatchConfig
from anedl.networks.encoder import ImageEncoder
from anedl.views import View

CLASSES, BATCH, POOL = 4, 5, 10
TASK = Task(classes=CLASSES, top_m=2, inlier_share=0.5, dataset="cifar100")
EACH_STAGE = pytest.mark.parametrize("stage", list(Stage))


def make_method(**options) -> OpenMatch:
    torch.manual_seed(0)
    encoder = ImageEncoder("wrn-digits", (0.5,), (0.25,), bn_momentum=0.1)
    method = OpenMatch(OpenMatchConfig(**options), encoder, TASK)
    with torch.no_grad():
        method.classifier.weight.mul_(3)
        method.detector.weight.mul_(3)
    return method.train()


def images(count: int) -> torch.Tensor:
    return torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8)


def make_batch(stage: Stage, labelled_views: int = 2) -> Batch:
    torch.manual_seed(1)
    views = tuple(images(BATCH) for _ in range(labelled_views))
    labelled = Labelled(views, torch.tensor([0, 1, 2, 3, 3]))
    names = ("pool", "selected") if stage is Stage.SELF_TRAIN else ("pool",)
    return Batch(
        labelled,
        {name: Unlabelled((images(POOL), images(POOL)), torch.arange(POOL)) for name in names},
    )


def at(stage: Stage) -> Progress:
    return Progress(stage, torch.tensor(0.0), torch.tensor(0.0))


def softmax(values: torch.Tensor, axis: int) -> np.ndarray:
    powers = np.exp(values.detach().double().numpy())
    return powers / powers.sum(axis, keepdims=True)


def expected_terms(method: OpenMatch, batch: Batch) -> dict[str, float]:
    """The unweighted terms, image by image, from passes of this function's own."""
    first = [*batch.labelled.views, *batch.unlabelled["pool"].views]
    second = list(batch.unlabelled["selected"].views) if "selected" in batch.unlabelled else []
    if method.config.forward_passes == "one":
        features = method.backbone(torch.cat(first + second))
    else:
        features = torch.cat([method.backbone(torch.cat(v)) for v in (first, second) if v])
    p = softmax(method.classifier(features), 1)
    raw = method.detector.weight.detach().double() @ features.detach().double().T
    pair = softmax(raw.T.reshape(-1, 2, CLASSES), 1)
    labels = batch.labelled.labels.tolist() * 2
    rows = len(labels)
    terms = {
        "ce": np.mean([-math.log(p[i, y]) for i, y in enumerate(labels)]),
        "ova": np.mean(
            [
                max(-math.log(pair[i, 0, k]) for k in range(CLASSES) if k != y)
                - math.log(pair[i, 1, y])
                for i, y in enumerate(labels)
            ]
        ),
    }
    pool = pair[rows : rows + 2 * POOL]
    terms["entropy"] = -(pool * np.log(pool)).sum(1).mean()
    terms["consistency"] = ((pool[:POOL] - pool[POOL:]) ** 2).sum((1, 2)).mean()
    if second:
        weak, strong = p[-2 * POOL : -POOL], p[-POOL:]
        terms["fixmatch"] = np.mean(
            [
                -math.log(b[a.argmax()]) * (a.max() >= method.config.fixmatch_threshold)
                for a, b in zip(weak, strong, strict=True)
            ]
        )
    return terms


@EACH_STAGE
@pytest.mark.parametrize("passes", ["two", "one"])
def test_loss(stage, passes):
    weights = {"ova_weight": 0.3, "entropy_weight": 0.2, "consistency_weight": 0.6,
               "fixmatch_weight": 0.7}  # fmt: skip
    method = make_method(forward_passes=passes, fixmatch_threshold=0.5, **weights)
    batch = make_batch(stage)
    found = method.loss(batch, at(stage)).terms
    expected = expected_terms(method, batch)
    assert set(found) == set(expected)
    for name, value in expected.items():
        weight = weights.get(f"{name}_weight", 1.0)
        assert found[name].item() == pytest.approx(weight * value, rel=1e-4), name


@pytest.mark.parametrize(
    ("dataset", "weight"),
    [("cifar10", 0.5), ("imagenet30", 0.5), ("digits", 0.5), ("cifar100", 1.0), ("mine", 1.0)],
)
def test_weights(dataset, weight):
    task = Task(classes=CLASSES, top_m=2, inlier_share=0.5, dataset=dataset)
    config = OpenMatchConfig().resolved(task)
    assert config.consistency_weight == weight
    assert (config.entropy_weight, config.ova_weight, config.fixmatch_threshold) == (0.1, 1.0, 0.0)
    assert OpenMatchConfig(consistency_weight=0.0).resolved(task).consistency_weight == 0.0


@pytest.mark.parametrize(
    ("term", "trains_classifier", "trains_detector"),
    [("ce", True, False), ("ova", False, True), ("entropy", False, True),
     ("consistency", False, True), ("fixmatch", True, False)],
)  # fmt: skip
def test_every_term_trains_the_trunk_and_its_head(term, trains_classifier, trains_detector):
    method = make_method()
    method.loss(make_batch(Stage.SELF_TRAIN), at(Stage.SELF_TRAIN)).terms[term].backward()
    for head, trained in [
        (method.classifier, trains_classifier),
        (method.detector, trains_detector),
    ]:
        assert (head.weight.grad is not None and head.weight.grad.any().item()) is trained
    assert all(p.grad is not None for p in method.backbone.parameters())


@pytest.mark.parametrize(("fraction", "second"), [(0.0, 2), (0.019, 2), (0.021, 1), (1.0, 1)])
def test_early_views(fraction, second):
    """Four classes: for four of 200 epochs the second labelled view is the third that is made."""
    method = make_method(early_labelled_views=("flip", "strong"))
    views = method.wants(Stage.SELF_TRAIN)["labelled"].views
    assert views == (View.FLIP, View.WEAK, View.STRONG)
    batch = make_batch(Stage.SELF_TRAIN, labelled_views=3)
    progress = Progress(Stage.SELF_TRAIN, torch.tensor(0.0), torch.tensor(fraction))
    found = method.loss(batch, progress).terms
    first = batch.labelled.views[0], batch.labelled.views[second]
    meant = Batch(Labelled(first, batch.labelled.labels), batch.unlabelled)
    expected = make_method().loss(meant, progress).terms
    assert {name: value.item() for name, value in found.items()} == {
        name: value.item() for name, value in expected.items()
    }


def test_wants():
    method = make_method(pool_ratio=3)
    first = {
        "labelled": Want(Source.LABELLED, (View.FLIP, View.WEAK)),
        "pool": Want(Source.POOL, (View.WEAK, View.WEAK), 3),
    }
    assert method.wants(Stage.PRETRAIN) == first
    selected = Want(Source.SELECTED, (View.WEAK, View.STRONG), 3)
    assert method.wants(Stage.SELF_TRAIN) == {**first, "selected": selected}


@pytest.mark.parametrize(
    ("probability", "threshold", "positions"),
    [
        ([0.2, 0.6, 0.5, 0.51, 0.9], 0.5, [1, 3, 4]),
        ([0.2, 0.6, 0.5, 0.51, 0.9], 0.8, [4]),
        ([0.2, 0.1, 0.4, 0.3, 0.0], 0.5, [2]),
    ],
    ids=["above a half", "above another threshold", "none: the likeliest"],
)
def test_selection(probability, threshold, positions):
    score = torch.tensor(probability).logit()
    outputs = Outputs(torch.zeros(5, 2), torch.zeros(5, CLASSES), score)
    selection = make_method(selection_threshold=threshold).select(outputs)
    assert selection.positions.tolist() == positions
    assert selection.positions.dtype == torch.int64


def test_outputs():
    method = make_method().eval()
    pixels = images(6)
    with torch.no_grad():
        outputs = method.outputs(pixels)
        features = method.backbone(pixels)
        logits, raw = method.classifier(features), features @ method.detector.weight.T
    assert torch.equal(outputs.logits, logits)
    for i in range(6):
        k = logits[i].argmax().item()
        no, yes = raw[i, k].item(), raw[i, CLASSES + k].item()
        assert outputs.score[i].item() == pytest.approx(yes - no, rel=1e-4)
    assert outputs.alpha is None


@pytest.mark.parametrize("name", ["labelled_views", "pool_views", "pool_ratio"])
def test_refusals(name):
    impossible = {"labelled_views": (), "pool_views": ("weak",), "pool_ratio": 0}
    with pytest.raises(ConfigError, match=name):
        OpenMatchConfig(**{name: impossible[name]})


def test_it_learns_on_the_digits(tmp_path):
    engine = {"epochs": 4, "epoch_steps": 15, "pretrain_epochs": 2, "batch_size": 16,
              "learning_rate": 0.1, "log_every": 5, "evaluate_every": 4,
              "test_while_training": False}  # fmt: skip
    spec = make_spec(
        "digits", f"{Path(openmatch.__file__)}:OpenMatch", pool_limit=200, train=engine
    )
    results = train(spec, tmp_path / "run", Surroundings(device="cpu", quiet=True))
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    means = [row["train"] for row in rows if "train" in row]
    assert means[-1]["ce"] < 0.5 * means[0]["ce"]
    assert means[-1]["ova"] < 0.9 * means[0]["ova"]
    assert {"fixmatch" in mean for mean in means} == {False, True}
    assert results["last"]["test"]["error"] < 0.6, "chance is 0.83"
