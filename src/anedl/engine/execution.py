"""How steps are executed: eagerly, compiled, or compiled and replayed from one captured CUDA graph.

The step itself is the same code in all three. Compilation fuses the many small operations of the
augmentation, the losses and the update; capture removes the launch of every kernel from the host.
"""

import os
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

import torch

from anedl.engine.compiled_loss import CompiledLoss
from anedl.errors import ConfigError
from anedl.files import cache_folder
from anedl.networks.kernels import enable_kernels

if TYPE_CHECKING:
    from anedl.engine.step import Stepper

# Steps taken before a capture: compilation, autotuning and lazy set-up happen in them.
WARM_UP_STEPS = 3


class Execution(Protocol):
    """Takes the steps of a stepper, one at a time."""

    name: str

    def prepare(self, stepper: "Stepper") -> None:
        """Replace parts of the stepper, once."""
        ...

    def take(self, stepper: "Stepper") -> None:
        """Take one step."""
        ...

    def forget(self) -> None:
        """The next step has another form than those before: a new stage begins."""
        ...


class Eager:
    """Operation by operation."""

    name = "eager"

    def prepare(self, stepper: "Stepper") -> None:
        """Nothing to do."""

    def take(self, stepper: "Stepper") -> None:
        """Take one step."""
        stepper.take()

    def forget(self) -> None:
        """Nothing is remembered."""


class Compiled:
    """With loss, update and, where it is made on the device, batch each compiled as a whole."""

    name = "compiled"

    def __init__(self) -> None:
        # The compiler's own place is a temporary folder, which a restart of the machine empties.
        os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(cache_folder() / "inductor"))
        # Seconds of Python, in which a GPU can come up; at the first use it would have to wait.
        import_module("torch._inductor.compile_fx")

    def prepare(self, stepper: "Stepper") -> None:
        """Compile lazily: the first step of a stage takes the time."""
        _let_losses_be_cached(stepper.precision.name)
        enable_kernels(stepper.method, stepper.precision.dtype, stepper.precision.device)
        if stepper.stream.capturable:
            stepper.draw_batch = _compile(stepper.draw_batch)
        loss = CompiledLoss(stepper.method)
        stepper.compute_loss, stepper.settle = loss, loss.settle
        stepper.apply_update = _compile(stepper.apply_update)

    def take(self, stepper: "Stepper") -> None:
        """Take one step."""
        stepper.take()

    def forget(self) -> None:
        """The compiler notices by itself."""


class Captured(Compiled):
    """Compiled; then one captured graph a stage, replayed for every step."""

    name = "captured"

    def __init__(self) -> None:
        super().__init__()
        self._graph: torch.cuda.CUDAGraph | None = None
        self._taken = 0

    def take(self, stepper: "Stepper") -> None:
        """Replay; the first steps of a stage warm up, the next one is captured and replayed."""
        if self._graph is not None:
            self._graph.replay()
            return
        if self._taken < WARM_UP_STEPS:
            # Beside the default stream, as a capture will be: what libraries set up lazily on a
            # stream must be there before.
            side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                stepper.take()
            torch.cuda.current_stream().wait_stream(side)
            self._taken += 1
            return
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            stepper.take()
        self._graph = graph
        graph.replay()

    def forget(self) -> None:
        """Drop the graph of the last stage."""
        self._graph = None
        self._taken = 0


def choose_execution(
    wanted: str, device: torch.device, say: Callable[[str], None], capturable: bool = True
) -> Execution:
    """Resolve "auto": captured on a GPU that can compile, eager elsewhere; falling back is said.

    `capturable` tells whether the stream's batches can be part of a graph.
    """
    if wanted == "captured" and device.type != "cuda":
        raise ConfigError("option execution: captured needs a GPU; take eager or compiled on a CPU")
    if wanted == "eager" or (wanted == "auto" and device.type != "cuda"):
        return Eager()
    if wanted == "compiled":
        return Compiled()
    try:
        import triton  # noqa: F401 - torch.compile needs it on a GPU
    except ImportError:
        say("triton is not installed: steps run eagerly, several times slower than captured")
        return Eager()
    if not capturable:
        say("images are streamed from disk: steps are compiled but not captured")
        return Compiled()
    return Captured()


def _let_losses_be_cached(precision: str) -> None:
    """Tell the compiler that a loss which switches autocast off may come from its cache.

    It would trace the gradient anew at every start otherwise, which takes seconds. What is switched
    stands in the graph that the cache compares; the `precision` around it is added here, because
    not every version of the compiler does so.
    """
    from torch._inductor import config

    switches = ("_enter_autocast", "_exit_autocast")
    config.unsafe_marked_cacheable_functions = {
        **config.unsafe_marked_cacheable_functions,
        **{f"torch.amp.autocast_mode.{name}": f"anedl {precision}" for name in switches},
    }


def _compile(function: Any) -> Any:
    return torch.compile(function, dynamic=False)
