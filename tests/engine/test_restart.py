"""A network that begins anew in the middle of its run."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from anedl.engine import train as training
from anedl.engine.config import TrainConfig
from anedl.engine.in_memory import train_in_memory
from anedl.engine.restart import restart
from anedl.errors import ConfigError
from anedl.methods.base import Stage

NAMES = {"pseudo_labels": "average", "selection_memory": 0.5, "selection_count": 24}


@pytest.fixture
def moved(tiny_spec, tiny_stepper):
    """A spec and its stepper after an epoch of self-training."""
    spec = tiny_spec(options=NAMES)
    stepper = tiny_stepper(spec)
    selected, _ = training.select(stepper, 0)
    stepper.begin_epoch(Stage.SELF_TRAIN, 1, 0, selected)
    stepper.take_many(3)
    return spec, stepper


def test_fresh_weights_in_the_same_places(moved, problem, tiny_stepper):
    spec, stepper = moved
    values, average = stepper.flat.values, stepper.flat_average.values
    places = [p.data_ptr() for p in stepper.method.parameters()]
    before = values.clone()
    memory = stepper.method.memory.probability.clone()
    prior = stepper.method.prior.clone()
    assert prior.std() > 0
    assert stepper.optimiser.state["momentum"].norm() > 0
    restart(stepper, spec, problem, 1)
    assert [p.data_ptr() for p in stepper.method.parameters()] == places
    assert torch.equal(values, average)
    assert stepper.optimiser.state["momentum"].norm() == 0
    # What names the pool stays: the memory, and q̂ that debiases it.
    assert torch.equal(stepper.method.memory.probability, memory)
    for module in (stepper.method, stepper.average):
        assert torch.equal(module.prior, prior)
    first = tiny_stepper(spec).flat.values
    assert not torch.equal(values, before)
    assert not torch.equal(values, first)  # nor is it the network that the run began with
    # Fresh in kind: as large as one that was never trained, parameter by parameter.
    for ours, theirs in zip(stepper.flat.views(values), stepper.flat.views(first), strict=True):
        spread = ours.std(correction=0).item(), theirs.std(correction=0).item()
        assert spread[0] == pytest.approx(spread[1], rel=0.3, abs=1e-3)
    for name, buffer in stepper.method.named_buffers():
        if "running_mean" in name:
            assert buffer.abs().max() == 0


def test_each_time_another_network(moved, problem):
    spec, stepper = moved
    found = []
    for times, seed in ((1, 0), (1, 0), (2, 0), (1, 1)):
        restart(stepper, replace(spec, seed=seed), problem, times)
        found.append(stepper.flat.values.clone())
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert not torch.equal(found[0], found[3])


def test_a_run_keeps_its_selection_until_the_new_network_has_learnt(
    tiny_spec, tiny_run, tmp_path, monkeypatch
):
    calls = []
    select, begin_anew = training.select, training.restart
    monkeypatch.setattr(
        training, "select", lambda s, step: calls.append(("select", step)) or select(s, step)
    )
    monkeypatch.setattr(
        training,
        "restart",
        lambda *a: calls.append(("restart", int(a[0].step), a[3])) or begin_anew(*a),
    )
    spec = tiny_spec(options=NAMES, epochs=7, restart_shares=(0.4, 0.7))
    assert spec.train.restarts == (3, 5)
    tiny_run(spec, tmp_path)
    assert calls == [
        ("select", 3), ("select", 6),
        ("restart", 9, 1), ("select", 12),
        ("restart", 15, 2), ("select", 18),
    ]  # fmt: skip


@pytest.mark.parametrize("method", ["anedl", "supervised"])
def test_what_has_nothing_to_go_by_is_refused(tiny_spec, method):
    with pytest.raises(ConfigError, match="pseudo_labels average"):
        tiny_spec(method, epochs=6, restart_shares=(0.5,))


@pytest.mark.parametrize("shares", [(0.2,), (0.5, 0.6), (0.9,), (0.8, 0.4)])
def test_every_network_needs_time(tiny_spec, shares):
    """More of it than pre-training takes, for so long it does not select."""
    with pytest.raises(ConfigError, match=r"\(2 epochs\)"):
        tiny_spec(options=NAMES, epochs=10, pretrain_epochs=2, restart_shares=shares)


def test_a_random_network_must_not_select(tiny_spec):
    with pytest.raises(ConfigError, match=r"\(0 epochs\)"):
        tiny_spec(options=NAMES, epochs=10, pretrain_epochs=0, restart_shares=(0.5,))


def test_without_a_folder_it_is_the_same(tiny_spec, tiny_run, problem, tmp_path):
    spec = tiny_spec(options=NAMES, epochs=5, restart_shares=(0.5,))
    tiny_run(spec, tmp_path)
    run = train_in_memory(spec, problem, "cpu")
    assert run.epoch == spec.train.epochs - 1
    for name, value in load_file(tmp_path / "model.safetensors").items():
        assert torch.equal(run.weights[name], value), name


@pytest.mark.parametrize("share", [0.0, 1.0, -0.5])
def test_shares_lie_inside_the_run(share):
    with pytest.raises(ConfigError, match="restart_shares"):
        TrainConfig(restart_shares=(share,))
