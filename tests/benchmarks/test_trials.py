"""The queue's runner: what it does once, what it refuses, and how it stops."""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

TRIALS = Path(__file__).parents[2] / "benchmarks" / "trials.py"
SHORT = "digits --method supervised --epochs 2 --epoch-steps 3 --batch-size 6"
LONG = "digits --method supervised --epochs 500 --epoch-steps 20 --batch-size 6 --log-every 5"
HOW = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}


@pytest.fixture
def command(tmp_path):
    """The words that work through lines of a queue."""

    def make(*lines, more=()):
        (tmp_path / "queue.txt").write_text("\n".join(lines))
        return [sys.executable, str(TRIALS), str(tmp_path / "queue.txt"), "--least", "0",
                "--folder", str(tmp_path / "runs"), "--results", str(tmp_path / "results"),
                "--at-once", "1", *more]  # fmt: skip

    return make


def recorded(tmp_path):
    return sorted((tmp_path / "results" / "runs").glob("*.json"))


def test_a_trial_is_run_and_recorded_once(command, tmp_path):
    line = f"one: {SHORT} --seed 1"
    first = subprocess.run(command(line), **HOW)
    assert first.returncode == 0, first.stderr
    assert "one  " in first.stdout
    assert "1 of 1 trials have ended" in first.stdout
    (entry,) = recorded(tmp_path)
    assert json.loads(entry.read_text())["command"] == f"anedl train {SHORT} --seed 1"
    ended = (tmp_path / "runs" / "one" / "results.json").stat().st_mtime_ns

    # One that ended while nobody waited for it is recorded when it is next looked at.
    entry.unlink()
    again = subprocess.run(command(line), **HOW)
    assert again.stdout == "1 of 1 trials have ended\n"
    assert recorded(tmp_path) == [entry]
    assert (tmp_path / "runs" / "one" / "results.json").stat().st_mtime_ns == ended

    # One that the ledger has is not run again, wherever its folder is.
    shutil.move(tmp_path / "runs" / "one", tmp_path / "elsewhere")
    known = subprocess.run(command(line), **HOW)
    assert known.stdout == "1 of 1 trials have ended\n"
    assert not (tmp_path / "runs" / "one").exists()
    shutil.move(tmp_path / "elsewhere", tmp_path / "runs" / "one")

    other = subprocess.run(command(f"one: {SHORT} --seed 2"), **HOW)
    assert other.returncode == 1
    assert "other options than the queue's one" in other.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--lamda-n 1", "trial bad: not what `anedl train` takes"),
        ("--epochs 0", "trial bad: option epochs"),
    ],
)
def test_a_line_that_cannot_be_trained_is_told_before_any_is(command, tmp_path, words, said):
    done = subprocess.run(command(f"good: {SHORT}", f"bad: {SHORT} {words}"), **HOW)
    assert done.returncode == 1
    assert said in done.stderr
    assert not (tmp_path / "runs").exists()


def test_what_is_not_begun_for_want_of_time_is_told(command, tmp_path):
    short = ["--minutes", "0.5", "--least", "60"]
    done = subprocess.run(command(f"one: {SHORT}", more=short), **HOW)
    assert done.returncode == 0
    assert "0 of 1 trials have ended; 1 not begun, for which less than 60 s" in done.stdout


def test_a_trial_that_fails_is_told_and_the_next_is_run(command, tmp_path):
    (tmp_path / "runs" / "broken").mkdir(parents=True)
    (tmp_path / "runs" / "broken" / "config.json").write_text("{}")
    done = subprocess.run(command(f"broken: {SHORT}", f"good: {SHORT} --seed 1"), **HOW)
    assert done.returncode == 1
    assert "broken           not ended: " in done.stdout
    assert "1 of 2 trials have ended" in done.stdout


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_told_to_stop_it_saves_what_runs_and_begins_no_more(command, tmp_path, number):
    process = subprocess.Popen(command(f"long: {LONG}", f"next: {SHORT}"), **HOW)
    log = tmp_path / "runs" / "long" / "metrics.jsonl"
    waited_until = time.monotonic() + 120
    while not (log.exists() and log.read_text()) and time.monotonic() < waited_until:
        time.sleep(0.1)
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "0 of 2 trials have ended; 1 not begun\n" in said
    assert not (tmp_path / "runs" / "next").exists()
    # The training itself has ended and left where to go on.
    assert (tmp_path / "runs" / "long" / "state" / "last.json").exists()
    before = log.read_text()
    time.sleep(1)
    assert log.read_text() == before
