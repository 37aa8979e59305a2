"""The style of figures, and the plot in a report. The same data always give the same bytes."""

import io
import logging
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Colours after Okabe and Ito. Colour-blind readers can tell them apart, and they differ in grey.
BLACK = "#000000"
BLUE = "#0072B2"
ORANGE = "#D55E00"
GREEN = "#009E73"
PURPLE = "#AA4499"
SKY = "#56B4E9"
GREY = "#666666"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY)  # for several lines in one plot

_STYLE: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.6,
    "svg.fonttype": "path",  # text looks the same if the font is not installed
    "svg.hashsalt": "ltr",  # clip paths have the same names in every run
}


def freeze_layout(figure: Figure) -> None:
    """Lay out the figure and round the positions of its axes, so they are always the same."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        x, y, width, height = axes.get_position(original=True).bounds
        axes.set_position((round(x, 5), round(y, 5), round(width, 5), round(height, 5)))


@contextmanager
def style() -> Iterator[None]:
    """Draw in this project's style, which replaces the user's settings of matplotlib."""
    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # no messages about its font cache
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


@style()
def interval_plot(panels: Mapping[str, pd.DataFrame], baseline: str) -> str:
    """Plot means, intervals and published numbers; return the plot as SVG in base64.

    Args:
        panels: a frame for each title, with the columns row, ours (the mean), low and high (the
            ends of the interval), and published.
        baseline: the row whose mean is drawn in black and whose interval is shaded.
    """
    rows = max(map(len, panels.values()))
    figure = Figure(figsize=(10.4, 0.8 + 0.24 * rows), layout="constrained")
    panel_axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axes, (title, lines) in zip(panel_axes, panels.items(), strict=True):
        _plot_intervals(axes, lines.replace([-np.inf, np.inf], np.nan), baseline)
        axes.set_title(title)
    freeze_layout(figure)
    buffer = io.BytesIO()
    no_metadata = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", metadata=no_metadata)
    return b64encode(buffer.getvalue()).decode()


def _plot_intervals(axes: Axes, lines: pd.DataFrame, baseline: str) -> None:
    y = -np.arange(len(lines))
    ours = lines["ours"]
    published = lines["published"]
    low = lines["low"]
    high = lines["high"]
    is_baseline = lines["row"] == baseline
    colours = [BLACK if flag else BLUE for flag in is_baseline]
    axes.hlines(y, low, high, colours, linewidth=1.8)
    axes.scatter(ours, y, 30, colours, zorder=2)
    axes.plot(published, y, "D", markersize=5, color=BLACK, markerfacecolor="w")
    for edges in zip(low[is_baseline], high[is_baseline], strict=True):
        axes.axvspan(*edges, color="#F0F2F5", linewidth=0, zorder=0)
    # the 10% quantile, because a few very low ends would squeeze all other intervals
    lowest = low.fillna(ours).quantile(0.1)
    highest = high.fillna(ours).max()
    ends = [published.min(), published.max(), lowest, highest]
    left = np.nanmin(ends)
    right = np.nanmax(ends)
    margin = max(0.05 * (right - left), 1e-3)
    axes.set_xlim(left - margin, right + margin)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_yticks(y, lines["row"])
    axes.set_ylim(0.6 - len(lines), 0.6)
