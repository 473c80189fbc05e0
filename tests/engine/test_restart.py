"""Several networks that share a run, one after the other."""

from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file

from anedl.engine import train as training
from anedl.engine.config import TrainConfig, restart_epochs
from anedl.engine.in_memory import train_in_memory
from anedl.engine.inference import outputs_of
from anedl.engine.restart import restart
from anedl.engine.selection import pool_outputs, select
from anedl.errors import ConfigError
from anedl.methods.base import Stage

THREE = {"networks": 3, "selection_count": 24}


@pytest.fixture
def moved(tiny_spec, tiny_stepper):
    """A spec and its stepper after an epoch of self-training."""
    spec = tiny_spec(options=THREE, epochs=6)
    assert spec.restarts == (2, 4)
    stepper = tiny_stepper(spec)
    selected, _ = select(stepper, 0)
    stepper.begin_epoch(Stage.SELF_TRAIN, 1, 0, selected)
    stepper.take_many(3)
    return spec, stepper


def places_of(stepper):
    """Where everything lies that a captured step reads or writes."""
    modules = (stepper.method, stepper.average)
    return [t.data_ptr() for m in modules for t in (*m.parameters(), *m.buffers())]


def test_fresh_weights_in_the_same_places(moved, problem, tiny_stepper):
    spec, stepper = moved
    values, average = stepper.flat.values, stepper.flat_average.values
    places = places_of(stepper)
    before = values.clone()
    assert stepper.optimiser.state["momentum"].norm() > 0
    restart(stepper, spec, problem, 2)
    assert places_of(stepper) == places
    assert torch.equal(values, average)
    assert stepper.optimiser.state["momentum"].norm() == 0
    first = tiny_stepper(spec).flat.values
    assert not torch.equal(values, before)
    assert not torch.equal(values, first)  # nor is it the network that the run began with
    # Fresh in kind: as large as one that was never trained, parameter by parameter.
    for ours, theirs in zip(stepper.flat.views(values), stepper.flat.views(first), strict=True):
        spread = ours.std(correction=0).item(), theirs.std(correction=0).item()
        assert spread[0] == pytest.approx(spread[1], rel=0.3, abs=1e-3)
    for name, buffer in stepper.method.named_buffers():
        if "running_mean" in name and not name.startswith("elders."):
            assert buffer.abs().max() == 0


def test_the_averaged_network_becomes_an_elder(moved, problem):
    """What it said of the pool stays: as names, and as one of those who judge."""
    spec, stepper = moved
    averaged = {name: value.clone() for name, value in stepper.average.state_dict().items()}
    said = pool_outputs(stepper, 6)
    restart(stepper, spec, problem, 2)
    for module in (stepper.method, stepper.average):
        assert module.elders.count == 1
        torch.testing.assert_close(module.elders.said, said.logits)
        for name, value in module.elders.networks[0].state_dict().items():
            assert torch.equal(value, averaged[name]), name
    # One restart later there are three, and the mean of their logits is what all of them say.
    images = torch.as_tensor(problem.validation()[0])
    spoken = []
    for epoch in (4, None):
        alone = stepper.average.classifier(stepper.average.eval().backbone(images))
        spoken.append(alone.detach())
        if epoch:
            restart(stepper, spec, problem, epoch)
    elder = stepper.average.elders.networks[0]
    spoken.append(elder["classifier"](elder["backbone"](images)).detach())
    found = outputs_of(stepper.average, images, stepper.precision).logits
    torch.testing.assert_close(found, torch.stack(spoken).mean(0), atol=1e-5, rtol=1e-4)


def test_no_step_copies_the_elders(moved, problem):
    """The average has them since it was made, or since the last of them came."""
    spec, stepper = moved
    restart(stepper, spec, problem, 2)
    for network in stepper.method.elders.networks:
        for parameter in network.parameters():
            parameter.data.zero_()
    before = [t.clone() for t in stepper.average.elders.state_dict().values()]
    stepper.begin_epoch(Stage.SELF_TRAIN, 3, 0, None, spec.part_of(3))
    stepper.take_many(2)
    for kept, now in zip(before, stepper.average.elders.state_dict().values(), strict=True):
        assert torch.equal(kept, now)


def test_debiasing_stays_where_names_do(tiny_spec, tiny_stepper, problem):
    """A network that names for itself begins with no opinion of how often each class comes."""
    for teach in (True, False):
        spec = tiny_spec(options={**THREE, "networks_teach": teach}, epochs=6)
        stepper = tiny_stepper(spec)
        for module in (stepper.method, stepper.average):
            module.prior.copy_(torch.linspace(0.1, 0.2, len(module.prior)))
        restart(stepper, spec, problem, 2)
        assert (stepper.method.prior.std() > 1e-6) == teach


@pytest.mark.parametrize("teach", [True, False])
def test_only_the_taught_depend_on_the_first(tiny_spec, tiny_stepper, problem, teach):
    """Behind two different first networks, what the second selects and becomes."""
    spec = tiny_spec(options={**THREE, "networks_teach": teach}, epochs=6)
    found = []
    for scale in (1.0, 3.0):
        stepper = tiny_stepper(spec)
        for module in (stepper.method, stepper.average):
            for parameter in (*module.classifier.parameters(), *module.detector.parameters()):
                parameter.data.mul_(scale)
        restart(stepper, spec, problem, 2)
        judged = pool_outputs(stepper, 9).logits
        selected, _ = select(stepper, 9)
        stepper.begin_epoch(Stage.SELF_TRAIN, 3, 0, selected, spec.part_of(3))
        stepper.take_many(3)
        found.append((judged, selected, stepper.flat.values.clone()))
    judged, selected, values = zip(*found, strict=True)
    assert not torch.equal(*judged)  # the first has its say in what all judge
    assert torch.equal(*selected) == (not teach)
    assert torch.equal(*values) == (not teach)


