"""Small ANEDLs, batches of noise, and the equations once more, for the tests of ANEDL.

`Reference` computes in float64 with torch's own polygamma, determinants and Dirichlet distributions
from concentrations that it obtains by a forward pass of its own.
"""

import pytest
import torch
import torch.nn.functional as F
from torch.distributions import Dirichlet, kl_divergence

from anedl.methods.anedl import Anedl
from anedl.methods.anedl_config import AnedlConfig
from anedl.methods.base import (
    Batch,
    Labelled,
    Progress,
    Stage,
    Task,
    Unlabelled,
)
from anedl.networks.encoder import ImageEncoder

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
