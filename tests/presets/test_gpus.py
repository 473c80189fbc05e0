"""A run on each GPU. There is none here: the processes train on the CPU and say what they see."""

import json
import time
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from anedl.errors import ConfigError
from anedl.presets.gpus import VISIBLE, gpus_of
from anedl.presets.jobs import Job, Place, _train_on_gpus

TINY = {"epochs": 1, "epoch_steps": 2, "batch_size": 6, "test_while_training": False}
WITNESS = '''
import json
import os
import time
from pathlib import Path
from anedl.methods.supervised import Supervised

class Witness(Supervised):
    """Notes which GPU its process sees, since when and until when."""

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.note = {"gpu": os.environ["CUDA_VISIBLE_DEVICES"], "from": time.time()}
        self.write()

    def write(self):
        self.note["to"] = time.time()
        (Path(__file__).parent / f"{os.getpid()}.json").write_text(json.dumps(self.note))

    def loss(self, batch, progress):
        self.write()
        return super().loss(batch, progress)

class Dying(Witness):
    """Takes its process with it."""

    def loss(self, batch, progress):
        os._exit(9)
'''


@pytest.fixture
def four_gpus(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.delenv(VISIBLE, raising=False)


def test_which_gpus_a_word_means(four_gpus):
    assert gpus_of("auto") == ["0", "1", "2", "3"]
    assert gpus_of("cuda") == ["0"]
    assert gpus_of("cuda:3, cuda:1,cuda:3") == ["3", "1"]
    assert gpus_of("cpu") == []
    with pytest.raises(ConfigError, match=r"cuda:4 was asked for, .* is cuda:3"):
        gpus_of("cuda:0,cuda:4")
    for several in ("cpu,cpu", "cpu,cuda:0", "cuda:0,auto", "cuda:0,"):
        with pytest.raises(ConfigError, match="only GPUs can be several"):
            gpus_of(several)


def test_gpus_keep_the_names_by_which_this_process_was_given_them(four_gpus, monkeypatch):
    monkeypatch.setenv(VISIBLE, "6,GPU-5f, 2,1")
    assert gpus_of("auto") == ["6", "GPU-5f", "2", "1"]
    assert gpus_of("cuda:1,cuda:2") == ["GPU-5f", "2"]


def jobs_of(folder, *classes):
    (folder / "mine.py").write_text(WITNESS)
    return [
        Job(folder / f"run{seed}", {"setting": "digits", "method": f"{folder / 'mine.py'}:{name}",
                                    "seed": seed, "train": TINY})
        for seed, name in enumerate(classes)
    ]  # fmt: skip


def test_every_gpu_trains_one_run_at_a_time_and_sees_no_other(tmp_path):
    jobs = jobs_of(tmp_path, "Witness", "Dying", "Witness", "Witness")
    errors = {}
    _train_on_gpus(jobs, Place("cpu"), ["7", "GPU-5f"], errors.__setitem__)
    assert sorted(errors) == [0, 1, 2, 3]
    assert "its process was ended" in errors.pop(1)
    assert set(errors.values()) == {None}, "one that dies loses no other"
    notes = [json.loads(path.read_text()) for path in tmp_path.glob("*.json")]
    assert len(notes) == 4, "each in a process of its own"
    by_gpu = {gpu: [note for note in notes if note["gpu"] == gpu] for gpu in ("7", "GPU-5f")}
    assert all(by_gpu.values())
    for of_one in by_gpu.values():
        of_one.sort(key=lambda note: note["from"])
        for earlier, later in pairwise(of_one):
            assert earlier["to"] < later["from"]


@pytest.mark.parametrize("trouble", [KeyboardInterrupt, SystemExit, OSError])
def test_after_an_interruption_no_other_run_begins(tmp_path, monkeypatch, trouble):
    """After Ctrl-C those that run are waited for, having heard it; after all else they are told."""
    monkeypatch.setattr("anedl.presets.jobs.PATIENCE_S", 0.1)
    waits = trouble is KeyboardInterrupt
    dying, long, *others = jobs_of(tmp_path, "Dying", "Witness", "Witness", "Witness")
    train = {**TINY, "epochs": 2 if waits else 50, "epoch_steps": 100, "log_every": 10}
    long = replace(long, spec={**long.spec, "train": train})

    def interrupt(_index, _error):
        until = time.monotonic() + 60
        log = long.folder / "metrics.jsonl"  # a line: by then it has ears for what ends it
        while not (log.exists() and log.stat().st_size):
            assert time.monotonic() < until, "in vain"
            time.sleep(0.05)
        raise trouble

    with pytest.raises(trouble):
        _train_on_gpus([dying, long, *others], Place("cpu"), ["0", "1"], interrupt)
    assert not any(job.folder.exists() for job in others)
    assert (long.folder / "results.json").exists() is waits
    assert (long.folder / "state" / "last.json").exists(), "and it has saved"
