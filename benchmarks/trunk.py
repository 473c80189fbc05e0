"""Time of the WRN-28-2 trunk, forward and backward, on one GPU, with and without its own kernels.

    python benchmarks/trunk.py [--batch 640] [--parts trunk,plain,kernels]

All times are medians over replays of a CUDA graph, on random data. `plain` takes a minute: it
compiles the network. `kernels` gives each kernel's time and the rate at which it moves what it must
at least move, against a device-to-device copy in the same run.
"""

import argparse
import statistics

import torch
import torch.nn.functional as F

from anedl.networks import WideResNet
from anedl.networks.kernels import fused_features
from anedl.networks.kernels.launcher import Launcher
from anedl.networks.kernels.parts import BlockWeights, Norm

SHAPES = [(32, 32), (64, 16), (128, 8)]  # channels, height and width of the three groups


def milliseconds(work, repeats=12, replays=15):
    """Median time of one `work(i)`, from a graph that holds `repeats` of them."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for i in range(3):
            work(i)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(repeats):
            work(i)
    times = []
    for _ in range(replays + 2):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / repeats)
    return statistics.median(times[2:])


def random_batch(n, channels, size, dtype=torch.bfloat16):
    x = torch.randn(n, channels, size, size, device="cuda", dtype=dtype)
    return x.contiguous(memory_format=torch.channels_last)


def time_trunk(n, name, run):
    model = WideResNet(28, 2).cuda().to(memory_format=torch.channels_last).train()
    images = random_batch(n, 3, 32, torch.float32)
    weight = torch.randn(n, 128, device="cuda")
    parameters = list(model.parameters())

    def step(_):
        with torch.autocast("cuda", dtype=torch.bfloat16):
            features = run(model, images)
        torch.autograd.grad((features.float() * weight).sum(), parameters)

    torch.cuda.reset_peak_memory_stats()
    took = milliseconds(step, 2)
    peak = torch.cuda.max_memory_allocated() / 2**30
    print(f"  {name:30s} {took:6.3f} ms, peak {peak:.2f} GiB", flush=True)


def plain_features(model, images):
    """The network layer by layer, whether or not its forward pass would choose its own kernels."""
    out = model.blocks(model.stem(images))
    return F.leaky_relu(model.bn(out), model.leaky_slope, inplace=True).mean(dim=(2, 3))


def unit_norm(channels):
    ones = torch.ones(channels, device="cuda")
    return Norm(ones, ones * 0, torch.ones(5, channels, device="cuda"))


def kernel_calls(n, channels, size):
    """Name → (what to call, how many tensors of this shape it must read and write)."""
    launch = Launcher(n, torch.device("cuda"), 1e-5, 0.1)
    sets = [[random_batch(n, channels, size) for _ in range(3)] for _ in range(3)]
    weight = random_batch(channels, channels, 3) / (9 * channels) ** 0.5
    norm = unit_norm(channels)
    start = torch.ones(1, 2, channels, device="cuda") * n * size**2
    _, sums = launch.forward(sets[0][0], start, norm, weight, None)

    def using(call):
        return lambda i: call(*sets[i % 3])

    calls = {
        "forward": (using(lambda x, _, __: launch.forward(x, sums, norm, weight, None)), 2),
        "forward, add": (using(lambda x, r, _: launch.forward(x, sums, norm, weight, r)), 3),
        "gradient": (using(lambda d, z, _: launch.gradient(d, weight, z, norm)), 3),
        "weights": (using(lambda z, d, _: launch.weights(z, d, norm)), 2),
        "norm gradient": (using(lambda g, z, _: launch.norm_gradient(g, sums, z, norm, None)), 3),
        "norm gradient, add": (using(lambda g, z, r: launch.norm_gradient(g, sums, z, norm, r)), 4),
    }
    if channels == 32:
        images = launch.pad(random_batch(n, 3, 32, torch.float32))
        stem, conv, shortcut = (random_batch(*s) for s in ((16, 8, 3), (32, 16, 3), (32, 16, 1)))
        block, norm16 = BlockWeights(conv, conv, shortcut), unit_norm(16)
        z, z_sums = launch.stem(images, stem)
        calls |= {
            "stem": (lambda _: launch.stem(images, stem), 0.75),
            "stem weights": (lambda _: launch.stem_weights(images, z), 0.75),
            "branch": (lambda _: launch.forward_branch(z, z_sums, norm16, conv, shortcut), 2.5),
            "branch gradient": (
                using(lambda d, b, _: launch.gradient_branch(d, b, block, z, norm16)),
                3,
            ),
            "branch weights": (using(lambda d, b, _: launch.branch_weights(z, d, b, norm16)), 2.5),
        }
    return calls


def time_kernels(n):
    source = torch.randn(2**28, device="cuda")
    target = torch.empty_like(source)
    rate = 2 * source.nbytes / milliseconds(lambda _: torch.neg(source, out=target), 4) * 1e3
    print(f"a copy moves {rate / 1e12:.2f} TB/s; kernels, µs and share of that rate")
    for channels, size in SHAPES:
        moved = n * channels * size**2 * 2
        for name, (call, tensors) in kernel_calls(n, channels, size).items():
            took = milliseconds(call)
            share = tensors * moved / took * 1e3 / rate
            print(
                f"  {channels:3d}@{size:<2d} {name:20s} {took * 1e3:6.1f} {share:5.0%}", flush=True
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=640)
    parser.add_argument("--parts", default="trunk,plain,kernels")
    arguments = parser.parse_args()
    n, parts = arguments.batch, arguments.parts.split(",")
    torch.backends.cudnn.benchmark = True
    print(f"{torch.cuda.get_device_name()}, {n} images")
    if "trunk" in parts:
        time_trunk(n, "own kernels", fused_features)
    if "plain" in parts:
        time_trunk(n, "plain", plain_features)
        time_trunk(n, "plain, compiled", torch.compile(plain_features))
    if "kernels" in parts:
        time_kernels(n)


if __name__ == "__main__":
    main()
