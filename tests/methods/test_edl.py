"""EDL, and with it what EDL and I-EDL share: loss, ramp, self-training, selection, score.

What is expected is computed in float64 with torch's own Dirichlet distributions.
"""

import json
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Dirichlet, kl_divergence

from anedl.engine.spec import make_spec
from anedl.engine.train import Surroundings, train
from anedl.errors import ConfigError
from anedl.methods import edl
from anedl.methods.anedl import Anedl
from anedl.methods.anedl_config import AnedlConfig
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
from anedl.methods.edl import Edl
from anedl.methods.labelled_evidential import LabelledEvidentialConfig
from anedl.networks.encoder import ImageEncoder
from anedl.views import View

CLASSES, BATCH, POOL = 5, 6, 12
TASK = Task(classes=CLASSES, top_m=2, inlier_share=0.4)
PRIOR = [0.4, 0.3, 0.15, 0.1, 0.05]
EACH_STAGE = pytest.mark.parametrize("stage", list(Stage))


def make_method(**options) -> Edl:
    torch.manual_seed(0)
    encoder = ImageEncoder("wrn-digits", (0.5,), (0.25,), bn_momentum=0.1)
    method = Edl(LabelledEvidentialConfig(**options), encoder, TASK)
    with torch.no_grad():
        method.detector.last.weight.mul_(4)
        method.prior.copy_(torch.tensor(PRIOR))
    return method.train()


def images(count: int) -> torch.Tensor:
    return torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8)


def make_batch(stage: Stage, labelled_views: int = 2) -> Batch:
    torch.manual_seed(1)
    views = tuple(images(BATCH) for _ in range(labelled_views))
    labelled = Labelled(views, torch.arange(BATCH) % CLASSES)
    if stage is Stage.PRETRAIN:
        return Batch(labelled, {})
    selected = Unlabelled((images(POOL), images(POOL)), torch.arange(POOL))
    return Batch(labelled, {"selected": selected})


def at(stage: Stage, fraction: float = 0.5) -> Progress:
    return Progress(stage, torch.tensor(200 * fraction), torch.tensor(fraction))


def parts(method: Edl, batch: Batch) -> tuple[torch.Tensor, ...]:
    """Labels, alpha of labelled images, their logits, and logits of the selected, in float64."""
    selected = batch.unlabelled["selected"].views if batch.unlabelled else ()
    features = method.backbone(torch.cat([*batch.labelled.views, *selected]))
    labels = torch.cat([batch.labelled.labels] * 2)
    alpha = method.detector(features[: 2 * BATCH]).double()
    logits = method.classifier(features).double()
    return labels, alpha, logits[: 2 * BATCH], logits[2 * BATCH :]


def expected_edl(alpha: torch.Tensor, labels: torch.Tensor, kl_weight: float) -> torch.Tensor:
    y = F.one_hot(labels, CLASSES).double()
    posterior = Dirichlet(alpha)
    error = ((y - posterior.mean) ** 2).sum(1) + posterior.variance.sum(1)
    wrong = Dirichlet(torch.where(y == 1, 1.0, alpha))
    return error + kl_weight * kl_divergence(wrong, Dirichlet(torch.ones_like(alpha)))


@EACH_STAGE
@pytest.mark.parametrize(("fraction", "ramp"), [(0.0, 0.0), (0.05, 0.25), (0.2, 1.0), (0.9, 1.0)])
def test_loss_on_labels(stage, fraction, ramp):
    method = make_method(evidential_weight=0.7, kl_weight=0.8, kl_ramp_share=0.2)
    batch = make_batch(stage)
    found = method.loss(batch, at(stage, fraction)).terms
    labels, alpha, logits, _ = parts(method, batch)
    expected = 0.7 * expected_edl(alpha, labels, 0.8 * ramp).mean()
    assert found["evidential"].item() == pytest.approx(expected.item(), rel=1e-4)
    assert found["ce"].item() == pytest.approx(F.cross_entropy(logits, labels).item(), rel=1e-5)
    assert set(found) == {"ce", "evidential"} | (
        {"fixmatch"} if stage is Stage.SELF_TRAIN else set()
    )


def test_without_a_ramp_the_kl_counts_in_full_at_once():
    method, batch = make_method(kl_ramp_share=0.0), make_batch(Stage.PRETRAIN)
    found = method.loss(batch, at(Stage.PRETRAIN, 0.0)).terms["evidential"]
    labels, alpha, *_ = parts(method, batch)
    expected = 0.4 * expected_edl(alpha, labels, 1.0).mean()
    assert found.item() == pytest.approx(expected.item(), rel=1e-4)


def test_the_default_ramp_is_ten_epochs_of_two_hundred():
    method = make_method()
    for epoch in (0, 3, 10, 150):
        progress = Progress(Stage.PRETRAIN, torch.tensor(epoch), torch.tensor(epoch / 200))
        assert method._kl_weight(progress).item() == pytest.approx(min(1.0, epoch / 10))


@pytest.mark.parametrize("debias", [True, False])
@pytest.mark.parametrize("threshold", [0.0, 0.4])
def test_fixmatch(debias, threshold):
    method = make_method(debias=debias, fixmatch_threshold=threshold, debias_tau=0.5,
                         debias_momentum=0.9, fixmatch_weight=0.7)  # fmt: skip
    batch = make_batch(Stage.SELF_TRAIN)
    found = method.loss(batch, at(Stage.SELF_TRAIN)).terms["fixmatch"]
    weak, strong = parts(method, batch)[3].chunk(2)
    prior = torch.tensor(PRIOR, dtype=torch.float64)
    shift = 0.5 * prior.log() if debias else torch.zeros(CLASSES)
    expected = 0.0
    for own, other in zip(weak - shift, strong + shift, strict=True):
        if own.softmax(0).max() >= threshold:
            expected -= other.log_softmax(0)[own.argmax()].item()
    assert found.item() == pytest.approx(0.7 * expected / POOL, rel=1e-4)
    moved = 0.9 * prior + 0.1 * weak.softmax(1).mean(0) if debias else prior
    torch.testing.assert_close(method.prior.double(), moved.detach(), rtol=1e-5, atol=1e-6)


