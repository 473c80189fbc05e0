"""A compiled loss has the gradient that an eager one has, whatever it does to its buffers."""

import shutil

import pytest
import torch
import torch._inductor.config
from torch import nn

from anedl.data.settings import get_setting
from anedl.engine.compiled_loss import CompiledLoss
from anedl.engine.execution import Compiled, Eager
from anedl.engine.precision import Precision
from anedl.engine.problem import load_problem
from anedl.engine.spec import make_spec
from anedl.engine.train import build_stepper
from anedl.errors import ConfigError
from anedl.methods.base import Losses, Progress, Stage

CPU = torch.device("cpu")
EPOCHS, EPOCH_STEPS = 4, 16
# Methods whose loss changes buffers, one of each kind; ANEDL is compared in test_execution.py.
WITH_STATE = ("prosub", "iomatch", "scomatch", "mtc", "edl")

pytestmark = [
    pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler"),
    pytest.mark.filterwarnings("ignore"),
]


class MovingScale(nn.Module):
    """Scales by a moving average, which each loss moves."""

    untouched = ()

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.scale = nn.Buffer(torch.tensor([1.0, 3.0]))
        self.losses = nn.Buffer(torch.zeros((), dtype=torch.int64))

    def loss(self, batch, progress):
        value = (batch * self.weight * self.scale.clone()).square().sum()
        with torch.no_grad():
            self.scale.lerp_(batch, 0.5)
            self.losses.add_(1)
        return Losses({"ce": value})


def test_what_a_loss_overwrites_is_the_old_one_in_its_gradient():
    module, images = MovingScale(), torch.tensor([5.0, 7.0])
    loss = CompiledLoss(module)
    for scale, count in (([1.0, 3.0], 1), ([3.0, 5.0], 2)):
        losses = loss(images, None)
        assert module.scale.tolist() == scale, "not before the gradient is there"
        (gradient,) = torch.autograd.grad(losses.total(), [module.weight])
        loss.settle()
        used = torch.tensor(scale)
        torch.testing.assert_close(gradient, 2 * module.weight.detach() * (images * used) ** 2)
        torch.testing.assert_close(module.scale, (used + images) / 2)
        assert module.losses == count


class GrowingList(nn.Module):
    """Appends to a buffer, which a captured step could not."""

    untouched = ()

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2))
        self.seen = nn.Buffer(torch.zeros(0, 2))

    def loss(self, batch, progress):
        self.seen = torch.cat([self.seen, batch[None]])
        return Losses({"ce": (batch * self.weight).sum()})


def test_a_buffer_that_grows_is_refused():
    loss = CompiledLoss(GrowingList())
    loss(torch.tensor([5.0, 7.0]), None)
    with pytest.raises(ConfigError, match="shape of its buffer 'seen'"):
        loss.settle()


def stepper_of(method, execution):
    lengths = {"epochs": EPOCHS, "epoch_steps": EPOCH_STEPS, "batch_size": 32}
    spec = make_spec("digits", method, train=lengths)
    problem = load_problem(get_setting("digits"), spec.fold)
    return build_stepper(spec, problem, Precision("fp32", CPU), execution)


@pytest.mark.long
@pytest.mark.parametrize("method", WITH_STATE)
@torch._inductor.config.patch(fallback_random=True)  # the draws of eager steps
def test_a_method_compiled_has_the_eager_gradient(method):
    torch._dynamo.reset()
    eager, compiled = stepper_of(method, Eager()), stepper_of(method, Compiled())
    eager.begin_epoch(Stage.PRETRAIN, 0, 0, None)
    eager.take_many(8)  # until averages and prototypes are of something
    eager.begin_epoch(Stage.SELF_TRAIN, 2, 0, torch.arange(200))
    differences = []
    for seed in range(5):
        copy_state(eager, compiled)
        batch = eager.draw_batch(eager.row, eager.step)
        progress = Progress(
            Stage.SELF_TRAIN, eager.time / EPOCH_STEPS, eager.time / EPOCH_STEPS / EPOCHS
        )
        for stepper in (eager, compiled):
            torch.manual_seed(seed)
            stepper._gradient_of(batch, progress)
        difference = torch.linalg.vector_norm(compiled.gradient - eager.gradient)
        differences.append(float(difference / torch.linalg.vector_norm(eager.gradient)))
        for (name, buffer), expected in zip(
            compiled.method.named_buffers(), eager.method.buffers(), strict=True
        ):
            torch.testing.assert_close(buffer, expected, rtol=1e-3, atol=1e-5, msg=name)
        eager.row.add_(1)
        eager.step.add_(1)
    # Where a rectifier or a choice stands on its edge, rounding may tip it: in a step or two.
    assert sorted(differences)[len(differences) // 2] < 1e-3, differences


@torch.no_grad()
def copy_state(source, into):
    """Both then stand at the same point, so that rounding cannot add up."""
    into.flat.values.copy_(source.flat.values)
    for buffer, other in zip(into.method.buffers(), source.method.buffers(), strict=True):
        buffer.copy_(other)
