"""Table 1 of the NeuralNDCG paper: labels quasi-sorted by NeuralSort, beside what it prints."""

from decimal import Decimal

import pandas as pd
from matplotlib.axes import Axes
from tabulate import tabulate

from ltr.figures.checks import as_list
from ltr.figures.drawing import GREY, Drawing, page, written
from ltr.metrics.ordering import at_ranks
from ltr.relaxations import neural_sort

LABELS = [4.0, 2.0, 1.0, 0.0, 4.0, 3.0]
SCORES = [0.5, 0.2, 0.1, 0.01, 0.65, 0.3]
# As the paper prints them: the labels at ranks 1 to 6, then their sum. Temperature 0: the limit.
PRINTED: dict[float, list[str]] = {
    0.0: ["4", "4", "3", "2", "1", "0", "14"],
    0.01: ["4", "4", "3", "2", "0.99992", "0.00012339", "14.00004339"],
    0.1: ["3.9995", "3.8909", "2.8239", "1.9730", "0.9989", "0.3136", "13.9998"],
    1.0: ["3.3893", "2.9820", "2.4965", "2.0191", "1.6097", "1.2815", "10.388"],
}
_COLUMNS = [*(f"rank {r}" for r in range(1, len(LABELS) + 1)), "sum", "sum in the paper"]


def table1() -> Drawing:
    """The labels in the soft order of the scores, P y, and their sums, for each temperature.

    Pobrotyn and Bialobrzeski, 2021, Table 1: P is ``neural_sort`` without Sinkhorn scaling, so that
    the sum of the labels is not kept. The entries agree with the paper; of its sums, those at 0.01
    and 0.1 add up the rounded entries, and the one at 1 leaves out the first entry.
    """
    data = computed()
    rows = {t: _cells(data, t) for t in PRINTED}
    entries = data[data["rank"] != "sum"]
    agreement = f"{entries.agrees.sum()} of {len(entries)} entries round to what the paper prints."
    notes = [note for t in PRINTED if (note := about_sum(t, data)) is not None]
    figure = page(
        "Labels quasi-sorted by NeuralSort",
        f"Labels y = {written(LABELS)} in the soft order of scores s = {written(SCORES)}: P y with "
        "the row-stochastic P of NeuralSort, without Sinkhorn scaling, float64; shade = value. "
        f"After Pobrotyn and Bialobrzeski (2021), Table 1. {' '.join([agreement, *notes])}",
        width=7.2,
        height=1.9,
    )
    axes = figure.add_subplot()
    values = entries.pivot(index="temperature", columns="rank", values="value")
    axes.imshow(values.to_numpy(), cmap="Blues", vmin=0, vmax=6.5, aspect="auto")
    _write_cells(axes, list(rows.values()))
    text = tabulate(
        [[_name(t), *cells] for t, cells in rows.items()],
        ["temperature", *_COLUMNS],
        disable_numparse=True,
        colalign=["left", *["right"] * len(_COLUMNS)],
    )
    return Drawing(figure, data, "\n".join([text, agreement, *notes]))


def computed() -> pd.DataFrame:
    """A row for each entry and each sum: temperature, rank, value, what the paper has, agrees."""
    labels, scores = as_list(LABELS), as_list(SCORES)
    mask = labels >= 0
    rows = []
    for temperature, printed in PRINTED.items():
        if temperature == 0:
            found = at_ranks(labels, scores, mask)[0]
        else:
            found = neural_sort(scores, mask, temperature=temperature)[0] @ labels[0]
        names = [*(str(rank) for rank in range(1, len(LABELS) + 1)), "sum"]
        values = [*found.tolist(), found.sum().item()]
        for name, value, paper in zip(names, values, printed, strict=True):
            agrees = f"{value:.{decimals(paper)}f}" == f"{float(paper):.{decimals(paper)}f}"
            rows.append((temperature, name, value, paper, agrees))
    return pd.DataFrame(rows, columns=["temperature", "rank", "value", "paper", "agrees"])


def decimals(printed: str) -> int:
    """How many decimals a number of the table shows; "3" stands for 2.99995, four as in the rest.

    >>> decimals("1.9730"), decimals("0.00012339"), decimals("3")
    (4, 8, 4)
    """
    return len(printed.partition(".")[2]) or 4


def about_sum(temperature: float, data: pd.DataFrame) -> str | None:
    """What is wrong with the sum that the paper prints in a row, None where it is the row's."""
    *entries, paper = (Decimal(number) for number in PRINTED[temperature])
    row = data[(data.temperature == temperature) & (data["rank"] == "sum")].iloc[0]
    if row.agrees:
        return None
    start = f"The paper's sum at temperature {temperature:g}, {paper}, "
    total = sum(entries, Decimal(0))
    if total == paper:
        return f"{start}adds up the rounded entries."
    return f"{start}is not that of its entries, {total} ({total - entries[0]} without the first)."


def _name(temperature: float) -> str:
    return "limit 0" if temperature == 0 else f"{temperature:g}"


def _cells(data: pd.DataFrame, temperature: float) -> list[str]:
    """A row as texts: the entries with the paper's decimals, their sum, the paper's sum."""
    rows = data[data.temperature == temperature]
    if temperature == 0:
        return [*(f"{value:g}" for value in rows.value), PRINTED[0][-1]]
    *entries, total = rows.value
    printed = PRINTED[temperature]
    texts = [f"{v:.{decimals(paper)}f}" for v, paper in zip(entries, printed, strict=False)]
    return [*texts, f"{total:.5f}", printed[-1]]


def _write_cells(axes: Axes, rows: list[list[str]]) -> None:
    """Texts, headings and temperatures of the table; the two sums stand off to the right."""
    size = len(LABELS)
    places = [*map(float, range(size)), size + 0.2, size + 1.45]
    for row, cells in enumerate(rows):
        for place, cell in zip(places, cells, strict=True):
            color = GREY if place == places[-1] else "black"
            axes.text(place, row, cell, ha="center", va="center", color=color, fontsize=8.5)
    axes.set_xlim(-0.5, size + 2.1)
    axes.set_xticks(places, [*_COLUMNS[:-1], "sum in\nthe paper"])
    axes.set_yticks(range(len(rows)), [_name(temperature) for temperature in PRINTED])
    axes.set_ylabel("temperature")
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)
