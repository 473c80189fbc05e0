"""FixMatch against its two cross-entropies, and a training on the digits."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from anedl.engine.spec import make_spec
from anedl.engine.train import Surroundings, train
from anedl.errors import ConfigError
from anedl.methods import fixmatch
from anedl.methods.base import Batch, Labelled, Progress, Source, Stage, Task, Unlabelled, Want
from anedl.methods.fixmatch import FixMatch, FixMatchConfig
from anedl.networks.encoder import ImageEncoder
from anedl.views import View

TASK = Task(classes=4, top_m=2, inlier_share=0.5)
BATCH, POOL = 5, 10
EACH_STAGE = pytest.mark.parametrize("stage", list(Stage))


def make_method(**options) -> FixMatch:
    torch.manual_seed(0)
    encoder = ImageEncoder("wrn-digits", (0.5,), (0.25,), bn_momentum=0.1)
    method = FixMatch(FixMatchConfig(**options), encoder, TASK)
    with torch.no_grad():
        method.classifier.weight.mul_(3)  # so that some predictions are confident, some not
    return method.train()


def images(count: int) -> torch.Tensor:
    return torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8)


def make_batch(labelled_views: int = 1) -> Batch:
    torch.manual_seed(1)
    views = tuple(images(BATCH) for _ in range(labelled_views))
    pool = Unlabelled((images(POOL), images(POOL)), torch.arange(POOL))
    return Batch(Labelled(views, torch.tensor([0, 1, 2, 3, 3])), {"pool": pool})


def at(stage: Stage) -> Progress:
    return Progress(stage, torch.tensor(0.0), torch.tensor(0.0))


@EACH_STAGE
@pytest.mark.parametrize("threshold", [0.0, 0.5, 1.1])
def test_loss(stage, threshold):
    method, batch = make_method(fixmatch_threshold=threshold, fixmatch_weight=0.7), make_batch()
    found = method.loss(batch, at(stage))
    views = [*batch.labelled.views, *batch.unlabelled["pool"].views]
    logits = method.classifier(method.backbone(torch.cat(views))).double()
    labelled, weak, strong = logits[:BATCH], logits[BATCH:-POOL], logits[-POOL:]
    expected, accepted = 0.0, 0
    for own, other in zip(weak, strong, strict=True):
        probability = own.exp() / own.exp().sum()
        if probability.max() >= threshold:
            accepted += 1
            expected -= torch.log(other.exp()[probability.argmax()] / other.exp().sum()).item()
    assert accepted == {0.0: POOL, 1.1: 0}.get(threshold, accepted)
    if threshold == 0.5:
        assert 0 < accepted < POOL, "the case must have some on each side"
    assert set(found.terms) == {"ce", "fixmatch"}
    ce = F.cross_entropy(labelled, batch.labelled.labels)
    assert found.terms["ce"].item() == pytest.approx(ce.item(), rel=1e-5)
    assert found.terms["fixmatch"].item() == pytest.approx(0.7 * expected / POOL, rel=1e-5)
    assert found.monitors["pseudo_share"].item() == pytest.approx(accepted / POOL)


def test_every_labelled_view_counts():
    method, batch = make_method(labelled_views=("flip", "weak")), make_batch(2)
    found = method.loss(batch, at(Stage.PRETRAIN)).terms["ce"]
    views = [*batch.labelled.views, *batch.unlabelled["pool"].views]
    logits = method.classifier(method.backbone(torch.cat(views)))[: 2 * BATCH]
    expected = F.cross_entropy(logits, torch.cat([batch.labelled.labels] * 2))
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)


def test_the_pools_loss_trains_trunk_and_classifier():
    method = make_method(fixmatch_threshold=0.0)
    method.loss(make_batch(), at(Stage.SELF_TRAIN)).terms["fixmatch"].backward()
    assert method.classifier.weight.grad.abs().sum() > 0
    assert all(p.grad is not None for p in method.backbone.parameters())


@EACH_STAGE
def test_it_asks_for_the_whole_pool_in_both_stages(stage):
    assert make_method(pool_ratio=7).wants(stage) == {
        "labelled": Want(Source.LABELLED, (View.WEAK,)),
        "pool": Want(Source.POOL, (View.WEAK, View.STRONG), 7),
    }


def test_defaults_and_refusals():
    config = FixMatchConfig()
    assert (config.fixmatch_threshold, config.fixmatch_weight, config.pool_ratio) == (0.95, 1.0, 2)
    with pytest.raises(ConfigError, match="labelled_views"):
        FixMatchConfig(labelled_views=())
    with pytest.raises(ConfigError, match="pool_ratio"):
        FixMatchConfig(pool_ratio=0)


def test_outputs():
    method = make_method().eval()
    pixels = images(6)
    with torch.no_grad():
        outputs = method.outputs(pixels)
        logits = method.classifier(method.backbone(pixels))
    assert torch.equal(outputs.logits, logits)
    powers = logits.double().exp()
    torch.testing.assert_close(outputs.score, (powers / powers.sum(1, True)).amax(1).float())
    assert outputs.alpha is None
    assert method.select(outputs) is None


def test_it_learns_on_the_digits(tmp_path):
    engine = {"epochs": 4, "epoch_steps": 15, "pretrain_epochs": 1, "batch_size": 16,
              "learning_rate": 0.1, "log_every": 5, "evaluate_every": 4,
              "test_while_training": False}  # fmt: skip
    spec = make_spec(
        "digits", f"{Path(fixmatch.__file__)}:FixMatch", train=engine, pool_limit=200,
        options={"fixmatch_threshold": 0.6},
    )  # fmt: skip
    results = train(spec, tmp_path / "run", Surroundings(device="cpu", quiet=True))
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    means = [row["train"] for row in rows if "train" in row]
    assert means[-1]["ce"] < 0.5 * means[0]["ce"]
    assert {row["stage"] for row in rows} == {1, 2}
    assert any(mean["fixmatch"] > 0 for mean in means)
    assert results["last"]["test"]["error"] < 0.6, "chance is 0.83"
