"""Every option of ANEDL: what it changes, and that it changes nothing else."""

from dataclasses import fields, replace

import pytest
import torch
import torch.nn.functional as F
from tests.methods.anedl_parts import (
    ALL_TERMS,
    BATCH,
    CLASSES,
    EVIDENTIAL,
    TASK,
    Reference,
    at,
    close,
    gradient_norms,
    make_batch,
    make_method,
    terms_of,
)

from anedl.contrast import contrast
from anedl.engine.spec import make_spec
from anedl.errors import ConfigError
from anedl.methods.anedl import Anedl
from anedl.methods.anedl_config import RELEASED, AnedlConfig
from anedl.methods.base import Batch, Stage
from anedl.networks.encoder import ImageEncoder


def check_only(changed: set[str], options: dict, gone: set[str] = frozenset()) -> dict[str, float]:
    """Switching `options` on changes exactly these terms, drops exactly those; returns the new."""
    base, found = terms_of(), terms_of(**options)
    assert set(base) - set(found) == gone
    assert set(found) <= set(base)
    for name, value in found.items():
        if name in changed:
            assert abs(value - base[name]) > 1e-4 * abs(base[name]), f"{name} did not change"
        else:
            assert value == base[name], f"{name} changed"
    return found


SCALED = {
    "lambda_p": (0.4, {"p_error", "p_variance", "p_logdet", "p_kl"}),
    "lambda_n": (0.8, {"n_error", "n_logdet", "n_kl"}),
    "lambda_1": (2.5e-4, {"n_logdet"}),
    "lambda_2": (2.5e-4, {"p_logdet"}),
    "variance_weight": (1.0, {"p_variance"}),
    "kl_weight": (1.25e-3, {"p_kl", "n_kl"}),
    "consistency_weight": (0.05, {"consistency"}),
    "fixmatch_weight": (1.0, {"fixmatch"}),
}


@pytest.mark.parametrize("name", SCALED)
def test_a_weight_scales_its_own_terms(name):
    default, scaled = SCALED[name]
    base = terms_of()
    found = check_only(scaled, {name: 3 * default})
    for term in scaled:
        assert found[term] == pytest.approx(3 * base[term], rel=1e-5)


CHANGES = {
    "kl_original": ({"kl": "original"}, {"p_kl"}),
    "target_evidence": ({"target_evidence": 200.0}, {"p_kl"}),
    "kl_ramp_epochs": ({"kl_ramp_epochs": 40}, {"p_kl", "n_kl"}),
    "label_target": ({"label_target": "plus-uniform"}, {"p_error"}),
    "edl_pool_views": ({"edl_pool_views": "first"}, {"n_error", "n_logdet", "n_kl"}),
    "edl_labelled_views": (
        {"edl_labelled_views": "first"},
        {"p_error", "p_variance", "p_logdet", "p_kl"},
    ),
    "debias": ({"debias": False}, {"fixmatch"}),
    "debias_tau": ({"debias_tau": 0.3}, {"fixmatch"}),
    "fixmatch_threshold": ({"fixmatch_threshold": 0.6}, {"fixmatch"}),
    "evidence_relu": ({"evidence": "relu"}, EVIDENTIAL),
    "evidence_exp": ({"evidence": "exp"}, EVIDENTIAL),
    "head_width": ({"head_width": 48}, EVIDENTIAL),
    "head_batchnorm": ({"head_batchnorm": False}, EVIDENTIAL),
    "forward_passes": ({"forward_passes": "one"}, ALL_TERMS),
}
NO_VALUE_CHANGES = {
    "hold_weight": True,
    "detach_negative": False,
    "detach_pool_kl": False,
    "consistency_detach": "first",
    "consistency_from": "self-training",  # the same once that has begun
    "fixmatch_trains_classifier": False,
    "debias_momentum": 0.5,  # of the next step's q̂
}


@pytest.mark.parametrize("case", CHANGES)
def test_an_option_changes_what_it_says_and_nothing_else(case):
    options, changed = CHANGES[case]
    check_only(changed, options)


