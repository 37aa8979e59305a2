"""What one process can measure of itself: the time of a call, and the peak of its memory."""

import ctypes
import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median, quantiles

CLEAR_REFS, STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


def seconds_of(call: Callable[[], object], device: str, times: int = 1) -> float:
    """Wall-clock seconds of one call, the mean over ``times`` calls in a row.

    On a GPU the clock is read only when it has nothing left to do.
    """
    _wait(device)
    began = time.perf_counter()
    for _ in range(times):
        call()
    _wait(device)
    return (time.perf_counter() - began) / times


def peak_of(call: Callable[[], object], device: str) -> tuple[float, int]:
    """Seconds of one call, and the bytes it held at its peak beyond those held before.

    On the CPU these are resident bytes: memory that earlier calls freed is given back to the system
    first, and the kernel's high-water mark is set back (``/proc/self/clear_refs``). On a GPU they
    are what PyTorch's allocator gave out.
    """
    gc.collect()
    if device == "cuda":
        import torch

        _wait(device)
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        seconds = seconds_of(call, device)
        return seconds, torch.cuda.max_memory_allocated() - before
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).malloc_trim(0)
    CLEAR_REFS.write_text("5")  # 5: set VmHWM back to what is resident now
    before = _status("VmRSS")
    seconds = seconds_of(call, device)
    return seconds, max(0, _status("VmHWM") - before)


def spread(samples: list[float]) -> tuple[float, float, float]:
    """Median, and the quartiles between which half of the samples lie.

    >>> spread([1.0, 2.0, 3.0, 4.0, 5.0])
    (3.0, 2.0, 4.0)
    >>> spread([2.0])
    (2.0, 2.0, 2.0)
    """
    if len(samples) < 2:
        return samples[0], samples[0], samples[0]
    first, _, third = quantiles(samples, n=4, method="inclusive")
    return median(samples), first, third


def _wait(device: str) -> None:
    if device == "cuda":
        import torch  # not for the CPU: reading does without

        torch.cuda.synchronize()


def _status(key: str) -> int:
    """A line of ``/proc/self/status`` in bytes."""
    (line,) = [line for line in STATUS.read_text().splitlines() if line.startswith(f"{key}:")]
    return int(line.split()[1]) * 1024
