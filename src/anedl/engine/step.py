"""One training step: draw, augment, forward, backward, update, average.

Nothing in it asks the host a question, so the same code runs eagerly or replayed from a captured
graph. What the host wants to know (the terms of the loss, whether any was not finite) is summed on
the device and read once every log interval.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anedl.data.stream import Stream
from anedl.engine.config import TrainConfig
from anedl.engine.contract import (
    check_buffers,
    check_losses,
    in_old_graph,
    no_gradient,
    own_buffers,
)
from anedl.engine.execution import Eager, Execution
from anedl.engine.flat import FlatParameters
from anedl.engine.memory import memory_of
from anedl.engine.optimiser import Optimiser, clip_norm
from anedl.engine.precision import Precision
from anedl.engine.schedule import learning_rate
from anedl.engine.unsaved import Unsaved, plain_tensors
from anedl.methods.base import Batch, Labelled, Losses, Method, Progress, Stage, Unlabelled


@dataclass(frozen=True)
class Interval:
    """What happened in `steps` steps, between two readings of the device."""

    steps: int
    loss: float  # mean of the summed terms
    means: dict[str, float]  # of each term and monitor
    learning_rate: float
    not_finite: list[str]  # names of terms, or "gradient_norm"
    seconds: float


class Stepper:
    """Holds the tensors a step works on, and takes steps."""

    def __init__(
        self,
        method: Method,
        average: Method,
        stream: Stream,
        config: TrainConfig,
        precision: Precision,
        execution: Execution | None = None,
    ) -> None:
        self.method = method
        self.average = average
        self.stream = stream
        self.config = config
        self.precision = precision
        self.flat = FlatParameters(method, precision.channels_last)
        self.flat_average = FlatParameters(average, precision.channels_last)
        sizes = [shape.numel() for shape in self.flat.shapes]
        self.optimiser = Optimiser(config, self.flat.values, self.flat.decayed, sizes)
        self.gradient = torch.zeros_like(self.flat.values)
        self.trained = torch.ones_like(self.flat.values, dtype=torch.bool)
        device = self.flat.values.device
        self.step = torch.zeros((), dtype=torch.int64, device=device)
        self.row = torch.zeros((), dtype=torch.int64, device=device)
        # Of the network in training: its first step, and how much faster than the run's its own
        # time goes, so that a part of the run is a whole one to it.
        self.begun = torch.zeros((), device=device)
        self.pace = torch.ones((), device=device)
        self.rate = torch.zeros((), device=device)
        self.stage = Stage.PRETRAIN
        self._copied: list[
            tuple[list[Tensor], list[Tensor]]
        ] = []  # into the average, from training
        self._names: list[str] = []  # of the sums: the terms, the gradient, then the monitors
        self._sums = torch.zeros(0, device=device)
        self._bad = torch.zeros(0, dtype=torch.bool, device=device)
        self._buffers = own_buffers(method)
        self.unsaved = Unsaved(method)
        # The three parts of a step that an execution mode may replace by compiled ones.
        self.draw_batch: Callable[[Tensor, Tensor], Batch] = stream.batch
        self.compute_loss: Callable[[Batch, Progress], Losses] = method.loss
        self.apply_update: Callable[[Tensor, Tensor], None] = self._update
        # Lets the state that a loss has changed take its place, once the gradient is there.
        self.settle: Callable[[], None] = _settled
        self.execution = execution or Eager()
        self.execution.prepare(self)

    def begin_epoch(
        self,
        stage: Stage,
        epoch: int,
        row: int,
        selected: Tensor | None,
        part: range | None = None,
    ) -> None:
        """Draw the epoch's images; its next step is step `row` of the epoch.

        `part` are the epochs that the network in training has of the run; None: all of it.
        """
        if stage != self.stage:
            self._names = []
            self.execution.forget()
        self.stage = stage
        # Listed here and not in the step: the compiler would walk through both modules at every
        # start. By kind, so that each list is copied in one go.
        self._copied = [
            (into, _not_averaged(self.method, floating))
            for floating in (True, False)
            if (into := _not_averaged(self.average, floating))
        ]
        steps = self.config.epoch_steps
        part = part or range(self.config.epochs)
        self.begun.fill_(part.start * steps)
        self.pace.fill_(self.config.epochs / len(part))
        self.stream.begin_epoch(self.method.wants(stage), epoch, steps, selected, row)
        self.row.fill_(row)
        self.step.fill_(epoch * steps + row)

    @property
    def time(self) -> Tensor:
        """The step () that a network would take now which had the whole run to itself."""
        return (self.step.float() - self.begun) * self.pace

    def take(self) -> None:
        """Take one step, in the order of this function."""
        config = self.config
        batch = self.draw_batch(self.row, self.step)
        progress = Progress(
            self.stage,
            epoch=self.time / config.epoch_steps,
            fraction=self.time / config.steps,
        )
        losses = self._backward(batch, progress)
        if not self._names:
            self._name_sums(losses)
            self.unsaved.tell()
        terms = torch.stack([value.detach().float() for value in losses.terms.values()])
        monitors = [value.detach().float() for value in losses.monitors.values()]
        self.apply_update(terms, torch.stack(monitors) if monitors else terms[:0])
        self._copy_into_average()

    def _backward(self, batch: Batch, progress: Progress) -> Losses:
        """Fill `gradient` with the gradient of the summed terms; returns the terms' values."""
        parts = list(_split(batch, self.config.accumulate))
        if len(parts) == 1:
            return self._gradient_of(parts[0], progress)
        total = torch.zeros_like(self.gradient)
        sums: dict[str, Tensor] = {}
        monitors: dict[str, Tensor] = {}
        for part in parts:
            losses = self._gradient_of(part, progress)
            total.add_(self.gradient, alpha=1 / len(parts))
            for values, into in ((losses.terms, sums), (losses.monitors, monitors)):
                for name, value in values.items():
                    into[name] = into.get(name, 0.0) + value.detach() / len(parts)
        self.gradient.copy_(total)
        return Losses(sums, monitors)

    def _gradient_of(self, batch: Batch, progress: Progress) -> Losses:
        with self.precision.autocast():
            losses = self.compute_loss(batch, progress)
        first = not self._names  # of its stage: what a loss gives is looked at once
        if first:
            check_losses(losses)
        found = self._of_parameters(self.precision.scaled(losses.total()))
        self.settle()
        if first:
            check_buffers(self.method, self._buffers)
            self._mark_trained(found)
        gradients = [
            torch.zeros_like(parameter) if gradient is None else gradient
            for gradient, parameter in zip(found, self.flat.parameters, strict=True)
        ]
        self.flat.gather(gradients, self.gradient)
        return losses

    def _of_parameters(self, total: Tensor) -> Sequence[Tensor | None]:
        """The gradient of `total` (), None for a parameter that takes no part in it."""
        if not total.requires_grad:
            raise no_gradient()
        try:
            found = torch.autograd.grad(total, self.flat.parameters, allow_unused=True)
        except RuntimeError as error:
            if "backward through the graph a second time" not in str(error):
                raise
            kept = own_buffers(self.method) | plain_tensors(self.method)
            raise in_old_graph([name for name in kept if kept[name].requires_grad]) from error
        if all(gradient is None for gradient in found):
            raise no_gradient()
        return found

    def _mark_trained(self, gradients: Sequence[Tensor | None]) -> None:
        """Remember which parameters take part in this stage; a head may be idle in it.

        What has no gradient must not be decayed either: after a long first stage nothing would be
        left of a head that is to learn in the second.
        """
        for view, gradient in zip(self.flat.views(self.trained), gradients, strict=True):
            view.fill_(gradient is not None)

    def _name_sums(self, losses: Losses) -> None:
        """Make room for the sums of a stage, once its first step has told what there is to sum."""
        self._names = [*losses.terms, "gradient_norm", *losses.monitors]
        device = self.gradient.device
        self._sums = torch.zeros(len(self._names), device=device)
        self._bad = torch.zeros(len(losses.terms) + 1, dtype=torch.bool, device=device)

    @torch.no_grad()
    def _update(self, terms: Tensor, monitors: Tensor) -> None:
        """Step along `gradient`, unless it or one of the `terms` (T,) is not finite; and record."""
        config = self.config
        finite_gradient = self.gradient.isfinite().all()
        self.precision.unscale(self.gradient, finite_gradient)
        allowed = self._record(terms, monitors, finite_gradient)
        if config.clip_norm:
            clip_norm(self.gradient, config.clip_norm)
        self.rate.copy_(learning_rate(config, self.time))
        self.optimiser.update(self.gradient, self.rate, allowed, self.trained)
        if config.multiplicative_decay and self.stage is Stage.SELF_TRAIN:
            self.optimiser.shrink(self.rate, allowed)
        decay = config.ema_decay
        assert decay is not None, "a resolved configuration has a decay"
        weight = torch.where(allowed, 1 - decay, 0.0)
        self.flat_average.values.lerp_(self.flat.values, weight)
        self.step.add_(1)
        self.row.add_(1)

    def _record(self, terms: Tensor, monitors: Tensor, finite_gradient: Tensor) -> Tensor:
        """Add to the sums that are read at the next interval; returns whether all is finite, ()."""
        # Of a step that is skipped there is no norm to log, and JSON has no infinity.
        norm = torch.where(finite_gradient, torch.linalg.vector_norm(self.gradient), 0.0)
        self._sums.add_(torch.cat([terms, norm.view(1), monitors]))
        finite = terms.isfinite()
        # With fp16 an overflowing gradient is an everyday event: the step is skipped, no more.
        gradient_bad = ~finite_gradient & ~self.precision.may_overflow()
        self._bad.logical_or_(torch.cat([~finite, gradient_bad.view(1)]))
        return finite.all() & finite_gradient

    @torch.no_grad()
    def _copy_into_average(self) -> None:
        """What is not averaged: running statistics, a method's own buffers, frozen parameters."""
        for into, source in self._copied:
            torch._foreach_copy_(into, source)

    def take_many(self, count: int, first_seed: int = 0) -> Interval:
        """Take `count` steps, then wait for the device and read what they summed up.

        What a method draws in a step is seeded for it alone, `first_seed` and the numbers after it,
        so that it depends neither on where a run was cut nor on how often it is logged.
        """
        began = time.monotonic()
        for number in range(count):
            torch.manual_seed(first_seed + number)
            self.execution.take(self)
        sums, bad = self._sums.tolist(), self._bad.tolist()
        seconds = time.monotonic() - began
        self._sums.zero_()
        self._bad.zero_()
        means = {name: value / count for name, value in zip(self._names, sums, strict=True)}
        terms = self._names[: len(bad) - 1]
        return Interval(
            steps=count,
            loss=sum(means[name] for name in terms),
            means=means,
            learning_rate=float(self.rate),
            not_finite=[name for name, is_bad in zip(self._names, bad, strict=False) if is_bad],
            seconds=seconds,
        )


