"""How many threads are worth starting for work on data."""

import os

_MOST = 4  # more wait for memory, or for the thread that takes what they made


def processors() -> int:
    """Processors this process may run on, as many as are of use."""
    if hasattr(os, "sched_getaffinity"):  # not on macOS
        return min(_MOST, len(os.sched_getaffinity(0)))
    return min(_MOST, os.cpu_count() or 1)
