"""Arithmetic by name, and the loss scale of fp16."""

import pytest
import torch

from anedl.engine import precision
from anedl.engine.precision import (
    FIRST_LOSS_SCALE,
    GROWTH_INTERVAL,
    Precision,
    choose_precision,
    computes_bf16,
    precision_of,
)
from anedl.engine.spec import make_spec
from anedl.errors import ConfigError

CPU = torch.device("cpu")
YES, NO = torch.tensor(True), torch.tensor(False)


@pytest.mark.parametrize(
    ("itself", "side", "chosen"),
    [(False, 224, "fp32"), (True, 224, "bf16"), (True, 24, "bf16"), (True, 16, "fp32")],
)
def test_a_cpu_takes_bf16_where_that_is_faster(monkeypatch, itself, side, chosen):
    monkeypatch.setattr(precision, "computes_bf16", lambda: itself)
    assert choose_precision("auto", CPU, side) == chosen


def test_what_was_asked_for_is_taken_but_for_fp16_on_a_cpu():
    assert choose_precision("bf16", CPU, 8) == "bf16"
    assert choose_precision("fp32", CPU, 224) == "fp32"
    with pytest.raises(ConfigError, match="fp16 needs a GPU"):
        choose_precision("fp16", CPU, 32)


@pytest.mark.parametrize(
    ("found", "itself"),
    [
        ({"avx2": True}, False),
        ({"avx512_f": True, "avx512_bf16": False, "amx_bf16": False}, False),
        ({"avx512_bf16": True}, True),
        ({"avx512_bf16": False, "amx_bf16": True}, True),
    ],
)
def test_processors_tell_whether_they_compute_bf16(monkeypatch, found, itself):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: found, raising=False)
    assert computes_bf16() is itself


def test_a_torch_that_does_not_tell_computes_in_fp32(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert computes_bf16() is False


@pytest.mark.parametrize(("setting", "chosen"), [("digits", "fp32"), ("cifar100-55/50", "bf16")])
def test_a_run_asks_for_the_side_of_its_images(monkeypatch, setting, chosen):
    monkeypatch.setattr(precision, "computes_bf16", lambda: True)
    found = precision_of(make_spec(setting, "anedl"), CPU)
    assert (found.name, found.judging_dtype) == (chosen, torch.float32)


def test_what_was_asked_for_judges_too():
    spec = make_spec("cifar100-55/50", "anedl", train={"precision": "bf16"})
    assert precision_of(spec, CPU).judging_dtype == torch.bfloat16


@pytest.mark.parametrize(("capability", "chosen"), [((7, 5), "fp16"), ((8, 0), "bf16")])
def test_a_gpu_computes_in_the_16_bits_it_is_fast_in(monkeypatch, capability, chosen):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert choose_precision("auto", torch.device("cuda"), 8) == chosen


@pytest.mark.parametrize(
    ("name", "dtype"), [("fp32", torch.float32), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_autocast_uses_that_type(name, dtype):
    with Precision(name, CPU).autocast():
        assert (torch.ones(2, 3) @ torch.ones(3, 2)).dtype == dtype
    with Precision("fp32", CPU, judging=name).judging():
        assert (torch.ones(2, 3) @ torch.ones(3, 2)).dtype == dtype


@pytest.mark.parametrize("name", ["fp32", "bf16"])
def test_without_fp16_there_is_no_scale_and_no_state(name):
    precision = Precision(name, CPU)
    gradient = torch.tensor([1.0, torch.inf])
    assert precision.scaled(torch.tensor(2.0)) == 2
    precision.unscale(gradient, NO)
    assert gradient.tolist() == [1.0, torch.inf]
    assert precision.state == {}
    assert not precision.may_overflow()


def test_scaling_and_unscaling_cancel():
    precision = Precision("fp16", CPU)
    weight = torch.tensor([0.5, -2.0], requires_grad=True)
    loss = precision.scaled((weight**2).sum())
    (gradient,) = torch.autograd.grad(loss, weight)
    assert gradient.tolist() == [FIRST_LOSS_SCALE, -4 * FIRST_LOSS_SCALE]
    precision.unscale(gradient, YES)
    assert gradient.tolist() == [1.0, -4.0]
    assert precision.state["loss_scale"] == FIRST_LOSS_SCALE


def test_the_scale_halves_on_overflow_and_doubles_after_a_long_good_time():
    precision = Precision("fp16", CPU)
    scale, good = precision.state["loss_scale"], precision.state["good_steps"]
    gradient = torch.ones(1)
    for _ in range(GROWTH_INTERVAL - 1):
        precision.unscale(gradient, YES)
    assert scale == FIRST_LOSS_SCALE
    precision.unscale(gradient, NO)  # one step short of growing: the count starts again
    assert scale == FIRST_LOSS_SCALE / 2
    assert good == 0
    for _ in range(GROWTH_INTERVAL):
        assert scale == FIRST_LOSS_SCALE / 2
        precision.unscale(gradient, YES)
    assert scale == FIRST_LOSS_SCALE
    assert good == 0


def test_overflow_is_excused_only_while_a_smaller_scale_can_help():
    """A gradient that is never finite must end a run, not idle through it."""
    precision = Precision("fp16", CPU)
    excused = 0
    while precision.may_overflow():
        excused += 1
        precision.unscale(torch.full((1,), torch.inf), NO)
        assert excused < 100
    assert excused == 17  # 2^16 down to 2^0
