"""Write the report of an analysis as plain text, Markdown, LaTeX, one HTML page or CSV files."""

import hashlib
import re
import textwrap
from base64 import b64encode
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from tabulate import LATEX_ESCAPE_RULES, tabulate

from ltr.atomic import atomic_write, make_folder, write_frame

NOT_A_TEST = (  # a note below published numbers
    "a published number is taken as printed, its values per query are not known: whether our "
    "interval covers it is no test of a difference"
)
PUBLISHED = "published"  # marks numbers that are not ours: a column's head, or end of a row's name
VERDICTS = ("better", "worse", "differ", "equivalent", "undecided")  # cells with a colour


@dataclass(frozen=True)
class ReportBlock:
    """One table of a report; each row has as many texts as ``head``."""

    title: str
    note: str  # printed below the table in LaTeX, above it elsewhere
    head: Sequence[str]
    rows: Sequence[Sequence[str]]  # the first text of a row is its name
    best: Container[tuple[str, str]] = ()  # (name of row, column) of the cells to print bold

    @property
    def noted(self) -> str:
        """The note, with an explanation of bold numbers."""
        notes = [self.note]
        if self.best:
            notes.append("bold: the best, which differs from all that it is compared with")
        return "; ".join(filter(None, notes))

    def format_rows(self, escape: Callable[[str], str], bold: str) -> list[list[str]]:
        """Return the rows with each text escaped; ``bold`` formats the texts of ``best`` cells."""
        return [
            [
                (bold if (row[0], name) in self.best else "{}").format(escape(text))
                for name, text in zip(self.head, row, strict=True)
            ]
            for row in self.rows
        ]


@dataclass(frozen=True)
class ResultsPage:
    """A report, which ``terminal``, ``markdown``, ``latex`` and ``page`` turn into text."""

    name: str  # name of its folder
    title: str
    command: str  # the command that makes it
    facts: Sequence[tuple[str, str]]  # (key, text) about the data and runs
    blocks: Sequence[ReportBlock]
    notes: Sequence[str] = ()  # printed below the blocks
    ours: str = "our runs"  # whose numbers these are; printed before the title of the page
    plot: str = ""  # plot of the intervals for the page, an SVG file in base64; empty: none
    details: Sequence[tuple[str, pd.DataFrame]] = ()  # more tables for the page; .md has the first

    def write(self, folder: Path, name: str, frames: Mapping[str, pd.DataFrame]) -> list[str]:
        """Write the report as NAME.html, .md and .tex, and the frames as CSV.

        Args:
            folder: a missing folder is made.
            name: the name of the files of the report, without suffix.
            frames: name of a CSV file, without suffix -> its content.

        Returns:
            The names of all files written.
        """
        make_folder("output_dir", folder)
        for suffix, render in RENDERERS.items():
            atomic_write(folder / f"{name}{suffix}", render(self))
        for frame_name, frame in frames.items():
            write_frame(folder / f"{frame_name}.csv", frame)
        report_files = [f"{name}{suffix}" for suffix in RENDERERS]
        return [*report_files, *(f"{frame_name}.csv" for frame_name in frames)]


def terminal(report: ResultsPage) -> str:
    """Return the report as plain text: facts, blocks and notes."""
    width = max(len(key) for key, _ in report.facts)
    facts = (f"{key:<{width}}  {value}" for key, value in report.facts)
    paragraphs = [report.title, _wrap(facts, width + 2)]
    for block in report.blocks:
        paragraphs.append(_wrap([": ".join(filter(None, [block.title, block.note]))], 2))
        paragraphs.append(tabulate(block.rows, block.head, "simple", disable_numparse=True))
    paragraphs.append(_wrap(report.notes, 2))
    return "\n\n".join(filter(None, paragraphs)) + "\n"


def _wrap(texts: Iterable[str], indent: int) -> str:
    return "\n".join(textwrap.fill(text, 100, subsequent_indent=" " * indent) for text in texts)


