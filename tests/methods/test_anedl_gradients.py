"""Which parts of ANEDL each term of its loss trains."""

import pytest
import torch
from tests.methods.anedl_parts import (
    BATCH,
    Reference,
    at,
    close,
    gradient_norms,
    make_batch,
    make_method,
    number,
)

from anedl.methods.anedl_config import RELEASED
from anedl.methods.base import Stage


def reach(**options) -> dict[str, set[str]]:
    """Which parts each term trains."""
    method = make_method(**options)
    batch = make_batch(Stage.SELF_TRAIN, early="early_labelled_views" in options)
    terms = method.loss(batch, at(Stage.SELF_TRAIN)).terms
    return {
        name: {part for part, norm in gradient_norms(term, method).items() if norm > 0}
        for name, term in terms.items()
    }


def test_what_each_term_trains():
    trunk_and_head = {"backbone", "detector"}
    assert reach() == {
        "ce": {"backbone", "classifier"},
        "p_error": trunk_and_head,
        "p_variance": trunk_and_head,
        "p_logdet": trunk_and_head,
        "p_kl": trunk_and_head,
        "n_error": {"detector"},
        "n_logdet": {"detector"},
        "n_kl": {"detector"},
        "consistency": trunk_and_head,
        "fixmatch": {"backbone", "classifier"},
    }


@pytest.mark.parametrize(
    ("options", "changed"),
    [
        ({"detach_negative": False}, {"n_error", "n_logdet"}),
        ({"detach_pool_kl": False}, {"n_kl"}),
        ({"detach_negative": False, "detach_pool_kl": False}, {"n_error", "n_logdet", "n_kl"}),
    ],
    ids=["negative", "kl", "both"],
)
def test_the_pools_terms_reach_the_trunk_when_asked(options, changed):
    default, found = reach(), reach(**options)
    for name in default:
        assert found[name] == default[name] | ({"backbone"} if name in changed else set()), name


def test_frozen_classifier_in_fixmatch():
    found = reach(fixmatch_trains_classifier=False)
    assert found["fixmatch"] == {"backbone"}
    assert {k: v for k, v in found.items() if k != "fixmatch"} == {
        k: v for k, v in reach().items() if k != "fixmatch"
    }
    assert reach(**RELEASED)["fixmatch"] == {"backbone"}


def test_the_weak_view_gets_no_gradient_from_fixmatch():
    """Its pseudo-labels are constants: only the strong view's features are pulled."""
    method = make_method()
    weak = torch.randn(8, method.backbone.feature_width, requires_grad=True)
    strong = torch.randn(8, method.backbone.feature_width, requires_grad=True)
    value = method.fixmatch([weak, strong], method._opinion([weak, strong], torch.arange(8)))
    for_weak, for_strong = torch.autograd.grad(value, [weak, strong], allow_unused=True)
    assert for_weak is None
    assert for_strong.norm() > 0


def test_detaching_the_pool_is_the_gradient_of_constant_features():
    """The head's own gradient is the same whether the trunk's is stopped or not."""
    batch, progress = make_batch(Stage.PRETRAIN), at(Stage.PRETRAIN)
    gradients = []
    for detach in (True, False):
        method = make_method(detach_negative=detach)
        term = method.loss(batch, progress).terms["n_error"]
        gradients.append(torch.autograd.grad(term, list(method.detector.parameters())))
    for stopped, through in zip(*gradients, strict=True):
        torch.testing.assert_close(stopped, through, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("side", ["none", "first", "second"])
def test_which_side_of_the_consistency_is_constant(side):
    method = make_method(consistency_detach=side, consistency_weight=1.0)
    batch = make_batch(Stage.PRETRAIN)
    term = method.loss(batch, at(Stage.PRETRAIN)).terms["consistency"]
    first, second = Reference(method, batch).alpha[2 * BATCH :].chunk(2)
    if side == "first":
        first = first.detach()
    if side == "second":
        second = second.detach()
    expected = ((first - second) ** 2).sum(1).mean()
    close(term, expected)
    parameters = [*method.backbone.parameters(), *method.detector.parameters()]
    found = torch.autograd.grad(term, parameters)
    wanted = torch.autograd.grad(expected, parameters)
    scale = max(float(g.abs().max()) for g in wanted)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-5 * scale)


def test_holding_the_weights_changes_the_gradient_and_not_the_value():
    batch, progress = make_batch(Stage.PRETRAIN), at(Stage.PRETRAIN)
    values, gradients = [], []
    for hold in (False, True):
        method = make_method(hold_weight=hold, adaptive=True)
        term = method.loss(batch, progress).terms["p_error"]
        values.append(number(term))
        (gradient,) = torch.autograd.grad(term, [method.detector.last.weight])
        gradients.append(gradient)
    assert values[0] == values[1]
    assert (gradients[0] - gradients[1]).norm() > 0.01 * gradients[0].norm()


def test_separate_batches_stop_the_same_gradients():
    assert reach(head_batches="separate") == reach()
