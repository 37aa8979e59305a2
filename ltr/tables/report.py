"""A table as text for a terminal, Markdown, LaTeX, one HTML page and CSV files."""

import hashlib
import re
import textwrap
from base64 import b64encode
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from tabulate import tabulate

from ltr.analysis.latex import latex_comment, latex_table, latex_text
from ltr.analysis.style import verdict_css
from ltr.atomic import atomic_write, make_folder, write_frame

PUBLISHED = "published"  # head of a column, and end of a row's name, of numbers that are not ours
Details = Sequence[tuple[str, pd.DataFrame]]  # further tables, each with its title


@dataclass(frozen=True)
class Cell:
    """One entry; ``tone`` colours it: a word of a verdict, ``good``, ``bad``, ``missing``."""

    text: str
    tone: str = ""
    best: bool = False  # of the trained rows of its column


@dataclass(frozen=True)
class Block:
    """A part of a table with its own columns; each row has as many cells as ``head``."""

    title: str
    note: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    foot: str = ""  # the note in short, for a paper

    @property
    def has_best(self) -> bool:
        """Whether a cell is marked as the best of its column."""
        return any(cell.best for row in self.rows for cell in row)


def mark_best(block: Block, rows: Container[str], columns: Container[str]) -> Block:
    """``block`` with the largest number, as printed, of each of ``columns`` marked.

    Args:
        block: of numbers, a row's name first.
        rows: which rows can be the best: the trained ones; their cells begin with a number.
        columns: heads of columns in which larger is better.
    """
    numbers = {
        (i, j): float(cell.text.partition(" ")[0])
        for i, row in enumerate(block.rows)
        for j, cell in enumerate(row)
        if row[0].text in rows and block.head[j] in columns and cell.text
    }
    best: dict[int, float] = {}
    for (_, j), number in numbers.items():
        best[j] = max(number, best.get(j, number))
    marked = (
        tuple(
            replace(cell, best=numbers.get((i, j)) == best.get(j, inf))
            for j, cell in enumerate(row)
        )
        for i, row in enumerate(block.rows)
    )
    return replace(block, rows=tuple(marked))


@dataclass(frozen=True)
class Report:
    """A whole table."""

    name: str  # of its folder
    title: str  # what it shows
    command: str  # makes it again
    facts: tuple[tuple[str, str], ...]  # what the numbers are of, (("data", "web30k"), ...)
    blocks: tuple[Block, ...]  # the numbers
    ours: str = "our runs"  # whose numbers these are, before the title of the page


@dataclass(frozen=True)
class Picture:
    """A plot of the page; ``svg`` is an ``<svg>`` element, which is not escaped."""

    title: str
    caption: str
    svg: str


def write_table(
    folder: Path,
    report: Report,
    frames: Mapping[str, pd.DataFrame],
    pictures: Sequence[Picture] = (),
    details: Details = (),
) -> None:
    """Write ``table.md``, ``table.tex``, ``table.html``, and ``NAME.csv`` of each of ``frames``.

    The page has all of ``details``, ``table.md`` the first.

    Raises:
        OutputError: ``folder`` cannot be made or written.
    """
    make_folder("output_dir", folder)
    atomic_write(folder / "table.md", markdown(report, details[:1]))
    atomic_write(folder / "table.tex", latex(report))
    atomic_write(folder / "table.html", page(report, pictures, details))
    for name, frame in frames.items():
        write_frame(folder / f"{name}.csv", frame)


def terminal(report: Report) -> str:
    """Plain text: the facts, then block after block."""
    width = max(len(key) for key, _ in report.facts)
    head = "\n".join(_wrapped(f"{key:<{width}}  {value}", width + 2) for key, value in report.facts)
    return _joined(
        report.title,
        head,
        report,
        lambda block: _wrapped(f"{block.title}: {block.note}", 2),
        "simple",
    )


def _wrapped(text: str, indent: int) -> str:
    return "\n".join(textwrap.wrap(text, 100, subsequent_indent=" " * indent))


