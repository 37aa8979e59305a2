"""Write a figure and its numbers."""

import sys
import textwrap
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from ltr.atomic import write_frame
from ltr.pages.style import GREY, freeze_layout

_CAPTION_SIZE, _LINE = 7.5, 0.135  # points; inches


def page(title: str, caption: str, *, width: float, height: float) -> Figure:
    """An empty page of ``width`` inches: title and axes in ``height`` inches, the caption below."""
    lines = textwrap.wrap(caption, int(width * 17.6))
    below = (len(lines) + 0.8) * _LINE
    whole = height + below
    figure = Figure(figsize=(width, whole), layout="constrained")
    engine = figure.get_layout_engine()
    assert engine is not None
    engine.set(rect=(0.012, below / whole, 0.976, 1 - below / whole))  # type: ignore[call-arg]
    figure.suptitle(title, x=0.015, ha="left", fontsize=10, fontweight="bold")
    figure.text(
        0.015,
        (below - 0.4 * _LINE) / whole,
        "\n".join(lines),
        fontsize=_CAPTION_SIZE,
        color=GREY,
        va="top",
        linespacing=_LINE * 72 / _CAPTION_SIZE,
    )
    return figure


def save(name: str, figure: Figure, data: pd.DataFrame, text: str) -> None:
    """Write ``NAME.png``, ``NAME.svg`` and ``NAME.csv``, and print ``text``.

    Call it inside ``ltr.pages.style.style()``.
    """
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "outputs/figures")
    folder.mkdir(parents=True, exist_ok=True)
    freeze_layout(figure)
    figure.savefig(folder / f"{name}.png", dpi=200, metadata={"Software": None})
    figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None})
    write_frame(folder / f"{name}.csv", data)
    print(f"{folder / name}.png, .svg, .csv\n{text}\n")


def written(values: list[float]) -> str:
    """A list of numbers as it stands in a caption: ``[4, 0.5]``."""
    return f"[{', '.join(f'{value:g}' for value in values)}]"
