"""The network as one hand-written operation against autograd, and its GPU kernels against twins.

The schedule (which tensors go where, forward and backward) is tested on a CPU in float64 with the
plain launcher. The kernels themselves need a Hopper GPU and are held against that launcher there.
"""

import copy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from anedl.networks import WideResNet
from anedl.networks.kernels import can_fuse, enable_kernels, fused_features, nvrtc
from anedl.networks.kernels.parts import BlockWeights, Norm, unpack_kernels
from anedl.networks.kernels.plain_launcher import PlainLauncher

HOPPER = torch.cuda.is_available() and torch.cuda.get_device_capability() == (9, 0)
needs_hopper = pytest.mark.skipif(not HOPPER, reason="these kernels need a Hopper GPU")


def scrambled(depth: int) -> WideResNet:
    torch.manual_seed(depth)
    model = WideResNet(depth, 2, bn_momentum=0.3)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.3)
    return model.train()


def distance(a: Tensor, b: Tensor) -> float:
    a, b = a.detach().double().cpu(), b.detach().double().cpu()
    return float((a - b).norm() / b.norm())


def gradients(features: Tensor, model: nn.Module) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(features.shape, generator=generator).to(features)
    names, parameters = zip(*model.named_parameters(), strict=True)
    found = torch.autograd.grad((features * weight).sum(), parameters)
    return dict(zip(names, found, strict=True))


@pytest.mark.parametrize("depth", [10, 16])
def test_schedule_is_the_network(depth: int) -> None:
    model = scrambled(depth).double()
    twin = copy.deepcopy(model)
    images = torch.randn(3, 3, 16, 16, dtype=torch.float64)
    expected = model(images)
    features = fused_features(twin, images)
    torch.testing.assert_close(features, expected)
    wanted = gradients(expected, model)
    for name, found in gradients(features, twin).items():
        torch.testing.assert_close(found, wanted[name], msg=name)
    statistics = dict(model.named_buffers())
    for name, buffer in twin.named_buffers():
        if not name.endswith("num_batches_tracked"):
            torch.testing.assert_close(buffer, statistics[name], msg=name)


def test_schedule_survives_the_compiler() -> None:
    model = scrambled(10).double()
    twin = copy.deepcopy(model)
    images = torch.randn(2, 3, 8, 8, dtype=torch.float64)
    wanted = gradients(model(images), model)
    run = torch.compile(lambda x: fused_features(twin, x) * 1.0, backend="aot_eager")
    for name, found in gradients(run(images), twin).items():
        torch.testing.assert_close(found, wanted[name], msg=name)
    torch.testing.assert_close(twin.bn.running_var, model.bn.running_var)


def test_other_networks_keep_their_plain_forward_pass() -> None:
    images = torch.randn(2, 3, 32, 32)
    model = scrambled(10)
    assert not enable_kernels(model, torch.bfloat16, torch.device("cpu"))
    assert not can_fuse(model, images)
    model.own_kernels = True  # as on a GPU that has them
    assert can_fuse(model, images)
    assert not can_fuse(model, images[:, :, ::2, ::2])  # half the size
    assert not can_fuse(model, images[:1])  # kernels take images by twos
    assert not can_fuse(model.eval(), images)


def test_enabled_network_gives_the_same_features() -> None:
    model = scrambled(10).double()
    images = torch.randn(2, 3, 32, 32, dtype=torch.float64)
    expected = model(images)
    model.own_kernels = True
    torch.testing.assert_close(model(images), expected)


def test_compiled_binary_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[str] = []

    def compile_cuda(source: str, architecture: str) -> bytes:
        compiled.append(source)
        return f"{architecture}: {source}".encode()

    monkeypatch.setenv("ANEDL_CACHE", str(tmp_path))
    monkeypatch.setattr(nvrtc, "compile_cuda", compile_cuda)
    assert nvrtc._cached("a", "sm_90a") == nvrtc._cached("a", "sm_90a") == b"sm_90a: a"
    assert nvrtc._cached("b", "sm_90a") == b"sm_90a: b"
    assert compiled == ["a", "b"]
    monkeypatch.setenv("ANEDL_CACHE", "/dev/null/nowhere")  # cannot be written: does without
    assert nvrtc._cached("a", "sm_90a") == b"sm_90a: a"


