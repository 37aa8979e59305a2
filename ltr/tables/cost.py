"""Estimate how long the runs of a table take on this machine."""

import functools
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

from tabulate import tabulate
from tqdm import tqdm

from ltr.console.progress import in_words
from ltr.data.lists import SPLITS
from ltr.errors import DataError, LTRError
from ltr.experiment.run_folder import RunFolder
from ltr.tables.runs import Run
from ltr.tables.timing import measured, shape_of
from ltr.training.device import describe_device, on_threads, pick_device


def expected(runs: Sequence[Run], workers: int) -> str:
    """How long the missing runs take, from the finished ones of the same row, or of any."""
    took = _finished(runs)
    todo = [run for run in runs if not run.done]
    if not todo:
        return "nothing to run"
    if not took:
        return f"{workers} at a time"
    overall = statistics.median(value for values in took.values() for value in values)
    seconds = sum(statistics.median(took.get(run.label, [overall])) for run in todo) / workers
    return f"{workers} at a time, about {in_words(seconds)} as the finished ones took"


def _finished(runs: Sequence[Run]) -> dict[str, list[float]]:
    """Seconds of the finished runs, by row."""
    took: dict[str, list[float]] = {}
    for run in runs:
        if run.done:
            results = RunFolder(run.folder).results
            took.setdefault(run.label, []).append(float(results["wall_seconds"]))
    return took


def estimate(runs: Sequence[Run], *, workers: int, threads: int, started: bool = True) -> str:
    """How long the missing runs take, row by row and in all, and how that was found.

    A row with finished runs is estimated from them. For every other row a few training steps (of
    trees, rounds) and an evaluation are timed on drawn lists of the data set's shape: the model,
    the loss, the batches and the device are the row's own, the features are noise.

    Args:
        runs: of a table, the finished ones too.
        workers: runs at a time.
        threads: of each.
        started: whether each is a process of its own, whose start counts.
    """
    took = _finished(runs)
    todo: dict[str, list[Run]] = {}
    for run in runs:
        if not run.done:
            todo.setdefault(run.label, []).append(run)
    lines, total, unknown, early = [], 0.0, [], False
    start = _seconds_to_start() if started else 0.0
    for label, own in tqdm(todo.items(), desc="measuring", unit="row", leave=False, disable=None):
        most = ""
        if label in took:
            seconds, how = statistics.median(took[label]), "as its finished runs took"
        else:
            try:
                with on_threads(int(own[0].config.threads or threads)):
                    cost = measured(own[0])
            except LTRError as error:
                lines.append([label, len(own), "not estimated", str(error)])
                unknown.append(label)
                continue
            seconds, how = cost.seconds, str(cost)
            most = "at most " if cost.patience is not None else ""
            early |= bool(most)
        lines.append([label, len(own), most + in_words(seconds), how])
        total += (start + seconds) * len(own)
    table = tabulate(lines, ["row", "runs", "each", "made of"], disable_numparse=True)
    device = describe_device(pick_device(runs[0].config.device))
    rest = f"; without {', '.join(unknown)}" if unknown else ""
    most = "at most " if early else ""
    workers = min(workers, sum(map(len, todo.values())))
    together = f"{in_words(total)}, {in_words(total / workers)} with {workers} at a time"
    sooner = "; patience ends some sooner" if early else ""
    return (
        f"{table}\n\n"
        f"in all {most}{together}{rest}\n"
        + (f"with {start:.1f} s to start a run{sooner}\n" if started else "")
        + f"an estimate for {device}, {threads} threads a run, each row measured alone: runs side "
        "by side share memory and caches and take longer\n"
        f"{_source(runs[0])}"
    )


@functools.cache
def _seconds_to_start() -> float:
    """Seconds until a new process has imported what a run needs; measured once."""
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import ltr.experiment.run"], check=False)
    return time.perf_counter() - started


def _source(run: Run) -> str:
    try:
        shape = shape_of(run)
    except DataError as error:
        return str(error)
    lists = ", ".join(f"{split} {shape.lists[split]:,}" for split in SPLITS)
    where = "counted in the data" if shape.known else "as published; the data are not here"
    return f"lists {lists}, {shape.length:.0f} items in the mean, {where}"
