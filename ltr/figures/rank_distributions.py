"""Draw SoftRank's Rank-Binomial distribution beside the exact one that it approximates."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.ticker import MaxNLocator
from torch import Tensor

from ltr.figures.draw import as_list, check_whole, numbers
from ltr.figures.drawing import BLUE, ORANGE, Drawing, page, written
from ltr.metrics.checks import check_positive
from ltr.relaxations import rank_distribution, sampled_rank_distribution, sinkhorn

_NAMES = {"exact": "exact", "rank_binomial": "Rank-Binomial", "scaled": "Rank-Binomial, scaled"}


def rank_distributions(
    *, scores: Sequence[float], sigma: float, n_samples: int, seed: int
) -> Drawing:
    """Probability of each rank for each item whose score is Gaussian: exact and approximated.

    The SoftRank slides' "effect of the pairwise contest trick": exact by sampling the scores and
    sorting them; the Rank-Binomial recursion, which takes the contests of an item as independent;
    and the same after ``sinkhorn``, the slides' "row/col normalizations". The slides' text does
    not say which scores they draw.

    Args:
        scores: the means, two items or more.
        sigma: > 0, standard deviation of every score, in units of the scores.
        n_samples: >= 1, draws behind the exact distribution.
        seed: >= 0, of the draws.

    Raises:
        ConfigError: a knob is out of range.
    """
    means = sorted(numbers("scores", scores, least=2), reverse=True)
    check_positive("sigma", sigma)
    check_whole("n_samples", n_samples, least=1)
    check_whole("seed", seed, least=0)
    found = distributions(as_list(means), sigma=sigma, n_samples=n_samples, seed=seed)
    distance = {  # the mean over items
        name: float((0.5 * (matrix - found["exact"]).abs().sum(0)).mean())
        for name, matrix in found.items()
    }
    size = len(means)
    figure = page(
        "Rank distribution: exact and approximated",
        f"Items with Gaussian scores of means {written(means)} and standard deviation "
        f"{sigma:g} each; exact = {n_samples:,} draws, sorted (sampling error of a probability at "
        f"most {0.5 / math.sqrt(n_samples):.1g}). Scaled = Sinkhorn scaling to row and column sums "
        "of one. Distance of an item = total variation from exact, half the sum over ranks of "
        "|difference|. The contests of an item share its own score, which the Rank-Binomial "
        "neglects, so that beyond two items the exact distribution is wider. After the SoftRank "
        "slides (Taylor, Guiver, Robertson and Minka), whose text does not print the scores.",
        width=7.2,
        height=4.7,
    )
    grid = figure.add_gridspec(3, 4, height_ratios=[1.3, 1, 0.08], width_ratios=[1, 1, 1, 0.06])
    highest = max(float(matrix.max()) for matrix in found.values())
    shown = sorted({0, size // 2, size - 1})
    ticks = [str(item + 1) for item in shown]
    for column, (name, matrix) in enumerate(found.items()):
        axes = figure.add_subplot(grid[0, column])
        image = axes.imshow(matrix.numpy(), cmap="Blues", vmin=0, vmax=highest, aspect="auto")
        far = f"mean distance {distance[name]:.3f}"
        axes.set_title(f"{_NAMES[name]}\n{f'{n_samples:,} draws' if name == 'exact' else far}")
        axes.set_xlabel("item, by descending mean")
        axes.set_xticks(shown, ticks)
        axes.set_yticks(shown, ticks)
        axes.spines[:].set_visible(True)
        axes.grid(visible=False)
        if column == 0:
            axes.set_ylabel("rank (1 = first)")
    figure.colorbar(image, cax=figure.add_subplot(grid[0, 3]), label="probability")
    _draw_items(figure, grid, means, shown, found)
    ranks = np.arange(1, size + 1)
    data = pd.DataFrame(
        {
            "item": np.repeat(ranks, size),
            "score": np.repeat(means, size),
            "rank": np.tile(ranks, size),
            **{name: matrix.T.reshape(-1).numpy() for name, matrix in found.items()},
        }
    )
    return Drawing(
        figure,
        data,
        f"total variation distance from the exact distribution, mean over {size} items: "
        f"Rank-Binomial {distance['rank_binomial']:.4f}, rows and columns scaled "
        f"{distance['scaled']:.4f}",
    )


def distributions(scores: Tensor, *, sigma: float, n_samples: int, seed: int) -> dict[str, Tensor]:
    """The exact, the Rank-Binomial and the scaled distribution of one list, each ``[rank, item]``.

    ``scores`` are the means, ``[1, list]``; the rest is as for ``rank_distributions``.
    """
    mask = torch.ones_like(scores, dtype=torch.bool)
    soft = rank_distribution(scores, mask, sigma=sigma)
    copies = math.gcd(n_samples, 1000)  # the same list many times in a batch: fewer, larger steps
    sampled = sampled_rank_distribution(
        scores.expand(copies, -1), mask.expand(copies, -1), sigma=sigma,
        n_samples=n_samples // copies, generator=torch.Generator().manual_seed(seed),
    )  # fmt: skip
    return {"exact": sampled.mean(0), "rank_binomial": soft[0], "scaled": sinkhorn(soft, mask)[0]}


def _draw_items(
    figure: Figure, grid: GridSpec, means: list[float], shown: list[int], found: dict[str, Tensor]
) -> None:
    """The distributions of the items ``shown``, in the lower row of the grid."""
    ranks = np.arange(1, len(means) + 1)
    highest = max(float(matrix[:, shown].max()) for matrix in found.values())
    for column, item in enumerate(shown):
        axes = figure.add_subplot(grid[1, column])
        axes.bar(ranks, found["exact"][:, item].numpy(), color="#C9C9C9", label=_NAMES["exact"])
        for name, color, line in (("rank_binomial", ORANGE, "o-"), ("scaled", BLUE, "s--")):
            values = found[name][:, item].numpy()
            axes.plot(ranks, values, line, color=color, ms=3.4, lw=1.1, label=_NAMES[name])
        axes.set_title(f"item {item + 1}, mean {means[item]:g}")
        axes.set_xlabel("rank")
        axes.set_ylim(0, 1.05 * highest)
        axes.xaxis.set_major_locator(MaxNLocator(6, integer=True))
        if column == 0:
            axes.set_ylabel("probability")

    handles, labels = axes.get_legend_handles_labels()
    below = figure.add_subplot(grid[2, :3])
    below.set_axis_off()
    below.legend(handles, labels, loc="center", ncols=3)
