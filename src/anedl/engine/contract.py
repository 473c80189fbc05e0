"""What a method gives, held against what its verbs promise, and told in the method's own words.

Everything here looks at types and shapes alone, which the host knows without asking the device.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from anedl.errors import ConfigError
from anedl.methods.base import Losses, Method, Outputs, Selection

Shape = tuple[int | str, ...]
"""Sizes; "d" is any."""


def check_losses(losses: object) -> None:
    """Refuse what is no `Losses` of single numbers.

    Raises:
        ConfigError: names the term or the monitor.
    """
    if not isinstance(losses, Losses):
        raise ConfigError(
            f"the method's `loss` must return Losses, got {type(losses).__name__}: "
            f"Losses({{'ce': …}})"
        )
    for kind, values in (("term", losses.terms), ("monitor", losses.monitors)):
        if not isinstance(values, Mapping):
            raise ConfigError(
                f"the method's `loss` must give its {kind}s by name, got {type(values).__name__}: "
                f"Losses({{'ce': …}})"
            )
        for name, value in values.items():
            if not isinstance(value, Tensor):
                raise ConfigError(
                    f"the method's `loss`: {kind} {name!r} is of type {type(value).__name__} and "
                    f"must be a tensor: compute it with torch, without `.item()` or `float()`"
                )
            if value.ndim:
                raise ConfigError(
                    f"the method's `loss`: {kind} {name!r} has the shape {tuple(value.shape)} and "
                    f"must be a single number, of shape (): take its mean"
                )
    if not losses.terms:
        raise ConfigError("the method's `loss` has no term: give one at least, Losses({'ce': …})")


def no_gradient() -> ConfigError:
    """The error for a loss from which no weight can learn."""
    return ConfigError(
        "the method's `loss` has no gradient: no parameter takes part in any of its terms; compute "
        "them from what `self.backbone` gives, without `.detach()` or `torch.no_grad()`"
    )


def in_old_graph(names: Sequence[str]) -> ConfigError:
    """The error for state, by name where that is known, that leads into the graph of a step."""
    state = f" ({', '.join(map(repr, names))})" if names else ""
    return ConfigError(
        f"the method's `loss` leads back into the graph of an earlier step: what it keeps for the "
        f"next{state} must be updated under `torch.no_grad()` or from what is detached, a buffer "
        f"in place: `self.mean.lerp_(new.detach(), 0.1)`"
    )


def check_buffers(method: Method, before: Mapping[str, Tensor]) -> None:
    """Refuse a loss that has changed buffers in a way which later steps cannot build on.

    `before` are those that the method had. A tensor in the place of one of these would not reach
    the averaged model, into which the engine copies the tensors that it knows.

    Raises:
        ConfigError: names the buffer.
    """
    for name, buffer in own_buffers(method).items():
        if buffer.requires_grad:
            raise in_old_graph([name])
        if buffer is not before.get(name):
            raise ConfigError(
                f"the method's `loss` has put another tensor in the place of its buffer {name!r}, "
                f"which would not reach the averaged model: make it in __init__, as large as it "
                f"gets, and fill it in place, `self.{name}.copy_(…)`"
            )


def own_buffers(method: Method) -> dict[str, Tensor]:
    """A method's buffers by name, but for the trunk's, which is not the method's own."""
    named = method.named_buffers()
    return {name: buffer for name, buffer in named if not name.startswith("backbone.")}


def check_outputs(outputs: object, count: int, classes: int, verb: str) -> None:
    """Refuse what are no `Outputs` of `count` images; `verb` is the function that gave them.

    Raises:
        ConfigError: names the part and what its shape must be.
    """
    if not isinstance(outputs, Outputs):
        raise ConfigError(
            f"the method's `{verb}` must return Outputs, got {type(outputs).__name__}: "
            f"Outputs(features, logits, score)"
        )
    for name, value, wanted in _parts(outputs, count, classes):
        if not isinstance(value, Tensor):
            raise ConfigError(
                f"the method's `{verb}`: {name} must be a tensor, got {type(value).__name__}"
            )
        if not _fits(value.shape, wanted):
            hint = "; a class for outliers is told by the score alone" if name == "logits" else ""
            raise ConfigError(
                f"the method's `{verb}`: {name} of {count} images and {classes} known classes must "
                f"have the shape {_told(wanted)}, got {tuple(value.shape)}{hint}"
            )


def _parts(outputs: Outputs, count: int, classes: int) -> Iterator[tuple[str, Any, Shape]]:
    """Name, tensor and shape of every part."""
    yield "features", outputs.features, (count, "d")
    yield "logits", outputs.logits, (count, classes)
    yield "score", outputs.score, (count,)
    if outputs.alpha is not None:
        yield "alpha", outputs.alpha, (count, classes)
    for name, value in outputs.others.items():
        yield f"the score {name!r}", value, (count,)


def _fits(shape: torch.Size, wanted: Shape) -> bool:
    return len(shape) == len(wanted) and all(
        want in ("d", size) for size, want in zip(shape, wanted, strict=True)
    )


def _told(wanted: Shape) -> str:
    return str(wanted).replace("'", "")


def check_selection(selection: object, pool: int) -> None:
    """Refuse what is no `Selection` of a pool of that many images.

    Raises:
        ConfigError: says what it is.
    """
    if not isinstance(selection, Selection):
        raise ConfigError(
            f"the method's `select` must return a Selection or None, got "
            f"{_described(selection)}: {_as_selection(selection)}"
        )
    positions = selection.positions
    if not _are_positions(positions):
        raise ConfigError(
            f"the method's `select` must give positions in the pool as int64 of shape (n,), got "
            f"{_described(positions)}: {_as_selection(positions)}"
        )
    first, last = (int(end) for end in positions.aminmax()) if len(positions) else (0, 0)
    if first < 0 or last >= pool:
        raise ConfigError(
            f"the method's `select` named pool images {first} to {last}, and the pool has 0 to "
            f"{pool - 1}"
        )


def _are_positions(value: object) -> bool:
    return isinstance(value, Tensor) and value.dtype == torch.int64 and value.ndim == 1


def _described(value: object) -> str:
    if not isinstance(value, Tensor):
        return type(value).__name__
    return f"a tensor {tuple(value.shape)} of {value.dtype}"


def _as_selection(value: object) -> str:
    """How to write it rightly."""
    if isinstance(value, Tensor) and value.dtype == torch.bool:
        return "of a mask, Selection(mask.nonzero().squeeze(1))"
    return "Selection(positions)"
