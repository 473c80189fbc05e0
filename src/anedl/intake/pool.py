"""Many files decoded by worker processes: answers in order, in bounded memory, whatever they hold.

The workers are fresh interpreters and not forks or `multiprocessing` children: those either copy
the state of a threaded parent, or run the user's script once more.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import wait
from pathlib import Path

from anedl.errors import DataError
from anedl.intake.examined import Examined, examine
from anedl.intake.worker import IMAGE, READY

WINDOW = 128  # decoded frames that may wait for one that takes longer
MOST_SECONDS = 120.0  # a file that takes longer is given up
_LOOK_SECONDS = 1.0  # how often to look for files that take too long


def examine_all(
    paths: Sequence[Path], side: int, workers: int, most_seconds: float = MOST_SECONDS
) -> Iterator[Examined | str]:
    """Examine every file, in order; a file that fails, crashes or stalls its worker gives a reason.

    At most `WINDOW` frames are held, and each worker holds one decoded image. With no workers this
    process decodes by itself, and is not protected from crashes.

    Raises:
        DataError: the worker processes do not start.
    """
    if workers == 0:
        for path in paths:
            yield examine(path, side)
        return
    team: list[_Worker] = []
    finished: dict[int, Examined | str] = {}
    given = 0
    try:
        team += [_Worker(side) for _ in range(min(workers, len(paths)))]
        for position in range(len(paths)):
            while position not in finished:
                given = _hand_out(team, paths, given, min(len(paths), position + WINDOW))
                busy = [worker.connection for worker in team if worker.position is not None]
                wait(busy, _LOOK_SECONDS)
                _collect(team, finished, most_seconds)
            yield finished.pop(position)
    finally:
        for worker in team:
            worker.stop()


def _hand_out(team: list["_Worker"], paths: Sequence[Path], given: int, limit: int) -> int:
    """Give idle workers the files from `given` up to `limit`; how many are given then."""
    for place, worker in enumerate(team):
        if worker.position is None and given < limit:
            if not worker.give(given, paths[given]):
                team[place] = worker.replaced()
                team[place].give(given, paths[given])
            given += 1
    return given


def _collect(
    team: list["_Worker"], finished: dict[int, Examined | str], most_seconds: float
) -> None:
    """Take the answers that are there; workers that went down or stalled are replaced."""
    for place, worker in enumerate(team):
        if worker.position is not None:
            answer = worker.answer(most_seconds)
            if answer is not None:
                finished[worker.position] = answer
                worker.position = None
                if worker.ended:
                    team[place] = worker.replaced()


def worker_command(descriptor: int, side: int) -> list[str]:
    """How a worker is started."""
    return [sys.executable, "-m", "anedl.intake.worker", str(descriptor), str(side)]


class _Worker:
    """One process, and the file it is busy with."""

    def __init__(self, side: int) -> None:
        self.connection, theirs = Pipe()
        self.side = side
        self.position: int | None = None
        self.ended = False
        self._ready = False
        self._since = 0.0
        path = os.pathsep.join(filter(None, sys.path))  # finds what this process finds
        self._process = subprocess.Popen(
            worker_command(theirs.fileno(), side),
            pass_fds=[theirs.fileno()],
            env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,  # decoders in C complain there about every odd file
        )
        theirs.close()

    def give(self, position: int, path: Path) -> bool:
        """Hand over a file; False where the process has gone meanwhile."""
        self.position, self._since = position, time.monotonic()
        try:
            self.connection.send_bytes(os.fsencode(path))
        except OSError:
            return not self._ready  # one that never started is reported by `answer`
        return True

    def answer(self, most_seconds: float) -> Examined | str | None:
        """What became of the file, None while the process is busy with it."""
        try:
            while self.connection.poll():
                message = self.connection.recv_bytes()
                if message == READY:
                    self._ready = True
                    self._since = time.monotonic()  # starting up is not the file's fault
                elif message[:1] == IMAGE:
                    return Examined.from_bytes(message[1:], self.side)
                else:
                    return message[1:].decode()
        except (EOFError, OSError):
            self.ended = True
            return self._epitaph()
        if time.monotonic() - self._since > (most_seconds if self._ready else MOST_SECONDS):
            self.ended = True
            return f"decoding it took more than {most_seconds:g} seconds"
        return None

    def replaced(self) -> "_Worker":
        """A new process in place of this one."""
        self.stop()
        return _Worker(self.side)

    def stop(self) -> None:
        """End the process, whatever it does."""
        self.connection.close()
        self._process.kill()
        self._process.wait()

    def _epitaph(self) -> str:
        status = self._process.wait()
        if not self._ready:
            raise DataError(
                f"the processes that decode images do not start (exit status {status}); with "
                "workers 0 the main process decodes by itself"
            )
        if status == -signal.SIGKILL:
            return "the process decoding it was killed, perhaps for want of memory"
        how = f"signal {-status}" if status < 0 else f"exit status {status}"
        return f"the decoder crashed on it ({how})"
