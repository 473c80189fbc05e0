"""State that a method keeps where no checkpoint finds it, told once.

What is there from the start and never changes is made again when a run goes on; only what training
changes is lost.
"""

import warnings

from torch import Tensor

from anedl.methods.base import Method


class Unsaved:
    """Watches a method's plain attributes, from before its first step on."""

    def __init__(self, method: Method) -> None:
        self._method = method
        self._known = {name: (t, _version(t)) for name, t in plain_tensors(method).items()}
        self._told: set[str] = set()

    def tell(self) -> None:
        """Warn of every tensor that training has made or changed and that has not been told."""
        for name, tensor in plain_tensors(self._method).items():
            known, version = self._known.get(name, (None, 0))
            if name in self._told or (tensor is known and _version(tensor) == version):
                continue
            self._told.add(name)
            warnings.warn(
                f"the method's attribute {name!r} is a tensor that is neither a parameter nor a "
                f"buffer: it is not saved, so a run that is resumed goes on without it; register "
                f"it as a buffer (torch.nn.Buffer)",
                stacklevel=2,
            )


def plain_tensors(method: Method) -> dict[str, Tensor]:
    """Tensors that a method or a part of it, other than the trunk, has as plain attributes."""
    registered = {id(tensor) for tensor in (*method.parameters(), *method.buffers())}
    return {
        f"{path}.{name}" if path else name: value
        for path, module in method.named_modules()
        if path.partition(".")[0] != "backbone"
        for name, value in vars(module).items()
        if isinstance(value, Tensor) and id(value) not in registered
    }


def _version(tensor: Tensor) -> int:
    """How often it was changed in place; inference tensors do not count."""
    return 0 if tensor.is_inference() else tensor._version
