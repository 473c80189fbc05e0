"""Two processes cannot train in one folder."""

import errno
import fcntl
import subprocess
import sys

import pytest

from anedl.engine.lock import one_after_another, require_free, sole_training
from anedl.errors import ConfigError

# Says that it has the lock, and keeps it until it is killed; a child of it lives on for a while.
HOLDER = """
import pathlib, os, sys, time
from anedl.engine.lock import sole_training
with sole_training(pathlib.Path(sys.argv[1])):
    if os.fork() == 0:
        time.sleep(10)
        os._exit(0)
    print("has it", flush=True)
    time.sleep(60)
"""


def test_another_process_is_told_who_trains_there(tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout.readline() == "has it\n"
        message = rf"process {holder.pid} is training in this folder"
        with pytest.raises(ConfigError, match=message), sole_training(tmp_path):
            pass
        with pytest.raises(ConfigError, match=message):
            require_free(tmp_path)
        holder.kill()
        holder.wait()
        require_free(tmp_path)
        with sole_training(tmp_path):
            pass


def test_a_folder_in_which_nobody_has_trained_is_free_and_stays_as_it_is(tmp_path):
    require_free(tmp_path)
    require_free(tmp_path / "none")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_which_somebody_trains_is_refused(tiny_spec, tiny_run, tmp_path):
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as holder:
        holder.stdout.readline()
        with pytest.raises(ConfigError, match="is training in this folder"):
            tiny_run(tiny_spec(), tmp_path)
        holder.kill()
    assert not (tmp_path / "config.json").exists()
    tiny_run(tiny_spec(), tmp_path)


WAITED_FOR = """
import pathlib, sys
from anedl.engine.lock import one_after_another
with one_after_another(pathlib.Path(sys.argv[1])):
    print("has it", flush=True)
    sys.stdin.readline()
    (pathlib.Path(sys.argv[1]) / "done").touch()
"""


def test_one_waits_for_another_and_is_told(tmp_path):
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(
        [sys.executable, "-c", WAITED_FOR, str(tmp_path)], text=True, **pipes
    ) as other:
        assert other.stdout.readline() == "has it\n"

        def told():
            assert not (tmp_path / "done").exists()
            other.stdin.write("\n")
            other.stdin.flush()

        with one_after_another(tmp_path, told) as alone:
            assert (tmp_path / "done").exists(), "it had its time"
            assert alone
    with one_after_another(tmp_path, lambda: pytest.fail("there is nobody")) as alone:
        assert alone


def test_without_locks_nobody_waits_and_nobody_is_known_to_be_alone(tmp_path, monkeypatch):
    def no_locks(file, operation):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", no_locks)
    with one_after_another(tmp_path, lambda: pytest.fail("there is nobody")) as alone:
        assert not alone


def test_whoever_cannot_say_that_it_waits_does_not_pass_by(tmp_path):
    def closed():
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(
        [sys.executable, "-c", WAITED_FOR, str(tmp_path)], text=True, **pipes
    ) as other:
        assert other.stdout.readline() == "has it\n"
        with pytest.raises(BrokenPipeError), one_after_another(tmp_path, closed):
            pytest.fail("the other has it")
        other.communicate("\n")
