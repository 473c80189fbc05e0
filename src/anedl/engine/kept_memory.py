"""While a CPU computes, memory that a large tensor leaves is kept for the next one.

glibc asks the system for every block of more than 32 MiB and gives it back once it is free. The
system hands each out as pages that it fills with zeros when they are first written to, so that a
training step, whose layers each make such tensors, waits for pages for up to half of its time
(docs/performance.md). In threads other than the main one blocks of more than 64 MiB go back as
ever, for glibc keeps none so large there.
"""

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from torch import device as Device

# Parameters of glibc's mallopt, as malloc.h numbers them.
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4
NEVER = -1
# What holds afterwards, for what held before cannot be asked: where glibc's own adjustment arrives
# once it has seen a large block go, and its number of blocks.
USUAL = {TRIM_THRESHOLD: 64 * 2**20, MMAP_THRESHOLD: 32 * 2**20, MMAP_MAX: 65536}
# Whoever set one of these, or another of glibc.malloc by `GLIBC_TUNABLES`, knows what they want.
SETTINGS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "MALLOC_MMAP_MAX_")


class _Keeper:
    """Counts who computes: the first has memory kept, the last gives it back to the system."""

    def __init__(self) -> None:
        self.lock = Lock()
        self.computing = 0

    def enter(self) -> None:
        with self.lock:
            self.computing += 1
            if self.computing == 1 and (library := _glibc()) is not None:
                library.mallopt(MMAP_MAX, 0)
                library.mallopt(TRIM_THRESHOLD, NEVER)

    def leave(self) -> None:
        with self.lock:
            self.computing -= 1
            if self.computing == 0 and (library := _glibc()) is not None:
                for parameter, value in USUAL.items():
                    library.mallopt(parameter, value)
                library.malloc_trim(0)


_keeper = _Keeper()


@contextmanager
def freed_memory_kept(device: Device) -> Iterator[None]:
    """Keep what is freed meanwhile, where `device` is a CPU and glibc allocates; may be nested."""
    if device.type != "cpu":
        yield
        return
    _keeper.enter()
    try:
        yield
    finally:
        _keeper.leave()


def _glibc() -> ctypes.CDLL | None:
    """The library whose allocator this process has, if it takes such wishes and has none yet."""
    tuned = "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "")
    if sys.platform != "linux" or tuned or any(name in os.environ for name in SETTINGS):
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "mallopt") and hasattr(library, "malloc_trim") else None
