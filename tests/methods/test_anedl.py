"""ANEDL's loss against the equations, its gradients, its selection, and every one of its options.

What is expected is computed here in float64 with torch's own polygamma, determinants and Dirichlet
distributions from concentrations that this file obtains by its own forward pass.
"""

from dataclasses import fields, replace
from typing import get_args

import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Dirichlet, kl_divergence

from anedl import losses
from anedl.contrast import contrast
from anedl.errors import ConfigError
from anedl.methods.anedl import Anedl
from anedl.methods.anedl_config import RELEASED, AnedlConfig, ScoreName
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
from anedl.networks.encoder import ImageEncoder
from anedl.networks.heads import EVIDENCE_ACTIVATIONS
from anedl.scores import SCORES
from anedl.views import View

CLASSES, BATCH = 5, 6
TASK = Task(classes=CLASSES, top_m=2, inlier_share=0.4, consistency_weight=0.05)
EVIDENTIAL = {
    "p_error", "p_variance", "p_logdet", "p_kl", "n_error", "n_logdet", "n_kl", "consistency",
}  # fmt: skip
ALL_TERMS = {"ce", "fixmatch", *EVIDENTIAL}
BOTH_STAGES = pytest.mark.parametrize("stage", list(Stage))


def make_method(**options) -> Anedl:
    """The same weights whatever the options; evidence and q̂ away from their uniform start."""
    torch.manual_seed(0)
    encoder = ImageEncoder("wrn-digits", (0.5,), (0.25,), bn_momentum=0.1)
    method = Anedl(AnedlConfig(**options), encoder, TASK)
    with torch.no_grad():
        method.detector.last.weight.mul_(4)
        method.prior.copy_(torch.tensor([0.4, 0.3, 0.15, 0.1, 0.05]))
    return method.train()


def images(count: int) -> torch.Tensor:
    return torch.randint(0, 256, (count, 1, 8, 8), dtype=torch.uint8)


def make_batch(stage: Stage, ratio: int = 2, early: bool = False) -> Batch:
    """With `early` one more view of the labelled images, for the early part of a run."""
    torch.manual_seed(1)
    views = tuple(images(BATCH) for _ in range(2))
    if early:
        torch.manual_seed(2)
        views = (*views, images(BATCH))
        torch.manual_seed(3)
    labelled = Labelled(views, torch.arange(BATCH) % CLASSES)
    parts = {}
    for name in ("pool", "selected") if stage is Stage.SELF_TRAIN else ("pool",):
        count = ratio * BATCH
        parts[name] = Unlabelled((images(count), images(count)), torch.arange(count))
    return Batch(labelled, parts)


def at(stage: Stage, epoch: float = 3.0) -> Progress:
    return Progress(stage, torch.tensor(epoch), torch.tensor(epoch / 20))


def terms_of(stage=Stage.SELF_TRAIN, epoch=3.0, **options) -> dict[str, float]:
    terms = make_method(**options).loss(make_batch(stage), at(stage, epoch)).terms
    return {name: number(value) for name, value in terms.items()}


class Reference:
    """Everything of Eq. 2 to 8 for one batch, from a forward pass of its own."""

    def __init__(
        self, method: Anedl, batch: Batch, labelled_views: tuple[int, int] = (0, 1)
    ) -> None:
        labelled = [batch.labelled.views[place] for place in labelled_views]
        views = [*labelled, *batch.unlabelled["pool"].views]
        features = method.backbone(torch.cat(views))
        rows = 2 * BATCH
        self.labels = torch.cat([batch.labelled.labels] * 2)
        self.logits = method.classifier(features[:rows])
        self.alpha = method.detector(features)
        self.labelled, self.pool = self.alpha[:rows].double(), self.alpha[rows:].double()
        # The pool once more with nothing else in the batch, as the release has it for Eq. 2.
        self.pool_apart = method.detector(features[rows:]).double()
        self.y = F.one_hot(self.labels, CLASSES).double()
        self.weak = self.strong = None
        if "selected" in batch.unlabelled:
            chosen = method.backbone(torch.cat(batch.unlabelled["selected"].views))
            self.weak, self.strong = method.classifier(chosen).chunk(2)

    def cross_entropy(self):
        return -F.log_softmax(self.logits.double(), -1)[range(len(self.labels)), self.labels].mean()

    @staticmethod
    def mse(alpha, target, weighted=True):
        weight = torch.special.polygamma(1, alpha) if weighted else torch.ones_like(alpha)
        return ((target - alpha / alpha.sum(1, keepdim=True)) ** 2 * weight).sum(1).mean()

    @staticmethod
    def var(alpha, weighted=True):
        total = alpha.sum(1, keepdim=True)
        weight = torch.special.polygamma(1, alpha) if weighted else torch.ones_like(alpha)
        return (alpha * (total - alpha) / (total**2 * (total + 1)) * weight).sum(1).mean()

    @staticmethod
    def logdet(alpha):
        fisher = torch.diag_embed(torch.special.polygamma(1, alpha))
        fisher = fisher - torch.special.polygamma(1, alpha.sum(1))[:, None, None]
        return torch.linalg.slogdet(fisher).logabsdet.mean()

    @staticmethod
    def kl(alpha, beta):
        return kl_divergence(Dirichlet(alpha), Dirichlet(beta)).mean()

    def kl_labelled(self, target_evidence=100.0):
        return self.kl(self.labelled, 1 + (target_evidence - 1) * self.y)

    def kl_pool(self, pool=None):
        pool = self.pool if pool is None else pool
        return self.kl(pool, torch.ones_like(pool))

    def consistency(self):
        first, second = self.pool.chunk(2)
        return ((first - second) ** 2).sum(1).mean()

    def fixmatch(self, prior, tau=1.0, threshold=0.0):
        """DebiasPL's pseudo-label argmax(z_w − τ log q̂); the strong logits get + τ log q̂."""
        if self.weak is None:
            return torch.zeros(())
        log_prior = tau * prior.double().log()
        confidence, label = (self.weak.double() - log_prior).softmax(1).max(1)
        log_probability = (self.strong.double() + log_prior).log_softmax(1)
        loss = -log_probability[range(len(label)), label]
        return (loss * (confidence >= threshold)).mean()


def close(value, expected, tolerance=2e-5):
    assert number(value) == pytest.approx(number(expected), rel=tolerance, abs=tolerance * 1e-2)


def number(value: torch.Tensor | float) -> float:
    return float(value.detach()) if isinstance(value, torch.Tensor) else value


# The equations


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


def test_separate_batches_stop_the_same_gradients():
    assert reach(head_batches="separate") == reach()


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


# Gradients


def gradient_norms(term: torch.Tensor, method: Anedl) -> dict[str, float]:
    """How strongly a term pulls at each part of the method."""
    norms = {}
    for part in ("backbone", "classifier", "detector"):
        parameters = list(getattr(method, part).parameters())
        gradients = torch.autograd.grad(
            term, parameters, retain_graph=True, allow_unused=True, materialize_grads=True
        )
        norms[part] = float(torch.cat([g.flatten() for g in gradients]).norm())
    return norms


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
    value = method._fixmatch([weak, strong], method._opinion([weak, strong], torch.arange(8)))
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


# Options, one by one


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


# What is drawn


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


# Selection and inference


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
