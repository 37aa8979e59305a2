"""Draw how time and memory grow with the length of a list and the number of lists."""

from collections.abc import Sequence
from typing import Any

from matplotlib.figure import Figure

from ltr.benchmark.comparison import Row
from ltr.benchmark.worker import OURS
from ltr.figures.drawing import COLOURS


def growth(rows: Sequence[Row]) -> Figure:
    """Time and memory against size, a line for each loss and side: of a pass, then of an epoch."""
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    times, memory, epochs = figure.subplots(1, 3)
    lines: dict[tuple[bool, str, str], list[tuple[float, float, float]]] = {}
    for row in rows:
        if row.median is not None and row.bytes is not None:
            name, size, is_loss = _size(row.case)
            point = size, row.median, max(row.bytes / 1e6, 0.01)
            lines.setdefault((is_loss, name, row.side), []).append(point)
    names = sorted({name for _, name, _ in lines})
    for (is_loss, name, side), points in lines.items():
        sizes, took, megabytes = zip(*sorted(points), strict=True)
        look: Any = {"markersize": 4, "label": f"{name}, {side}"}
        look["color"] = COLOURS[names.index(name) % len(COLOURS)]
        look["marker"], look["linestyle"] = ("o", "-") if side == OURS else ("x", "--")
        (times if is_loss else epochs).plot(sizes, took, **look)
        if is_loss:
            memory.plot(sizes, megabytes, **look)
    items, seconds = "items of the list", "seconds"
    times.set(title="Loss, forward and backward", xlabel=items, ylabel=seconds)
    memory.set(title="Loss, peak memory", xlabel=items, ylabel="MB")
    epochs.set(title="One epoch of training", xlabel="lists", ylabel=seconds)
    for axes in (times, memory, epochs):
        axes.set(xscale="log", yscale="log")
        if axes.has_data():
            axes.legend(fontsize=6.5)
    return figure


def _size(case: str) -> tuple[str, float, bool]:
    """``("listnet", 60, True)`` of the loss ``listnet [1, 60]``; False of ``x, 64 lists``."""
    name, of_loss, size = case.partition(" [1, ")
    if not of_loss:
        name, _, size = case.partition(", ")
    return name, float(size.removesuffix(" lists").replace(",", "").rstrip("]")), bool(of_loss)
