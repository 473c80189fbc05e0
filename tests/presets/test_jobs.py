"""Many runs in processes of their own: what dies, is interrupted or is ended from outside."""

import signal
import subprocess
import sys
import time

import pytest

from anedl.presets.jobs import Job, Place, train_jobs

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


TRAINING = """
import sys
from pathlib import Path
from anedl.presets.jobs import Job, Place, train_jobs

if __name__ == "__main__":
    where = Path(sys.argv[1])
    train = {"epochs": 500, "epoch_steps": 50, "log_every": 1}
    jobs = [Job(where / str(seed), {"setting": "digits", "method": "supervised", "seed": seed,
                                    "train": train}) for seed in range(int(sys.argv[2]))]
    train_jobs(jobs, Place(device="cpu", processes=2))
"""


@pytest.mark.parametrize("jobs", [1, 2])
def test_whoever_is_terminated_leaves_no_process_that_trains_on(tmp_path, jobs):
    script = tmp_path / "script.py"
    script.write_text(TRAINING)
    folders = [tmp_path / str(seed) for seed in range(jobs)]
    with subprocess.Popen([sys.executable, str(script), str(tmp_path), str(jobs)]) as ours:
        wait_for(lambda: all((folder / "metrics.jsonl").exists() for folder in folders))
        ours.terminate()
        assert ours.wait(60) == 128 + signal.SIGTERM
    sizes = [(folder / "metrics.jsonl").stat().st_size for folder in folders]
    time.sleep(1)
    assert [(folder / "metrics.jsonl").stat().st_size for folder in folders] == sizes


def wait_for(true, seconds=120):
    until = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < until, "in vain"
        time.sleep(0.1)
