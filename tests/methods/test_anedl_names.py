"""Who names ANEDL's selected images, how long it is remembered, and which views learn it."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from anedl.errors import ConfigError
from anedl.methods.anedl import Anedl
from anedl.methods.anedl_config import AnedlConfig
from anedl.methods.base import Batch, Labelled, Outputs, Progress, Stage, Task, Unlabelled
from anedl.networks.encoder import ImageEncoder
from anedl.views import View

CLASSES, BATCH, POOL = 5, 6, 40
TASK = Task(classes=CLASSES, top_m=2, inlier_share=0.4, pool_size=POOL)
PRIOR = torch.tensor([0.4, 0.3, 0.15, 0.1, 0.05])
PLACES = torch.arange(POOL).flip(0)[: 2 * BATCH]  # of the selected images in the pool
NOW = Progress(Stage.SELF_TRAIN, torch.tensor(3.0), torch.tensor(0.15))


def make_method(task=TASK, **options):
    torch.manual_seed(0)
    encoder = ImageEncoder("wrn-digits", (0.5,), (0.25,), bn_momentum=0.1)
    method = Anedl(AnedlConfig(**options), encoder, task).train()
    method.prior.copy_(PRIOR)
    return method


def make_batch(views):
    """With so many views of the selected images."""
    generator = torch.Generator().manual_seed(1)

    def images(count):
        return torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8, generator=generator)

    labelled = Labelled((images(BATCH), images(BATCH)), torch.arange(BATCH) % CLASSES)
    pool = Unlabelled((images(12), images(12)), torch.arange(12))
    selected = Unlabelled(tuple(images(12) for _ in range(views)), PLACES)
    return Batch(labelled, {"pool": pool, "selected": selected})


def tell(method, seed=3):
    """Let the averaged model have said something of the whole pool; what it said, (N, K)."""
    said = torch.randn(POOL, CLASSES, generator=torch.Generator().manual_seed(seed))
    outputs = Outputs(torch.zeros(POOL, 1), said, torch.zeros(POOL), said.exp() + 1)
    method.recall(outputs)
    return said


def selected_logits(method, batch):
    """Those of each view of the selected images, from a forward pass of its own."""
    views = batch.unlabelled["selected"].views
    return method.classifier(method.backbone(torch.cat(views))).double().chunk(len(views))


@pytest.mark.parametrize("debias", [True, False])
@pytest.mark.parametrize("views", [1, 2])
def test_the_averaged_model_names_and_every_view_learns(debias, views):
    method = make_method(pseudo_labels="average", debias=debias, selected_views=("strong",) * views)
    said = tell(method)
    batch = make_batch(views)
    log_prior = PRIOR.double().log() if debias else torch.zeros(CLASSES)
    labels = (said - log_prior)[PLACES].argmax(1)
    logits = selected_logits(method, batch)
    assert (labels != logits[0].argmax(1)).any()
    assert (labels != said[PLACES].argmax(1)).any() == debias
    losses = [F.cross_entropy(z + log_prior, labels) for z in logits]
    found = method.loss(batch, NOW)
    assert found.terms["fixmatch"].item() == pytest.approx(sum(losses).item() / views, rel=1e-5)
    confidence = said[PLACES].softmax(1).amax(1).mean()
    assert found.monitors["pseudo_confidence"].item() == pytest.approx(confidence.item(), rel=1e-5)
    # q̂ follows what names them, and only where it is used.
    followed = 0.999 * PRIOR + 0.001 * said[PLACES].softmax(1).mean(0)
    torch.testing.assert_close(method.prior, followed if debias else PRIOR)


def test_the_first_view_names_and_the_others_learn():
    method = make_method(selected_views=("weak", "strong", "strong"))
    batch = make_batch(3)
    log_prior = PRIOR.double().log()
    weak, *strong = selected_logits(method, batch)
    labels = (weak - log_prior).argmax(1)
    expected = sum(F.cross_entropy(z + log_prior, labels) for z in strong) / 2
    found = method.loss(batch, NOW).terms["fixmatch"]
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
    (slope,) = torch.autograd.grad(found, method.classifier.weight)
    assert slope.norm() > 0


@pytest.mark.parametrize("views", [1, 2])
def test_evidence_from_selected_images_under_remembered_names(views):
    method = make_method(
        pseudo_labels="average", selected_evidence=0.5, selected_views=("strong",) * views
    )
    labels = (tell(method) - PRIOR.log())[PLACES].argmax(1)
    batch = make_batch(views)
    found = method.loss(batch, NOW).terms["selected_p_error"]
    first = [*batch.labelled.views, *batch.unlabelled["pool"].views]
    features = method.backbone(torch.cat(first))
    chosen = method.backbone(torch.cat(batch.unlabelled["selected"].views))
    alpha = method.detector(torch.cat([features, chosen])).double()[len(features) :]
    y = F.one_hot(labels, CLASSES).double().repeat(views, 1)
    error = (y - alpha / alpha.sum(1, keepdim=True)) ** 2 * torch.special.polygamma(1, alpha)
    assert found.item() == pytest.approx(0.5 * 0.4 * error.sum(1).mean().item(), rel=1e-5)


@pytest.mark.parametrize(("names", "threshold"), [("training", 0.57), ("average", 0.7)])
def test_soft_pseudo_labels(names, threshold):
    """Cross-entropy to the whole debiased softmax at the temperature, where it is sure enough."""
    method = make_method(
        pseudo_labels=names, pseudo_label_temperature=0.5, fixmatch_threshold=threshold
    )
    said = tell(method)[PLACES] if names == "average" else None
    batch = make_batch(1 if names == "average" else 2)
    logits = selected_logits(method, batch)
    judged = (logits[0] if said is None else said).double() - PRIOR.double().log()
    sure = judged.softmax(1).amax(1) >= threshold
    assert 0 < sure.sum() < len(sure)
    squared = judged.softmax(1) ** 2  # a temperature of a half, renormalised
    target = squared / squared.sum(1, keepdim=True)
    expected = -(target * (logits[-1] + PRIOR.log()).log_softmax(1)).sum(1)
    found = method.loss(batch, NOW).terms["fixmatch"]
    assert found.item() == pytest.approx((expected * sure).mean().item(), rel=1e-5)


@pytest.mark.parametrize(
    ("names", "views"), [("training", ("weak", "strong")), ("average", ("strong", "strong"))]
)
def test_a_mixed_image_has_both_names(names, views, monkeypatch):
    method = make_method(pseudo_labels=names, selected_views=views, cutmix=1.0, debias=False)
    said = tell(method)[PLACES] if names == "average" else None
    batch = make_batch(2)
    drawn = []

    def draw(images, probability):
        assert probability == 1.0
        patches = torch.zeros(len(images), 1, 8, 8, dtype=torch.bool)
        patches[:, :, len(drawn) :, :4] = True  # half of the first view, 7/16 of the second
        drawn.append(patches)
        return patches

    monkeypatch.setattr("anedl.methods.anedl.draw_patches", draw)
    found = method.loss(batch, NOW).terms["fixmatch"]
    learning = batch.unlabelled["selected"].views[0 if names == "average" else 1 :]
    assert len(drawn) == len(learning)
    mixed = [
        torch.where(patches, torch.cat([view[-1:], view[:-1]]), view)
        for view, patches in zip(learning, drawn, strict=True)
    ]
    naming = batch.unlabelled["selected"].views[: 2 - len(mixed)]
    logits = method.classifier(method.backbone(torch.cat([*naming, *mixed]))).double().chunk(2)
    labels = (logits[0] if said is None else said).argmax(1)
    others = torch.cat([labels[-1:], labels[:-1]])
    assert (labels != others).any()
    losses = []
    for z, patches in zip(logits[-len(mixed) :], drawn, strict=True):
        share = patches[0].double().mean()
        losses.append((1 - share) * F.cross_entropy(z, labels) + share * F.cross_entropy(z, others))
    assert found.item() == pytest.approx(torch.stack(losses).mean().item(), rel=1e-5)


def test_names_are_a_mean_over_epochs():
    method = make_method(pseudo_labels="average", selection_memory=0.75, debias=False)
    said = [tell(method, seed).double().softmax(1) for seed in (3, 4)]
    labels = (0.75 * said[0] + 0.25 * said[1])[PLACES].argmax(1)
    assert (labels != said[1][PLACES].argmax(1)).any()
    batch = make_batch(1)
    expected = F.cross_entropy(selected_logits(method, batch)[0], labels)
    found = method.loss(batch, NOW).terms["fixmatch"]
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)


def test_selection_goes_by_the_mean_of_what_was_said():
    """An image that was an outlier to three epochs is not selected for what the fourth says."""
    method = make_method(replace(TASK, pool_size=3), selection_memory=0.75, selection_count=2)
    logits = torch.zeros(3, CLASSES)
    logits[:, 1] = 2.0
    for evidence in ([9.0, 8.0, 1.0],) * 3 + ([1.0, 8.0, 9.0],):
        alpha = 1 + torch.tensor(evidence)[:, None] * torch.eye(CLASSES)[1]
        outputs = Outputs(torch.zeros(3, 1), logits, torch.zeros(3), alpha)
        joined = method.recall(outputs)
    assert method.select(outputs).positions.tolist() == [1, 2]
    assert method.select(joined).positions.tolist() == [0, 1]


def test_without_memory_nothing_is_kept():
    method = make_method()
    outputs = Outputs(torch.zeros(POOL, 1), torch.zeros(POOL, CLASSES), torch.zeros(POOL))
    assert method.recall(outputs) is outputs
    assert not hasattr(method, "memory")


def test_views_that_are_passed():
    """A weak view only where it names."""
    for options, views in (
        ({}, (View.WEAK, View.STRONG)),
        ({"pseudo_labels": "average"}, (View.STRONG,)),
        (
            {"pseudo_labels": "average", "selected_views": ("flip", "strong")},
            (View.FLIP, View.STRONG),
        ),
    ):
        assert make_method(**options).wants(Stage.SELF_TRAIN)["selected"].views == views


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"selected_views": ("strong",)}, "selected_views"),
        ({"selected_views": (), "pseudo_labels": "average"}, "selected_views"),
        (
            {"contrast_weight": 0.1, "contrast_of": "selected", "pseudo_labels": "average"},
            "contrast_of",
        ),
        ({"selection_memory": 1.0}, "selection_memory"),
        ({"cutmix": 1.5}, "cutmix"),
        ({"cutmix": 0.5, "selected_evidence": 1.0}, "cutmix"),
        ({"cutmix": 0.5, "contrast_weight": 1.0, "contrast_of": "selected"}, "cutmix"),
        ({"selection_memory": 0.5, "selection_score": "energy"}, "selection_score"),
        ({"networks": 0}, "networks"),
        ({"networks": 2, "pseudo_labels": "average"}, "networks"),
        ({"networks": 2, "selection_memory": 0.5}, "networks"),
        ({"pseudo_label_temperature": -1.0}, "pseudo_label_temperature"),
    ],
)
def test_what_makes_no_sense_is_refused(options, wrong):
    with pytest.raises(ConfigError, match=wrong):
        AnedlConfig(**options)


@pytest.mark.parametrize("teach", [True, False])
def test_earlier_networks_name_too(teach):
    """The mean of what two of them say of the pool and of what this one says of the weak view."""
    method = make_method(networks=3, networks_teach=teach, debias=False)
    said = [torch.randn(POOL, CLASSES, generator=torch.Generator().manual_seed(s)) for s in (3, 4)]
    outputs = Outputs(torch.zeros(POOL, 1), said[0], torch.zeros(POOL))
    batch = make_batch(2)
    weak, strong = selected_logits(method, batch)
    alone = method.loss(batch, NOW).terms["fixmatch"]
    assert alone.item() == pytest.approx(F.cross_entropy(strong, weak.argmax(1)).item(), rel=1e-5)
    method.retire(outputs)
    method.retire(replace(outputs, logits=(said[0] + said[1]) / 2))
    labels = (weak + said[0][PLACES] + said[1][PLACES]).argmax(1)
    assert (labels != weak.argmax(1)).any()
    found = method.loss(batch, NOW).terms["fixmatch"]
    expected = F.cross_entropy(strong, labels) if teach else alone
    assert found.item() == pytest.approx(expected.item(), rel=1e-5)
