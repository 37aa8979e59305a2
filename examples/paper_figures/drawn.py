"""Write a figure and its numbers."""

import sys
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from ltr.analysis.style import save_figure, settle_layout
from ltr.atomic import write_frame


def save(name: str, figure: Figure, data: pd.DataFrame, text: str) -> None:
    """Write ``NAME.png``, ``NAME.svg`` and ``NAME.csv``, and print ``text``.

    Call it inside ``ltr.analysis.style.style()``.
    """
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "outputs/figures")
    folder.mkdir(parents=True, exist_ok=True)
    settle_layout(figure)
    save_figure(figure, folder, name, dpi=200)
    write_frame(folder / f"{name}.csv", data)
    print(f"{folder / name}.png, .svg, .csv\n{text}\n")


def written(values: list[float]) -> str:
    """A list of numbers as it stands in a caption: ``[4, 0.5]``."""
    return f"[{', '.join(f'{value:g}' for value in values)}]"
