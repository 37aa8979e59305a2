"""Draw the cost of losses by the length of a list, and of training by the number of lists.

python benchmarks/growth.py picture=docs/growth-cpu.png
"""

from typing import Any

import common
import losses
import numpy as np
import training
from common import OURS, Case, Row
from matplotlib.figure import Figure

from ltr.analysis.style import COLOURS

SIZES: dict[str, Any] = {
    "losses": ["neuralndcg", "lambdarank", "ranknet", "approxndcg", "listnet"],
    "lengths": [60, 120, 240, 500, 1000, 2000, 5000, 10000, 20000],
    "lists": [64, 256, 1024], "batch_size": 64, "list_size": 240, "picture": "growth.png",
}  # fmt: skip
SMALL = {"losses": ["neuralndcg", "listnet"], "lengths": [10, 30], "lists": [4, 8], "batch_size": 4}


def drawn(rows: list[Row], keys: Any) -> Figure:
    """Time and memory against size, a line for each loss and side: of a pass, then of an epoch."""
    figure = Figure(figsize=(11, 3.6), layout="constrained")
    found = {(r["case"], r["side"]): r for r in rows if "failed" not in r}
    for axes, title, what, case, sizes in zip(
        figure.subplots(1, 3),
        ("Loss, forward and backward (s)", "Loss, peak memory (MB)", "One epoch of training (s)"),
        ("seconds", "bytes", "seconds"),
        ("{} [1, {}]", "{} [1, {}]", "{}, {:,} lists"),
        (keys.lengths, keys.lengths, keys.lists),
        strict=True,
    ):
        for colour, name in zip(COLOURS, sorted(keys.losses), strict=False):
            for side, look in ((OURS, "o-"), ("allrank", "x--")):
                x = [n for n in sizes if (case.format(name, n), side) in found]
                y = [np.median(found[case.format(name, n), side][what]) for n in x]
                y = [max(v, 1e4) / 1e6 for v in y] if what == "bytes" else y
                if x:
                    axes.plot(x, y, look, color=colour, ms=4, label=f"{name}, {side}")
        items = "lists" if sizes is keys.lists else "items of the list"
        axes.set(title=title, xlabel=items, xscale="log", yscale="log")
        axes.legend(fontsize=6.5)
    return figure


def cases(keys: Any) -> list[Case]:
    """Each loss on one full list of each length, and an epoch with NeuralNDCG."""
    found = [losses.case(name, (1, n), keys.device) for name in keys.losses for n in keys.lengths]
    return found + [training.case("neuralndcg", n, keys, OURS, "allrank") for n in keys.lists]


if __name__ == "__main__":
    common.main("How cost grows", cases, SIZES, SMALL, picture=drawn)
