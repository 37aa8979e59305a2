"""The report of an analysis: as text, Markdown, LaTeX, one HTML page and CSV files."""

import hashlib
import re
import textwrap
from base64 import b64encode
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from tabulate import LATEX_ESCAPE_RULES, tabulate

from ltr.analysis.verdicts import WORDS
from ltr.atomic import atomic_write, make_folder, write_frame

NO_TEST = (
    "a published number is taken as printed, its values per query are not known: whether our "
    "interval covers it is no test of a difference"
)
PUBLISHED = "published"  # head of a column, and end of a row's name, of numbers that are not ours


@dataclass(frozen=True)
class Block:
    """A part of a report with its own columns; each row has as many texts as ``head``.

    Attributes:
        title, note: stand above it.
        head, rows: its texts; a row's name is the first.
        foot: the note in short, for a paper.
        best: row and column of each cell that is the best of its column.
    """

    title: str
    note: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    foot: str = ""
    best: Container[tuple[int, int]] = frozenset()

    def mark_best(self, rows: Container[str], columns: Container[str]) -> "Block":
        """Mark the largest number, as printed, of each of ``columns``, in which larger is better.

        Args:
            rows: names of those that can be the best: the trained ones.
            columns: their heads.
        """
        best = set()
        for j, _ in (pair for pair in enumerate(self.head) if pair[1] in columns):
            numbers = {
                i: float(row[j].split()[0])
                for i, row in enumerate(self.rows)
                if row[0] in rows and row[j]
            }
            best |= {(i, j) for i in numbers if numbers[i] == max(numbers.values())}
        return replace(self, best=best)

    @property
    def has_published(self) -> bool:
        """Whether a column or a row is of published numbers."""
        return PUBLISHED in self.head or any(f"({PUBLISHED})" in row[0] for row in self.rows)


@dataclass(frozen=True)
class Picture:
    """A plot of the page; ``svg`` is an ``<svg>`` element, which is not escaped."""

    title: str
    caption: str
    svg: str


@dataclass(frozen=True)
class Report:
    """A whole report.

    Attributes:
        name: of its folder.
        title: what it shows.
        command: makes it again.
        facts: what the numbers are of, (("data", "web30k"), ...).
        blocks: the numbers.
        notes: below them.
        ours: whose numbers these are, before the title of the page.
        pictures: of the page.
        details: further tables of the page, by title; Markdown has the first.
    """

    name: str
    title: str
    command: str
    facts: Sequence[tuple[str, str]]
    blocks: Sequence[Block]
    notes: Sequence[str] = ()
    ours: str = "our runs"
    pictures: Sequence[Picture] = ()
    details: Sequence[tuple[str, pd.DataFrame]] = ()

    def write(self, folder: Path, name: str, frames: Mapping[str, pd.DataFrame]) -> list[str]:
        """Write ``name`` as .html, .md and .tex and ``frames`` as .csv; return their names.

        Raises:
            OutputError: ``folder`` cannot be made or written.
        """
        make_folder("output_dir", folder)
        texts = {".html": page(self), ".md": markdown(self), ".tex": latex(self)}
        for ending, text in texts.items():
            atomic_write(folder / f"{name}{ending}", text)
        for of_frame, frame in frames.items():
            write_frame(folder / f"{of_frame}.csv", frame)
        return [*(f"{name}{ending}" for ending in texts), *(f"{one}.csv" for one in frames)]


def terminal(report: Report) -> str:
    """Plain text: the facts, block after block, and the notes."""
    width = max(len(key) for key, _ in report.facts)
    parts = [report.title]
    parts.append(_wrapped((f"{key:<{width}}  {value}" for key, value in report.facts), width + 2))
    for block in report.blocks:
        note = _wrapped([f"{block.title}: {block.note}" if block.note else block.title], 2)
        parts += [note, _table(block, str, "{}", "simple")]
    parts += [_wrapped(report.notes, 2)] if report.notes else []
    return "\n\n".join(parts) + "\n"


def _wrapped(texts: Iterable[str], indent: int) -> str:
    return "\n".join(textwrap.fill(one, 100, subsequent_indent=" " * indent) for one in texts)


def _table(block: Block, escape: Callable[[str], str], bold: str, form: str) -> str:
    rows = _marked(block, escape, bold)
    return tabulate(rows, list(map(escape, block.head)), form, disable_numparse=True)


