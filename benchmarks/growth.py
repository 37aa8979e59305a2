"""Draw how cost grows with the lists: python benchmarks/growth.py picture=growth.png."""

from typing import Any

import common
import losses
import numpy as np
import pandas as pd
import training
from common import OURS, Case, Row
from matplotlib.figure import Figure

from ltr.pages.style import COLOURS

MARKERS = "os^Dv"  # of the losses, as their colours
SIZES: dict[str, Any] = {
    "losses": (["neuralndcg", "lambdarank", "ranknet", "approxndcg", "listnet"], ["listnet"]),
    "lengths": ([60, 120, 240, 500, 1000, 2000, 5000, 10000, 20000], [10, 30]),
    "lists": ([64, 256, 1024], [4, 8]), "batch_size": (64, 4), "list_size": (240, 20),
    "picture": ("", ""),
}  # fmt: skip


def drawn(rows: list[Row], keys: Any) -> Figure:
    """Time and memory against size, a line for each loss and side: of a pass, then of an epoch."""
    figure = Figure(figsize=(11, 4.1), layout="constrained")
    found = pd.DataFrame([row for row in rows if "failed" not in row])
    found[["loss", "of", "n"]] = found.case.str.extract(r"(\w+)(,| \[1,) ([\d,]+)")
    found["n"], found["s"] = found.n.str.replace(",", "").astype(int), found.seconds.map(np.median)
    found["MB"] = (found.bytes / 1e6).clip(lower=0.01)
    names = sorted({*found.loss})
    passes, epochs = found[found.of != ","], found[found.of == ","]
    for axes, title, y, some in zip(
        figure.subplots(1, 3),
        ("Loss, forward and backward (s)", "Loss, peak memory (MB)", "One epoch of training (s)"),
        ("s", "MB", "s"), (passes, passes, epochs), strict=True,
    ):  # fmt: skip
        for (name, side), line in some.groupby(["loss", "side"], sort=False):
            place = names.index(name)
            look = {"color": COLOURS[place], "marker": MARKERS[place], "label": f"{name}, {side}"}
            look |= {} if side == OURS else {"linestyle": "--", "markerfacecolor": "w"}
            axes.plot(line.n, line[y], markersize=5, **look)
        items = "lists" if some is epochs else "items of the list"
        axes.set(title=title, xlabel=items, xscale="log", yscale="log")
    handles = figure.axes[0].get_lines()
    figure.legend(handles=handles, loc="outside lower center", ncols=len(names))
    return figure


def cases(keys: Any) -> list[Case]:
    """Each loss on one full list of each length, and an epoch with NeuralNDCG."""
    found = [losses.case(name, (1, n), keys.device) for name in keys.losses for n in keys.lengths]
    return found + [training.case("neuralndcg", n, keys, OURS, "allrank") for n in keys.lists]


if __name__ == "__main__":
    common.main("How cost grows", cases, SIZES, picture=drawn)