@pytest.mark.parametrize("name", NO_VALUE_CHANGES)
def test_an_option_of_gradients_or_of_time_changes_no_value(name):
    check_only(set(), {name: NO_VALUE_CHANGES[name]})


def test_without_negative_optimisation_the_pools_terms_are_gone():
    check_only(set(), {"negative": False}, gone={"n_error", "n_logdet", "n_kl"})


def test_without_adaptive_weights():
    found = check_only(
        {"p_error", "p_variance", "n_error"}, {"adaptive": False}, gone={"p_logdet", "n_logdet"}
    )
    r = Reference(make_method(), make_batch(Stage.SELF_TRAIN))
    uniform = torch.full_like(r.pool, 1 / CLASSES)
    close(found["p_error"], 0.4 * r.mse(r.labelled, r.y, weighted=False))
    close(found["p_variance"], 0.4 * r.var(r.labelled, weighted=False))
    close(found["n_error"], 0.8 * r.mse(r.pool, uniform, weighted=False))


def test_original_kl_takes_the_true_evidence_out():
    r = Reference(make_method(), make_batch(Stage.SELF_TRAIN))
    misleading = r.labelled * (1 - r.y) + r.y
    ramp = 0.4  # epoch 3 of 10
    expected = 0.4 * ramp * 1.25e-3 * r.kl(misleading, torch.ones_like(misleading))
    close(terms_of(kl="original")["p_kl"], expected)


def test_target_evidence_is_p():
    r = Reference(make_method(), make_batch(Stage.SELF_TRAIN))
    close(terms_of(target_evidence=200.0)["p_kl"], 0.4 * 0.4 * 1.25e-3 * r.kl_labelled(200.0))


def test_edl_on_the_first_pool_view_alone():
    r = Reference(make_method(), make_batch(Stage.SELF_TRAIN))
    first = r.pool.chunk(2)[0]
    found = terms_of(edl_pool_views="first")
    close(found["n_error"], 0.8 * r.mse(first, torch.full_like(first, 1 / CLASSES)))
    close(found["n_logdet"], -2e-4 * r.logdet(first))
    close(found["n_kl"], 0.4 * 1e-3 * r.kl(first, torch.ones_like(first)))


def test_edl_on_the_first_labelled_view_alone():
    """The classifier still learns from all of them."""
    r = Reference(make_method(), make_batch(Stage.SELF_TRAIN))
    first, y = r.labelled[:BATCH], r.y[:BATCH]
    found = terms_of(edl_labelled_views="first")
    close(found["ce"], r.cross_entropy())
    close(found["p_error"], 0.4 * r.mse(first, y))
    close(found["p_variance"], 0.4 * r.var(first))
    close(found["p_logdet"], -1e-4 * r.logdet(first))
    close(found["p_kl"], 0.4 * 0.4 * 1.25e-3 * r.kl(first, 1 + 99 * y))


def test_evidence_from_selected_images_under_their_pseudo_labels():
    """All rows pass the head together, so its BatchNorm sees the selected ones too."""
    method = make_method(selected_evidence=0.5, debias_tau=0.05)
    batch = make_batch(Stage.SELF_TRAIN)
    prior = method.prior.clone()
    found = method.loss(batch, at(Stage.SELF_TRAIN)).terms
    r = Reference(method, batch)
    views = [*batch.labelled.views, *batch.unlabelled["pool"].views]
    first = method.backbone(torch.cat(views))
    chosen = method.backbone(torch.cat(batch.unlabelled["selected"].views))
    labelled, _, alpha = (
        method.detector(torch.cat([first, chosen])).double().split([12, 24, len(chosen)])
    )
    guess = (r.weak.double() - 0.05 * prior.double().log()).argmax(1)
    assert len(guess.unique()) > 1
    y = F.one_hot(torch.cat([guess, guess]), CLASSES).double()
    close(found["selected_p_error"], 0.5 * 0.4 * r.mse(alpha, y))
    close(found["selected_p_variance"], 0.5 * 0.4 * r.var(alpha))
    close(found["selected_p_logdet"], -0.5 * 0.4 * 2.5e-4 * r.logdet(alpha))
    close(found["selected_p_kl"], 0.5 * 0.4 * 0.4 * 1.25e-3 * r.kl(alpha, 1 + 99 * y))
    close(found["p_error"], 0.4 * r.mse(labelled, r.y))
    close(found["fixmatch"], r.fixmatch(prior, 0.05))
    norms = gradient_norms(found["selected_p_error"], method)
    assert norms["backbone"] > 0
    assert norms["detector"] > 0
    assert norms["classifier"] == 0


