"""What the benchmarks share: arguments, time and memory of the sides of a case, rows, tables."""

import ctypes
import gc
import json
import os
import re
import resource
import sys
import timeit
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from llvmlite.binding import get_host_cpu_name
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from tabulate import tabulate
from torch.utils.benchmark import timer

from ltr.data.machine import free_memory
from ltr.experiment.run_folder import commit
from ltr.pages.style import style

OURS = "ours"
VERSIONS = "torch numpy numba allrank scikit-learn lightgbm xgboost xgboost-cpu onnxruntime"
LOAD = f"{os.getloadavg()[0]:.1f}"  # before
HEAD = ("case", "side", "median", "half of the samples", "n", "rate", "peak memory", "to ours")
KEYS: dict[str, Any] = {
    "device": "cpu", "threads": None,  # of the CPU; None: as PyTorch chooses
    "only": "", "quick": False,  # the cases with this text in their names; small sizes, to try it
    "repeats": 9, "seconds": 20.0,  # samples of each side; none begins after so much time
    "long": 30.0, "memory_limit": None,  # a first call above is the only one; GB, None: 0.7 of free
    "into": "",  # a file of rows to go on with: what it has is not measured again
    "cache_dir": "data/cache", "output_dir": "outputs/benchmarks",
}  # fmt: skip
Row = dict[str, Any]


class Work(NamedTuple):
    """What one side does in a case, and how much of what it is."""

    call: Callable[[], object]  # is timed
    answer: Callable[[], Mapping[str, Any]] = dict  # parts that sides share must agree
    note: str = ""
    amount: float = 1
    unit: str = "lists"


class Case(NamedTuple):
    """A measurement of every side, ours first."""

    name: str
    make: Callable[[str], Work]  # of a side
    sides: Sequence[str]
    tolerance: Mapping[str, float] = {}  # of a part of an answer, over our largest value


def main(title: str, cases: Any, sizes: Any, *, latencies=False, picture: Any = None) -> None:
    """Measure and show the cases of a script, and draw them into ``keys.picture``."""
    keys = arguments(sizes)
    rows = kept(keys)
    for case in cases(keys):
        if str(keys.only or "") in case.name and not any(row["case"] == case.name for row in rows):
            rows += append(_sides(case, keys, keys.calls if latencies else 0), keys)
    show(title, rows, keys, latencies=latencies)
    if picture:
        with style():
            to = keys.picture or Path(keys.into).with_suffix(".png")
            picture(rows, keys).savefig(to, dpi=120, metadata={"Software": None})


def arguments(sizes: Mapping[str, tuple[Any, Any]]) -> Any:
    """The values of ``KEYS`` and of ``sizes``, whose second ones are those of ``quick=true``."""
    known = OmegaConf.create(KEYS | {key: value for key, (value, _) in sizes.items()})
    OmegaConf.set_struct(known, True)
    try:
        given = OmegaConf.from_cli()
        quick = {"repeats": 2, "seconds": 1, **{key: value for key, (_, value) in sizes.items()}}
        keys = OmegaConf.merge(known, quick if given.get("quick") else {}, given)
    except OmegaConfBaseException as error:
        sys.exit(f"error: {str(error).splitlines()[0]}: the keys are {', '.join(known)}")
    if keys.device not in ("cpu", "cuda")[: 1 + torch.cuda.is_available()]:
        sys.exit(f"error: device={keys.device}: cpu, or cuda where PyTorch sees a GPU")
    if keys.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # allRank takes any GPU that it sees
        limit = keys.memory_limit or 0.7e-9 * (free_memory(torch.device("cpu")) or 1e12)
        resource.setrlimit(resource.RLIMIT_DATA, (int(1e9 * limit), resource.RLIM_INFINITY))
    torch.set_num_threads(keys.threads or torch.get_num_threads())
    name = f"{Path(sys.argv[0]).stem}-{keys.device}-{datetime.now():%Y-%m-%d_%H-%M-%S_%f}.jsonl"
    keys.into = keys.into or f"{keys.output_dir}/{name}"
    keys.cache_dir = str(Path(keys.cache_dir).absolute())
    Path(keys.cache_dir).mkdir(parents=True, exist_ok=True)
    Path(keys.into).parent.mkdir(parents=True, exist_ok=True)
    return keys


def kept(keys: Any) -> list[Row]:
    """The rows of ``keys.into``, without one that was cut."""
    rows, path = [], Path(keys.into)
    for line in path.read_text().splitlines() if path.is_file() else ():
        with suppress(ValueError):
            rows.append(json.loads(line))
    return rows


def append(rows: list[Row], keys: Any) -> list[Row]:
    """Say the rows and add them to ``keys.into``, the line break first: the last may be cut."""
    rows = [row | {"date": f"{datetime.now(UTC):%Y-%m-%d %H:%M UTC}"} for row in rows]
    with Path(keys.into).open("a") as file:
        file.write("".join(f"\n{json.dumps(row)}" for row in rows))
    for row in rows:
        said = row.get("failed") or duration(float(np.median(row["seconds"])))
        print(f"{row['case']}, {row['side']}: {said}", file=sys.stderr)
    return rows


