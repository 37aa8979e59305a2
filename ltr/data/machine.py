"""Processors and memory of this machine for work on data."""

import os
from pathlib import Path

_MOST = 4  # more wait for memory, or for the thread that takes their results


def processors() -> int:
    """The number of processors that this process may run on, at most as many as are of use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return min(_MOST, len(os.sched_getaffinity(0)))
    return min(_MOST, os.cpu_count() or 1)


def free_memory() -> int | None:
    """Bytes that can still be taken; None where the system does not say."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        free = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    except OSError:
        return None
    try:  # a container may have less than its machine
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        free.append(int(Path("/sys/fs/cgroup/memory.max").read_text()) - used)
    except (OSError, ValueError):
        pass
    return min(free, default=None)
