"""Draw Figures 1 and 2 and Table 1 of the NeuralNDCG paper."""

from collections.abc import Sequence
from decimal import Decimal

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from tabulate import tabulate
from torch import Tensor

from ltr.errors import ConfigError
from ltr.figures.draw import as_list, check_whole, numbers
from ltr.figures.drawing import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    Drawing,
    page,
    written,
)
from ltr.losses import neural_ndcg_loss
from ltr.losses.soft_permutation import dcg_of, minus_normalised
from ltr.metrics import ndcg
from ltr.metrics.checks import check_positive
from ltr.metrics.ordering import at_ranks
from ltr.relaxations import neural_sort


def figure1(
    *,
    labels: Sequence[float],
    scores: Sequence[float],
    x: Sequence[float],
    points: int,
    temperature: float,
) -> Drawing:
    """NDCG, and NeuralNDCG with and without Sinkhorn scaling, as the last score x moves.

    Pobrotyn and Bialobrzeski, 2021, Figure 1. Without the scaling a gain can count more than once
    near a step of NDCG, and the value rises there before it falls.

    Args:
        labels: of every item.
        scores: of every item but the last.
        x: the first and the last value of the last item's score.
        points: >= 2, values of x.
        temperature: > 0, of NeuralSort.

    Raises:
        ConfigError: a knob is out of range.
    """
    check_positive("temperature", temperature)
    swept = _swept(labels, scores, x, points)
    moved, given, mask = swept
    unscaled = dcg_of(neural_sort(moved, mask, temperature=temperature), given, mask, k=None)
    data = pd.DataFrame(
        {
            "x": moved[:, -1].numpy(),
            "ndcg": ndcg(*swept).numpy(),
            "neuralndcg": -neural_ndcg_loss(*swept, temperature=temperature).numpy(),
            "neuralndcg_without_sinkhorn": -minus_normalised(unscaled, given, mask, k=None).numpy(),
        }
    )
    figure, axes = _page(
        "NeuralNDCG with and without Sinkhorn scaling",
        f"{_lists_text(labels, scores)}; temperature {temperature:g}",
        "After Pobrotyn and Bialobrzeski (2021), Figure 1.",
    )
    _draw_exact(axes, data)
    axes.plot(
        data.x, data.neuralndcg_without_sinkhorn, color=ORANGE, dashes=(4, 1.6),
        label="NeuralNDCG, not scaled",
    )  # fmt: skip
    axes.plot(data.x, data.neuralndcg, color=BLUE, label="NeuralNDCG, scaled")
    _finish(axes, data)
    curves = data[["neuralndcg", "neuralndcg_without_sinkhorn"]]
    most, far = curves.max(), curves.sub(data.ndcg, axis=0).abs().max()
    return Drawing(
        figure,
        data,
        f"temperature {temperature:g}: largest value {most.iloc[0]:.4f} with and "
        f"{most.iloc[1]:.4f} without Sinkhorn scaling; largest distance from NDCG "
        f"{far.iloc[0]:.4f} and {far.iloc[1]:.4f}",
    )


def figure2(
    *,
    labels: Sequence[float],
    scores: Sequence[float],
    x: Sequence[float],
    points: int,
    temperatures: Sequence[float],
) -> Drawing:
    """NDCG, and NeuralNDCG for several temperatures, as the last score x moves.

    Pobrotyn and Bialobrzeski, 2021, Figure 2; the text does not say which temperatures the paper
    draws.

    Args:
        labels, scores, x, points: as for ``figure1``.
        temperatures: one to five, each > 0, of NeuralSort.

    Raises:
        ConfigError: a knob is out of range.
    """
    swept = _swept(labels, scores, x, points)
    chosen = numbers("temperatures", temperatures)
    for temperature in chosen:
        check_positive("temperatures", temperature)
    if len(chosen) > len(_LINES):
        raise ConfigError(f"temperatures={temperatures}: write at most {len(_LINES)} of them")
    data = pd.DataFrame({"x": swept[0][:, -1].numpy(), "ndcg": ndcg(*swept).numpy()})
    for temperature in chosen:
        value = -neural_ndcg_loss(*swept, temperature=temperature)
        data[f"neuralndcg_{temperature:g}"] = value.numpy()
    figure, axes = _page(
        "NeuralNDCG at several temperatures",
        _lists_text(labels, scores),
        "After Pobrotyn and Bialobrzeski (2021), Figure 2, whose text does not print the "
        "temperatures.",
    )
    _draw_exact(axes, data)
    for (color, dashes), temperature in zip(_LINES, chosen, strict=False):
        axes.plot(
            data.x, data[f"neuralndcg_{temperature:g}"], color=color, dashes=dashes,
            label=f"temperature {temperature:g}",
        )  # fmt: skip
    _finish(axes, data)
    distance = "; ".join(
        f"{t:g}: {(data[f'neuralndcg_{t:g}'] - data.ndcg).abs().mean():.4f}" for t in chosen
    )
    return Drawing(figure, data, f"mean distance from NDCG at temperature {distance}")


