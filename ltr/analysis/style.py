"""The look of figures: fonts and colours; the same bytes at every run."""

import io
import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from html import escape
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from ltr.analysis.verdicts import WORDS
from ltr.atomic import atomic_write

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


def save_figure(figure: Figure, folder: Path, name: str, *, dpi: int) -> list[Path]:
    """Write ``NAME.png`` and ``NAME.svg``, each whole or not at all; the same bytes at every run.

    Call it inside ``style()``.

    Raises:
        OutputError: as ``atomic_write``.
    """
    png, svg = folder / f"{name}.png", folder / f"{name}.svg"
    for path, how in (
        (png, {"dpi": dpi, "metadata": {"Software": None}}),
        (svg, {"metadata": {"Date": None, "Creator": None}}),
    ):
        drawn = io.BytesIO()
        figure.savefig(drawn, format=path.suffix[1:], **how)
        atomic_write(path, drawn.getvalue())
    return [png, svg]


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


def verdict_colours() -> dict[str, str]:
    """The colour of each word of a verdict, in every plot and page."""
    return dict(zip(WORDS, (BLUE, ORANGE, PURPLE, GREEN, GREY), strict=True))


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
    """The figure as an ``<svg>`` element.

    Call it inside ``page_style()``.

    Args:
        figure: with a layout engine.
        name: goes before every id in it, so that several drawings can stand in one page.
        label: read out instead of the drawing.
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