@needs_hopper
class TestHopperKernels:
    """Each method of the launcher against its twin in float64, on random tensors."""

    @pytest.fixture(params=[6, 150])
    def images(self, request: pytest.FixtureRequest) -> int:
        torch.manual_seed(request.param)
        return int(request.param)

    @staticmethod
    def pair(images: int) -> tuple[PlainLauncher, PlainLauncher]:
        from anedl.networks.kernels.launcher import Launcher

        device = torch.device("cuda")
        mine: PlainLauncher = Launcher(images, device, 1e-5, 0.1)  # type: ignore[assignment]
        return mine, PlainLauncher(images, device, 1e-5, 0.1)

    @staticmethod
    def batch(images: int, channels: int, size: int) -> Tensor:
        x = torch.randn(images, channels, size, size, device="cuda") * 1.3 + 0.4
        return x.bfloat16().contiguous(memory_format=torch.channels_last)

    @staticmethod
    def kernel(outputs: int, inputs: int, size: int = 3) -> Tensor:
        w = torch.randn(outputs, inputs, size, size, device="cuda") / (size**2 * inputs) ** 0.5
        return w.bfloat16().contiguous(memory_format=torch.channels_last)

    @staticmethod
    def norm(channels: int) -> Norm:
        gamma = torch.rand(channels, device="cuda") + 0.5
        beta = torch.randn(channels, device="cuda") * 0.3
        return Norm(gamma, beta, torch.full((5, channels), float("nan"), device="cuda"))

    @staticmethod
    def exact(norm: Norm) -> Norm:
        return Norm(norm.gamma.double(), norm.beta.double(), norm.state.double())

    @staticmethod
    def close(found: Tensor, wanted: Tensor) -> None:
        """bf16 tensors within their rounding (and the activation's before), sums far closer."""
        assert distance(found, wanted) < (4e-3 if found.dtype == torch.bfloat16 else 3e-3)

    @pytest.mark.parametrize(("channels", "size"), [(32, 32), (64, 16), (128, 8)])
    def test_convolutions(self, images: int, channels: int, size: int) -> None:
        mine, plain = self.pair(images)
        x, r, d = (self.batch(images, channels, size) for _ in range(3))
        w, norm = self.kernel(channels, channels), self.norm(channels)
        first = plain.sums(x.float())
        for residual in (None, r):
            twin = self.exact(norm)
            out, sums = mine.forward(x, first, norm, w, residual)
            other = None if residual is None else residual.double()
            wanted, _ = plain.forward(x.double(), first.double(), twin, w.double(), other)
            self.close(out, wanted)
            assert distance(sums.sum(0), plain.sums(out.double())[0]) < 1e-5
            assert distance(norm.state, twin.state) < 1e-5
        g, sums = mine.gradient(d, w, x, norm)
        wanted, _ = plain.gradient(d.double(), w.double(), x.double(), twin)
        self.close(g, wanted)
        self.close(mine.weights(x, d, norm), plain.weights(x.double(), d.double(), twin))
        exact_sums = torch.stack([g.double().sum((0, 2, 3)), (g.double() * x).sum((0, 2, 3))])
        assert distance(sums.sum(0), exact_sums) < 1e-5
        for found, wanted in zip(
            mine.norm_gradient(g, sums, x, norm, r),
            plain.norm_gradient(g.double(), exact_sums[None], x.double(), twin, r.double()),
            strict=True,
        ):
            self.close(found, wanted)

    def test_stem_and_branch(self, images: int) -> None:
        mine, plain = self.pair(images)
        pictures = torch.randn(images, 3, 32, 32, device="cuda")
        pictures = pictures.contiguous(memory_format=torch.channels_last)
        padded = mine.pad(pictures)
        self.close(padded, plain.pad(pictures.double()))
        kernels = [self.kernel(16, 3).float(), self.kernel(32, 16).float()]
        flat = mine.cast(kernels)
        assert torch.equal(flat.double(), plain.cast(kernels).double())
        stem, w = unpack_kernels(flat, kernels)
        z, sums = mine.stem(padded, stem)
        self.close(z, plain.stem(padded.double(), stem.double())[0])
        d16, d, b = (self.batch(images, c, 32) for c in (16, 32, 32))
        wanted = plain.stem_weights(padded.double(), d16.double())
        self.close(mine.stem_weights(padded, d16), wanted)
        norm, shortcut = self.norm(16), self.kernel(32, 16, 1)
        twin = self.exact(norm)
        out, _, branch = mine.forward_branch(z, sums, norm, w, shortcut)
        wanted, _, wanted_branch = plain.forward_branch(
            z.double(), sums.double(), twin, w.double(), shortcut.double()
        )
        self.close(out, wanted)
        self.close(branch, wanted_branch)
        weights = BlockWeights(w, w, shortcut)
        exact = BlockWeights(w.double(), w.double(), shortcut.double())
        g, _ = mine.gradient_branch(d, b, weights, z, norm)
        self.close(g, plain.gradient_branch(d.double(), b.double(), exact, z.double(), twin)[0])
        for found, wanted in zip(
            mine.branch_weights(z, d, b, norm),
            plain.branch_weights(z.double(), d.double(), b.double(), twin),
            strict=True,
        ):
            self.close(found, wanted)

    def test_pool(self, images: int) -> None:
        mine, plain = self.pair(images)
        z, norm = self.batch(images, 128, 8), self.norm(128)
        sums, twin = plain.sums(z.float()), self.exact(norm)
        features = mine.pool(z, sums, norm)
        self.close(features, plain.pool(z.double(), sums.double(), twin))
        d = torch.randn_like(features)
        self.close(
            mine.pool_gradient(d, z, norm)[0], plain.pool_gradient(d.double(), z.double(), twin)[0]
        )

    def test_network_is_as_close_to_float32_as_autocast_is(self) -> None:
        model = scrambled(16).cuda().to(memory_format=torch.channels_last)
        images = torch.randn(32, 3, 32, 32, device="cuda")
        images = images.contiguous(memory_format=torch.channels_last)
        exact = model.double()(images.double())
        wanted = gradients(exact, model)
        model.float()
        assert enable_kernels(model, torch.bfloat16, torch.device("cuda"))
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert can_fuse(model, images)
            features = model(images)
        assert distance(features, exact) < 0.02
        found = gradients(features, model)
        assert max(distance(found[name], wanted[name]) for name in found) < 0.5