def test_a_network_in_pre_training_is_not_the_best(
    tiny_spec, tiny_run, problem, tmp_path, monkeypatch
):
    """Even where it errs least; with the first network there is nothing else to take."""
    spec = tiny_spec(options={"networks": 2}, epochs=6, pretrain_epochs=2)
    errors = [0.5, 0.4, 0.3, 0.1, 0.2, 0.2]  # epochs 0 and 3 are pre-training
    judged = iter(errors)
    monkeypatch.setattr(training, "judge", lambda *_: {"error": next(judged)})
    results = tiny_run(spec, tmp_path)
    assert results["best_val"]["epoch"] == 4
    judged = iter(errors)
    monkeypatch.setattr("anedl.engine.in_memory._validation_error", lambda *_: next(judged))
    assert train_in_memory(spec, problem, "cpu").epoch == 5  # the later of two that are equal


def test_averages_look_back_over_a_part_of_one_network():
    alone, shared = (TrainConfig(epochs=12, epoch_steps=50).resolved("x", n) for n in (1, 3))
    assert alone.ema_decay == pytest.approx(1 - 1 / 30)
    assert shared.ema_decay == pytest.approx(1 - 1 / 10)


def test_each_time_another_network(moved, problem):
    spec, stepper = moved
    found = []
    for epoch, seed in ((2, 0), (2, 0), (4, 0), (2, 1)):
        for module in (stepper.method, stepper.average):
            module.elders.count.zero_()
        restart(stepper, replace(spec, seed=seed), problem, epoch)
        found.append(stepper.flat.values.clone())
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert not torch.equal(found[0], found[3])


def test_when_a_run_selects_and_begins_anew(tiny_spec, tiny_run, tmp_path, monkeypatch):
    calls = []
    begin_anew = training.restart
    monkeypatch.setattr(
        training, "select", lambda s, step: calls.append(("select", step)) or select(s, step)
    )
    monkeypatch.setattr(
        training, "restart", lambda *a: calls.append(("restart", a[3])) or begin_anew(*a)
    )
    tiny_run(tiny_spec(options=THREE, epochs=6), tmp_path)
    assert calls == [
        ("select", 3),
        ("restart", 2), ("select", 9),
        ("restart", 4), ("select", 15),
    ]  # fmt: skip


def test_each_goes_through_both_stages(tiny_spec):
    spec = tiny_spec(options={"networks": 2}, epochs=9, pretrain_epochs=3)
    assert spec.restarts == (5,)
    assert [int(spec.stage_of(epoch)) for epoch in range(9)] == [1, 1, 2, 2, 2, 1, 1, 2, 2]
    alone = tiny_spec(epochs=5, pretrain_epochs=3)
    assert [int(alone.stage_of(epoch)) for epoch in range(5)] == [1, 1, 1, 2, 2]


def test_time_passes_for_each_as_for_a_run(tiny_spec, tiny_stepper):
    """Rates and progress of two networks are those of a run of one, seen at every second step."""
    options = {"horizon": 0, "schedule": "cosine"}
    spec = tiny_spec(options={"networks": 2}, epochs=8, pretrain_epochs=2, **options)
    assert [spec.part_of(epoch) for epoch in (0, 3, 4, 7)] == [range(4)] * 2 + [range(4, 8)] * 2

    def rates(spec, epochs):
        stepper = tiny_stepper(spec)
        found = []
        for epoch in epochs:
            stepper.begin_epoch(spec.stage_of(epoch), epoch, 0, None, spec.part_of(epoch))
            found += [
                (stepper.time.item(), stepper.take_many(1).learning_rate)
                for _ in range(spec.train.epoch_steps)
            ]
        return found

    first, second = rates(spec, range(4)), rates(spec, range(4, 8))
    assert first == second
    assert [time for time, _ in first] == [2.0 * step for step in range(12)]
    alone = rates(tiny_spec(epochs=8, pretrain_epochs=2, **options), range(8))
    assert first == alone[::2]
    assert [time for time, _ in alone] == list(range(24))


def test_each_has_an_equal_part():
    assert restart_epochs(1, 200) == ()
    assert restart_epochs(4, 200) == (50, 100, 150)
    assert restart_epochs(3, 50) == (17, 33)


@pytest.mark.parametrize(
    ("networks", "epochs", "pretrain_epochs"), [(4, 3, 0), (2, 6, 5), (5, 6, 2)]
)
def test_every_network_needs_time(tiny_spec, networks, epochs, pretrain_epochs):
    with pytest.raises(ConfigError, match="take fewer networks"):
        tiny_spec(options={"networks": networks}, epochs=epochs, pretrain_epochs=pretrain_epochs)


def test_statistics_of_those_that_are_done_stay(tiny_spec):
    with pytest.raises(ConfigError, match="fresh_statistics"):
        tiny_spec(options=THREE, epochs=6, fresh_statistics=2)


def test_without_a_folder_it_is_the_same(tiny_spec, tiny_run, problem, tmp_path):
    spec = tiny_spec(options=THREE, epochs=6, evaluate_every=6)
    tiny_run(spec, tmp_path)
    run = train_in_memory(spec, problem, "cpu")
    assert run.epoch == spec.train.epochs - 1
    for name, value in load_file(tmp_path / "model.safetensors").items():
        assert torch.equal(run.weights[name], value), name