@pytest.mark.parametrize("of", ["pool", "selected"])
def test_contrast_between_the_views_of_an_image(of):
    method = make_method(
        contrast_weight=0.5, contrast_of=of, contrast_temperature=0.3, contrast_width=5
    )
    batch = make_batch(Stage.SELF_TRAIN)
    found = method.loss(batch, at(Stage.SELF_TRAIN)).terms
    if of == "pool":
        views = [*batch.labelled.views, *batch.unlabelled["pool"].views]
        features = method.backbone(torch.cat(views))[2 * BATCH :]
    else:
        features = method.backbone(torch.cat(batch.unlabelled["selected"].views))
    points = method.projection(features)
    assert points.shape == (4 * BATCH, 5)
    close(found["contrast"], 0.5 * contrast(*points.chunk(2), 0.3).mean())
    # The rest of the loss is as without it; heads are built in the same order.
    for name, value in terms_of().items():
        close(found[name], value)
    norms = gradient_norms(found["contrast"], method)
    assert norms["backbone"] > 0
    assert norms["classifier"] == norms["detector"] == 0


def test_contrast_of_selected_images_begins_with_self_training():
    options = {"contrast_weight": 0.5}
    assert "contrast" in terms_of(Stage.PRETRAIN, **options)
    assert "contrast" not in terms_of(Stage.PRETRAIN, contrast_of="selected", **options)


def test_more_selected_than_pool_images():
    wants = make_method(pool_ratio=1, selected_ratio=3).wants(Stage.SELF_TRAIN)
    assert (wants["pool"].ratio, wants["selected"].ratio) == (1, 3)


def test_negative_optimisation_of_the_rest_of_the_pool_alone():
    task = replace(TASK, pool_size=60)
    batch = make_batch(Stage.SELF_TRAIN)

    def select(positions):
        part = replace(batch.unlabelled["selected"], positions=torch.tensor(positions))
        return Batch(batch.labelled, {**batch.unlabelled, "selected": part})

    torch.manual_seed(0)
    encoder = ImageEncoder("wrn-digits", (0.5,), (0.25,), bn_momentum=0.1)
    # 24 images are selected and 12 come in a step: a round takes two steps.
    method = Anedl(AnedlConfig(negative_pool="rest", selection_count=24), encoder, task).train()
    some, others = [*range(6), *range(30, 36)], [*range(36, 48)]
    for positions, rows in (
        (some, range(6, 12)),  # of the pool's part, which is images 0 to 11
        (others, range(6, 12)),
        (others, range(6, 12)),
        (others, range(6, 12)),
        (others, range(6, 12)),  # four steps, two rounds
        (others, range(12)),
        ([*range(12)], ()),
    ):
        found = method.loss(select(positions), at(Stage.SELF_TRAIN)).terms
        pool = torch.stack(Reference(method, batch).pool.chunk(2))[:, list(rows)].flatten(0, 1)
        if not len(pool):
            assert found["n_error"] == found["n_logdet"] == found["n_kl"] == 0
            continue
        close(found["n_error"], 0.8 * Reference.mse(pool, torch.full_like(pool, 1 / CLASSES)))
        close(found["n_logdet"], -2e-4 * Reference.logdet(pool))
        close(found["n_kl"], 0.4 * 1e-3 * Reference.kl(pool, torch.ones_like(pool)))
    before = make_batch(Stage.PRETRAIN)
    every = Reference(method, before).pool
    found = method.loss(before, at(Stage.PRETRAIN)).terms
    close(found["n_error"], 0.8 * Reference.mse(every, torch.full_like(every, 1 / CLASSES)))