def markdown(report: Report, details: Details = ()) -> str:
    """Markdown for a page or a pull request, ``details`` at the end."""
    head = "\n".join(f"- {_markdown(key)}: {_markdown(value)}" for key, value in report.facts)
    text = _joined(
        f"# {_markdown(report.title)}",
        f"{_code(report.command)}\n\n{head}",
        report,
        lambda block: f"## {_markdown(block.title)}\n\n{_markdown(block.note)}{_bold(block)}",
        "github",
    )
    for title, frame in details:
        rows = [[_markdown(str(value)) for value in line] for line in frame.itertuples(index=False)]
        text += f"\n## {title}\n\n{tabulate(rows, list(frame.columns), 'github')}\n"
    return text


def _joined(
    title: str, head: str, report: Report, heading: Callable[[Block], str], form: str
) -> str:
    parts = [title, head]
    escape = _markdown if form == "github" else str
    bold = "**{}**" if form == "github" else "{}"
    for block in report.blocks:
        rows = [[_marked(cell, escape, bold) for cell in row] for row in block.rows]
        table = tabulate(rows, [escape(text) for text in block.head], form, disable_numparse=True)
        parts += [heading(block), table]
    return "\n\n".join(parts) + "\n"


def _marked(cell: Cell, escape: Callable[[str], str], bold: str) -> str:
    return bold.format(escape(cell.text)) if cell.best else escape(cell.text)


def _bold(block: Block) -> str:
    return "; bold: the best of its column" if block.has_best else ""


def _markdown(text: str) -> str:
    """Escape what would make a column, a tag, emphasis or a link."""
    return re.sub(r"([\\|<>*`\[\]]|(?<!\w)_|_(?!\w))", r"\\\1", text)


def _code(text: str) -> str:
    """Fence ``text`` as code, whatever backticks are in it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}" if longest else f"{fence}{text}{fence}"


def latex(report: Report) -> str:
    """A ``table`` environment for each block, with a short foot; the rest stands in comments."""
    facts = [f"{key}: {value}" for key, value in report.facts]
    lines = [latex_comment(text) for text in (report.title, report.command, *facts)]
    label = re.sub(r"[^A-Za-z0-9]+", "-", report.name)
    for number, block in enumerate(report.blocks, 1):
        rows = [[_marked(cell, latex_text, r"\textbf{{{}}}") for cell in row] for row in block.rows]
        foot = "; ".join(filter(None, [block.foot, "bold: the best" if block.has_best else ""]))
        caption = f"{report.title}. {block.title}."
        table = latex_table(caption, f"{label}-{number}", block.head, rows, foot)
        lines += ["", latex_comment(f"{block.title}: {block.note}"), table]
    return "\n".join(lines) + "\n"


def page(report: Report, pictures: Sequence[Picture] = (), details: Details = ()) -> str:
    """One HTML page that loads nothing from outside; equal tables give equal pages.

    Its only script, ``page.js``, sorts a table by a click on the head of a column.
    """
    here = Path(__file__).parent
    environment = Environment(
        loader=FileSystemLoader(here),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    script = (here / "page.js").read_text(encoding="utf-8")
    return environment.get_template("page.html").render(
        report=report,
        whose=_whose(report),
        pictures=[(picture, Markup(picture.svg)) for picture in pictures],
        details=[
            (title, list(frame.columns), [map(_entry, line) for line in frame.itertuples(False)])
            for title, frame in details
        ],
        style=Markup(verdict_css() + (here / "page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        digest=b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _whose(report: Report) -> str:
    """Say which numbers are ours, and where published ones stand."""
    columns = [block.title for block in report.blocks if PUBLISHED in block.head]
    rows = [
        block.title
        for block in report.blocks
        if any(row[0].text.endswith(f"({PUBLISHED})") for row in block.rows)
    ]
    places = [
        f"the {what} of {' and '.join(f'“{title}”' for title in titles)}"
        for what, titles in ((f"columns “{PUBLISHED}”", columns), (f"rows “({PUBLISHED})”", rows))
        if titles
    ]
    if not places:
        return f"Every number is of {report.ours}; none is a published one."
    return f"The numbers are of {report.ours}; published ones stand in {' and in '.join(places)}."


def _entry(value: object) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.4f}"
    return "" if value is None else str(value)
