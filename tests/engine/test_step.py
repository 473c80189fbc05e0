"""One training step, against a loop written out in plain torch."""

import copy
import math

import pytest
import torch

from anedl.engine.train import select
from anedl.methods.base import Losses, Progress, Stage
from anedl.methods.catalogue import METHODS
from anedl.methods.supervised import Supervised

EACH_METHOD = pytest.mark.parametrize("method", METHODS)


def state_of(stepper) -> dict[str, torch.Tensor]:
    """Everything a step may change, but for the counters."""
    found = {f"model.{k}": v for k, v in stepper.method.state_dict().items()}
    found |= {f"average.{k}": v for k, v in stepper.average.state_dict().items()}
    found |= stepper.optimiser.state | stepper.precision.state
    return {key: value.detach().clone() for key, value in found.items()}


def add_term(stepper, name, value_at):
    """Let the method's loss have one more term, `value_at(step)`, with a gradient of zero."""
    original = stepper.compute_loss

    def loss(batch, progress):
        found = original(batch, progress)
        step = round(float(progress.epoch) * stepper.config.epoch_steps)
        silent = 0 * next(stepper.method.parameters()).sum()
        return Losses({**found.terms, name: silent + value_at(step)}, found.monitors)

    stepper.compute_loss = loss


def start(stepper, stage=Stage.PRETRAIN, epoch=0, row=0):
    selected = None
    if stage is Stage.SELF_TRAIN:
        selected, _ = select(stepper, epoch * stepper.config.epoch_steps)
    stepper.begin_epoch(stage, epoch, row, selected)


@pytest.mark.parametrize(
    "engine",
    [
        {"nesterov": True, "weight_decay": 5e-3},
        {"nesterov": False, "clip_norm": 0.5},
        {"optimiser": "adam", "learning_rate": 1e-3},
    ],
    ids=str,
)
def test_steps_are_those_of_a_plain_loop(tiny_spec, tiny_stepper, engine):
    """Own forward, torch.optim with two groups, an EMA by hand, rates by hand."""
    spec = tiny_spec(**{"learning_rate": 0.02, "schedule": "cosine", **engine})
    config = spec.train
    stepper = tiny_stepper(spec)
    model = copy.deepcopy(stepper.method)
    average = {name: p.detach().clone() for name, p in model.named_parameters()}
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": config.weight_decay},
        {"params": vectors, "weight_decay": 0.0},
    ]
    if config.optimiser == "sgd":
        optimiser = torch.optim.SGD(
            groups, lr=1.0, momentum=config.momentum, nesterov=config.nesterov
        )
    else:
        optimiser = torch.optim.Adam(groups, lr=1.0, betas=(config.momentum, config.beta_2))

    step = 0
    for epoch, stage in ((0, Stage.PRETRAIN), (1, Stage.SELF_TRAIN)):
        start(stepper, stage, epoch)
        for row in range(config.epoch_steps):
            batch = stepper.stream.batch(torch.tensor(row), torch.tensor(step))
            progress = Progress(
                stage, torch.tensor(step / config.epoch_steps), torch.tensor(step / config.steps)
            )
            optimiser.zero_grad()
            sum(model.loss(batch, progress).terms.values()).backward()
            if config.clip_norm:
                torch.nn.utils.clip_grad_norm_(model.parameters(), config.clip_norm)
            rate = config.learning_rate * (1 + math.cos(math.pi * step / config.steps)) / 2
            for group in optimiser.param_groups:
                group["lr"] = rate
            optimiser.step()
            for name, parameter in model.named_parameters():
                average[name] = 0.6 * average[name] + 0.4 * parameter.detach()

            stepper.take()
            step += 1
            assert stepper.rate.item() == pytest.approx(rate, rel=1e-5)

    tolerance = {"rtol": 1e-3, "atol": 2e-5}
    ours = dict(stepper.method.named_parameters())
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(ours[name], parameter, **tolerance, msg=name)
    for name, parameter in stepper.average.named_parameters():
        torch.testing.assert_close(parameter.detach(), average[name], **tolerance, msg=name)
    buffers = dict(model.named_buffers())
    for name, buffer in stepper.average.named_buffers():
        if buffer.is_floating_point():
            torch.testing.assert_close(buffer, buffers[name], **tolerance, msg=name)
    assert (stepper.step.item(), stepper.row.item()) == (6, 3)


