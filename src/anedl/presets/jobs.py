"""Training many runs: what is finished is kept, what was cut goes on, what fails loses only itself.

On a CPU one process a core with one thread each: small networks gain nothing from threads. On each
GPU one run after the other, for two at once only share it, each in a fresh process: compiled steps
and device errors of one are then no concern of the next.
"""

import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from types import FrameType
from typing import Any

# For runs that were sent the signal which ends this process, as all of its group are by a terminal
# or a batch system: so long they may take to save.
PATIENCE_S = 5.0


@dataclass(frozen=True)
class Job:
    """One run to train into `folder`; `spec` holds the keywords of `make_spec`.

    Keywords and not a spec: a process that is started for it must be able to make its own, also of
    a method that lives in a user's file; `digest` is that of the spec which was meant, so that a
    file that changes in between is noticed. `steps` weighs it when the time left is guessed.
    """

    folder: Path
    spec: Mapping[str, Any]
    steps: int = 1
    digest: str | None = None


@dataclass(frozen=True)
class Done:
    """How one job ended; `error` says what went wrong, None if nothing did."""

    job: Job
    error: str | None = None


@dataclass(frozen=True)
class Place:
    """Where jobs are trained."""

    device: str = "auto"  # every GPU there is; several: "cuda:0,cuda:1"
    data_root: Path | None = None
    processes: int | None = None  # on a CPU; None: one a core, 0: none but the caller's


def train_jobs(
    jobs: Sequence[Job],
    place: Place = Place(),  # noqa: B008 - frozen
    told: Callable[[Done], None] | None = None,
) -> list[Done]:
    """Train every job and say how each ended, in the order of `jobs`; `told` hears of each at once.

    A run that is finished in its folder is left as it is, one that was cut there goes on.
    """
    from anedl.presets.gpus import gpus_of

    ended: dict[int, Done] = {}

    def end(index: int, error: str | None) -> None:
        ended[index] = Done(jobs[index], error)
        if told is not None:
            told(ended[index])

    if place.processes == 0:
        for index, job in enumerate(jobs):
            end(index, _train(job, place, quiet=True))
    else:
        with _terminable():
            if gpus := gpus_of(place.device):
                _train_on_gpus(jobs, replace(place, device="cuda"), gpus, end)
            else:
                _train_on_cores(jobs, place, end)
    return [ended[index] for index in range(len(jobs))]


def call_apart(work: Callable[[Place], None], place: Place) -> None:
    """Call `work` in a fresh process, like a run's on the first GPU; what it took is given back.

    What goes wrong there is not told. `processes` 0 is no process but the caller's here too.
    """
    from anedl.presets.gpus import gpus_of

    if place.processes == 0:
        work(place)
        return
    with _terminable():
        gpus = gpus_of(place.device)
        there = replace(place, device="cuda") if gpus else place
        with _process(gpus[0] if gpus else None) as process:
            future = process.submit(work, there)
            try:
                wait([future])
            except BaseException:
                _end({future: process})
                raise