def _marked(block: Block, escape: Callable[[str], str], bold: str) -> list[list[str]]:
    """The rows, escaped, the best in ``bold``."""
    return [
        [
            (bold if (i, j) in block.best else "{}").format(escape(text))
            for j, text in enumerate(row)
        ]
        for i, row in enumerate(block.rows)
    ]


def markdown(report: Report) -> str:
    """Markdown for a page or a pull request."""
    facts = [f"- {_markdown(key)}: {_markdown(value)}" for key, value in report.facts]
    parts = [f"# {_markdown(report.title)}", f"    {report.command}", "\n".join(facts)]
    for block in report.blocks:
        best = ["bold: the best of its column"] if block.best else []
        note = "; ".join([*filter(None, [_markdown(block.note)]), *best])
        parts += [f"## {_markdown(block.title)}", *([note] if note else [])]
        parts.append(_table(block, _markdown, "**{}**", "github"))
    parts += ["\n".join(f"- {_markdown(note)}" for note in report.notes)] if report.notes else []
    for title, frame in report.details[:1]:
        parts += [
            f"## {title}",
            frame.map(lambda value: _markdown(str(value))).to_markdown(index=False),
        ]
    return "\n\n".join(parts) + "\n"


def _markdown(text: str) -> str:
    """Escape what would make a column, a tag, emphasis or a link."""
    return re.sub(r"([\\|<>*`\[\]]|(?<!\w)_|_(?!\w))", r"\\\1", text)


def latex(report: Report) -> str:
    """A ``table`` environment for each block, with a short foot; the rest stands in comments.

    The preamble needs ``\\usepackage{booktabs}``.
    """
    said = [report.title, report.command, *(f"{key}: {value}" for key, value in report.facts)]
    lines = [_comment(text) for text in (*said, *report.notes)]
    label = re.sub(r"[^A-Za-z0-9]+", "-", report.name)
    for number, block in enumerate(report.blocks, 1):
        foot = "; ".join(filter(None, [block.foot, "bold: the best" if block.best else ""]))
        head, *rows = [
            " & ".join(row) + r" \\"
            for row in (
                list(map(latex_text, block.head)),
                *_marked(block, latex_text, r"\textbf{{{}}}"),
            )
        ]
        lines += [
            "",
            _comment(f"{block.title}: {block.note}"),
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{latex_text(f'{report.title}. {block.title}.')}}}",
            rf"\label{{tab:{label}-{number}}}",
            rf"\begin{{tabular}}{{l{'r' * (len(block.head) - 1)}}}",
            r"\toprule",
            head,
            r"\midrule",
            *rows,
            r"\bottomrule",
            r"\end{tabular}",
            *([r"\par\smallskip\footnotesize", latex_text(foot)] if foot else []),
            r"\end{table}",
        ]
    return "\n".join(lines) + "\n"


# Added to tabulate's rules; a row that begins with [ would be an option of the line break before.
_MORE = str.maketrans({"±": r"$\pm$", "…": r"\dots{}", "†": r"$^\dagger$", "[": "{[}"})


def latex_text(text: str) -> str:
    r"""Escape ``text`` so that LaTeX prints it as it is.

    >>> latex_text("NDCG_5 & -0.1 to 0.2 of seeds 1-3")
    'NDCG\\_5 \\& $-$0.1 to 0.2 of seeds 1-3'
    """
    escaped = "".join(LATEX_ESCAPE_RULES.get(sign, sign) for sign in text).translate(_MORE)
    return re.sub(r"(?<![\w.-])-(?=\d)", "$-$", escaped)  # a minus is longer than a hyphen


def _comment(text: str) -> str:
    return " ".join(f"% {text}".split())


def page(report: Report) -> str:
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
        published=any(block.has_published for block in report.blocks),
        words=WORDS,
        pictures=[(picture, Markup(picture.svg)) for picture in report.pictures],
        details=[
            (title, list(frame.columns), frame.map(_entry).to_numpy().tolist())
            for title, frame in report.details
        ],
        style=Markup((here / "page.css").read_text(encoding="utf-8")),
        script=Markup(script),
        digest=b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _entry(value: object) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.4f}"
    return "" if value is None else str(value)
