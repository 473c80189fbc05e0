"""A stream over images that are read while training: worker processes decode and augment them.

A step is cut into jobs, a few images each, that workers take in turn. What a job makes depends on
what it says alone, so the batches are the same whatever the number of workers.
"""

import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Thread
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from anedl.data.augment.host import HostAugment, view_generator
from anedl.data.batches import ImageBatches
from anedl.data.dataset import Images, IntArray
from anedl.data.order import draw_epoch
from anedl.data.stream import SELECTION_SLOT
from anedl.errors import DataError
from anedl.methods.base import Batch, Labelled, Source, Unlabelled, Want
from anedl.views import View

JOB_IMAGES = 32
JOBS_AHEAD = 2  # a worker; with eight of them some 500 images wait, 150 MB of 224 × 224 pairs

# How long workers may take to end by themselves; the loader gives each five seconds.
GRACE_SECONDS = 20.0


@dataclass(frozen=True)
class DiskImages:
    """What training may see: where labelled and pool images are, and labels for the former."""

    images: Images
    labelled: IntArray  # (L,) indices of `images`
    labels: Tensor  # (L,) int64, known classes 0…K−1
    pool: IntArray  # (P,) indices of `images`


@dataclass(frozen=True)
class Job:
    """Some images of one part of one step: decode each once and make its views."""

    indices: IntArray  # of `images`
    first_place: int  # of these images in their part of the batch
    views: tuple[View, ...]
    first_slot: int
    step: int


class Jobs(Dataset[Any]):
    """What a worker knows: "item" number `job` is the views that the job asks for."""

    def __init__(self, images: Images, augment: HostAugment, seed: int) -> None:
        self.images = images
        self.augment = augment
        self.seed = seed

    def __getitem__(self, job: Job) -> tuple[Tensor, ...] | str:
        """One (n, C, H, W) uint8 tensor a view; or what is wrong, in words."""
        views: list[list[Any]] = [[] for _ in job.views]
        for place, index in enumerate(job.indices.tolist(), job.first_place):
            try:
                frame = self.augment.framed(self.images[index])
            except DataError as error:
                # An exception would arrive wrapped in the traceback of the worker.
                return str(error)
            for offset, view in enumerate(job.views):
                rng = view_generator(self.seed, job.step, place, job.first_slot + offset)
                views[offset].append(self.augment.apply(frame, view, rng))
        return tuple(
            torch.from_numpy(np.stack(made)).permute(0, 3, 1, 2).contiguous() for made in views
        )


