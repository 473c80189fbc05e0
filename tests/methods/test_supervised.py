"""The yardstick without a pool."""

import pytest
import torch
import torch.nn.functional as F

from anedl.errors import ConfigError
from anedl.methods.base import Batch, Labelled, Progress, Source, Stage, Task, Want
from anedl.methods.supervised import Supervised, SupervisedConfig
from anedl.networks.encoder import ImageEncoder
from anedl.views import View

TASK = Task(classes=4, top_m=2, inlier_share=0.5)


@pytest.fixture
def method():
    torch.manual_seed(0)
    encoder = ImageEncoder("wrn-digits", (0.5,), (0.25,), bn_momentum=0.1)
    return Supervised(SupervisedConfig(), encoder, TASK)


def some_images(count):
    return torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8)


@pytest.mark.parametrize("stage", list(Stage))
def test_the_loss_is_cross_entropy_over_all_labelled_views(method, stage):
    labels = torch.tensor([0, 1, 2, 3, 3])
    views = (some_images(5), some_images(5))
    progress = Progress(stage, torch.tensor(0.0), torch.tensor(0.0))
    found = method.loss(Batch(Labelled(views, labels), {}), progress)
    assert list(found.terms) == ["ce"]
    logits = method.classifier(method.backbone(torch.cat(views)))
    torch.testing.assert_close(
        found.total(), F.cross_entropy(logits, torch.cat([labels, labels])), rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize("stage", list(Stage))
def test_it_asks_for_labelled_images_alone(method, stage):
    assert method.wants(stage) == {"labelled": Want(Source.LABELLED, (View.FLIP, View.WEAK))}


def test_views_are_an_option():
    encoder = ImageEncoder("wrn-digits", (0.5,), (0.25,), bn_momentum=0.1)
    method = Supervised(SupervisedConfig(labelled_views=("strong",)), encoder, TASK)
    assert method.wants(Stage.PRETRAIN)["labelled"].views == (View.STRONG,)
    with pytest.raises(ConfigError, match="labelled_views: needs one view or more"):
        SupervisedConfig(labelled_views=())


def test_outputs(method):
    method.eval()
    images = some_images(6)
    with torch.no_grad():
        outputs = method.outputs(images)
        logits = method.classifier(method.backbone(images))
    assert torch.equal(outputs.logits, logits)
    torch.testing.assert_close(
        outputs.score, (logits.double().exp() / logits.double().exp().sum(1, True)).amax(1).float()
    )
    assert outputs.alpha is None
    assert method.select(outputs) is None
    assert method.selection_view is View.PLAIN
