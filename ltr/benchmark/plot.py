"""The plot of how cost grows."""

from collections.abc import Sequence
from pathlib import Path

from ltr.benchmark.compare import Row


def growth(rows: Sequence[Row], folder: Path) -> list[Path]:
    """Write ``growth.png`` and ``growth.svg``: time and memory against size, a line for each side.

    The cases are named as ``losses.case`` and ``training.case`` name them.
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    from ltr.figures.drawing import save_figure

    figure, (times, memory, epochs) = plt.subplots(1, 3, figsize=(15, 4.6))
    lines: dict[tuple[str, str, str], list[tuple[float, float, float]]] = {}
    for row in rows:
        if row.median is not None and row.bytes is not None:
            kind, name, size = _parts(row.case)
            point = (size, row.median, row.bytes / 1e6)
            lines.setdefault((kind, name, row.side), []).append(point)
    names = sorted({name for _, name, _ in lines})
    for (kind, name, side), points in lines.items():
        sizes, seconds, megabytes = zip(*sorted(points), strict=True)
        style = {
            "label": f"{name}, {side}",
            "color": f"C{names.index(name)}",
            "linestyle": "-" if side == "ours" else "--",
            "marker": "o" if side == "ours" else "x",
        }
        if kind == "list":
            times.plot(sizes, seconds, **style)
            memory.plot(sizes, [max(m, 0.01) for m in megabytes], **style)
        else:
            epochs.plot(sizes, seconds, **style)
    titles = (
        (times, "Loss, forward and backward", "items of the list", "seconds"),
        (memory, "Loss, peak memory", "items of the list", "MB"),
        (epochs, "One epoch of training", "lists", "seconds"),
    )
    for axes, title, across, up in titles:
        axes.set(title=title, xlabel=across, ylabel=up, xscale="log", yscale="log")
        axes.grid(alpha=0.3)
        if axes.has_data():
            axes.legend(fontsize=7)
    figure.tight_layout()
    paths = save_figure(figure, folder, "growth", dpi=120)
    plt.close(figure)
    return paths


def _parts(case: str) -> tuple[str, str, float]:
    """``("list", "listnet", 60)`` of ``listnet [1, 60]``; ``("epoch", ...)`` of ``x, 64 lists``."""
    name, _, size = case.partition(" [1, ")
    if size:
        return "list", name, float(size.rstrip("]"))
    name, _, size = case.partition(", ")
    return "epoch", name, float(size.removesuffix(" lists").replace(",", ""))
