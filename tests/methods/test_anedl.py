"""ANEDL's loss against the equations of the paper and of the release."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from tests.methods.anedl_parts import (
    ALL_TERMS,
    BATCH,
    BOTH_STAGES,
    CLASSES,
    TASK,
    Reference,
    at,
    close,
    make_batch,
    make_method,
    number,
)

from anedl import losses
from anedl.errors import ConfigError
from anedl.methods.anedl_config import RELEASED, AnedlConfig
from anedl.methods.base import Stage
from anedl.views import View


@BOTH_STAGES
def test_the_papers_total(stage):
    """Eq. 7 and 8 with every λ chosen apart, so that a mixed-up weight shows."""
    weights = {"lambda_p": 0.7, "lambda_n": 1.3, "lambda_1": 0.011, "lambda_2": 0.023}
    method = make_method(
        **weights, kl_weight=1.0, kl_ramp_epochs=0, variance_weight=1.0, consistency_weight=0.31
    )
    batch = make_batch(stage)
    prior = method.prior.clone()
    found = method.loss(batch, at(stage, 0.0))
    reference = Reference(method, batch)
    uniform = torch.full_like(reference.pool, 1 / CLASSES)
    p_edl = reference.mse(reference.labelled, reference.y) + reference.var(reference.labelled)
    p_edl = p_edl - 0.023 * reference.logdet(reference.labelled)
    n_edl = reference.mse(reference.pool, uniform) - 0.011 * reference.logdet(reference.pool)
    ano = 0.7 * (p_edl + reference.kl_labelled()) + 1.3 * (n_edl + reference.kl_pool())
    fixmatch = reference.fixmatch(prior)
    total = reference.cross_entropy() + fixmatch + ano + 0.31 * reference.consistency()
    close(found.total(), total)
    by_the_functions = losses.anedl_total(
        reference.cross_entropy(), fixmatch,
        losses.ano_total(p_edl, reference.kl_labelled(), n_edl, reference.kl_pool(),
                         lambda_p=0.7, lambda_n=1.3),
        reference.consistency(), lambda_con=0.31,
    )  # fmt: skip
    close(found.total(), by_the_functions)
    assert ("fixmatch" in found.terms) == (stage is Stage.SELF_TRAIN)
    assert fixmatch > 0 or stage is Stage.PRETRAIN


@BOTH_STAGES
@pytest.mark.parametrize(
    ("epoch", "ramp", "second_view"), [(0.0, 0.1, 2), (0.49, 0.1, 2), (4.99, 0.5, 1), (9, 1.0, 1)]
)
def test_the_released_total(stage, epoch, ramp, second_view):
    """Five classes: for 5 of 200 epochs (here half a one of 20) the second view is the strong."""
    method = make_method(**RELEASED)
    batch = make_batch(stage, early=True)
    prior = method.prior.clone()
    found = method.loss(batch, at(stage, epoch))
    r = Reference(method, batch, (0, second_view))
    uniform = torch.full_like(r.pool, 1 / CLASSES)
    labelled = 0.4 * r.mse(r.labelled, r.y + 1 / CLASSES) + 0.5 * r.var(r.labelled)
    labelled = labelled - 1e-4 * r.logdet(r.labelled) + 5e-4 * ramp * r.kl_labelled()
    pool = 0.8 * r.mse(r.pool_apart, uniform) - 2e-4 * r.logdet(r.pool_apart)
    pool = pool + 1e-3 * ramp * r.kl_pool(r.pool_apart)
    total = r.cross_entropy() + labelled + pool
    if stage is Stage.SELF_TRAIN:
        total = total + r.fixmatch(prior) + 0.05 * r.consistency()
    close(found.total(), total)
    assert ("consistency" in found.terms) == (stage is Stage.SELF_TRAIN)

    # The same in the release's own arrangement: means over labelled and pool rows together.
    rows = torch.cat([r.labelled, r.pool_apart])
    target = torch.cat([r.y + 1 / CLASSES, uniform])
    beta = torch.cat([1 + 99 * r.y, torch.ones_like(r.pool)])
    together = 40 * r.mse(rows, target) - 0.01 * r.logdet(rows) + ramp * 0.05 * r.kl(rows, beta)
    close(labelled + pool, 0.03 * (together + 50 / 3 * r.var(r.labelled)), 1e-9)


def test_separate_batches_of_the_head():
    """Eq. 2 with the pool's own statistics; the running ones see three batches, one by one."""
    batch, progress = make_batch(Stage.SELF_TRAIN), at(Stage.SELF_TRAIN)
    joint, separate = make_method(), make_method(head_batches="separate")
    found, other = (method.loss(batch, progress).terms for method in (joint, separate))
    changed = {name for name in found if not torch.equal(found[name], other[name])}
    assert changed == {"n_error", "n_logdet", "n_kl"}

    views = [*batch.labelled.views, *batch.unlabelled["pool"].views]
    method = make_method(head_batches="separate")
    first = method.backbone(torch.cat(views))
    chosen = method.backbone(torch.cat(batch.unlabelled["selected"].views))
    for features in (first, first[2 * BATCH :], chosen):
        method.detector(features)
    for name, expected in method.detector.named_buffers():
        torch.testing.assert_close(separate.detector.get_buffer(name), expected)
    assert separate.detector.hidden[1].num_batches_tracked == 3
    assert joint.detector.hidden[1].num_batches_tracked == 1


