"""What ANEDL draws, selects and says of images."""

from typing import get_args

import pytest
import torch
import torch.nn.functional as F
from tests.methods.anedl_parts import BATCH, CLASSES, at, close, images, make_batch, make_method

from anedl.methods.anedl_config import AnedlConfig, ScoreName
from anedl.methods.base import Batch, Labelled, Outputs, Source, Stage, Want
from anedl.networks.heads import EVIDENCE_ACTIVATIONS
from anedl.scores import SCORES
from anedl.views import View


def test_the_parts_of_a_batch():
    method = make_method()
    first = method.wants(Stage.PRETRAIN)
    assert first == {
        "labelled": Want(Source.LABELLED, (View.FLIP, View.WEAK)),
        "pool": Want(Source.POOL, (View.WEAK, View.STRONG), 2),
    }
    second = method.wants(Stage.SELF_TRAIN)
    assert second == {**first, "selected": Want(Source.SELECTED, (View.WEAK, View.STRONG), 2)}


def test_views_and_ratio_are_options():
    method = make_method(
        labelled_views=("strong",), pool_views=("weak", "weak"), pool_ratio=7, selection_view="flip"
    )
    wants = method.wants(Stage.SELF_TRAIN)
    assert wants["labelled"].views == (View.STRONG,)
    assert wants["pool"].views == (View.WEAK, View.WEAK)
    assert (wants["labelled"].ratio, wants["pool"].ratio, wants["selected"].ratio) == (1, 7, 7)
    assert method.selection_view is View.FLIP
    assert make_method().selection_view is View.PLAIN


def test_one_labelled_view_is_enough():
    batch = make_batch(Stage.PRETRAIN)
    one = Batch(Labelled(batch.labelled.views[:1], batch.labelled.labels), batch.unlabelled)
    method = make_method(labelled_views=("weak",))
    logits = method.classifier(
        method.backbone(torch.cat([*one.labelled.views, *one.unlabelled["pool"].views]))
    )
    found = method.loss(one, at(Stage.PRETRAIN)).terms
    close(found["ce"], F.cross_entropy(logits[:BATCH], one.labelled.labels))


def constructed() -> Outputs:
    """Six pool images: the most evidence lies on the predicted class of images 1, 4 and 2."""
    alpha = torch.tensor(
        [
            [1.0, 9.0, 1.0, 1.0, 1.0],  # much evidence, but for a class that is not predicted
            [8.0, 1.0, 1.0, 1.0, 1.0],
            [1.0, 1.0, 5.0, 1.0, 1.0],
            [2.0, 2.0, 2.0, 2.0, 2.0],
            [1.0, 1.0, 1.0, 6.0, 1.0],
            [3.0, 4.0, 4.0, 4.0, 1.0],
        ]
    )
    logits = torch.zeros(6, CLASSES)
    logits[range(6), [0, 0, 2, 1, 3, 0]] = torch.tensor([9.0, 1.0, 2.0, 3.0, 4.0, 5.0])
    return Outputs(torch.zeros(6, 2), logits, torch.zeros(6), alpha)


@pytest.mark.parametrize(
    ("options", "positions"),
    [
        ({"selection_count": 3}, [1, 2, 4]),
        ({"selection_count": 4}, [1, 2, 4, 5]),
        ({"selection_count": 99}, [0, 1, 2, 3, 4, 5]),
        ({"selection_share": 0.5}, [1, 2, 4]),
        ({"selection_share": 1 / 3}, [1, 4]),
        ({"selection_share": 0.01}, [1]),
        ({"selection_share": 0.9, "selection_count": 1}, [1]),
        ({}, [1, 4]),  # the task's share, 0.4 of 6
        ({"selection_count": 2, "selection_score": "max_alpha"}, [0, 1]),
        ({"selection_count": 2, "selection_score": "total_evidence"}, [0, 5]),
        ({"selection_count": 2, "selection_score": "top_m_evidence"}, [0, 1]),
        ({"selection_count": 3, "selection_score": "top_m_evidence", "top_m": 3}, [0, 1, 5]),
        ({"selection_count": 2, "selection_score": "max_softmax"}, [0, 5]),
        ({"selection_count": 5, "selection_score": "total_evidence"}, [0, 1, 3, 4, 5]),
        # One of each predicted class, then the best of the rest.
        (
            {"selection_count": 5, "selection_score": "total_evidence", "selection_quota": 1.0},
            [0, 2, 3, 4, 5],
        ),
    ],
    ids=str,
)
def test_selection(options, positions):
    selection = make_method(**options).select(constructed())
    assert selection.positions.tolist() == positions
    assert selection.positions.dtype == torch.int64


@pytest.mark.parametrize("score", get_args(ScoreName))
def test_inference_with_every_score(score):
    method = make_method(score=score).eval()
    with torch.no_grad():
        outputs = method.outputs(images(7))
    features = method.backbone(images_again := images(7))
    assert outputs.features.shape == features.shape
    assert outputs.logits.shape == outputs.alpha.shape == (7, CLASSES)
    expected = SCORES[score](outputs.logits, outputs.alpha, 2)
    assert torch.equal(outputs.score, expected)
    again = method.outputs(images_again)
    assert torch.equal(again.logits, method.classifier(features))
    assert torch.equal(again.alpha, method.detector(features))


def test_top_m_is_the_tasks_unless_chosen():
    method = make_method().eval()
    outputs = method.outputs(images(4))
    assert torch.allclose(outputs.score, outputs.alpha.sort(descending=True).values[:, :2].sum(1))
    other = make_method(top_m=4).eval()
    assert other.task.top_m == 4, "all figures of a run are about the same M"
    outputs = other.outputs(images(4))
    assert torch.allclose(outputs.score, outputs.alpha.sort(descending=True).values[:, :4].sum(1))


def test_names_of_scores_and_activations_are_those_that_exist():
    assert set(get_args(ScoreName)) == set(SCORES)
    wanted = AnedlConfig.__annotations__["evidence"]
    assert set(get_args(wanted)) == set(EVIDENCE_ACTIVATIONS)
