"""ResNet-18: its published size, and its wiring against a second forward pass."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from anedl.networks import ResNet18


def slow_forward(state: dict[str, Tensor], images: Tensor, small_stem: bool) -> Tensor:
    """ResNet-18 in evaluation mode, from its state dict."""

    def normed(x: Tensor, name: str) -> Tensor:
        parts = ("running_mean", "running_var", "weight", "bias")
        mean, var, weight, bias = (state[f"{name}.{part}"].view(1, -1, 1, 1) for part in parts)
        return (x - mean) / torch.sqrt(var + 1e-5) * weight + bias

    stride, padding = (1, 1) if small_stem else (2, 3)
    x = F.conv2d(images, state["stem.weight"], stride=stride, padding=padding)
    x = normed(x, "bn").clamp(min=0)
    if not small_stem:
        x = F.max_pool2d(x, 3, 2, 1)
    for number in range(8):
        name = f"blocks.{number}"
        stride = 2 if number in (2, 4, 6) else 1
        out = F.conv2d(x, state[f"{name}.conv1.weight"], stride=stride, padding=1)
        out = normed(out, f"{name}.bn1").clamp(min=0)
        out = normed(F.conv2d(out, state[f"{name}.conv2.weight"], padding=1), f"{name}.bn2")
        if stride == 2:
            x = normed(
                F.conv2d(x, state[f"{name}.shortcut.0.weight"], stride=2), f"{name}.shortcut.1"
            )
        x = (x + out).clamp(min=0)
    return F.adaptive_avg_pool2d(x, 1).flatten(1)


@pytest.mark.parametrize(("small_stem", "size"), [(False, 64), (True, 16)])
def test_wiring_matches_a_forward_pass_from_the_state_dict(small_stem: bool, size: int) -> None:
    torch.manual_seed(0)
    model = ResNet18(small_stem=small_stem).double().eval()
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.get_buffer("running_mean").normal_(std=0.1)
            module.get_buffer("running_var").uniform_(0.8, 1.2)
            torch.nn.init.uniform_(module.weight, 0.8, 1.2)
            torch.nn.init.normal_(module.bias, std=0.1)
    images = torch.randn(2, 3, size, size, dtype=torch.float64)
    with torch.no_grad():
        expected = slow_forward(model.state_dict(), images, small_stem)
        assert expected.std() > 0.05
        torch.testing.assert_close(model(images), expected, rtol=1e-9, atol=1e-9)


def test_the_trunk_with_the_large_stem_has_the_published_number_of_parameters() -> None:
    assert sum(p.numel() for p in ResNet18().parameters()) == 11_176_512


def test_the_small_stem_differs_in_the_stem_only() -> None:
    stems = 64 * 3 * (7 * 7 - 3 * 3)
    assert sum(p.numel() for p in ResNet18(small_stem=True).parameters()) == 11_176_512 - stems
