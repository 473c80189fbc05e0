"""What a large tensor leaves is kept while a CPU computes, and goes back to the system after."""

import json
import subprocess
import sys
from textwrap import dedent

import pytest
import torch

from anedl.engine import kept_memory
from anedl.engine.kept_memory import freed_memory_kept

CPU = torch.device("cpu")

with_glibc = pytest.mark.skipif(kept_memory._glibc() is None, reason="another allocator")

# Every measurement has a process of its own: where tests before have left a hole as large as these
# tensors in the heap, glibc fills it and never asks the system.
MEASURES = """
import json
import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import torch

from anedl.engine.kept_memory import freed_memory_kept
from anedl.engine.model import working_on

CPU = torch.device("cpu")
BYTES = 2**27
TENSORS = 8


def write_to_a_large_tensor():
    torch.empty(BYTES, dtype=torch.uint8).fill_(1)


def pages_asked_for():
    # Other tensors come first: what is kept may be too small by a little for the second one.
    for _ in range(TENSORS):
        write_to_a_large_tensor()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(TENSORS):
        write_to_a_large_tensor()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def large_tensors_resident():
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize() / BYTES


"""


def measured(lines: str) -> dict[str, float]:
    """What `lines`, run after `MEASURES`, have put into `found`."""
    code = MEASURES + "found = {}\n" + dedent(lines) + "\nprint(json.dumps(found))\n"
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@with_glibc
def test_a_freed_tensors_memory_serves_the_next_one() -> None:
    pages = measured("""
        found["usually"] = pages_asked_for()
        with freed_memory_kept(CPU):
            found["kept"] = pages_asked_for()
    """)
    assert 4 * pages["kept"] < pages["usually"]


@with_glibc
def test_memory_goes_back_in_the_end() -> None:
    tensors = measured("""
        found["before"] = large_tensors_resident()
        with freed_memory_kept(CPU):
            write_to_a_large_tensor()
            found["kept"] = large_tensors_resident()
        found["after"] = large_tensors_resident()
    """)
    assert tensors["kept"] > tensors["before"] + 0.5
    assert tensors["after"] < tensors["before"] + 0.5


@with_glibc
def test_memory_goes_back_after_an_error() -> None:
    tensors = measured("""
        found["before"] = large_tensors_resident()
        try:
            with freed_memory_kept(CPU):
                write_to_a_large_tensor()
                found["kept"] = large_tensors_resident()
                raise ZeroDivisionError
        except ZeroDivisionError:
            found["after"] = large_tensors_resident()
    """)
    assert tensors["kept"] > tensors["before"] + 0.5
    assert tensors["after"] < tensors["before"] + 0.5


@with_glibc
def test_an_inner_use_does_not_end_the_outer_one() -> None:
    pages = measured("""
        found["usually"] = pages_asked_for()
        with working_on(CPU):
            with freed_memory_kept(CPU):
                write_to_a_large_tensor()
            found["kept"] = pages_asked_for()
    """)
    assert 4 * pages["kept"] < pages["usually"]


@with_glibc
def test_threads_that_end_at_different_times_share_it() -> None:
    found = measured("""
        found["usually"] = pages_asked_for()
        found["before"] = large_tensors_resident()
        both_work = Barrier(2)

        def ends_first():
            with freed_memory_kept(CPU):
                both_work.wait(10)

        with ThreadPoolExecutor(1) as pool, freed_memory_kept(CPU):
            first = pool.submit(ends_first)
            both_work.wait(10)
            first.result(10)
            found["kept"] = pages_asked_for()
        found["after"] = large_tensors_resident()
    """)
    assert 4 * found["kept"] < found["usually"]
    assert found["after"] < found["before"] + 0.5


class Recorder:
    """Stands in for glibc."""

    def __init__(self) -> None:
        self.wishes: list[tuple[int, int]] = []

    def mallopt(self, parameter: int, value: int) -> int:
        self.wishes.append((parameter, value))
        return 1

    def malloc_trim(self, pad: int) -> int:
        return 1


def test_a_gpu_leaves_the_allocator_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    monkeypatch.setattr(kept_memory, "_glibc", lambda: recorder)
    with freed_memory_kept(torch.device("cuda", 0)):
        pass
    assert recorder.wishes == []
    with freed_memory_kept(CPU):
        kept = dict(recorder.wishes)
    after = dict(recorder.wishes)
    assert len(kept) == 2
    assert all(after[parameter] != value for parameter, value in kept.items())


@pytest.mark.parametrize(
    ("name", "value"),
    [(name, "1000") for name in kept_memory.SETTINGS]
    + [("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1:glibc.rtld.nns=4")],
)
def test_a_users_own_settings_stay(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.setenv(name, value)
    assert kept_memory._glibc() is None


def test_other_systems_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert kept_memory._glibc() is None
    with freed_memory_kept(CPU):
        pass


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*kept_memory.SETTINGS, "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr("ctypes.CDLL", lambda name: object())
    assert kept_memory._glibc() is None
