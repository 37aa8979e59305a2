"""Draw Figures 1 and 2 and Table 1 of NeuralNDCG (Pobrotyn and Bialobrzeski, 2021).

python examples/paper_figures/neuralndcg.py [FOLDER]
"""

from decimal import Decimal

import numpy as np
import pandas as pd
import torch
from drawn import page, save, written
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tabulate import tabulate
from torch import Tensor

from ltr.losses import neural_ndcg_loss
from ltr.losses.soft_permutation import negative_ndcg, soft_dcg
from ltr.metrics import ndcg
from ltr.metrics.ordering import at_ranks
from ltr.pages.style import BLACK, BLUE, GREEN, GREY, ORANGE, style
from ltr.relaxations import neural_sort

# Labels, scores of all items but the last, the first and the last score x of the last, points.
FIGURE_1 = [2.0, 1, 0, 0, 0], [4.0, 1, 0, 0], (-1, 6), 1401
FIGURE_2 = [1.0, 2, 3, 4, 5], [1.0, 2, 3, 4], (0, 6), 1201
TEMPERATURES = {0.1: (BLUE, ()), 1.0: (ORANGE, (5, 1.6)), 10.0: (GREEN, (1.4, 1.2))}  # ours
LABELS, SCORES = [4.0, 2, 1, 0, 4, 3], [0.5, 0.2, 0.1, 0.01, 0.65, 0.3]  # of the table
# As the paper prints them: the labels at ranks 1 to 6, then their sum. Temperature 0: the limit.
PRINTED: dict[float, list[str]] = {
    0.0: ["4", "4", "3", "2", "1", "0", "14"],
    0.01: ["4", "4", "3", "2", "0.99992", "0.00012339", "14.00004339"],
    0.1: ["3.9995", "3.8909", "2.8239", "1.9730", "0.9989", "0.3136", "13.9998"],
    1.0: ["3.3893", "2.9820", "2.4965", "2.0191", "1.6097", "1.2815", "10.388"],
}
COLUMNS = [*(f"rank {r}" for r in range(1, len(LABELS) + 1)), "sum", "sum in the paper"]


def curves(
    labels: list, scores: list, ends: tuple, points: int, temperatures: list
) -> pd.DataFrame:
    """NDCG and NeuralNDCG, scaled and not, for each score x of the last item."""
    x = torch.from_numpy(np.linspace(*ends, points))[:, None]
    moved = torch.cat([torch.tensor(scores).double().expand(points, -1), x], -1)
    given = torch.tensor(labels).double().expand(points, -1)
    mask = torch.ones_like(moved, dtype=torch.bool)
    columns = {"x": x[:, 0], "ndcg": ndcg(moved, given, mask)}
    for t in temperatures:
        soft = soft_dcg(neural_sort(moved, mask, temperature=t), 2**given - 1, k=None)
        columns[f"neuralndcg_{t:g}"] = -neural_ndcg_loss(moved, given, mask, temperature=t)
        columns[f"unscaled_{t:g}"] = -negative_ndcg(soft, 2**given - 1, mask, k=None)
    return pd.DataFrame({name: values.numpy() for name, values in columns.items()})


def plotted(title: str, given: str, source: str, data: pd.DataFrame) -> tuple[Figure, Axes]:
    """A page with NDCG, a line that is broken where the value jumps."""
    caption = (
        f"{given}; Sinkhorn scaling stops at a deviation of 1e-6 or after 30 iterations. Gain "
        "2^y - 1, discount 1/log2(1 + rank), whole list; items with equal scores in the order "
        f"given (NDCG). float64. {source}"
    )
    figure = page(title, caption, width=6.4, height=3.5)
    axes = figure.add_subplot()
    jumps = np.flatnonzero(np.abs(np.diff(data.ndcg)) > 1e-9) + 1
    x, y = (np.insert(column.to_numpy(), jumps, np.nan) for column in (data.x, data.ndcg))
    axes.plot(x, y, color=BLACK, linewidth=1.9, solid_capstyle="butt", label="NDCG")
    for at in jumps:
        ends = data.iloc[at - 1 : at + 1]
        axes.plot(ends.x, ends.ndcg, color=BLACK, linewidth=0.8, linestyle=":")
    axes.set(xlim=(data.x.iloc[0], data.x.iloc[-1]), xlabel="x, the score of the last item")
    axes.set_ylabel("value (1 = the best order)")
    return figure, axes


def legend(axes: Axes, columns: int) -> None:
    """Above the axes, where no curve can run under it."""
    axes.legend(
        loc="lower left",
        bbox_to_anchor=(-0.01, 1),
        handlelength=2.4,
        columnspacing=1.4,
        ncols=columns,
    )


def figure1() -> None:
    """Without Sinkhorn scaling the value rises near a step of NDCG before it falls."""
    data = curves(*FIGURE_1, [1.0]).set_axis(["x", "ndcg", "scaled", "not_scaled"], axis=1)
    given = f"Labels y = {written(FIGURE_1[0])}, scores s = {written(FIGURE_1[1])[:-1]}, x]"
    source = "After Pobrotyn and Bialobrzeski (2021), Figure 1."
    title = "NeuralNDCG with and without Sinkhorn scaling"
    figure, axes = plotted(title, f"{given}; temperature 1", source, data)
    axes.plot(
        data.x, data.not_scaled, color=ORANGE, dashes=(4, 1.6), label="NeuralNDCG, not scaled"
    )
    axes.plot(data.x, data.scaled, color=BLUE, label="NeuralNDCG, scaled")
    legend(axes, 3)
    both = data[["scaled", "not_scaled"]]
    most, far = both.max(), both.sub(data.ndcg, axis=0).abs().max()
    text = "largest value {:.4f} with and {:.4f} without Sinkhorn scaling; largest distance from "
    text += "NDCG {:.4f} and {:.4f}"
    save("figure1", figure, data, text.format(*most, *far))


