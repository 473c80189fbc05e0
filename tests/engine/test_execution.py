"""The ways to execute a step agree; captured graphs need a GPU and are compared by a script."""

import shutil
import sys
from types import ModuleType

import pytest
import torch
from torch._dynamo.utils import counters

from anedl.data.settings import get_setting
from anedl.engine.execution import Captured, Compiled, Eager, choose_execution
from anedl.engine.precision import Precision
from anedl.engine.problem import load_problem
from anedl.engine.spec import make_spec
from anedl.engine.train import build_stepper, select
from anedl.errors import ConfigError
from anedl.methods.base import Stage

CPU = torch.device("cpu")
needs_compiler = pytest.mark.skipif(
    shutil.which("g++") is None, reason="torch.compile needs a C++ compiler"
)


def weights_after(execution, method, stage, steps=3, **options):
    tiny = {"epochs": 4, "epoch_steps": 4, "pretrain_epochs": 2, "batch_size": 8}
    spec = make_spec("digits", method, train=tiny, options=options)
    problem = load_problem(get_setting("digits"), spec.fold)
    stepper = build_stepper(spec, problem, Precision("fp32", CPU), execution)
    selected = None
    if stage is Stage.SELF_TRAIN:
        select(stepper, 0)  # what a method remembers of it is to be in the step
        selected = torch.arange(40)
    stepper.begin_epoch(stage, 2, 0, selected)
    interval = stepper.take_many(steps)
    return stepper.flat.values.clone(), stepper.flat_average.values.clone(), interval


def assert_agree(method, stage, **options):
    eager_values, eager_average, eager = weights_after(Eager(), method, stage, **options)
    values, average, compiled = weights_after(Compiled(), method, stage, **options)
    torch.testing.assert_close(values, eager_values, rtol=1e-3, atol=2e-5)
    torch.testing.assert_close(average, eager_average, rtol=1e-3, atol=2e-5)
    assert compiled.means.keys() == eager.means.keys()
    for name, value in eager.means.items():
        assert compiled.means[name] == pytest.approx(value, rel=1e-3, abs=1e-5), name


@needs_compiler
@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_supervised_compiled_agrees_with_eager():
    assert_agree("supervised", Stage.PRETRAIN)


@needs_compiler
@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_anedl_compiled_agrees_with_eager_in_the_second_stage():
    assert_agree("anedl", Stage.SELF_TRAIN)


@needs_compiler
@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_remembered_names_compiled_agree_with_eager():
    assert_agree(
        "anedl-plus", Stage.SELF_TRAIN, pseudo_labels="average", selection_memory=0.5,
        pseudo_label_temperature=0.5,
    )  # fmt: skip


@needs_compiler
@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("stage", Stage)
def test_turned_images_compiled_agree_with_eager(stage):
    assert_agree("anedl-released", stage, forward_passes="one", rotation_weight=0.5)


@needs_compiler
@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
def test_a_second_start_traces_no_gradient_again():
    """All three parts of a step come from the cache, and are the same."""
    first, _, _ = weights_after(Compiled(), "anedl", Stage.SELF_TRAIN)
    torch._dynamo.reset()
    counters.clear()
    again, _, _ = weights_after(Compiled(), "anedl", Stage.SELF_TRAIN)
    assert counters["aot_autograd"]["autograd_cache_bypass"] == 0
    assert counters["aot_autograd"]["autograd_cache_hit"] == 3
    assert torch.equal(first, again)


def test_auto_is_eager_on_a_cpu():
    assert isinstance(choose_execution("auto", CPU, print), Eager)


def test_compiled_can_be_asked_for_on_a_cpu():
    execution = choose_execution("compiled", CPU, print)
    assert isinstance(execution, Compiled)
    assert not isinstance(execution, Captured)


def test_captured_is_refused_without_a_gpu():
    with pytest.raises(ConfigError, match="needs a GPU"):
        choose_execution("captured", CPU, print)


def test_what_is_streamed_from_disk_is_compiled_but_not_captured(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", ModuleType("triton"))
    gpu = torch.device("cuda")
    said = []
    assert isinstance(choose_execution("auto", gpu, said.append), Captured)
    assert said == []
    for wanted in ("auto", "captured"):
        execution = choose_execution(wanted, gpu, said.append, capturable=False)
        assert type(execution) is Compiled
    assert said == ["images are streamed from disk: steps are compiled but not captured"] * 2