def test_it_is_what_anedl_becomes_without_the_pool_and_the_weights():
    """In evaluation mode the two see the same BatchNorm, so the same evidence."""
    method = make_method(evidential_weight=0.4).eval()
    anedl = Anedl(
        AnedlConfig(negative=False, adaptive=False, kl="original", kl_weight=1.0,
                    kl_ramp_epochs=1, consistency_weight=0.0),
        method.backbone, TASK,
    ).eval()  # fmt: skip
    anedl.load_state_dict(method.state_dict())
    batch = make_batch(Stage.PRETRAIN)
    pool = Unlabelled((images(4), images(4)), torch.arange(4))
    theirs = anedl.loss(Batch(batch.labelled, {"pool": pool}), at(Stage.PRETRAIN)).terms
    expected = theirs["p_error"] + theirs["p_variance"] + theirs["p_kl"]
    found = method.loss(batch, at(Stage.PRETRAIN)).terms["evidential"]
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)


@pytest.mark.parametrize(
    ("term", "head", "idle"),
    [("ce", "classifier", "detector"), ("evidential", "detector", "classifier"),
     ("fixmatch", "classifier", "detector")],
)  # fmt: skip
def test_every_term_trains_the_trunk_and_its_head(term, head, idle):
    method = make_method()
    method.loss(make_batch(Stage.SELF_TRAIN), at(Stage.SELF_TRAIN)).terms[term].backward()
    assert all(p.grad is not None for p in method.backbone.parameters())
    assert all(p.grad is not None for p in method.get_submodule(head).parameters())
    assert all(p.grad is None for p in method.get_submodule(idle).parameters())


@pytest.mark.parametrize(("fraction", "second"), [(0.0, 2), (0.024, 2), (0.026, 1), (1.0, 1)])
def test_early_views(fraction, second):
    """Five classes: for five of 200 epochs the second labelled view is the third that is made."""
    method = make_method(early_labelled_views=("flip", "strong"))
    views = method.wants(Stage.SELF_TRAIN)["labelled"].views
    assert views == (View.FLIP, View.WEAK, View.STRONG)
    batch = make_batch(Stage.SELF_TRAIN, labelled_views=3)
    progress = at(Stage.SELF_TRAIN, fraction)
    found = method.loss(batch, progress).terms
    meant = Labelled((batch.labelled.views[0], batch.labelled.views[second]), batch.labelled.labels)
    expected = make_method().loss(Batch(meant, batch.unlabelled), progress).terms
    assert {name: value.item() for name, value in found.items()} == {
        name: value.item() for name, value in expected.items()
    }


def test_wants():
    method = make_method(pool_ratio=3, labelled_views=("weak", "strong"))
    first = {"labelled": Want(Source.LABELLED, (View.WEAK, View.STRONG))}
    assert method.wants(Stage.PRETRAIN) == first
    selected = Want(Source.SELECTED, (View.WEAK, View.STRONG), 3)
    assert method.wants(Stage.SELF_TRAIN) == {**first, "selected": selected}


@pytest.mark.parametrize(("share", "positions"), [(None, [1, 2]), (0.6, [1, 2, 4]), (0.01, [1])])
def test_selection_ranks_by_the_concentration_of_the_predicted_class(share, positions):
    alpha = torch.ones(5, CLASSES)
    alpha[range(5), [0, 1, 2, 3, 4]] = torch.tensor([9.0, 8.0, 7.0, 2.0, 3.0])
    logits = torch.zeros(5, CLASSES)
    # Image 0 has most evidence, but not for the class that is predicted.
    logits[range(5), [1, 1, 2, 3, 4]] = torch.tensor([9.0, 1.0, 1.0, 1.0, 1.0])
    outputs = Outputs(torch.zeros(5, 2), logits, torch.zeros(5), alpha)
    assert make_method(selection_share=share).select(outputs).positions.tolist() == positions


def test_outputs_score_is_all_evidence():
    method = make_method().eval()
    pixels = images(7)
    with torch.no_grad():
        outputs = method.outputs(pixels)
        features = method.backbone(pixels)
    assert torch.equal(outputs.logits, method.classifier(features))
    torch.testing.assert_close(outputs.score, method.detector(features).sum(1))
    assert outputs.alpha.shape == (7, CLASSES)


@pytest.mark.parametrize(
    "options",
    [{"labelled_views": ()}, {"pool_ratio": 0}, {"head_width": 0}, {"selection_share": 0.0},
     {"selection_share": 1.2}, {"kl_ramp_share": -0.1}],
    ids=str,
)  # fmt: skip
def test_impossible_values_are_refused(options):
    (name,) = options
    with pytest.raises(ConfigError, match=name):
        LabelledEvidentialConfig(**options)


def test_it_learns_on_the_digits(tmp_path):
    engine = {"epochs": 4, "epoch_steps": 15, "pretrain_epochs": 2, "batch_size": 16,
              "learning_rate": 0.1, "log_every": 5, "evaluate_every": 4,
              "test_while_training": False}  # fmt: skip
    spec = make_spec(
        "digits",
        f"{Path(edl.__file__)}:Edl",
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
