"""I-EDL's loss against polygammas, determinants and Dirichlets; the rest it shares with EDL."""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Dirichlet, kl_divergence

from anedl.engine.spec import make_spec
from anedl.engine.train import Surroundings, train
from anedl.methods import iedl
from anedl.methods.base import Batch, Labelled, Progress, Stage, Task
from anedl.methods.iedl import IEdl, IEdlConfig
from anedl.networks.encoder import ImageEncoder

CLASSES, BATCH = 5, 6
TASK = Task(classes=CLASSES, top_m=2, inlier_share=0.4)


def make_method(**options) -> IEdl:
    torch.manual_seed(0)
    encoder = ImageEncoder("wrn-digits", (0.5,), (0.25,), bn_momentum=0.1)
    method = IEdl(IEdlConfig(**options), encoder, TASK)
    with torch.no_grad():
        method.detector.last.weight.mul_(4)
    return method.train()


def expected_iedl(alpha, labels, log_det_weight, kl_weight):
    y = F.one_hot(labels, CLASSES).double()
    posterior = Dirichlet(alpha)
    weight = torch.special.polygamma(1, alpha)
    error = (((y - posterior.mean) ** 2 + posterior.variance) * weight).sum(1)
    fisher = torch.diag_embed(weight) - torch.special.polygamma(1, alpha.sum(1))[:, None, None]
    wrong = Dirichlet(torch.where(y == 1, 1.0, alpha))
    divergence = kl_divergence(wrong, Dirichlet(torch.ones_like(alpha)))
    return error - log_det_weight * torch.linalg.det(fisher).log() + kl_weight * divergence


@pytest.mark.parametrize("log_det_weight", [0.0, 0.05, 0.5])
@pytest.mark.parametrize(("fraction", "ramp"), [(0.0, 0.0), (0.025, 0.5), (0.5, 1.0)])
def test_loss(log_det_weight, fraction, ramp):
    method = make_method(log_det_weight=log_det_weight, evidential_weight=0.7, kl_weight=0.8)
    torch.manual_seed(1)
    views = tuple(torch.randint(0, 256, (BATCH, 1, 8, 8), dtype=torch.uint8) for _ in range(2))
    batch = Batch(Labelled(views, torch.arange(BATCH) % CLASSES), {})
    progress = Progress(Stage.PRETRAIN, torch.tensor(200 * fraction), torch.tensor(fraction))
    found = method.loss(batch, progress).terms
    alpha = method.detector(method.backbone(torch.cat(views))).double()
    labels = torch.cat([batch.labelled.labels] * 2)
    expected = 0.7 * expected_iedl(alpha, labels, log_det_weight, 0.8 * ramp).mean()
    assert set(found) == {"ce", "evidential"}
    assert found["evidential"].item() == pytest.approx(expected.item(), rel=1e-4)


def test_the_weight_of_the_log_determinant_is_the_released_one_for_cifar():
    assert IEdlConfig().log_det_weight == 0.05
    assert IEdlConfig().resolved(TASK).selection_share == TASK.inlier_share


def test_it_learns_on_the_digits(tmp_path):
    engine = {"epochs": 4, "epoch_steps": 15, "pretrain_epochs": 2, "batch_size": 16,
              "learning_rate": 0.1, "log_every": 5, "evaluate_every": 4,
              "test_while_training": False}  # fmt: skip
    spec = make_spec(
        "digits",
        f"{Path(iedl.__file__)}:IEdl",
        train=engine,
        pool_limit=200,
        options={"kl_weight": 0.1},
    )
    results = train(spec, tmp_path / "run", Surroundings(device="cpu", quiet=True))
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    means = [row["train"] for row in rows if "train" in row]
    assert means[-1]["ce"] < 0.5 * means[0]["ce"]
    assert means[-1]["evidential"] < means[0]["evidential"]
    assert {"fixmatch" in mean for mean in means} == {False, True}
    assert results["last"]["test"]["error"] < 0.6, "chance is 0.83"
