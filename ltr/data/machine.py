"""The number of processors and the free memory of this machine, which limit data processing."""

import math
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

_MAX_THREADS = (
    4  # more threads would wait for the memory, or for the thread that reads their results
)


def processors() -> int:
    """Return how many threads to use: one for each available processor, but at most 4."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return min(_MAX_THREADS, len(os.sched_getaffinity(0)))
    return min(_MAX_THREADS, os.cpu_count() or 1)


def free_memory(device: Any) -> float:
    """Return the free memory in bytes of a ``torch.device``; inf if it cannot be determined."""
    if device.type == "cuda":
        import torch

        return torch.cuda.mem_get_info(device)[0]
    free = [math.inf]
    with suppress(OSError, ValueError):
        text = Path("/proc/meminfo").read_text()
        free.append(1024 * int(text.partition("MemAvailable:")[2].partition("kB")[0]))
    with suppress(OSError, ValueError):  # a container may have less memory than its machine
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
        free.append(int(Path("/sys/fs/cgroup/memory.max").read_text()) - used)
    return min(free)
