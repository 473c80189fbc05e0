"""Two processes cannot train in one folder."""

import subprocess
import sys

import pytest

from anedl.engine.lock import sole_training
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
        holder.kill()
        holder.wait()
        with sole_training(tmp_path):
            pass


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
