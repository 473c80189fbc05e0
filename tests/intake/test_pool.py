import sys
import weakref

import numpy as np
import pytest
from PIL import Image

from anedl.errors import DataError
from anedl.intake import pool
from anedl.intake.examined import Examined, examine
from anedl.intake.pool import examine_all

# A worker whose decoder has faults, told by the name of the file.
FAULTY = """
import os, signal, sys, time
from multiprocessing.connection import Connection
from anedl.intake import worker

real = worker.examine
def examine(path, side):
    if "crash" in path.name: os.kill(os.getpid(), signal.SIGSEGV)
    if "killed" in path.name: os.kill(os.getpid(), signal.SIGKILL)
    if "exit" in path.name: os._exit(3)
    if "stall" in path.name: time.sleep(1000)
    if "slow" in path.name: time.sleep(0.7)
    return real(path, side)
worker.examine = examine
worker.serve(Connection(int(sys.argv[1])), int(sys.argv[2]))
"""


@pytest.fixture
def faulty(monkeypatch):
    def command(descriptor, side):
        return [sys.executable, "-c", FAULTY, str(descriptor), str(side)]

    monkeypatch.setattr(pool, "worker_command", command)


def pictures(folder, names):
    paths = []
    for number, name in enumerate(names):
        paths.append(folder / f"{name}.png")
        pixels = np.random.default_rng(number).integers(0, 256, (9, 8, 3), np.uint8)
        Image.fromarray(pixels).save(paths[-1])
    return paths


@pytest.mark.usefixtures("alarm", "faulty")
def test_a_crash_costs_one_file(tmp_path):
    names = ["0", "crash", "2", "exit", "4", "killed", "stall", "7", "8", "crash9"]
    found = list(examine_all(pictures(tmp_path, names), 8, workers=2, most_seconds=3.0))
    reasons = {n: a for n, a in zip(names, found, strict=True) if not isinstance(a, Examined)}
    assert reasons == {
        "crash": "the decoder crashed on it (signal 11)",
        "exit": "the decoder crashed on it (exit status 3)",
        "killed": "the process decoding it was killed, perhaps for want of memory",
        "stall": "decoding it took more than 3 seconds",
        "crash9": "the decoder crashed on it (signal 11)",
    }


def test_processes_answer_what_this_one_would(tmp_path):
    paths = pictures(tmp_path, [str(n) for n in range(30)])
    paths[7].write_bytes(b"broken")
    for here, there in zip(
        examine_all(paths, 8, workers=0), examine_all(paths, 8, workers=2), strict=True
    ):
        if isinstance(here, str):
            assert here == there
            continue
        np.testing.assert_array_equal(here.frame, there.frame)
        assert (here.width, here.height, here.digest, here.hash) == (
            there.width,
            there.height,
            there.digest,
            there.hash,
        )


@pytest.mark.usefixtures("alarm", "faulty")
def test_few_frames_are_held_while_one_file_is_slow(tmp_path, monkeypatch):
    """All but the first are quick: only the window keeps them from piling up."""
    monkeypatch.setattr(pool, "WINDOW", 10)
    alive = weakref.WeakSet()
    most = 0
    real = Examined.from_bytes

    def counted(message, side):
        nonlocal most
        found = real(message, side)
        alive.add(found)
        most = max(most, len(alive))
        return found

    monkeypatch.setattr(Examined, "from_bytes", counted)
    (plain,) = pictures(tmp_path, ["quick"])
    (slow,) = pictures(tmp_path, ["slow"])
    count = sum(
        isinstance(answer, Examined) for answer in examine_all([slow] + [plain] * 60, 8, workers=2)
    )
    assert count == 61
    assert 9 <= most <= 11  # the window, and the one that the caller has just been given


def test_workers_that_do_not_start(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "worker_command", lambda *_: [sys.executable, "-c", "raise 0"])
    with pytest.raises(DataError, match=r"do not start \(exit status 1\); with workers 0"):
        list(examine_all(pictures(tmp_path, ["a", "b"]), 8, workers=2))


def test_workers_end_when_the_caller_gives_up(tmp_path, monkeypatch):
    started = []
    real = pool._Worker

    def remembered(side):
        started.append(real(side))
        return started[-1]

    monkeypatch.setattr(pool, "_Worker", remembered)
    answers = examine_all(pictures(tmp_path, ["a", "b", "c"]), 8, workers=2)
    next(answers)
    answers.close()
    assert len(started) == 2
    assert all(worker._process.poll() is not None for worker in started)


def test_a_worker_starts_without_torch():
    import subprocess

    code = "import anedl.intake.worker, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_what_is_kept_of_an_image(tmp_path):
    import hashlib

    pixels = np.random.default_rng(1).integers(0, 256, (9, 20, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    Image.fromarray(pixels).save(tmp_path / "b.bmp")
    Image.fromarray(pixels.reshape(20, 9, 3)).save(tmp_path / "c.png")
    one, same, other = (examine(tmp_path / name, 12) for name in ("a.png", "b.bmp", "c.png"))
    assert (one.width, one.height) == (20, 9)
    assert (
        one.digest == same.digest == hashlib.sha256("9 × 20 ".encode() + pixels.tobytes()).digest()
    )
    assert other.digest != one.digest
    wanted = Image.fromarray(pixels).resize((12, 12), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(one.frame, np.array(wanted))