def test_multiplicative_decay_comes_after_each_step_of_self_training_alone(tiny_spec, tiny_stepper):
    """Two steppers of one start, one with the decay: alike in pre-training, then a factor apart."""
    engine = {"learning_rate": 0.01, "schedule": "constant"}
    plain = tiny_stepper(tiny_spec(**engine))
    shrunk = tiny_stepper(tiny_spec(**engine, multiplicative_decay=5.0))
    for stepper in (plain, shrunk):
        start(stepper)
        stepper.take_many(3)
    assert torch.equal(plain.flat.values, shrunk.flat.values)
    for stepper in (plain, shrunk):
        start(stepper, Stage.SELF_TRAIN, 1)
        torch.manual_seed(0)
        stepper.take_many(1)
    torch.testing.assert_close(shrunk.flat.values, plain.flat.values * (1 - 5.0 * 0.01))


@EACH_METHOD
def test_every_parameter_learns(tiny_spec, tiny_stepper, method):
    """Without decay, which would move them as well: the trunk in both stages, all in the end."""
    stepper = tiny_stepper(tiny_spec(method, weight_decay=0.0, optimiser="sgd"))
    first = {name: p.detach().clone() for name, p in stepper.method.named_parameters()}
    start(stepper)
    stepper.take_many(3)
    second = {name: p.detach().clone() for name, p in stepper.method.named_parameters()}
    start(stepper, Stage.SELF_TRAIN, 1)
    stepper.take_many(3)
    third = dict(stepper.method.named_parameters())
    for name in first:
        assert not torch.equal(first[name], third[name]), f"{name} never moved"
        if name.startswith("backbone."):
            assert not torch.equal(first[name], second[name]), f"{name} idle in the first stage"
            assert not torch.equal(second[name], third[name]), f"{name} idle in the second stage"
    for name, parameter in stepper.average.named_parameters():
        assert not torch.equal(first[name], parameter), f"the average of {name} never moved"


def test_what_is_not_trained_reaches_the_average_as_it_is(tiny_spec, tiny_stepper, monkeypatch):
    """Counters and frozen teachers: selection and judgement see the averaged model alone."""
    build, loss = Supervised.__init__, Supervised.loss

    def build_with_memory(self, *given):
        build(self, *given)
        self.seen = torch.nn.Buffer(torch.zeros((), dtype=torch.int64))
        self.teacher = torch.nn.Linear(3, 2).requires_grad_(False)

    def loss_with_memory(self, batch, progress):
        self.seen.add_(1)
        with torch.no_grad():
            self.teacher.weight.add_(1.0)
        return loss(self, batch, progress)

    monkeypatch.setattr(Supervised, "__init__", build_with_memory)
    monkeypatch.setattr(Supervised, "loss", loss_with_memory)
    stepper = tiny_stepper(tiny_spec("supervised"))
    teacher = stepper.method.teacher.weight.clone()
    start(stepper)
    stepper.take_many(3)
    assert stepper.average.seen == stepper.method.seen == 3
    torch.testing.assert_close(stepper.average.teacher.weight, teacher + 3)
    assert torch.equal(stepper.average.teacher.weight, stepper.method.teacher.weight)


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_term_that_is_not_finite_changes_no_weight_and_is_named(tiny_spec, tiny_stepper, poison):
    stepper = tiny_stepper(tiny_spec())
    add_term(stepper, "rogue", lambda step: poison if step == 2 else 0.5)
    start(stepper)
    assert stepper.take_many(2).not_finite == []
    before = state_of(stepper)
    found = stepper.take_many(1)
    assert "rogue" in found.not_finite
    after = state_of(stepper)
    parameters = {f"model.{name}" for name, _ in stepper.method.named_parameters()}
    parameters |= {f"average.{name}" for name, _ in stepper.average.named_parameters()}
    for key in [*parameters, *stepper.optimiser.state]:
        assert torch.equal(before[key], after[key]), key
    assert "ce" not in found.not_finite
    assert stepper.step.item() == 3


def test_a_bad_step_is_noticed_at_the_end_of_its_interval(tiny_spec, tiny_stepper):
    stepper = tiny_stepper(tiny_spec())
    add_term(stepper, "rogue", lambda step: math.nan if step == 0 else 0.5)
    start(stepper)
    assert "rogue" in stepper.take_many(3).not_finite
    start(stepper, Stage.PRETRAIN, 1)
    assert stepper.take_many(2).not_finite == [], "told once, not for ever"


def test_a_gradient_that_is_not_finite_is_named_too(tiny_spec, tiny_stepper):
    stepper = tiny_stepper(tiny_spec())
    original = stepper.compute_loss

    def loss(batch, progress):
        found = original(batch, progress)
        weight = stepper.method.classifier.weight
        # √0 is finite, its slope is not.
        return Losses({**found.terms, "root": (weight - weight.detach()).abs().sum().sqrt()}, {})

    stepper.compute_loss = loss
    before = stepper.flat.values.clone()
    start(stepper)
    found = stepper.take_many(1)
    assert found.not_finite == ["gradient_norm"]
    assert torch.equal(stepper.flat.values, before)
    assert math.isfinite(found.means["gradient_norm"])