def test_selected_evidence_with_separate_batches():
    """The selected images' evidence comes from a batch of their own."""
    batch = make_batch(Stage.SELF_TRAIN)
    method = make_method(head_batches="separate", selected_evidence=0.5)
    found = method.loss(batch, at(Stage.SELF_TRAIN)).terms
    twin = make_method(head_batches="separate")
    r = Reference(twin, batch)
    chosen = twin.backbone(torch.cat(batch.unlabelled["selected"].views))
    alpha = twin.detector(chosen).double()
    label = (r.weak.double() - twin.prior.double().log()).argmax(1).repeat(2)
    expected = 0.5 * 0.4 * r.mse(alpha, F.one_hot(label, CLASSES).double())
    close(found["selected_p_error"], expected)


def test_early_views():
    """What is asked for, and how long the early part is."""
    method = make_method(early_labelled_views=("flip", "strong"))
    labelled = method.wants(Stage.PRETRAIN)["labelled"]
    assert labelled.views == (View.FLIP, View.WEAK, View.STRONG)
    assert labelled.passed == 2, "of which two pass the network"
    assert method.config.early_share == CLASSES / 200
    assert make_method().config.early_share is None
    assert make_method().wants(Stage.PRETRAIN)["labelled"].views == (View.FLIP, View.WEAK)
    both = make_method(early_labelled_views=("weak", "strong"), early_share=0.5)
    assert both.config.early_share == 0.5
    assert both.wants(Stage.SELF_TRAIN)["labelled"].views == tuple(
        map(View, ("flip", "weak", "weak", "strong"))
    )
    many = replace(TASK, classes=300)
    config = AnedlConfig(early_labelled_views=("flip", "strong")).resolved(many)
    assert config.early_share == 1.0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"early_labelled_views": ("strong",)}, "as many views as labelled_views \\(2\\), got 1"),
        ({"early_share": 1.5}, "early_share: must lie in 0…1"),
    ],
)
def test_early_views_that_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        AnedlConfig(**options)


def test_the_total_is_the_sum_of_the_terms():
    found = make_method().loss(make_batch(Stage.SELF_TRAIN), at(Stage.SELF_TRAIN))
    assert set(found.terms) == ALL_TERMS
    close(found.total(), sum(number(term) for term in found.terms.values()))
    assert all(term.shape == () for term in [*found.terms.values(), *found.monitors.values()])


def test_monitors_say_how_much_evidence_there_is():
    method = make_method()
    batch = make_batch(Stage.SELF_TRAIN)
    found = method.loss(batch, at(Stage.SELF_TRAIN))
    reference = Reference(method, batch)
    close(found.monitors["evidence_labelled"], reference.labelled.sum(1).mean())
    close(found.monitors["evidence_pool"], reference.pool.sum(1).mean())
    close(found.monitors["pseudo_confidence"], reference.weak.softmax(1).amax(1).mean())
    assert not any(value.requires_grad for value in found.monitors.values())