def figure2() -> None:
    """The text of the paper does not say which temperatures it draws."""
    data = curves(*FIGURE_2, [*TEMPERATURES])
    data = data[["x", "ndcg", *(f"neuralndcg_{t:g}" for t in TEMPERATURES)]]
    given = f"Labels y = {written(FIGURE_2[0])}, scores s = {written(FIGURE_2[1])[:-1]}, x]"
    source = "After Pobrotyn and Bialobrzeski (2021), Figure 2, whose text does not print the "
    title = "NeuralNDCG at several temperatures"
    figure, axes = plotted(title, given, f"{source}temperatures.", data)
    for t, (color, dashes) in TEMPERATURES.items():
        look = {"color": color, "dashes": dashes, "label": f"temperature {t:g}"}
        axes.plot(data.x, data[f"neuralndcg_{t:g}"], **look)
    legend(axes, 4)
    far = {t: (data[f"neuralndcg_{t:g}"] - data.ndcg).abs().mean() for t in TEMPERATURES}
    told = "; ".join(f"{t:g}: {value:.4f}" for t, value in far.items())
    save("figure2", figure, data, f"mean distance from NDCG at temperature {told}")


def computed() -> pd.DataFrame:
    """A row per entry and sum: temperature, rank, value, the paper's, whether they agree.

    The labels in the soft order of the scores: P y with the P of NeuralSort, without scaling, so
    that their sum is not kept.
    """
    labels, scores = (torch.tensor([values]).double() for values in (LABELS, SCORES))
    mask, rows = labels >= 0, []
    for t, printed in PRINTED.items():
        found: Tensor = at_ranks(labels, scores, mask)[0]
        if t > 0:
            found = neural_sort(scores, mask, temperature=t)[0] @ labels[0]
        values = [*found.tolist(), found.sum().item()]
        for rank, (value, paper) in enumerate(zip(values, printed, strict=True), 1):
            agrees = f"{value:.{decimals(paper)}f}" == f"{float(paper):.{decimals(paper)}f}"
            rows.append((t, "sum" if rank > len(LABELS) else str(rank), value, paper, agrees))
    return pd.DataFrame(rows, columns=["temperature", "rank", "value", "paper", "agrees"])


def decimals(printed: str) -> int:
    """Decimals of a number of the table; "3" stands for 2.99995, four as in the rest."""
    return len(printed.partition(".")[2]) or 4


def about_sums(data: pd.DataFrame) -> list[str]:
    """What is wrong with the sums that the paper prints."""
    notes = []
    for t in data.temperature[(data["rank"] == "sum") & ~data.agrees]:
        *entries, paper = (Decimal(number) for number in PRINTED[t])
        total, start = sum(entries), f"The paper's sum at temperature {t:g}, {paper}, "
        rest = f"is not that of its entries, {total} ({total - entries[0]} without the first)."
        notes.append(start + ("adds up the rounded entries." if total == paper else rest))
    return notes


def table1() -> None:
    """The table with a shade for each value; the two sums stand off to the right."""
    data, size, rows = computed(), len(LABELS), []
    for t, printed in PRINTED.items():
        *entries, total = data.value[data.temperature == t]
        cells = [
            f"{v:.{decimals(p)}f}" if t else f"{v:g}"
            for v, p in zip(entries, printed, strict=False)
        ]
        rows.append([*cells, f"{total:.5f}" if t else f"{total:g}", printed[-1]])
    names = [f"{t:g}" if t else "limit 0" for t in PRINTED]
    entries = data[data["rank"] != "sum"]
    agree = f"{entries.agrees.sum()} of {len(entries)} entries round to what the paper prints."
    notes = [agree, *about_sums(data)]
    caption = (
        f"Labels y = {written(LABELS)} in the soft order of scores s = {written(SCORES)}: P y with "
        "the row-stochastic P of NeuralSort, without Sinkhorn scaling, float64; shade = value. "
        f"After Pobrotyn and Bialobrzeski (2021), Table 1. {' '.join(notes)}"
    )
    figure = page("Labels quasi-sorted by NeuralSort", caption, width=7.2, height=1.9)
    axes = figure.add_subplot()
    shades = entries.value.to_numpy().reshape(len(PRINTED), -1)
    axes.imshow(shades, cmap="Blues", vmin=0, vmax=6.5, aspect="auto")
    places = [*map(float, range(size)), size + 0.2, size + 1.45]
    for row, cells in enumerate(rows):
        for place, cell in zip(places, cells, strict=True):
            color = GREY if place == places[-1] else "black"
            axes.text(place, row, cell, ha="center", va="center", color=color, fontsize=8.5)
    axes.set_xlim(-0.5, size + 2.1)
    axes.set_xticks(places, [*COLUMNS[:-1], "sum in\nthe paper"])
    axes.set_ylabel("temperature")
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)
    axes.set_yticks(range(len(rows)), names)
    cells = [[name, *row] for name, row in zip(names, rows, strict=True)]
    aligned = ["left", *["right"] * len(COLUMNS)]
    text = tabulate(cells, ["temperature", *COLUMNS], disable_numparse=True, colalign=aligned)
    save("table1", figure, data, "\n".join([text, *notes]))


def main() -> None:
    """All three."""
    with style():
        figure1()
        figure2()
        table1()


if __name__ == "__main__":
    main()
