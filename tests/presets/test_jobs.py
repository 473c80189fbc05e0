"""Many runs in processes of their own: what dies, is interrupted or is ended from outside."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import pytest

from anedl.presets.jobs import Job, Place, _train_on_gpus, call_apart, train_jobs

TINY = {"epochs": 2, "epoch_steps": 3, "batch_size": 6, "test_while_training": False}
DYING = '''
import os
from anedl.methods.supervised import Supervised

class Dying(Supervised):
    """Takes its process with it."""

    def loss(self, batch, progress):
        os._exit(9)
'''


def test_jobs_run_in_processes_and_one_that_dies_loses_no_other(tmp_path):
    (tmp_path / "mine.py").write_text(DYING)
    base = {"setting": "digits", "method": "supervised", "train": TINY}
    dying = Job(tmp_path / "dying", {**base, "method": f"{tmp_path / 'mine.py'}:Dying"})
    refused = Job(tmp_path / "refused", {**base, "pool_limit": 0})
    good = Job(tmp_path / "good", base)
    heard = []
    ended = train_jobs([dying, refused, good], Place("cpu", processes=2), heard.append)
    assert [done.job for done in ended] == [dying, refused, good]
    assert "its process was ended" in ended[0].error
    assert "pool limit 0" in ended[1].error
    assert ended[2].error is None
    assert (good.folder / "results.json").exists()
    assert len(heard) == 3


def test_an_interruption_leaves_nothing_waiting(tmp_path):
    jobs = [
        Job(tmp_path / str(seed), {"setting": "digits", "method": "supervised", "seed": seed,
                                   "train": TINY})
        for seed in range(5)
    ]  # fmt: skip

    def interrupt(_done):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train_jobs(jobs, Place(device="cpu", processes=2), interrupt)
    finished = [job for job in jobs if (job.folder / "results.json").exists()]
    assert 1 <= len(finished) <= 3


ASKED = '''
import os
import signal
from pathlib import Path
from anedl.methods.supervised import Supervised

class Asked(Supervised):
    """Is asked to end, once."""

    def loss(self, batch, progress):
        once = Path(__file__).with_suffix(".once")
        if not once.exists():
            once.touch()
            os.kill(os.getpid(), signal.SIGTERM)
        return super().loss(batch, progress)
'''


@pytest.mark.parametrize("processes", [1, 2, "gpus"])
def test_a_run_that_is_asked_to_end_stops_no_other(tmp_path, processes):
    (tmp_path / "mine.py").write_text(ASKED)
    methods = [f"{tmp_path / 'mine.py'}:Asked", "supervised", "supervised"]
    jobs = [
        Job(tmp_path / str(seed), {"setting": "digits", "method": method, "seed": seed,
                                   "train": TINY})
        for seed, method in enumerate(methods)
    ]  # fmt: skip
    errors = {}
    if processes == "gpus":
        _train_on_gpus(jobs, Place("cpu"), ["0", "1"], errors.__setitem__)
    else:
        ended = train_jobs(jobs, Place("cpu", processes=processes))
        errors = {index: done.error for index, done in enumerate(ended)}
    assert "was asked to end" in errors.pop(0)
    assert errors == {1: None, 2: None}
    assert (jobs[0].folder / "state" / "last.json").exists()
    (again,) = train_jobs(jobs[:1], Place("cpu", processes=0))
    assert again.error is None


def test_work_that_is_done_apart_sees_the_first_gpu_that_was_named(monkeypatch):
    asked, places = [], []

    def process(gpu=None):
        asked.append(gpu)
        return ThreadPoolExecutor(1)

    def work(place):
        places.append(place)
        raise MemoryError("which is its own affair")

    monkeypatch.setattr("anedl.presets.jobs._process", process)
    monkeypatch.setattr("anedl.presets.gpus.gpus_of", {"cuda:1,cuda:2": ["1", "2"], "cpu": []}.get)
    for device in ("cuda:1,cuda:2", "cpu"):
        call_apart(work, Place(device))
    assert asked == ["1", None]
    assert places == [Place("cuda"), Place("cpu")]


# Half a minute at most, should nobody end them.
TRAINING = """
import sys
from pathlib import Path
from anedl.presets import jobs
from anedl.presets.jobs import Job, Place, train_jobs

jobs.PATIENCE_S = float(sys.argv[4])

def ignored(*_):
    pass

if __name__ == "__main__":
    where = Path(sys.argv[1])
    train = {"epochs": 50, "epoch_steps": 100, "log_every": 100}
    all_jobs = [Job(where / str(seed), {"setting": "digits", "method": "supervised", "seed": seed,
                                        "train": train}) for seed in range(int(sys.argv[2]))]
    if sys.argv[3] == "gpus":
        with jobs._terminable():
            jobs._train_on_gpus(all_jobs, Place("cpu"), ["0", "1"], ignored)
    else:
        train_jobs(all_jobs, Place("cpu", processes=2))
"""


@contextmanager
def training(folder, jobs, places, patience):
    """A process that trains, once all its runs do; nothing of it is left afterwards."""
    script = folder / "script.py"
    script.write_text(TRAINING)
    words = [sys.executable, script, folder, str(jobs), places, str(patience)]
    ours = subprocess.Popen(words, start_new_session=True)
    try:
        logs = [folder / str(number) / "metrics.jsonl" for number in range(jobs)]
        wait_for(lambda: all(log.exists() and log.stat().st_size for log in logs))
        yield ours
    finally:
        with suppress(ProcessLookupError):
            os.killpg(ours.pid, signal.SIGKILL)
        ours.wait()


@pytest.mark.parametrize(("jobs", "places"), [(1, "cores"), (2, "cores"), (2, "gpus")])
def test_whoever_is_terminated_leaves_no_process_that_trains_on(tmp_path, jobs, places):
    with training(tmp_path, jobs, places, patience=0.2) as ours:
        ours.terminate()
        assert ours.wait(20) == 128 + signal.SIGTERM
        rows = [(tmp_path / str(seed) / "metrics.jsonl") for seed in range(jobs)]
        sizes = [path.stat().st_size for path in rows]
        time.sleep(1.5)  # more than a line takes
        assert [path.stat().st_size for path in rows] == sizes


@pytest.mark.parametrize("places", ["cores", "gpus"])
def test_a_signal_to_all_processes_at_once_leaves_them_time_to_save(tmp_path, places):
    with training(tmp_path, 2, places, patience=10) as ours:
        os.killpg(ours.pid, signal.SIGTERM)
        assert ours.wait(20) == 128 + signal.SIGTERM
    for seed in range(2):
        assert not (tmp_path / str(seed) / "results.json").exists()
        assert (tmp_path / str(seed) / "state" / "last.json").exists(), "saves once a minute else"


def wait_for(true, seconds=60):
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "in vain"
        time.sleep(0.1)
