"""Processors and memory of this machine for work on data."""

import os
from pathlib import Path

_MOST = 4  # more wait for memory, or for the thread that takes their results


def processors() -> int:
    """The number of processors that this process may run on, at most as many as are of use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return min(_MOST, len(os.sched_getaffinity(0)))
    return min(_MOST, os.cpu_count() or 1)


def available_memory() -> tuple[int, str]:
    """Bytes of memory that are still free, and the word for them."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        kilobytes = next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):  # not Linux: an array that does not fit is an error of NumPy
        return 1 << 62, "memory"
    return int(kilobytes) * 1024, "memory"