def test_fixmatch_without_debias_and_with_threshold():
    method, batch = make_method(), make_batch(Stage.SELF_TRAIN)
    r = Reference(method, batch)
    uniform = torch.ones(CLASSES)
    close(terms_of(debias=False)["fixmatch"], r.fixmatch(uniform))
    close(terms_of(debias=False, fixmatch_threshold=0.5)["fixmatch"], r.fixmatch(uniform, 1, 0.5))
    close(terms_of(debias_tau=0.3)["fixmatch"], r.fixmatch(method.prior, 0.3))
    close(terms_of(fixmatch_threshold=0.6)["fixmatch"], r.fixmatch(method.prior, 1, 0.6))


def test_relu_and_exponential_evidence():
    method, batch = make_method(), make_batch(Stage.PRETRAIN)
    views = [*batch.labelled.views, *batch.unlabelled["pool"].views]
    raw = method.detector.hidden(method.backbone(torch.cat(views))) @ method.detector.last.weight.T
    for name, function in (("relu", torch.relu), ("exp", torch.exp), ("softplus", F.softplus)):
        found = Reference(make_method(evidence=name), batch).alpha
        torch.testing.assert_close(found, function(raw) + 1, rtol=1e-5, atol=1e-5)


def test_forward_passes_differ_only_where_there_are_selected_images():
    """One pass shares BatchNorm statistics between the selected and the others."""
    assert terms_of(Stage.PRETRAIN) == terms_of(Stage.PRETRAIN, forward_passes="one")
    method, batch = make_method(forward_passes="one"), make_batch(Stage.SELF_TRAIN)
    found = method.loss(batch, at(Stage.SELF_TRAIN)).terms
    views = [*batch.labelled.views, *batch.unlabelled["pool"].views]
    features = method.backbone(torch.cat(views + list(batch.unlabelled["selected"].views)))
    logits = method.classifier(features[: 2 * BATCH])
    close(found["ce"], F.cross_entropy(logits, batch.labelled.labels.repeat(2)))
    method.eval()  # with fixed statistics it makes no difference
    two = make_method().eval()
    two.load_state_dict(method.state_dict())
    for one_pass, two_passes in zip(
        method.loss(batch, at(Stage.SELF_TRAIN)).terms.values(),
        two.loss(batch, at(Stage.SELF_TRAIN)).terms.values(),
        strict=True,
    ):
        close(one_pass, two_passes)


def test_consistency_waits_for_self_training_when_asked():
    assert "consistency" in terms_of(Stage.PRETRAIN)
    late = terms_of(Stage.PRETRAIN, consistency_from="self-training")
    assert "consistency" not in late
    assert {**late, "consistency": 0} == {**terms_of(Stage.PRETRAIN), "consistency": 0}


@pytest.mark.parametrize("epoch", [0.0, 0.97, 1.0, 5.5, 9.99, 10.0, 150.0])
def test_the_kl_ramp_counts_whole_epochs(epoch):
    found = terms_of(Stage.PRETRAIN, epoch)
    full = terms_of(Stage.PRETRAIN, epoch, kl_ramp_epochs=0)
    ramp = min(1.0, (int(epoch) + 1) / 10)
    for name in found:
        expected = full[name] * (ramp if name in ("p_kl", "n_kl") else 1)
        assert found[name] == pytest.approx(expected, rel=1e-5), name


def test_the_class_prior_follows_the_weak_views_of_selected_images():
    for momentum in (0.999, 0.9):
        method, batch = make_method(debias_momentum=momentum), make_batch(Stage.SELF_TRAIN)
        before = method.prior.clone()
        weak = Reference(method, batch).weak
        method.loss(batch, at(Stage.SELF_TRAIN))
        expected = momentum * before + (1 - momentum) * weak.softmax(1).mean(0)
        torch.testing.assert_close(method.prior, expected.detach(), rtol=1e-6, atol=1e-7)
        assert not method.prior.requires_grad
    untouched = make_method()
    untouched.loss(make_batch(Stage.PRETRAIN), at(Stage.PRETRAIN))
    assert torch.equal(untouched.prior, before)
    biased = make_method(debias=False)
    biased.loss(make_batch(Stage.SELF_TRAIN), at(Stage.SELF_TRAIN))
    assert torch.equal(biased.prior, before)