class DiskStream:
    """Draws the batches that a `ResidentStream` would draw, views made on the host; a `Stream`."""

    capturable = False

    def __init__(
        self,
        images: DiskImages,
        augment: HostAugment,
        batch_size: int,
        seed: int,
        device: torch.device,
        workers: int,
    ) -> None:
        self.images = images
        self.augment = augment
        self.batch_size = batch_size
        self.seed = seed
        self.device = device
        self.workers = workers
        self.labels = images.labels.to(device)
        self.wants: Mapping[str, Want] = {}
        self.drawn: dict[str, Tensor] = {}  # per want, (epoch_steps, images) positions
        self._row = 0  # the workers need it on the host, long before the device is there
        self._jobs: list[Job] = []  # of the epoch; the loader reads them from here
        self._loader: DataLoader[Any] | None = None
        self._arriving: Iterator[Any] = iter(())

    def begin_epoch(
        self,
        wants: Mapping[str, Want],
        epoch: int,
        epoch_steps: int,
        selected: Tensor | None,
        first_row: int = 0,
    ) -> None:
        """Fix which images every step of `epoch` draws, and set the workers to `first_row`."""
        images = self.images
        sizes = {Source.LABELLED: len(images.labelled), Source.POOL: len(images.pool)}
        chosen = None if selected is None else selected.cpu().numpy()
        drawn = draw_epoch(wants, sizes, self.batch_size, self.seed, epoch, epoch_steps, chosen)
        self.wants = wants
        self.drawn = {name: torch.from_numpy(rows).to(self.device) for name, rows in drawn.items()}
        self._row = first_row
        self._jobs[:] = [
            job
            for row in range(first_row, epoch_steps)
            for job in self._jobs_of(drawn, row, epoch * epoch_steps + row)
        ]
        if self._loader is None:
            self._loader = self._start()
        self._arriving = iter(self._loader)

    def _jobs_of(self, drawn: Mapping[str, IntArray], row: int, step: int) -> Iterator[Job]:
        slot = 0
        for name, want in self.wants.items():
            source = self.images.labelled if want.source is Source.LABELLED else self.images.pool
            indices = source[drawn[name][row]]
            for start in range(0, len(indices), JOB_IMAGES):
                yield Job(indices[start : start + JOB_IMAGES], start, want.views, slot, step)
            slot += len(want.views)

    def _start(self) -> "DataLoader[Any]":
        several = self.workers > 0
        # Forked where that is safe: started anew, workers would import the user's script again.
        context = "fork" if several and sys.platform == "linux" else None
        return DataLoader(
            Jobs(self.images.images, self.augment, self.seed),
            batch_size=None,
            sampler=self._jobs,
            num_workers=self.workers,
            collate_fn=_as_it_is,
            worker_init_fn=_leave_ctrl_c_to_the_run,
            pin_memory=self.device.type == "cuda",
            multiprocessing_context=context,
            persistent_workers=several,
            prefetch_factor=JOBS_AHEAD if several else None,
            # Its own: the loader draws a seed that nothing here uses.
            generator=torch.Generator(),
        )

    def batch(self, row: Tensor, step: Tensor) -> Batch:
        """The next batch of the epoch, on the device."""
        unlabelled: dict[str, Unlabelled] = {}
        labelled: Labelled | None = None
        for name, want in self.wants.items():
            positions = self.drawn[name][self._row]
            views = self._views(len(positions), len(want.views))
            if want.source is Source.LABELLED:
                labelled = Labelled(views, self.labels.index_select(0, positions))
            else:
                unlabelled[name] = Unlabelled(views, positions)
        self._row += 1
        assert labelled is not None, "a method must want one labelled part"
        return Batch(labelled, unlabelled)

    def _views(self, count: int, views: int) -> tuple[Tensor, ...]:
        """Gather the views of one part, `count` images, from the jobs that make it."""
        whole: list[Tensor] = []
        for start in range(0, count, JOB_IMAGES):
            pieces = self._next()
            if not whole:
                shape = (count, *pieces[0].shape[1:])
                whole = [
                    torch.empty(shape, dtype=torch.uint8, device=self.device) for _ in range(views)
                ]
            for into, piece in zip(whole, pieces, strict=True):
                into[start : start + JOB_IMAGES].copy_(piece, non_blocking=True)
        return tuple(whole)

    def _next(self) -> tuple[Tensor, ...]:
        try:
            made: tuple[Tensor, ...] | str = next(self._arriving)
        except (RuntimeError, OSError, EOFError) as error:
            if not self.workers:
                raise
            raise DataError(
                f"a process that reads images ended unexpectedly ({error}); with little memory "
                f"take fewer (--workers), with 0 the main process reads by itself"
            ) from error
        if isinstance(made, str):
            raise DataError(made)
        return made

    def pool(self, view: View, step: int) -> ImageBatches:
        """One view of every pool image, made while it is looked at."""
        return ImageBatches(
            self.images.images, self.images.pool, self.augment, self.workers,
            view, self.seed, step, SELECTION_SLOT,
        )  # fmt: skip

    def close(self) -> None:
        """End the worker processes."""
        # The loader ends them when nobody holds its iterator, but a traceback may hold that long.
        arriving: Any = self._arriving
        self._arriving, self._loader = iter(()), None
        if not hasattr(arriving, "_shutdown_workers"):
            return

        def end_workers() -> None:
            with suppress(RuntimeError):  # of a worker that is dead already
                arriving._shutdown_workers()

        ending = Thread(target=end_workers, daemon=True)
        ending.start()
        with suppress(RuntimeError):  # torch tells the main thread of a dead worker, too
            ending.join(GRACE_SECONDS)
        if ending.is_alive():
            # A worker that was killed may have died with a lock in hand that the loader waits for.
            for queue in arriving._index_queues:
                queue.cancel_join_thread()
            for worker in arriving._workers:
                worker.kill()
                worker.join()


def _as_it_is(made: Any) -> Any:
    return made


def _leave_ctrl_c_to_the_run(_worker: int) -> None:
    """A terminal sends it to every process, and the run needs images up to its checkpoint."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
