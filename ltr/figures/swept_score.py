"""NDCG and NeuralNDCG while one score moves: Figures 1 and 2 of the NeuralNDCG paper."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from torch import Tensor

from ltr.errors import ConfigError
from ltr.figures.checks import as_list, check_whole, numbers, positive
from ltr.figures.drawing import (
    BLACK,
    BLUE,
    GREEN,
    ORANGE,
    PURPLE,
    SKY,
    Drawing,
    page,
    written,
)
from ltr.losses import neural_ndcg_loss
from ltr.losses.soft_permutation import minus_ndcg_of
from ltr.metrics import ndcg
from ltr.relaxations import neural_sort

_CONVENTION = (
    "Gain 2^y - 1, discount 1/log2(1 + rank), whole list; items with equal scores in the order "
    "given (NDCG). float64."
)


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
    temperature = positive("temperature", temperature)
    swept = _swept(labels, scores, x, points)
    moved, given, mask = swept
    soft = neural_sort(moved, mask, temperature=temperature)
    data = pd.DataFrame(
        {
            "x": moved[:, -1].numpy(),
            "ndcg": ndcg(*swept).numpy(),
            "neuralndcg": -neural_ndcg_loss(*swept, temperature=temperature).numpy(),
            "neuralndcg_without_sinkhorn": -minus_ndcg_of(soft, given, mask, k=None).numpy(),
        }
    )
    figure = page(
        "NeuralNDCG with and without Sinkhorn scaling",
        f"Labels y = {written(list(labels))}, scores s = {_scores_text(scores)}; temperature "
        f"{temperature:g}; Sinkhorn scaling stops at a deviation of 1e-6 or after 30 iterations. "
        f"{_CONVENTION} After Pobrotyn and Bialobrzeski (2021), Figure 1.",
        width=6.4,
        height=3.5,
    )
    axes = figure.add_subplot()
    _draw_exact(axes, data)
    axes.plot(
        data.x, data.neuralndcg_without_sinkhorn, color=ORANGE, dashes=(4, 1.6),
        label="NeuralNDCG, not scaled",
    )  # fmt: skip
    axes.plot(data.x, data.neuralndcg, color=BLUE, label="NeuralNDCG, scaled")
    _finish(axes, data)
    worst = {
        name: float((data[name] - data.ndcg).abs().max())
        for name in ("neuralndcg", "neuralndcg_without_sinkhorn")
    }
    return Drawing(
        figure,
        data,
        f"temperature {temperature:g}: largest value {data.neuralndcg.max():.4f} with and "
        f"{data.neuralndcg_without_sinkhorn.max():.4f} without Sinkhorn scaling; largest distance "
        f"from NDCG {worst['neuralndcg']:.4f} and {worst['neuralndcg_without_sinkhorn']:.4f}",
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
        labels: of every item.
        scores: of every item but the last.
        x: the first and the last value of the last item's score.
        points: >= 2, values of x.
        temperatures: one to five, each > 0, of NeuralSort.

    Raises:
        ConfigError: a knob is out of range.
    """
    swept = _swept(labels, scores, x, points)
    chosen = [positive("temperatures", t) for t in numbers("temperatures", temperatures)]
    if len(chosen) > len(_LINES):
        raise ConfigError(f"temperatures={temperatures}: write at most {len(_LINES)} of them")
    data = pd.DataFrame({"x": swept[0][:, -1].numpy(), "ndcg": ndcg(*swept).numpy()})
    for temperature in chosen:
        value = -neural_ndcg_loss(*swept, temperature=temperature)
        data[f"neuralndcg_{temperature:g}"] = value.numpy()
    figure = page(
        "NeuralNDCG at several temperatures",
        f"Labels y = {written(list(labels))}, scores s = {_scores_text(scores)}; Sinkhorn scaling "
        f"stops at a deviation of 1e-6 or after 30 iterations. {_CONVENTION} After Pobrotyn and "
        "Bialobrzeski (2021), Figure 2, whose text does not print the temperatures.",
        width=6.4,
        height=3.5,
    )
    axes = figure.add_subplot()
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


def _scores_text(scores: Sequence[float]) -> str:
    return written(list(scores))[:-1] + ", x]"
