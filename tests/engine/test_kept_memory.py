"""What a large tensor leaves is kept while a CPU computes, and goes back to the system after."""

import resource
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
import torch

from anedl.engine import kept_memory
from anedl.engine.kept_memory import freed_memory_kept
from anedl.engine.model import working_on

CPU = torch.device("cpu")
BYTES = 2**27
TENSORS = 8

with_glibc = pytest.mark.skipif(kept_memory._glibc() is None, reason="another allocator")


def write_to_a_large_tensor() -> None:
    torch.empty(BYTES, dtype=torch.uint8).fill_(1)


def pages_asked_for() -> int:
    """Page faults of one large tensor after another, each freed before the next is made.

    Other tensors come first: what is kept may be too small by a little for the second one.
    """
    for _ in range(TENSORS):
        write_to_a_large_tensor()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(TENSORS):
        write_to_a_large_tensor()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


@with_glibc
def test_a_freed_tensors_memory_serves_the_next_one() -> None:
    usually = pages_asked_for()
    with freed_memory_kept(CPU):
        assert 4 * pages_asked_for() < usually
    assert pages_asked_for() > usually / 2


@with_glibc
def test_memory_goes_back_in_the_end() -> None:
    before = resident_bytes()
    with freed_memory_kept(CPU):
        write_to_a_large_tensor()
        assert resident_bytes() > before + BYTES / 2
    assert resident_bytes() < before + BYTES / 2


@with_glibc
def test_memory_goes_back_after_an_error() -> None:
    before = resident_bytes()

    def fail() -> None:
        with freed_memory_kept(CPU):
            write_to_a_large_tensor()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert resident_bytes() < before + BYTES / 2


@with_glibc
def test_an_inner_use_does_not_end_the_outer_one() -> None:
    usually = pages_asked_for()
    with working_on(CPU):
        with freed_memory_kept(CPU):
            write_to_a_large_tensor()
        assert 4 * pages_asked_for() < usually


@with_glibc
def test_threads_that_end_at_different_times_share_it() -> None:
    usually = pages_asked_for()
    both_work = Barrier(2)

    def ends_first() -> None:
        with freed_memory_kept(CPU):
            both_work.wait(10)

    with ThreadPoolExecutor(1) as pool, freed_memory_kept(CPU):
        first = pool.submit(ends_first)
        both_work.wait(10)
        first.result(10)
        assert 4 * pages_asked_for() < usually
    assert pages_asked_for() > usually / 2


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
