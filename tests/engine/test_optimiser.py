"""SGD and Adam on a vector, against torch.optim on its parts."""

import pytest
import torch

from anedl.engine.config import TrainConfig
from anedl.engine.optimiser import Optimiser, clip_norm

SIZE, DECAYED, STEPS = 40, 25, 60
RATE = torch.tensor(0.05)
YES, NO = torch.tensor(True), torch.tensor(False)


def gradients_of(step: int, values: torch.Tensor) -> torch.Tensor:
    """A gradient that depends on the weights, so that errors would grow."""
    generator = torch.Generator().manual_seed(step)
    return values.sin() + torch.randn(SIZE, generator=generator)


def start() -> torch.Tensor:
    return torch.randn(SIZE, generator=torch.Generator().manual_seed(1000))


def reference(config: TrainConfig) -> torch.Tensor:
    """Train with torch.optim: one parameter under decay, one without, the rate set each step."""
    values = start()
    parts = [values[:DECAYED].clone().requires_grad_(), values[DECAYED:].clone().requires_grad_()]
    groups = [
        {"params": [parts[0]], "weight_decay": config.weight_decay},
        {"params": [parts[1]], "weight_decay": 0.0},
    ]
    if config.optimiser == "sgd":
        optimiser = torch.optim.SGD(
            groups, lr=1.0, momentum=config.momentum, nesterov=config.nesterov
        )
    else:
        optimiser = torch.optim.Adam(groups, lr=1.0, betas=(config.momentum, config.beta_2))
    for step in range(STEPS):
        gradient = gradients_of(step, torch.cat([part.detach() for part in parts]))
        parts[0].grad, parts[1].grad = gradient[:DECAYED].clone(), gradient[DECAYED:].clone()
        for group in optimiser.param_groups:
            group["lr"] = float(RATE) / (1 + step)
        optimiser.step()
    return torch.cat([part.detach() for part in parts])


@pytest.mark.parametrize(
    "options",
    [
        {"nesterov": True},
        {"nesterov": False},
        {"nesterov": True, "weight_decay": 0.0},
        {"nesterov": False, "momentum": 0.0},
        {"optimiser": "adam"},
        {"optimiser": "adam", "momentum": 0.5, "beta_2": 0.9, "weight_decay": 0.0},
    ],
    ids=str,
)
def test_many_steps_agree_with_torch(options):
    config = TrainConfig(**{"weight_decay": 0.02, **options})
    values = start()
    optimiser = Optimiser(config, values, DECAYED)
    for step in range(STEPS):
        optimiser.update(gradients_of(step, values), RATE / (1 + step), YES)
    assert not torch.allclose(values, start(), atol=1e-2)
    torch.testing.assert_close(values, reference(config), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["sgd", "adam"])
@pytest.mark.parametrize("poison", [torch.nan, torch.inf, 1.0])
def test_a_step_that_is_not_allowed_changes_nothing(kind, poison):
    config = TrainConfig(optimiser=kind, weight_decay=0.02)
    values = start()
    optimiser = Optimiser(config, values, DECAYED)
    for step in range(3):
        optimiser.update(gradients_of(step, values), RATE, YES)
    before = {key: value.clone() for key, value in optimiser.state.items()}
    weights = values.clone()
    optimiser.update(torch.full_like(values, poison), RATE, NO)
    assert torch.equal(values, weights)
    assert all(torch.equal(optimiser.state[key], before[key]) for key in before)
    # And the next good step is the one that would have come anyway.
    optimiser.update(gradients_of(3, values), RATE, YES)
    straight_values = start()
    straight = Optimiser(config, straight_values, DECAYED)
    for step in range(4):
        straight.update(gradients_of(step, straight_values), RATE, YES)
    assert torch.equal(values, straight_values)


def test_only_the_first_entries_decay():
    config = TrainConfig(weight_decay=0.1, momentum=0.0)
    values = torch.ones(SIZE)
    Optimiser(config, values, DECAYED).update(torch.zeros(SIZE), torch.tensor(0.5), YES)
    assert torch.allclose(values[:DECAYED], torch.tensor(0.95))
    assert (values[DECAYED:] == 1).all()


def test_the_state_is_all_there_is_to_save():
    """Another optimiser with the same state and weights goes on to the same bits."""
    for kind in ("sgd", "adam"):
        config = TrainConfig(optimiser=kind)
        values = start()
        first = Optimiser(config, values, DECAYED)
        for step in range(5):
            first.update(gradients_of(step, values), RATE, YES)
        other_values = values.clone()
        second = Optimiser(config, other_values, DECAYED)
        for key, value in first.state.items():
            second.state[key].copy_(value)
        for step in range(5, 10):
            first.update(gradients_of(step, values), RATE, YES)
            second.update(gradients_of(step, other_values), RATE, YES)
        assert torch.equal(values, other_values)


@pytest.mark.parametrize("limit", [0.5, 3.0, 1e3])
def test_clipping_agrees_with_torch(limit):
    parameter = torch.zeros(SIZE, requires_grad=True)
    parameter.grad = gradients_of(0, start())
    gradient = parameter.grad.clone()
    expected = torch.nn.utils.clip_grad_norm_([parameter], limit)
    torch.testing.assert_close(clip_norm(gradient, limit), expected)
    torch.testing.assert_close(gradient, parameter.grad)
    assert gradient.norm() <= limit * (1 + 1e-5)


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_what_is_not_trained_is_not_decayed_either(name):
    config = TrainConfig(optimiser=name, weight_decay=0.1)
    values = torch.ones(4)
    optimiser = Optimiser(config, values, decayed=4)
    trained = torch.tensor([True, False, True, False])
    for _ in range(3):
        optimiser.update(torch.zeros(4), torch.tensor(0.1), torch.tensor(True), trained)
    assert (values[[1, 3]] == 1).all()
    assert (values[[0, 2]] < 1).all()
    assert (optimiser.state["momentum"][[1, 3]] == 0).all()


def test_adam_begins_anew_with_what_begins_late():
    """As torch.optim.Adam, whose count of steps is each parameter's own."""
    config = TrainConfig(optimiser="adam", weight_decay=0.0)
    values = start()
    optimiser = Optimiser(config, values, SIZE, [SIZE // 2, SIZE // 2])
    early, late = (torch.nn.Parameter(half.clone()) for half in start().chunk(2))
    expected = torch.optim.Adam([early, late], RATE.item(), (config.momentum, config.beta_2))
    trained = torch.arange(SIZE) < len(early)
    for step in range(60):
        idle = step < 40
        gradient = gradients_of(step, values)
        early.grad, late.grad = (half.clone() for half in gradient.chunk(2))
        late.grad = None if idle else late.grad
        expected.step()
        optimiser.update(gradient, RATE, YES, trained if idle else torch.full_like(trained, True))
        torch.testing.assert_close(values, torch.cat([early, late]).detach())
    assert not torch.allclose(late, start().chunk(2)[1], atol=1e-2)


def test_multiplicative_decay_shrinks_every_parameter():
    """MTC's 1 − 0.02·lr, the ones without weight decay included."""
    config = TrainConfig(optimiser="adam", weight_decay=0.0, multiplicative_decay=0.02)
    values = start()
    optimiser = Optimiser(config, values, DECAYED)
    optimiser.shrink(torch.tensor(0.002), NO)
    assert torch.equal(values, start())
    for _ in range(10):
        optimiser.shrink(torch.tensor(0.002), YES)
    torch.testing.assert_close(values, start() * (1 - 4e-5) ** 10, rtol=1e-6, atol=0)
