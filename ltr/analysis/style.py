"""The look of figures, and the plots of a page; the same bytes at every run."""

import io
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ltr.analysis.report import Picture

# Okabe and Ito's colours, which the colour-blind can tell apart; they differ in grey as well.
BLACK, BLUE, ORANGE, GREEN, PURPLE, SKY = (
    "#000000", "#0072B2", "#D55E00", "#009E73", "#AA4499", "#56B4E9",
)  # fmt: skip
GREY = "#666666"
COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY)  # of several lines in one plot
# Seven colours and nine markers meet 63 times before a pair of them comes again.
_OF_SYSTEMS = (*COLOURS, "#E69F00", "#8B5A2B")
_MARKERS = ("o", "s", "^", "v", "P", "X", "<", ">", "p")

_STYLE: Any = {
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.6,
    "svg.fonttype": "path",  # looks the same where the font is not installed
    "svg.hashsalt": "ltr",  # the same names of clip paths at every run
}


def settle_layout(figure: Figure) -> None:
    """Lay out once and round the places of the axes: the solver's last digits vary by run."""
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    for axes in figure.axes:
        x, y, width, height = axes.get_position(original=True).bounds
        axes.set_position((round(x, 5), round(y, 5), round(width, 5), round(height, 5)))


@contextmanager
def style() -> Iterator[None]:
    """matplotlib's defaults with this project's look, whatever the user's own settings are."""
    logging.getLogger("matplotlib").setLevel(logging.WARNING)  # it tells of its font cache
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_STYLE)
        yield


def looks(names: Sequence[str]) -> dict[str, dict[str, str]]:
    """Colour and marker of each of up to 63 systems: no two share both, the first five neither.

    >>> looks(["ListNet", "RankNet"])["RankNet"]
    {'color': '#D55E00', 'marker': 's'}
    """
    return {
        name: {"color": _OF_SYSTEMS[i % len(_OF_SYSTEMS)], "marker": _MARKERS[i % len(_MARKERS)]}
        for i, name in enumerate(names)
    }


# Stand for the page's own colours, which the reader's light or dark setting decides.
INK, LINE, BAND, PAPER = "#010203", "#d9dee5", "#f5f7fa", "#fefffe"
_OF_PAGE = {INK: "currentColor", LINE: "var(--line)", BAND: "var(--band)", PAPER: "var(--paper)"}
_INKS = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
_PAGE_STYLE: Any = {
    **dict.fromkeys(_INKS, INK),
    **dict.fromkeys(("axes.facecolor", "figure.facecolor"), "none"),
    "grid.color": LINE,
    "svg.fonttype": "none",  # real text: it can be searched, and takes the page's font
    "font.size": 9.5,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
}


@contextmanager
def page_style() -> Iterator[None]:
    """``style`` for drawings inside an HTML page."""
    with style(), matplotlib.rc_context(_PAGE_STYLE):
        yield


def svg(figure: Figure, name: str, label: str) -> str:
    """The figure, which has a layout engine, as an ``<svg>`` element; call it in ``page_style()``.

    ``name`` goes before every id, so that several drawings can stand in one page; ``label`` is
    read out instead of the drawing.
    """
    settle_layout(figure)
    buffer = io.StringIO()
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(buffer, format="svg", metadata=nothing)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    # A <style> would hold for all the page.
    other = r"(<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->)\s*"
    text = re.sub(other, "", text, flags=re.DOTALL)
    text = re.sub(r'\sid="([^"]+)"', rf' id="{name}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)
    text = re.sub(r'(?:xlink:)?href="#([^"]+)"', rf'href="#{name}-\1"', text)
    for colour, own in _OF_PAGE.items():
        text = text.replace(colour, own)
    start = f'<svg role="img" aria-label="{escape(label)}" stroke-linejoin="round"'
    return text.replace("<svg", start, 1).strip()


WIDTH, ROW = 10.4, 0.24  # inches, of a drawing and of a line of text

Looks = Mapping[str, Mapping[str, Any]]  # row -> colour and marker, the same in every plot


Panel = tuple[pd.DataFrame, Sequence[float] | None]


@page_style()
def interval_picture(title: str, caption: str, panels: Mapping[str, Panel], look: Looks) -> Picture:
    """Means, intervals and published numbers, a panel for each of ``panels``, by its title.

    A panel has lines, indexed by name, with the columns ours, low, high and perhaps published, and
    from where to where its ground is shaded. ``look`` is colour and marker of each name.
    """
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
