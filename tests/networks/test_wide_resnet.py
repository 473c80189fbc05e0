"""The wide residual network against a second forward pass written from its state dict."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from anedl.errors import ConfigError
from anedl.networks import WideResNet


def slow_forward(state: dict[str, Tensor], images: Tensor, blocks_a_group: int) -> Tensor:
    """WRN in evaluation mode, read off the paper's figure and the state dict, block by block."""

    def activated(x: Tensor, name: str) -> Tensor:
        shape = (1, -1, 1, 1)
        mean, var = state[f"{name}.running_mean"], state[f"{name}.running_var"]
        x = (x - mean.view(shape)) / torch.sqrt(var.view(shape) + 1e-5)
        x = x * state[f"{name}.weight"].view(shape) + state[f"{name}.bias"].view(shape)
        return torch.where(x > 0, x, 0.1 * x)

    x = F.conv2d(images, state["stem.weight"], padding=1)
    for number in range(3 * blocks_a_group):
        group, position = divmod(number, blocks_a_group)
        name = f"blocks.{number}"
        stride = 2 if position == 0 and group in (1, 2) else 1
        pre = activated(x, f"{name}.bn1")
        out = F.conv2d(pre, state[f"{name}.conv1.weight"], stride=stride, padding=1)
        out = F.conv2d(activated(out, f"{name}.bn2"), state[f"{name}.conv2.weight"], padding=1)
        shortcut = state.get(f"{name}.shortcut.weight")
        if shortcut is not None:
            assert position == 0
            x = F.conv2d(pre if group == 0 else x, shortcut, stride=stride)
        x = x + out
    return F.adaptive_avg_pool2d(activated(x, "bn"), 1).flatten(1)


def scramble_norms(model: torch.nn.Module) -> None:
    """Make every BatchNorm do something that a wrong wiring would change."""
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            module.running_mean.normal_(std=0.3)
            module.running_var.uniform_(0.5, 2.0)
            torch.nn.init.uniform_(module.weight, 0.5, 1.5)
            torch.nn.init.normal_(module.bias, std=0.3)


@pytest.mark.parametrize(("depth", "width"), [(10, 1), (10, 2), (16, 2)])
def test_wiring_matches_a_forward_pass_from_the_state_dict(depth: int, width: int) -> None:
    torch.manual_seed(0)
    model = WideResNet(depth, width).double().eval()
    scramble_norms(model)
    images = torch.randn(3, 3, 16, 16, dtype=torch.float64)
    expected = slow_forward(model.state_dict(), images, (depth - 4) // 6)
    assert expected.std() > 0.05
    torch.testing.assert_close(model(images), expected, rtol=1e-9, atol=1e-9)


def test_wrn_28_2_has_the_published_number_of_parameters() -> None:
    model = WideResNet(28, 2)
    assert sum(p.numel() for p in model.parameters()) == 1_466_320
    assert model.feature_width == 128


def test_convolutions_start_with_kaiming_fan_out_and_no_bias() -> None:
    torch.manual_seed(0)
    for module in WideResNet(10, 4).modules():
        if isinstance(module, torch.nn.Conv2d) and module.weight.numel() > 4000:
            assert module.bias is None
            fan_out = module.out_channels * module.kernel_size[0] * module.kernel_size[1]
            assert module.weight.std().item() == pytest.approx((2 / fan_out) ** 0.5, rel=0.05)


def test_running_statistics_move_by_the_momentum_asked_for() -> None:
    torch.manual_seed(0)
    model = WideResNet(10, 1, bn_momentum=0.25).train()
    images = torch.randn(8, 3, 8, 8)
    batch_mean = model.stem(images).mean(dim=(0, 2, 3))
    model(images)
    first = model.blocks[0].get_submodule("bn1")
    torch.testing.assert_close(first.get_buffer("running_mean"), 0.25 * batch_mean)


@pytest.mark.parametrize(("depth", "width"), [(12, 2), (4, 2), (28, 0)])
def test_impossible_shapes_are_refused(depth: int, width: int) -> None:
    with pytest.raises(ConfigError, match="depth must be"):
        WideResNet(depth, width)


@pytest.mark.parametrize("side", [48, 56])
def test_a_narrow_shortcut_of_large_images_is_the_same_function(side: int) -> None:
    """Beyond 48 pixels it takes another way, for torch's gradient there would end the process."""
    block = WideResNet(10, 1, 1, base_width=8).blocks[1]
    assert block.shortcut is not None
    images = torch.randn(2, 8, side, side).to(memory_format=torch.channels_last).requires_grad_()
    out = block._across(images, block.shortcut)
    towards = torch.randn_like(out)
    found = torch.autograd.grad(out, (images, block.shortcut.weight), towards)

    exact = [images.detach().double(), block.shortcut.weight.detach().double()]
    exact = [tensor.contiguous().requires_grad_() for tensor in exact]
    expected = F.conv2d(*exact, stride=2)
    torch.testing.assert_close(out.double(), expected, rtol=1e-4, atol=1e-5)
    wanted = torch.autograd.grad(expected, exact, towards.double())
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.double(), other, rtol=1e-4, atol=1e-4)
