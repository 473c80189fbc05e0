"""ANEDL that also learns by how many quarters pool images are turned."""

import numpy as np
import pytest
import torch
from scipy.special import log_softmax

from anedl.methods.anedl import Anedl
from anedl.methods.anedl_config import AnedlConfig
from anedl.methods.base import Batch, Labelled, Progress, Source, Stage, Task, Unlabelled
from anedl.networks.encoder import ImageEncoder
from anedl.views import View

CLASSES, LABELLED, POOL = 5, 6, 8
TASK = Task(classes=CLASSES, top_m=2, inlier_share=0.4, consistency_weight=0.05)


def make_method(**options):
    torch.manual_seed(0)
    encoder = ImageEncoder("wrn-digits", (0.5,), (0.25,), bn_momentum=0.1)
    return Anedl(AnedlConfig(**options), encoder, TASK).train()


def images(count):
    return torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8)


def make_batch(method, stage):
    """What the method wants, of noise."""
    torch.manual_seed(1)
    wants = method.wants(stage)
    views = tuple(images(LABELLED) for _ in wants["labelled"].views)
    parts = {
        name: Unlabelled(tuple(images(POOL) for _ in want.views), torch.arange(POOL))
        for name, want in wants.items()
        if want.source is not Source.LABELLED
    }
    return Batch(Labelled(views, torch.arange(LABELLED) % CLASSES), parts)


def loss_of(method, batch, stage):
    return method.loss(batch, Progress(stage, torch.tensor(3.0), torch.tensor(0.15))).terms


def test_one_more_weak_view_of_the_pool():
    plain = make_method(pool_views=("weak", "strong")).wants(Stage.PRETRAIN)["pool"].views
    more = make_method(pool_views=("weak", "strong"), rotation_weight=0.5)
    assert more.wants(Stage.PRETRAIN)["pool"].views == (*plain, View.WEAK)
    assert more.wants(Stage.SELF_TRAIN)["selected"].views == (View.WEAK, View.STRONG)


@pytest.mark.parametrize("stage", list(Stage))
@pytest.mark.parametrize("passes", ["one", "two"])
def test_the_term_is_the_cross_entropy_of_the_turns(stage, passes):
    method = make_method(rotation_weight=0.5, forward_passes=passes)
    batch = make_batch(method, stage)
    found = loss_of(method, batch, stage)["rotation"]
    third = batch.unlabelled["pool"].views[2].numpy()
    turned = [np.rot90(image, row // 2, (1, 2)) for row, image in enumerate(third)]
    views = [*batch.labelled.views, *batch.unlabelled["pool"].views[:2]]
    views.append(torch.from_numpy(np.stack(turned)))
    if stage is Stage.SELF_TRAIN and passes == "one":
        views += batch.unlabelled["selected"].views
    before = sum(len(view) for view in views[: len(batch.labelled.views) + 2])
    with torch.no_grad():
        features = method.backbone(torch.cat(views))[before : before + POOL]
        said = log_softmax(method.rotation(features).double().numpy(), 1)
    assert said.shape == (POOL, 4)
    expected = -0.5 * said[range(POOL), [0, 0, 1, 1, 2, 2, 3, 3]].mean()
    assert found.item() == pytest.approx(expected, rel=1e-5)


def test_it_trains_the_trunk_and_a_head_of_its_own():
    method = make_method(rotation_weight=0.5)
    stage = Stage.SELF_TRAIN
    loss_of(method, make_batch(method, stage), stage)["rotation"].backward()
    moved = {
        name: sum(
            p.grad.norm().item() for p in getattr(method, name).parameters() if p.grad is not None
        )
        for name in ("backbone", "rotation", "classifier", "detector")
    }
    assert moved["backbone"] > 0
    assert moved["rotation"] > 0
    assert moved["classifier"] == moved["detector"] == 0


def test_what_selected_images_learn_is_theirs():
    """The third view stands between the pool's and the selected ones', and moves neither."""
    stage = Stage.SELF_TRAIN
    for passes in ("one", "two"):
        method = make_method(rotation_weight=0.5, forward_passes=passes).eval()
        batch = make_batch(method, stage)
        plain = make_method(forward_passes=passes).eval()
        plain.load_state_dict(method.state_dict(), strict=False)
        found = loss_of(method, batch, stage)
        pool = batch.unlabelled["pool"]
        two = {**batch.unlabelled, "pool": Unlabelled(pool.views[:2], pool.positions)}
        for name, value in loss_of(plain, Batch(batch.labelled, two), stage).items():
            assert found[name].item() == pytest.approx(value.item(), rel=1e-5), name
