"""Draw SoftRank's Rank-Binomial distribution beside the exact one that it approximates.

The "effect of the pairwise contest trick" of Taylor et al.'s slides (2008): exact by sampling the
scores and sorting them; the Rank-Binomial recursion, which takes the contests of an item as
independent; and the same after ``sinkhorn``, their "row/col normalizations".

python examples/paper_figures/rank_distribution.py [FOLDER]
"""

import math

import numpy as np
import pandas as pd
import torch
from drawn import page, save, written
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from ltr.metrics.ordering import rank_of_item
from ltr.pages.style import BLUE, ORANGE, style
from ltr.relaxations import rank_distribution, sinkhorn
from ltr.relaxations.neuralsort import uniform_noise

# of the scores; the slides of Taylor et al. (2008) print none
MEANS = [2.25, 2, 1.75, 1.5, 1.25, 1, 0.75, 0.5, 0.25, 0]
SIGMA, SAMPLES, SEED = 0.5, 200_000, 0  # standard deviation of every score; draws of the exact one
NAMES = {"exact": "exact", "rank_binomial": "Rank-Binomial", "scaled": "Rank-Binomial, scaled"}


def distributions(scores: Tensor, *, sigma: float, n_samples: int, seed: int) -> dict[str, Tensor]:
    """The exact, the Rank-Binomial and the scaled distribution of one list, each ``[rank, item]``.

    ``scores`` are the means, ``[1, list]``.
    """
    mask = torch.ones_like(scores, dtype=torch.bool)
    soft = rank_distribution(scores, mask, sigma=sigma)
    copies = math.gcd(n_samples, 1000)  # the same list many times in a batch: fewer, larger steps
    same, everything = scores.expand(copies, -1), mask.expand(copies, -1)
    generator, counts = torch.Generator().manual_seed(seed), torch.zeros_like(soft[0])
    for _ in range(n_samples // copies):
        noise = torch.special.ndtri(uniform_noise(everything, 1, same, generator)[0])
        ranks = rank_of_item(same + sigma * noise, everything)
        counts += torch.nn.functional.one_hot(ranks - 1, len(soft[0])).sum(0).mT
    exact = counts / n_samples
    return {"exact": exact, "rank_binomial": soft[0], "scaled": sinkhorn(soft, mask)[0]}


def main() -> None:
    """Above: the three matrices. Below: the first, a middle and the last item."""
    scores, size = torch.tensor([MEANS]).double(), len(MEANS)
    found = distributions(scores, sigma=SIGMA, n_samples=SAMPLES, seed=SEED)
    exact = found["exact"]
    far = {name: float((0.5 * (m - exact).abs().sum(0)).mean()) for name, m in found.items()}
    caption = (
        f"Items with Gaussian scores of means {written(MEANS)} and standard deviation {SIGMA:g} "
        f"each; exact = {SAMPLES:,} draws, sorted (sampling error of a probability at most "
        f"{0.5 / math.sqrt(SAMPLES):.1g}). Scaled = Sinkhorn scaling to row and column sums "
        "of one. Distance of an item = total variation from exact, half the sum over ranks of "
        "|difference|. The contests of an item share its own score, which the Rank-Binomial "
        "neglects, so that beyond two items the exact distribution is wider. After the slides "
        "of Taylor, Guiver, Robertson and Minka (2008), whose text does not print the scores."
    )
    figure = page("Rank distribution: exact and approximated", caption, width=7.2, height=4.7)
    grid = figure.add_gridspec(3, 4, height_ratios=[1.3, 1, 0.08], width_ratios=[1, 1, 1, 0.06])
    highest = max(float(matrix.max()) for matrix in found.values())
    shown, ranks = [0, size // 2, size - 1], np.arange(1, size + 1)
    for column, (name, matrix) in enumerate(found.items()):
        axes = figure.add_subplot(grid[0, column])
        image = axes.imshow(matrix.numpy(), cmap="Blues", vmin=0, vmax=highest, aspect="auto")
        below = f"{SAMPLES:,} draws" if name == "exact" else f"mean distance {far[name]:.3f}"
        axes.set_title(f"{NAMES[name]}\n{below}")
        axes.set_xlabel("item, by descending mean")
        axes.set_xticks(shown, [str(item + 1) for item in shown])
        axes.set_yticks(shown, [str(item + 1) for item in shown])
        axes.spines[:].set_visible(True)
        axes.grid(visible=False)
        if column == 0:
            axes.set_ylabel("rank (1 = first)")
    figure.colorbar(image, cax=figure.add_subplot(grid[0, 3]), label="probability")
    highest = max(float(matrix[:, shown].max()) for matrix in found.values())
    for column, item in enumerate(shown):
        axes = figure.add_subplot(grid[1, column])
        axes.bar(ranks, exact[:, item].numpy(), color="#C9C9C9", label=NAMES["exact"])
        for name, color, line in (("rank_binomial", ORANGE, "o-"), ("scaled", BLUE, "s--")):
            look = {"color": color, "ms": 3.4, "lw": 1.1, "label": NAMES[name]}
            axes.plot(ranks, found[name][:, item].numpy(), line, **look)
        axes.set_title(f"item {item + 1}, mean {MEANS[item]:g}")
        axes.set_xlabel("rank")
        axes.set_ylim(0, 1.05 * highest)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        if column == 0:
            axes.set_ylabel("probability")
    handles, labels = axes.get_legend_handles_labels()
    last = figure.add_subplot(grid[2, :3])
    last.set_axis_off()
    last.legend(handles, labels, loc="center", ncols=3)
    columns = {name: matrix.T.reshape(-1).numpy() for name, matrix in found.items()}
    items = {"item": np.repeat(ranks, size), "score": np.repeat(MEANS, size)}
    data = pd.DataFrame({**items, "rank": np.tile(ranks, size), **columns})
    text = f"total variation distance from the exact distribution, mean over {size} items: "
    text += f"Rank-Binomial {far['rank_binomial']:.4f}, rows and columns scaled {far['scaled']:.4f}"
    save("rank_distribution", figure, data, text)


if __name__ == "__main__":
    with style():
        main()
