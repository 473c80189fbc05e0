"""Which GPU a process works on while it trains. There is none here: torch is made to believe so."""

from contextlib import contextmanager, nullcontext

import pytest
import torch

from anedl.engine import in_memory
from anedl.engine import train as training
from anedl.engine.model import choose_device, working_on
from anedl.engine.precision import Precision
from anedl.errors import ConfigError
from anedl.fit import probe


class ReachedError(Exception):
    """A stepper was about to be built."""


@pytest.fixture
def current(monkeypatch):
    """The GPUs that this process works on, the innermost last; empty: the one it began with."""
    stack = []

    @contextmanager
    def device(one):
        stack.append(one)
        try:
            yield
        finally:
            stack.pop()

    def touched(*_):
        raise AssertionError("the caller's process works on another GPU from now on")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "set_device", touched)
    monkeypatch.setattr(torch.cuda, "device", device)
    return stack


def test_naming_a_gpu_does_not_touch_it(current):
    assert choose_device("cuda:2") == torch.device("cuda:2")
    assert choose_device("cuda").index is None
    with pytest.raises(ConfigError, match=r"cuda:4 was asked for, .* is cuda:3"):
        choose_device("cuda:4")
    assert current == []


@pytest.mark.parametrize(("name", "expected"), [("cuda:2", [2]), ("cuda", []), ("cpu", [])])
def test_a_numbered_gpu_is_worked_on_for_a_while(current, name, expected):
    with working_on(torch.device(name)):
        assert [device.index for device in current] == expected
    assert current == []


@pytest.fixture
def built_on(current, monkeypatch):
    """The GPUs that were current when a stepper was to be built; none is."""
    found = []

    def build_stepper(*_):
        found.append(list(current))
        raise ReachedError

    for module in (training, in_memory, probe):
        monkeypatch.setattr(module, "build_stepper", build_stepper)
    monkeypatch.setattr(torch.random, "fork_rng", lambda devices: nullcontext())
    return found


def in_a_folder(spec, problem, folder):
    training.train(spec, folder, training.Surroundings(device="cuda:2", quiet=True), problem)


def without_one(spec, problem, _folder):
    in_memory.train_in_memory(spec, problem, "cuda:2")


def to_time_them(spec, problem, _folder):
    probe.measure_speed(spec, problem, Precision("fp32", torch.device("cuda:2")))


@pytest.mark.parametrize("take_steps", [in_a_folder, without_one, to_time_them])
def test_steps_go_to_the_gpu_that_was_asked_for(
    tiny_spec, problem, tmp_path, current, built_on, take_steps
):
    spec = tiny_spec(precision="fp32", execution="eager")
    with pytest.raises(ReachedError):
        take_steps(spec, problem, tmp_path / "run")
    assert built_on == [[torch.device("cuda:2")]]
    assert current == [], "and what its caller does next goes where it went before"