@contextmanager
def _terminable() -> Iterator[None]:
    """Let SIGTERM end the processes of the jobs too, which would train on without anyone to tell.

    What it did before is left to whoever has plans of their own for it.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def leave(number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _train_on_cores(
    jobs: Sequence[Job], place: Place, end: Callable[[int, str | None], None]
) -> None:
    workers = min(len(jobs), place.processes or os.cpu_count() or 1)
    waiting = list(range(len(jobs)))
    if workers > 1:
        waiting = _train_side_by_side(jobs, place, workers, end)
    for index in waiting:
        end(index, _train_alone(jobs[index], place))


def _train_side_by_side(
    jobs: Sequence[Job], place: Place, workers: int, end: Callable[[int, str | None], None]
) -> list[int]:
    """Train the jobs in so many processes; those left over because a process died are returned.

    A process gets its next job when it has ended one, so that an interruption finds none waiting;
    what is running then is ended, and goes on from its checkpoint another time.
    """
    left: list[int] = []
    waiting = iter(enumerate(jobs))
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as pool:
        running: dict[Future[str | None], int] = {}

        def begin(count: int) -> None:
            for index, job in islice(waiting, count):
                try:
                    running[pool.submit(_train_on_one_core, job, place, True)] = index
                except BrokenProcessPool:
                    left.append(index)

        begin(workers)
        try:
            while running:
                ended, _ = wait(running, return_when=FIRST_COMPLETED)
                for future in ended:
                    index = running.pop(future)
                    if isinstance(future.exception(), BrokenProcessPool):
                        left.append(index)
                    else:
                        end(index, _outcome(future))
                begin(workers - len(running))
        except BaseException:
            _end(dict.fromkeys(running, pool))
            raise
        left += [index for index, _ in waiting]
    return sorted(left)


def _train_on_gpus(
    jobs: Sequence[Job], place: Place, gpus: Sequence[str], end: Callable[[int, str | None], None]
) -> None:
    """Train the jobs, one at a time on each GPU, and wait for them.

    After Ctrl-C no other begins; those that run hear it too, save, and are waited for. Where
    anything else ends this they are told to, unless they end by themselves.
    """
    waiting = iter(enumerate(jobs))
    free = list(gpus)
    quiet = min(len(gpus), len(jobs)) > 1  # several bars in one terminal are none
    running: dict[Future[str | None], tuple[int, str, ProcessPoolExecutor]] = {}

    def begin() -> None:
        for index, job in islice(waiting, len(free)):
            gpu = free.pop(0)
            process = _process(gpu)
            running[process.submit(_train, job, place, quiet)] = index, gpu, process

    try:
        begin()
        while running:
            ended, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in ended:
                index, gpu, process = running.pop(future)
                process.shutdown()  # and gives its GPU's memory back
                free.append(gpu)
                end(index, _outcome(future))
            begin()
    except KeyboardInterrupt:
        raise
    except BaseException:
        _end({future: process for future, (_, _, process) in running.items()})
        raise
    finally:
        for _, _, process in running.values():
            process.shutdown()


def _train_alone(job: Job, place: Place) -> str | None:
    """Train a job in a process of its own, on a core, and wait for it."""
    with _process() as process:
        future = process.submit(_train_on_one_core, job, place, True)
        try:
            return _outcome(future)
        except SystemExit:
            _end({future: process})
            raise


def _process(gpu: str | None = None) -> ProcessPoolExecutor:
    """A fresh process; with `gpu` it sees no other one."""
    from anedl.presets.gpus import see_only

    spawn = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(1, spawn, *((see_only, (gpu,)) if gpu is not None else ()))


def _end(running: Mapping[Future[Any], ProcessPoolExecutor]) -> None:
    """Let runs end that were asked to along with this process, and ask the others.

    Not all at once: a run that hears SIGTERM twice stops before it has saved.
    """
    try:
        wait(running, PATIENCE_S)
    finally:  # also where somebody insists
        for pool in {pool for future, pool in running.items() if not future.done()}:
            for process in list((pool._processes or {}).values()):
                process.terminate()


def _outcome(future: Future[str | None]) -> str | None:
    """What went wrong with a job in another process; an end that only its process met is its own.

    What ends this process while it waits is raised.
    """
    error = future.exception()
    if isinstance(error, BrokenProcessPool):
        return "its process was ended from outside, perhaps for want of memory"
    if isinstance(error, SystemExit):
        return "its process was asked to end; what it saved goes on when this is called again"
    return future.result()


def _train_on_one_core(job: Job, place: Place, quiet: bool) -> str | None:
    import torch

    torch.set_num_threads(1)
    return _train(job, place, quiet)


def _train(job: Job, place: Place, quiet: bool) -> str | None:
    """Train a job; what went wrong is returned, so that the others go on."""
    from anedl.engine.spec import make_spec
    from anedl.engine.train import Surroundings, train
    from anedl.errors import AnedlError

    if (job.folder / "results.json").exists():
        return None
    surroundings = Surroundings(
        device=place.device, data_root=place.data_root, quiet=quiet, resume=True
    )
    try:
        spec = make_spec(**job.spec)
        if job.digest not in (None, spec.digest):
            return "the file of its method has changed since it was planned; call it again"
        train(spec, job.folder, surroundings)
    except AnedlError as error:
        return str(error)
    except Exception as error:
        return _told(error, job)
    return None


def _told(error: Exception, job: Job) -> str:
    """What went wrong in a line; the whole traceback goes into the run's folder."""
    from anedl.engine.run_files import ERROR_FILE
    from anedl.files import write_text

    path, where = job.folder / ERROR_FILE, _line_of_user(error, job)
    try:
        write_text(path, "".join(traceback.format_exception(error)))
        where.append(f"traceback in {path}")
    except OSError:
        pass  # a full disk may be what went wrong
    said = f"{type(error).__name__}: {error}"
    return f"{said} ({'; '.join(where)})" if where else said


def _line_of_user(error: Exception, job: Job) -> list[str]:
    """The last line of the file of the job's method that was reached, if it has a file."""
    from anedl.methods.catalogue import file_of, full_name

    file = file_of(full_name(job.spec.get("method", "")))
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if Path(frame.filename) == file]
    return [f"{file}, line {lines[-1]}"] if lines else []
