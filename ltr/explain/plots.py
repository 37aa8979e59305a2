"""The pictures of the page: what adds to scores, what other items do, what features are worth."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from numpy.typing import NDArray

from ltr.analysis.style import BLUE, INK, ORANGE, page_style, svg
from ltr.tables.report import Picture

_WIDTH, _ROW = 9.0, 0.27  # inches
_MAP = LinearSegmentedColormap.from_list("lower to higher", [ORANGE, "#f6f6f6", BLUE])
_SEEN = 16  # columns with numbers in their cells


def matrix(
    title: str, caption: str, values: NDArray[np.float64], rows: Sequence[str],
    columns: Sequence[str], *, name: str, across: str, notes: Sequence[Sequence[str]] | None = None,
) -> Picture:  # fmt: skip
    """A matrix in colours, blue above 0 and orange below.

    Args:
        title, caption: of the picture.
        values: ``[rows, columns]``; NaN stays empty.
        rows, columns: their names.
        name: of the drawing in the page.
        across: what the columns are.
        notes: the text of each cell; None: the value with two digits.
    """
    with page_style():
        height = 1.3 + _ROW * len(rows)
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        axes = figure.subplots()
        largest = float(np.nanmax(np.abs(values))) if np.isfinite(values).any() else 0.0
        shown = np.ma.masked_invalid(values)
        bound = largest or 1.0
        axes.pcolormesh(
            shown, cmap=_MAP, vmin=-bound, vmax=bound, edgecolors="white", linewidth=0.8
        )
        if len(columns) <= _SEEN:
            for i, j in np.argwhere(np.isfinite(values)):
                text = f"{values[i, j]:+.2f}" if notes is None else notes[i][j]
                strong = abs(values[i, j]) > 0.6 * bound
                ink: Any = {"color": "white" if strong else "#1b1f24", "fontsize": 7.5}
                axes.text(j + 0.5, i + 0.5, text, ha="center", va="center", **ink)
        axes.invert_yaxis()
        axes.xaxis.tick_top()
        axes.xaxis.set_label_position("top")
        axes.set_xlabel(across)
        axes.set_xticks(np.arange(len(columns)) + 0.5, columns, rotation=45, ha="left")
        axes.set_yticks(np.arange(len(rows)) + 0.5, rows)
        axes.tick_params(length=0)
        axes.grid(visible=False)
        axes.spines[:].set_visible(False)
        return Picture(title, caption, svg(figure, name, title))


def drops(table: pd.DataFrame, metric: str, caption: str) -> Picture:
    """Mean drop of the metric and its interval for each feature of ``table``."""
    with page_style():
        figure = Figure(figsize=(_WIDTH, 0.9 + _ROW * len(table)), layout="constrained")
        axes = figure.subplots()
        heights = -np.arange(len(table))
        low, high = table["low"].fillna(table["drop"]), table["high"].fillna(table["drop"])
        axes.hlines(heights, low, high, color=BLUE, linewidth=1.8)
        axes.plot(table["drop"], heights, "o", color=BLUE, markersize=5)
        axes.axvline(0, color=INK, linewidth=0.8)
        axes.set_yticks(heights, table["name"])
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(f"drop of {metric}")
        title = "What features are worth"
        return Picture(title, caption, svg(figure, "drops", title))