# colour and dashes of each temperature's curve, so that they are told apart in grey too
_LINES: list[tuple[str, tuple[float, ...]]] = [
    (BLUE, ()),
    (ORANGE, (5, 1.6)),
    (GREEN, (1.4, 1.2)),
    (PURPLE, (6, 1.5, 1.2, 1.5)),
    (SKY, (9, 2)),
]


def _swept(
    labels: Sequence[float], scores: Sequence[float], x: Sequence[float], points: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Scores, labels and mask of one list for each value of x, ``[points, list]``, float64."""
    labels, scores = numbers("labels", labels, least=2), numbers("scores", scores)
    if len(scores) != len(labels) - 1:
        raise ConfigError(
            f"scores={written(scores)} with labels={written(labels)}: write one score less than "
            "labels; the last item's is x"
        )
    ends = numbers("x", x, least=2)
    if len(ends) != 2 or ends[0] >= ends[1]:
        raise ConfigError(f"x={written(ends)}: write the first and the last value, such as [-1,6]")
    check_whole("points", points, least=2)
    values = torch.from_numpy(np.linspace(ends[0], ends[1], points)).unsqueeze(-1)
    moved = torch.cat([as_list(scores).expand(points, -1), values], -1)
    return moved, as_list(labels).expand(points, -1), torch.ones_like(moved, dtype=torch.bool)


def _page(title: str, given: str, source: str) -> tuple[Figure, Axes]:
    caption = (
        f"{given}; Sinkhorn scaling stops at a deviation of 1e-6 or after 30 iterations. Gain "
        "2^y - 1, discount 1/log2(1 + rank), whole list; items with equal scores in the order "
        f"given (NDCG). float64. {source}"
    )
    figure = page(title, caption, width=6.4, height=3.5)
    return figure, figure.add_subplot()


def _lists_text(labels: Sequence[float], scores: Sequence[float]) -> str:
    return f"Labels y = {written(labels)}, scores s = {written(scores)[:-1]}, x]"


def _draw_exact(axes: Axes, data: pd.DataFrame) -> None:
    """NDCG, a step function: a line that is broken where the value jumps."""
    jumps = np.flatnonzero(np.abs(np.diff(data.ndcg.to_numpy())) > 1e-9) + 1
    x = np.insert(data.x.to_numpy(), jumps, np.nan)
    y = np.insert(data.ndcg.to_numpy(), jumps, np.nan)
    axes.plot(x, y, color=BLACK, linewidth=1.9, solid_capstyle="butt", label="NDCG")
    for at in jumps:
        ends = data.iloc[at - 1 : at + 1]
        axes.plot(ends.x, ends.ndcg, color=BLACK, linewidth=0.8, linestyle=":")


def _finish(axes: Axes, data: pd.DataFrame) -> None:
    axes.set_xlim(data.x.iloc[0], data.x.iloc[-1])
    axes.set_xlabel("x, the score of the last item")
    axes.set_ylabel("value (1 = the best order)")
    # above the axes, where no curve can run under it; four names stand in a line if they are short
    names = axes.get_legend_handles_labels()[1]
    axes.legend(
        loc="lower left", bbox_to_anchor=(-0.01, 1), handlelength=2.4, columnspacing=1.4,
        ncols=4 if len("".join(names)) <= 50 and len(names) <= 4 else 3,
    )  # fmt: skip


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
    names = ["limit 0" if t == 0 else f"{t:g}" for t in PRINTED]
    rows = [_cells(data, t) for t in PRINTED]
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
    shades = entries.value.to_numpy().reshape(len(PRINTED), -1)
    axes.imshow(shades, cmap="Blues", vmin=0, vmax=6.5, aspect="auto")
    _write_cells(axes, rows)
    axes.set_yticks(range(len(rows)), names)
    text = tabulate(
        [[name, *cells] for name, cells in zip(names, rows, strict=True)],
        ["temperature", *_COLUMNS],
        disable_numparse=True,
        colalign=["left", *["right"] * len(_COLUMNS)],
    )
    return Drawing(figure, data, "\n".join([text, agreement, *notes]))


def computed() -> pd.DataFrame:
    """A row per entry and sum: temperature, rank, value, the paper's, whether they agree."""
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
    """What is wrong with the sum that the paper prints in a row; None where it is right."""
    *entries, paper = (Decimal(number) for number in PRINTED[temperature])
    row = data[(data.temperature == temperature) & (data["rank"] == "sum")].iloc[0]
    if row.agrees:
        return None
    start = f"The paper's sum at temperature {temperature:g}, {paper}, "
    total = sum(entries, Decimal(0))
    if total == paper:
        return f"{start}adds up the rounded entries."
    return f"{start}is not that of its entries, {total} ({total - entries[0]} without the first)."


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
    """Texts and headings of the table; the two sums stand off to the right."""
    size = len(LABELS)
    places = [*map(float, range(size)), size + 0.2, size + 1.45]
    for row, cells in enumerate(rows):
        for place, cell in zip(places, cells, strict=True):
            color = GREY if place == places[-1] else "black"
            axes.text(place, row, cell, ha="center", va="center", color=color, fontsize=8.5)
    axes.set_xlim(-0.5, size + 2.1)
    axes.set_xticks(places, [*_COLUMNS[:-1], "sum in\nthe paper"])
    axes.set_ylabel("temperature")
    axes.xaxis.tick_top()
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)