def test_the_class_prior_starts_uniform_and_travels_with_the_model():
    encoder = ImageEncoder("wrn-digits", (0.5,), (0.25,), bn_momentum=0.1)
    state = Anedl(AnedlConfig(), encoder, TASK).state_dict()
    assert torch.equal(state["prior"], torch.full((CLASSES,), 1 / CLASSES))


# The configuration


def test_the_task_fills_in_what_was_left_open():
    config = AnedlConfig().resolved(TASK)
    assert (config.top_m, config.selection_share, config.consistency_weight) == (2, 0.4, 0.05)
    chosen = AnedlConfig(top_m=3, selection_share=0.9, consistency_weight=0.0).resolved(TASK)
    assert (chosen.top_m, chosen.selection_share, chosen.consistency_weight) == (3, 0.9, 0.0)
    assert chosen.resolved(replace(TASK, top_m=1)) == chosen


@pytest.mark.parametrize(
    "options",
    [
        {"labelled_views": ()},
        {"pool_views": ("weak",)},
        {"pool_views": ("weak", "weak", "strong")},
        {"selection_share": 0.0},
        {"selection_share": 1.5},
        {"selection_count": 0},
        {"selection_count": -5},
        {"pool_ratio": 0},
        {"top_m": 0},
        {"head_width": 0},
        {"selected_evidence": -1.0},
        {"contrast_weight": -1.0},
        {"rotation_weight": -1.0},
        {"contrast_temperature": 0.0},
        {"contrast_width": 0},
        {"selected_ratio": 0},
        {"selection_quota": 1.1},
    ],
    ids=str,
)
def test_impossible_values_are_refused(options):
    (name,) = options
    with pytest.raises(ConfigError, match=name):
        AnedlConfig(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"lambda_1": -1e-4},
        {"lambda_2": -1e-4},
        {"consistency_weight": -0.1},
        {"networks_teach": True},
    ],
    ids=str,
)
def test_what_cannot_be_meant_is_refused_and_what_was_trained_stays_readable(options):
    (name,) = options
    with pytest.raises(ConfigError, match=name):
        make_spec("digits", "anedl", options=options)
    assert getattr(AnedlConfig(**options), name) == options[name]


def test_more_than_all_classes_cannot_be_summed():
    with pytest.raises(ConfigError, match="top_m"):
        AnedlConfig(top_m=CLASSES + 1).resolved(TASK)


def test_every_option_is_tried():
    in_names = {
        "pseudo_labels", "pseudo_label_temperature", "selection_memory", "selected_views", "cutmix",
        "networks", "networks_teach",
    }  # fmt: skip
    tried = in_names | {
        *SCALED,
        *NO_VALUE_CHANGES,
        *(name for case in CHANGES.values() for name in case[0]),
    }
    tried |= {
        "negative", "adaptive", "labelled_views", "pool_views", "pool_ratio", "selection_score",
        "selection_share", "selection_count", "selection_view", "score", "top_m",
        "selected_evidence", "negative_pool", "selection_quota", "selected_ratio",
        "contrast_weight", "contrast_of", "contrast_temperature", "contrast_width",
        "early_labelled_views", "early_share", "head_batches", "rotation_weight",
    }  # fmt: skip
    assert {a_field.name for a_field in fields(AnedlConfig)} == tried


def test_the_release_differs_from_the_paper_where_the_table_says():
    assert set(RELEASED) == {
        "variance_weight", "label_target", "consistency_from", "pool_views",
        "fixmatch_trains_classifier", "selection_view", "early_labelled_views", "head_batches",
    }  # fmt: skip
    released = AnedlConfig(**RELEASED)
    assert (released.fixmatch_threshold, released.debias_tau, released.debias_momentum) == (
        0.0,
        1.0,
        0.999,
    )
    assert (released.kl_ramp_epochs, released.target_evidence, released.pool_ratio) == (10, 100, 2)