def _sides(case: Case, keys: Any, calls: int) -> list[Row]:
    """The rows of one case; ``calls`` in a row are a sample each, 0: a sample is their mean."""
    rows: dict[str, Row] = {side: {"case": case.name, "side": side} for side in case.sides}
    works: dict[str, Work] = {}
    ours: Mapping[str, Any] = {}
    times: dict[str, int] = {}  # calls in a row that are a sample
    for side, row in rows.items():
        with trying(row):
            works[side] = work = case.make(side)
            row |= {"amount": work.amount, "unit": work.unit, "note": work.note}
            answer = work.answer()
            ours = answer if side == OURS else ours
            _agree(ours, answer, case.tolerance)
            if keys.device == "cuda":
                work.call()  # compiles
            took, row["bytes"] = peak_of(work.call, keys.device)
            row["seconds"] = [took] if took > keys.long else []
            if took <= keys.long:
                took, row["bytes"] = peak_of(work.call, keys.device)
                times[side] = 1 if calls else max(1, round(0.02 / took))
    for _ in range(keys.repeats):
        for side, row in rows.items():
            if side in times and sum(row["seconds"]) * times[side] <= keys.seconds:
                for _ in range(calls or 1):
                    row["seconds"].append(seconds_of(works[side].call, times[side]))
    return list(rows.values())


@contextmanager
def trying(row: Row) -> Iterator[None]:
    """What goes wrong inside goes into ``row`` as ``failed``."""
    try:
        yield
    except Exception as error:
        text = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
        short = any(word in text for word in ("MemoryError", "memory", "bad_alloc"))
        missing = "; make bench installs it" * isinstance(error, ImportError)
        row["failed"] = "does not fit into memory" if short else text + missing


def _agree(ours: Mapping[str, Any], theirs: Mapping[str, Any], tolerance: Any) -> None:
    """Raise ``ValueError`` where a shared part differs by more than its tolerance."""
    for key in ours.keys() & theirs.keys():
        one, other = np.asarray(ours[key]), np.asarray(theirs[key])
        within = tolerance.get(key, 0) * np.abs(one).max()
        if one.shape != other.shape or not np.abs(one - other).max() <= within:
            raise ValueError(f"{key} differs from ours")


def seconds_of(call: Callable[[], object], times: int = 1) -> float:
    """Seconds of a call, the mean over ``times`` in a row; PyTorch's clock waits for a GPU."""
    return timeit.Timer(call, "gc.enable()", timer=timer).timeit(times) / times


def peak_of(call: Callable[[], object], device: str) -> tuple[float, int]:
    """Seconds of one call, and the bytes it held at its peak: resident, on a GPU PyTorch's."""
    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        return seconds_of(call), torch.cuda.max_memory_allocated() - before
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM is what is resident now
    status, size = Path("/proc/self/status"), re.compile(r"Vm(?:RSS|HWM):\s+(\d+)")
    _, before = map(int, size.findall(status.read_text()))  # the high-water mark stands first
    return seconds_of(call), 1024 * max(0, int(size.findall(status.read_text())[0]) - before)


def show(title: str, rows: Sequence[Row], keys: Any, more: str = "", *, latencies=False) -> None:
    """Print a section of results/benchmarks.md: what it was measured on, the table and ``more``."""
    if not rows:
        sys.exit(f"error: only={keys.only}: no case has this in its name")
    device = torch.cuda.get_device_name() if keys.device == "cuda" else get_host_cpu_name()
    dates = " to ".join(sorted({min(r["date"] for r in rows), max(r["date"] for r in rows)}))
    place = (
        f"{device}, {os.cpu_count()} cores, load before {LOAD}, threads {torch.get_num_threads()}"
    )
    found = {package.name.lower(): package.version for package in metadata.distributions()}
    used = "; ".join(f"{name} {found[name]}" for name in VERSIONS.split() if name in found)
    command = f"python benchmarks/{Path(sys.argv[0]).name} {' '.join(sys.argv[1:])}".strip()
    print(f"## {title} ({keys.device})\n\n`{command}`\n\n{commit()}, {dates}, {place}, {used}.\n")
    head = (*HEAD[:2], "p50", "p95", "p99", *HEAD[4:]) if latencies else HEAD
    print(tabulate(_cells(rows, latencies), head, "github", disable_numparse=True), end="\n\n")
    notes = dict.fromkeys(f"- {row['side']}: {row['note']}" for row in rows if row.get("note"))
    print(*notes, more, f"kept in {keys.into}", sep="\n")


def _cells(rows: Sequence[Row], latencies: bool) -> list[tuple[str, ...]]:
    cells, last, ours = [], "", {row["case"]: row for row in rows if row["side"] == OURS}
    for row in rows:
        start = "" if row["case"] == last else row["case"], row["side"]
        last, own = row["case"], ours.get(row["case"], row)
        if "failed" in row:
            cells.append((*start, row["failed"]))
            continue
        at = np.quantile(row["seconds"], (0.5, 0.95, 0.99) if latencies else (0.5, 0.25, 0.75))
        times = tuple(map(duration, at.tolist()))
        times = times if latencies else (times[0], f"{times[1]} to {times[2]}")
        rate, size = row["amount"] / at[0], row.get("bytes")
        speed = f"{rate:,.{0 if rate >= 100 else 1}f} {row['unit']}/s"
        memory = "" if size is None else f"{size / 1e6:,.{0 if size >= 1e8 else 1}f} MB"
        beside = ""
        if own is not row and "failed" not in own:
            beside = f"{at[0] / np.median(own['seconds']):.3g} x time"
            beside += f", {size / own['bytes']:.3g} x memory" if size and own["bytes"] else ""
        cells.append((*start, *times, str(len(row["seconds"])), speed, memory, beside))
    return cells


def duration(seconds: float) -> str:
    """Seconds in words: ``45.6 ms``, ``7.89 s``."""
    return f"{1e3 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"