def markdown(report: ResultsPage) -> str:
    """Return the report in Markdown, for a page or a pull request."""
    facts = [f"- {_escape_markdown(key)}: {_escape_markdown(value)}" for key, value in report.facts]
    paragraphs = [
        f"# {_escape_markdown(report.title)}",
        f"    {report.command}",
        "\n".join(facts),
    ]
    for block in report.blocks:
        rows = block.format_rows(_escape_markdown, "**{}**")
        head = list(map(_escape_markdown, block.head))
        table = tabulate(rows, head, "github", disable_numparse=True)
        paragraphs += [f"## {_escape_markdown(block.title)}", _escape_markdown(block.noted), table]
    paragraphs.append("\n".join(f"- {_escape_markdown(note)}" for note in report.notes))
    for title, frame in report.details[:1]:
        cells = frame.map(lambda value: "" if pd.isna(value) else _escape_markdown(str(value)))
        paragraphs += [f"## {title}", cells.to_markdown(index=False)]
    return "\n\n".join(filter(None, paragraphs)) + "\n"


def _escape_markdown(text: str) -> str:
    """Escape the characters that would start a column, a tag, emphasis or a link."""
    return re.sub(r"([\\|<>*`\[\]]|(?<!\w)_|_(?!\w))", r"\\\1", text)


def latex(report: ResultsPage) -> str:
    """Return the report in LaTeX, with a ``table`` environment for each block and its note.

    Other texts are in comments. The preamble needs ``\\usepackage{booktabs}``.
    """
    facts = [f"{key}: {value}" for key, value in report.facts]
    comments = [report.title, report.command, *facts, *report.notes]
    paragraphs = ["\n".join(" ".join(f"% {text}".split()) for text in comments)]
    label = re.sub(r"[^A-Za-z0-9]+", "-", report.name)
    for number, block in enumerate(report.blocks, 1):
        rows = block.format_rows(latex_text, r"\textbf{{{}}}")
        table = pd.DataFrame(rows, columns=list(map(latex_text, block.head))).to_latex(
            index=False,
            escape=False,
            column_format="l" + "r" * (len(block.head) - 1),
            caption=latex_text(f"{report.title}. {block.title}."),
            label=f"tab:{label}-{number}",
        )
        foot = f"\\par\\smallskip\\footnotesize\n{latex_text(block.noted)}\n\\end{{table}}"
        table = table.replace("\\begin{table}", "\\begin{table}\n\\centering")
        paragraphs.append(table.replace("\\end{table}", foot))
    return "\n".join(paragraphs)


# Added to tabulate's rules. LaTeX reads [ at the start of a row as an option of the line break.
_LATEX_SIGNS = str.maketrans({"±": r"$\pm$", "…": r"\dots{}", "†": r"$^\dagger$", "[": "{[}"})


def latex_text(text: str) -> str:
    r"""Escape ``text`` so that LaTeX prints it as it is.

    >>> latex_text("NDCG_5 & -0.1 to 0.2 of seeds 1-3")
    'NDCG\\_5 \\& $-$0.1 to 0.2 of seeds 1-3'
    """
    escaped = "".join(LATEX_ESCAPE_RULES.get(sign, sign) for sign in text).translate(_LATEX_SIGNS)
    return re.sub(r"(?<![\w.-])-(?=\d)", "$-$", escaped)  # a minus is longer than a hyphen


def page(report: ResultsPage) -> str:
    """Return one HTML page, which loads nothing from elsewhere and sorts a table by a click."""
    templates = Path(__file__).parent
    script = (templates / "page.js").read_text(encoding="utf-8")
    style = (templates / "page.css").read_text(encoding="utf-8")
    environment = Environment(
        loader=FileSystemLoader(templates),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("page.html").render(
        report=report,
        published=any(PUBLISHED in str((block.head, block.rows)) for block in report.blocks),
        words=VERDICTS,
        details=[
            (title, [*frame], frame.map(_format_cell).to_numpy().tolist())
            for title, frame in report.details
        ],
        style=style,
        script=script,
        digest=b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    )


def _format_cell(value: object) -> str:
    """Return four digits of a number, and nothing for None and NaN."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    is_missing = value is None or value != value
    return "" if is_missing else text


RENDERERS: dict[str, Callable[[ResultsPage], str]] = {".html": page, ".md": markdown, ".tex": latex}
