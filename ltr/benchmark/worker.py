"""Cases and their work, and the process of one side, which makes, checks and times the work.

Requests and replies are JSON, one a line, on stdin and stdout; all other output goes to stderr.
Importing this, and working on the CPU, needs no torch: the reader is measured without it.
"""

import ctypes
import gc
import importlib
import json
import os
import resource
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Answer = Mapping[str, float | str | list[float]]

OURS = "ours"
_CLEAR_REFS, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")
_NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory", "bad_alloc")
_PROFILED = 15  # operators, the slowest


@dataclass(frozen=True)
class Case:
    """A measurement of every side.

    ``tolerance``: how much each part of a peer's answer may differ from ours, relative to our
    largest absolute value; other parts must be equal.
    """

    name: str  # unique in its subject
    settings: Mapping[str, Any]  # for ``make`` of the subject, JSON
    sides: tuple[str, ...]  # ``ours`` first
    tolerance: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    """The work of a side in a case, ready to run.

    Before anything is timed, the parts of ``answer`` that two sides share are compared.
    """

    call: Callable[[], object]  # is timed
    answer: Callable[[], Answer]
    amount: float = 1  # how much one call does, in ``unit``
    unit: str = "passes"  # such as ``lists`` or ``MB``
    note: str = ""  # shown below the rows
    bytes_needed: int | None = None  # of the result itself, where memory is compared with it
    flops: float | None = None  # operations of the model in one call, where they are known
    part: float = 1  # the share that one call does of the work that the case names
    close: Callable[[], object] = lambda: None  # called when the case is done


class Worker:
    """Answers requests, and holds the work of one case at a time."""

    def __init__(self, subject: str, side: str, options: Mapping[str, Any]) -> None:
        """Import ``subject``, a module with ``make``, and no other: the reader needs no torch.

        ``options``: device, threads, memory_limit in bytes, cache_dir.
        """
        self.make = importlib.import_module(subject).make
        self.side, self.options = side, options
        self.device = str(options["device"])
        self.work: Work | None = None
        if "torch" in sys.modules and options["threads"] is not None:
            sys.modules["torch"].set_num_threads(int(options["threads"]))
        if self.device == "cpu" and options["memory_limit"] is not None:
            limit = int(options["memory_limit"])
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    def reply(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The reply to ``{"do": ..., ...}``, or ``{"failed": why}``."""
        try:
            return self._obey(request)
        except Exception as error:
            traceback.print_exc()
            text = " ".join(str(error).split())
            if isinstance(error, MemoryError) or any(mark in text for mark in _NO_MEMORY):
                return {"failed": "does not fit into memory"}
            return {"failed": f"{type(error).__name__}: {text[:160]}"}

    def _obey(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request["do"] == "start":
            return {}
        if request["do"] == "prepare":
            self.finish()  # free the last case's memory first
            place = str(self.options["cache_dir"])
            self.work = self.make(self.side, request["settings"], self.device, place)
            told = ("amount", "unit", "note", "bytes_needed", "flops", "part")
            torch, threads = sys.modules.get("torch"), self.options["threads"]
            used = torch.get_num_threads() if torch else int(threads or os.cpu_count() or 1)
            return {key: getattr(self.work, key) for key in told} | {"threads": used}
        assert self.work is not None
        if request["do"] == "answer":
            return {"answer": dict(self.work.answer())}
        if request["do"] == "peak":
            seconds, peak = peak_of(self.work.call, self.device)
            return {"seconds": seconds, "bytes": peak}
        if request["do"] == "each":
            return {
                "each": [seconds_of(self.work.call, self.device) for _ in range(request["times"])]
            }
        if request["do"] == "time":
            return {"seconds": seconds_of(self.work.call, self.device, request["times"])}
        return {"profile": _profile(self.work.call, self.device)}

    def finish(self) -> None:
        """Free the work of the case."""
        if self.work is not None:
            self.work.close()
        self.work = None


def seconds_of(call: Callable[[], object], device: str, times: int = 1) -> float:
    """Wall-clock seconds of a call, the mean over ``times`` in a row; waits for a GPU's work."""
    _wait(device)
    began = time.perf_counter()
    for _ in range(times):
        call()
    _wait(device)
    return (time.perf_counter() - began) / times


def peak_of(call: Callable[[], object], device: str) -> tuple[float, int]:
    """Seconds of one call, and the bytes it held at its peak beyond those held before.

    On the CPU these are resident bytes: first, memory that earlier calls freed returns to the
    system, and the kernel's high-water mark is reset (``/proc/self/clear_refs``). On a GPU they are
    the bytes that PyTorch's allocator gave out.
    """
    gc.collect()
    if device == "cuda":
        import torch

        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        seconds = seconds_of(call, device)
        return seconds, torch.cuda.max_memory_allocated() - before
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).malloc_trim(0)
    _CLEAR_REFS.write_text("5")  # 5: reset VmHWM to what is resident now
    before = _status("VmRSS")
    seconds = seconds_of(call, device)
    return seconds, max(0, _status("VmHWM") - before)


def _wait(device: str) -> None:
    if device == "cuda":
        import torch

        torch.cuda.synchronize()


def _status(key: str) -> int:
    """A line of ``/proc/self/status`` in bytes."""
    (line,) = [line for line in _STATUS.read_text().splitlines() if line.startswith(f"{key}:")]
    return int(line.split()[1]) * 1024


def _profile(call: Callable[[], object], device: str) -> str:
    """A table of the slowest operators of one call."""
    from torch.profiler import ProfilerActivity, profile

    activities, key = [ProfilerActivity.CPU], "self_cpu_time_total"
    if device == "cuda":
        activities, key = [*activities, ProfilerActivity.CUDA], "self_device_time_total"
    with profile(activities=activities) as record:
        call()
    averages = record.key_averages()
    return averages.table(sort_by=key, row_limit=_PROFILED, max_name_column_width=40)


def disagreement(ours: Answer, theirs: Answer, tolerance: Mapping[str, float]) -> str | None:
    """The difference of two answers in words; None if they agree.

    >>> disagreement({"value": 2.0}, {"value": 2.001}, {"value": 1e-2})
    >>> disagreement({"value": 2.0}, {"value": 2.1}, {"value": 1e-2})
    'value differs by 0.05 of the largest, 0.01 is allowed'
    >>> disagreement({"rows": 3.0}, {"lines": 3.0}, {})
    'the answers have nothing in common to compare'
    """
    common = [key for key in ours if key in theirs]
    if not common:
        return "the answers have nothing in common to compare"
    for key in common:
        a, b = ours[key], theirs[key]
        if isinstance(a, str) or isinstance(b, str):
            if a != b:
                return f"{key}: ours {a}, theirs {b}"
            continue
        first, second = np.atleast_1d(a), np.atleast_1d(b)
        if len(first) != len(second):
            return f"{key}: ours has {len(first)} values, theirs {len(second)}"
        largest = np.abs(first).max(initial=0.0)
        gap = np.abs(first - second).max(initial=0.0)
        allowed = tolerance.get(key, 0.0)
        if not gap <= allowed * largest:  # not: NaN is a difference
            share = gap / largest if largest else gap
            return f"{key} differs by {share:.2g} of the largest, {allowed:g} is allowed"
    return None


def serve() -> None:
    """Reply until stdin ends; the arguments of the process are subject, side and options."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")  # of the peers, about the versions they run with
    worker = Worker(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
    for line in sys.stdin:
        out.write(json.dumps(worker.reply(json.loads(line))) + "\n")
        out.flush()
    worker.finish()