def _settled() -> None:
    """Nothing to do: the loss has changed the state itself."""


def _not_averaged(method: Method, floating: bool) -> list[Tensor]:
    """What the average does not move but copy, of floating-point numbers or of others."""
    frozen = ((name, p.detach()) for name, p in method.named_parameters() if not p.requires_grad)
    memory = memory_of(method)
    buffers = ((name, b) for name, b in method.named_buffers() if name not in memory)
    return [
        tensor
        for name, tensor in (*buffers, *frozen)
        if tensor.is_floating_point() == floating and not name.startswith(method.untouched)
    ]


def _split(batch: Batch, parts: int) -> Iterator[Batch]:
    """Cut every part of a batch into `parts` equal pieces."""
    if parts == 1:
        yield batch
        return
    labelled = _chunks(batch.labelled.views, parts)
    labels = batch.labelled.labels.chunk(parts)
    pool = {name: _chunks(u.views, parts) for name, u in batch.unlabelled.items()}
    positions = {name: u.positions.chunk(parts) for name, u in batch.unlabelled.items()}
    for i in range(parts):
        yield Batch(
            Labelled(labelled[i], labels[i]),
            {name: Unlabelled(pool[name][i], positions[name][i]) for name in pool},
        )


def _chunks(views: tuple[Tensor, ...], parts: int) -> list[tuple[Tensor, ...]]:
    return list(zip(*[view.chunk(parts) for view in views], strict=True))
