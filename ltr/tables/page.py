"""The table as one HTML page: nothing is loaded from outside, and nothing runs in the browser."""

from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ltr.figures.drawing import verdict_css
from ltr.tables.report import Report

_HERE = Path(__file__).parent


@dataclass(frozen=True)
class Picture:
    """A plot of the page.

    Attributes:
        title: what it shows.
        caption: how to read it.
        svg: the drawing as an ``<svg>`` element, made by ``plots``; it is not escaped.
    """

    title: str
    caption: str
    svg: str


def page(
    report: Report,
    pictures: tuple[Picture, ...] = (),
    details: tuple[tuple[str, pd.DataFrame], ...] = (),
) -> str:
    """The page as text; equal tables give equal pages.

    Args:
        report: the table.
        pictures: below the blocks.
        details: title and frame of what is shown when asked; numbers with four digits.
    """
    environment = Environment(
        loader=FileSystemLoader(_HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    template = environment.get_template("page.html")
    return template.render(
        report=report,
        pictures=[(picture, Markup(picture.svg)) for picture in pictures],
        details=[(title, _text(frame)) for title, frame in details],
        style=Markup(verdict_css() + (_HERE / "page.css").read_text(encoding="utf-8")),
    )


def _text(frame: pd.DataFrame) -> dict[str, list[list[str]] | list[str]]:
    rows = [[_entry(value) for value in line] for line in frame.itertuples(index=False)]
    return {"head": [str(name) for name in frame.columns], "rows": rows}


def _entry(value: object) -> str:
    if value is None or (isinstance(value, float) and value != value):
        return ""
    return f"{value:.4f}" if isinstance(value, float) else str(value)
