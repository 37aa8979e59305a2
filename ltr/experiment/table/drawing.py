"""Drawings for the page: SVG that follows its colours, light or dark, the same at every run."""

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

import matplotlib
from matplotlib.figure import Figure

from ltr.experiment.figures.page import settle_layout, style

# Stand for the page's own colours, which the reader's light or dark setting decides.
INK, LINE, BAND, PAPER = "#010203", "#d9dee5", "#f5f7fa", "#fefffe"
_OF_PAGE = {
    INK: "currentColor",
    LINE: "var(--line)",
    BAND: "var(--band)",
    PAPER: "var(--paper)",
}
_STYLE: Any = {
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": LINE,
    "svg.fonttype": "none",  # real text: it can be searched, and takes the page's font
    "font.size": 9.5,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
}


@contextmanager
def page_style() -> Iterator[None]:
    """matplotlib set up for the page, whatever the user's own settings are."""
    with style(), matplotlib.rc_context(_STYLE):
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
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r"<style.*?</style>\s*", "", text, flags=re.DOTALL)  # would hold for all the page
    text = re.sub(r"<!--.*?-->\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'\sid="([^"]+)"', rf' id="{name}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", text)
    text = re.sub(r'(?:xlink:)?href="#([^"]+)"', rf'href="#{name}-\1"', text)
    for colour, own in _OF_PAGE.items():
        text = text.replace(colour, own)
    start = f'<svg role="img" aria-label="{escape(label)}" stroke-linejoin="round"'
    return text.replace("<svg", start, 1).strip()


def panels(count: int, columns: int) -> tuple[int, int]:
    """Rows and columns of a grid for ``count`` panels, at most ``columns`` wide."""
    wide = min(count, columns)
    return -(-count // wide), wide
