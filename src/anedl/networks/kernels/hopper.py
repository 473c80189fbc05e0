"""Hopper kernels by name, compiled once a process."""

from functools import cache
from importlib.resources import files

from anedl.networks.kernels.nvrtc import CudaKernel, CudaModule

SOURCES = ("common", "wgmma", "conv", "weight_gradient", "elementwise")


@cache
def _module() -> CudaModule:
    folder = files("anedl.networks.kernels")
    names = [*(f"hopper_{name}.cuh" for name in SOURCES), "hopper.cu"]
    source = "\n".join((folder / name).read_text(encoding="utf-8") for name in names)
    return CudaModule(source, "sm_90a")


@cache
def kernel(name: str) -> CudaKernel:
    """The kernel `name` of the Hopper sources."""
    return _module().kernel(name)
