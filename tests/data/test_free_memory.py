"""Free memory is what Linux calls available, and elsewhere all that there is."""

import os

from anedl.data import free_memory


def test_what_linux_says_is_available(tmp_path, monkeypatch):
    says = tmp_path / "meminfo"
    says.write_text("MemTotal:   9 kB\nMemFree:   2 kB\nMemAvailable:   5 kB\nBuffers:   1 kB\n")
    monkeypatch.setattr(free_memory, "MEMINFO", says)
    assert free_memory.free_memory() == 5 * 1024


def test_elsewhere_all_there_is(tmp_path, monkeypatch):
    monkeypatch.setattr(free_memory, "MEMINFO", tmp_path / "none")
    every = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert free_memory.free_memory() == every