def test_fp16_skips_an_overflow_with_a_smaller_scale(tiny_spec, tiny_stepper):
    """The first scale, 2^16, is made far too large: steps are skipped until it fits."""
    stepper = tiny_stepper(tiny_spec("supervised"), precision="fp16")
    stepper.precision.state["loss_scale"].fill_(2.0**126)
    before = stepper.flat.values.clone()
    average = stepper.flat_average.values.clone()
    start(stepper)
    found = stepper.take_many(1)
    assert found.not_finite == []
    assert math.isfinite(found.means["gradient_norm"])
    assert torch.equal(stepper.flat.values, before)
    assert torch.equal(stepper.flat_average.values, average)
    assert stepper.precision.state["loss_scale"] == 2.0**125
    stepper.precision.state["loss_scale"].fill_(2.0**6)
    stepper.take_many(1)
    assert not torch.equal(stepper.flat.values, before)


@EACH_METHOD
def test_bf16_trains_like_fp32_only_coarser(tiny_spec, tiny_stepper, method):
    losses = {}
    for precision in ("fp32", "bf16"):
        stepper = tiny_stepper(tiny_spec(method), precision)
        before = stepper.flat.values.clone()
        start(stepper)
        losses[precision] = stepper.take_many(2).loss
        start(stepper, Stage.SELF_TRAIN, 1)
        assert stepper.take_many(2).not_finite == []
        assert stepper.flat.values.dtype == torch.float32
        assert not torch.equal(stepper.flat.values, before)
    assert losses["bf16"] == pytest.approx(losses["fp32"], rel=0.1)
    assert losses["bf16"] != losses["fp32"]


@pytest.mark.parametrize("parts", [2, 3])
@pytest.mark.parametrize("stage", list(Stage))
def test_accumulated_gradients_are_those_of_the_whole_batch(tiny_spec, tiny_stepper, stage, parts):
    """With BatchNorm on its running statistics, rows do not mix and the two must agree."""
    gradients, means = [], []
    for accumulate in (1, parts):
        stepper = tiny_stepper(tiny_spec(accumulate=accumulate, options={"debias": False}))
        start(stepper, stage)
        stepper.method.eval()
        batch = stepper.stream.batch(torch.tensor(0), torch.tensor(0))
        found = stepper._backward(batch, Progress(stage, torch.tensor(0.0), torch.tensor(0.0)))
        gradients.append(stepper.gradient.clone())
        means.append({k: float(v.detach()) for k, v in (found.terms | found.monitors).items()})
    assert gradients[0].norm() > 1e-3
    torch.testing.assert_close(
        gradients[1], gradients[0], rtol=1e-3, atol=1e-5 * float(gradients[0].abs().max())
    )
    assert means[1] == pytest.approx(means[0], rel=1e-4)


@EACH_METHOD
def test_accumulation_trains_every_method(tiny_spec, tiny_stepper, method):
    stepper = tiny_stepper(tiny_spec(method, accumulate=2))
    before = stepper.flat.values.clone()
    for epoch, stage in enumerate(Stage):
        start(stepper, stage, epoch)
        assert stepper.take_many(2).not_finite == []
    assert not torch.equal(stepper.flat.values, before)


def test_an_interval_tells_means_over_its_steps(tiny_spec, tiny_stepper):
    whole, single = tiny_stepper(tiny_spec()), tiny_stepper(tiny_spec())
    start(whole)
    start(single)
    together = whole.take_many(3)
    steps = [single.take_many(1) for _ in range(3)]
    assert set(together.means) == {
        "ce", "p_error", "p_variance", "p_logdet", "p_kl", "n_error", "n_logdet", "n_kl",
        "consistency", "gradient_norm", "evidence_labelled", "evidence_pool",
    }  # fmt: skip
    for name, value in together.means.items():
        expected = sum(step.means[name] for step in steps) / 3
        assert value == pytest.approx(expected, rel=1e-5), name
    assert together.loss == pytest.approx(sum(step.loss for step in steps) / 3, rel=1e-5)
    assert together.learning_rate == steps[-1].learning_rate
    assert together.seconds > 0
    start(whole, Stage.SELF_TRAIN, 1)
    assert "fixmatch" in whole.take_many(1).means, "the second stage has terms of its own"


def test_a_step_is_a_pure_function_of_state_and_counters(tiny_spec, tiny_stepper):
    first, second = tiny_stepper(tiny_spec()), tiny_stepper(tiny_spec())
    start(first)
    first.take_many(2)
    start(second)
    second.take_many(1)
    torch.rand(7)
    start(second, row=1)
    second.take_many(1)
    for key, value in state_of(first).items():
        assert torch.equal(value, state_of(second)[key]), key
