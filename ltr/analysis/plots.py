"""Plots of a report's page: learning curves, and means with their intervals."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from ltr.analysis.report import Picture
from ltr.analysis.style import BAND, INK, LINE, PAPER, page_style, svg

WIDTH, ROW = 10.4, 0.24  # inches, of every drawing and of a line of text

Looks = Mapping[str, Mapping[str, Any]]  # row -> colour and marker, the same in every plot


def curve_picture(caption: str, rows: Mapping[str, pd.DataFrame], look: Looks) -> Picture:
    """A panel for each row: mean and standard deviation over the columns, by epoch."""
    with page_style():
        title = "Learning curves"
        return Picture(title, caption, svg(_curves(rows, look), "curves", title))


def _curves(rows: Mapping[str, pd.DataFrame], look: Looks) -> Figure:
    means = {label: curve.mean(axis=1) for label, curve in rows.items()}
    trained = pd.concat([mean[mean.index > 0] for mean in means.values()])
    low, high = trained.quantile(0.02), trained.max()
    room = max(0.05 * (high - low), 1e-3)
    across = min(len(rows), 5)
    down = -(-len(rows) // across)
    figure = Figure(figsize=(WIDTH, 0.35 + 1.45 * down), layout="constrained")
    panels = figure.subplots(down, across, sharey=True, squeeze=False).flat
    for axes in panels[len(rows) :]:
        axes.set_visible(False)
    for axes, (label, curve) in zip(panels, rows.items(), strict=False):
        for other, mean in means.items():
            if other != label:
                axes.plot(mean.index, mean, color=LINE, linewidth=0.7)
        mean, spread = means[label], curve.std(axis=1)
        shade: Any = {"color": look[label]["color"], "alpha": 0.25, "linewidth": 0}
        axes.fill_between(mean.index, mean - spread, mean + spread, **shade)
        axes.plot(mean.index, mean, **look[label], markevery=[-1])
        axes.set(
            title=label if len(label) <= 26 else f"{label[:25]}…",
            xlim=(0, 1.05 * max(1, curve.index.max())),  # the marker stands at the end
            ylim=(low - room, high + room),
        )
        axes.xaxis.set_major_locator(MaxNLocator(4, integer=True))
        axes.grid(visible=False)
    figure.supxlabel("epoch", fontsize="medium")
    return figure


Panel = tuple[pd.DataFrame, Sequence[float] | None]


def interval_picture(title: str, caption: str, panels: Mapping[str, Panel], look: Looks) -> Picture:
    """Means, intervals and published numbers, a panel for each of ``panels``, by its title.

    A panel has lines, indexed by name, with the columns ours, low, high and perhaps published, and
    from where to where its ground is shaded. ``look`` is colour and marker of each name.
    """
    with page_style():
        rows = max(len(lines) for lines, _ in panels.values())
        figure = Figure(figsize=(WIDTH, 0.8 + ROW * rows), layout="constrained")
        every = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (name, (lines, band)) in zip(every, panels.items(), strict=True):
            _intervals(axes, lines.replace([-np.inf, np.inf], np.nan), look)
            axes.set_title(name)
            if band is not None:
                axes.axvspan(*band, color=BAND, linewidth=0, zorder=0)
        return Picture(title, caption, svg(figure, title.lower().replace(" ", "-"), title))


def _intervals(axes: Axes, lines: pd.DataFrame, look: Looks) -> None:
    for y, (name, line) in enumerate(lines.iterrows()):
        own = look[str(name)]
        axes.plot([line["low"], line["high"]], [-y, -y], color=own["color"], linewidth=1.8)
        axes.plot(line["ours"], -y, **own, linestyle="none", markersize=5.5)
        if not pd.isna(line.get("published")):
            axes.plot(line["published"], -y, "D", markersize=5, color=INK, markerfacecolor=PAPER)
    low, high = lines["low"].fillna(lines["ours"]), lines["high"].fillna(lines["ours"])
    ends = [low.quantile(0.1), high.max()]  # a few far below would hide all
    if "published" in lines:
        ends = [lines["published"].min(), lines["published"].max(), *ends]
    left, right = np.nanmin(ends), np.nanmax(ends)
    room = max(0.05 * (right - left), 1e-3)
    axes.set_xlim(left - room, right + room)
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.tick_params(axis="y", length=0)
    axes.set_yticks([-y for y in range(len(lines))], list(map(str, lines.index)))
    axes.set_ylim(0.6 - len(lines), 0.6)
