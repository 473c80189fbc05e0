"""CUDA C++ compiled when it is first needed, by the compiler library that PyTorch brings along.

No CUDA toolkit has to be installed: `libnvrtc` is a dependency of every PyTorch for NVIDIA GPUs.
Launches go to PyTorch's current stream, so they can be captured in a CUDA graph.
"""

import contextlib
import ctypes
import hashlib

import torch
from torch import Tensor

from anedl.errors import AnedlError
from anedl.files import cache_folder, replacing

Argument = Tensor | int | float | ctypes.Structure | None

_SHARED_SIZE = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
_EARLY_START = 6  # CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION


class KernelError(AnedlError):
    """A GPU kernel could not be compiled, loaded or launched."""


class _LaunchAttribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int * 16))


class _LaunchConfig(ctypes.Structure):
    _fields_ = (
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_LaunchAttribute)),
        ("attribute_count", ctypes.c_uint),
    )


class CudaKernel:
    """One kernel of a module; calling it launches it."""

    def __init__(self, driver: ctypes.CDLL, function: ctypes.c_void_p, shared: int) -> None:
        self._driver = driver
        self._function = function
        self._shared = shared
        self._attribute = _LaunchAttribute(_EARLY_START, 0, (ctypes.c_int * 16)(1))

    def __call__(self, blocks: int, threads: int, *arguments: Argument) -> None:
        """Launch on `blocks` blocks of `threads` threads; a float is passed in 32 bits.

        The kernel may start while the one before it ends: it has to wait for that one itself.
        """
        held = [_as_c(argument) for argument in arguments]
        pointers = (ctypes.c_void_p * len(held))(*[ctypes.addressof(value) for value in held])
        config = _LaunchConfig(
            (blocks, 1, 1),
            (threads, 1, 1),
            self._shared,
            torch.cuda.current_stream().cuda_stream,
            ctypes.pointer(self._attribute),
            1,
        )
        launched = self._driver.cuLaunchKernelEx(
            ctypes.byref(config), self._function, pointers, None
        )
        _check(launched, "launched")


class CudaModule:
    """Compiled CUDA C++ source, on the current device."""

    def __init__(self, source: str, architecture: str) -> None:
        torch.cuda.current_stream()  # makes sure that the device has a context
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._module = ctypes.c_void_p()
        binary = _cached(source, architecture)
        _check(self._driver.cuModuleLoadData(ctypes.byref(self._module), binary), "loaded")

    def kernel(self, name: str) -> CudaKernel:
        """The kernel `name`, with as much shared memory as the constant `name`_shared asks for."""
        function = ctypes.c_void_p()
        found = self._driver.cuModuleGetFunction(
            ctypes.byref(function), self._module, name.encode()
        )
        _check(found, f"found under the name {name}")
        shared = self._constant(f"{name}_shared")
        given = self._driver.cuFuncSetAttribute(function, _SHARED_SIZE, shared)
        _check(given, f"given {shared} bytes of shared memory")
        return CudaKernel(self._driver, function, shared)

    def _constant(self, name: str) -> int:
        """The value of an int in the module, 0 if there is none of that name."""
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        missing = self._driver.cuModuleGetGlobal_v2(
            ctypes.byref(address), ctypes.byref(size), self._module, name.encode()
        )
        if missing:
            return 0
        value = ctypes.c_int()
        copied = self._driver.cuMemcpyDtoH_v2(ctypes.byref(value), address, ctypes.c_size_t(4))
        _check(copied, "asked for its shared memory")
        return value.value


def _as_c(argument: Argument) -> ctypes.c_void_p | ctypes.c_int | ctypes.c_float | ctypes.Structure:
    if isinstance(argument, ctypes.Structure):
        return argument
    if isinstance(argument, Tensor):
        return ctypes.c_void_p(argument.data_ptr())
    if argument is None:
        return ctypes.c_void_p(None)
    return ctypes.c_int(argument) if isinstance(argument, int) else ctypes.c_float(argument)


def _check(status: int, what: str) -> None:
    if status != 0:
        raise KernelError(f"a GPU kernel could not be {what}: CUDA driver error {status}")


def _cached(source: str, architecture: str) -> bytes:
    """The binary of an earlier process with the same source and CUDA, or a new one, kept.

    A cache that cannot be read or written costs the seconds that it would have saved, no more.
    """
    name = hashlib.sha256(f"{architecture} {torch.version.cuda}\n{source}".encode()).hexdigest()
    path = cache_folder() / "kernels" / f"{name}.cubin"
    with contextlib.suppress(OSError):
        return path.read_bytes()
    binary = compile_cuda(source, architecture)
    with contextlib.suppress(OSError), replacing(path) as temporary:
        temporary.write_bytes(binary)
    return binary


def compile_cuda(source: str, architecture: str) -> bytes:
    """A binary for `architecture` ("sm_90a")."""
    assert torch.version.cuda is not None, "this PyTorch was built without CUDA"
    library = ctypes.CDLL(f"libnvrtc.so.{torch.version.cuda.split('.')[0]}")
    program = ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"anedl.cu", 0, None, None)
    options = (ctypes.c_char_p * 2)(f"--gpu-architecture={architecture}".encode(), b"--std=c++17")
    failed = library.nvrtcCompileProgram(program, len(options), options)
    size = ctypes.c_size_t()
    if failed:
        library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
        log = ctypes.create_string_buffer(size.value)
        library.nvrtcGetProgramLog(program, log)
        raise KernelError(f"a GPU kernel could not be compiled:\n{log.value.decode()}")
    library.nvrtcGetCUBINSize(program, ctypes.byref(size))
    binary = ctypes.create_string_buffer(size.value)
    library.nvrtcGetCUBIN(program, binary)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return binary.raw
