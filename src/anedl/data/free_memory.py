"""How much memory is free, for what would rather be refused than killed."""

import os
from pathlib import Path

MEMINFO = Path("/proc/meminfo")


def free_memory() -> int:
    """Bytes that programs can still have; where the system does not tell, all that there are."""
    if MEMINFO.exists():
        for line in MEMINFO.read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                return int(value.split()[0]) * 1024
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
