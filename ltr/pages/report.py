"""Write the report of an analysis as plain text, Markdown, LaTeX, an HTML page or CSV files."""

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
    "a published number is used as printed, because its values for single queries are unknown, so "
    "whether our interval covers the number is not a test of the difference"
)
PUBLISHED = "published"  # marks numbers that are not ours, in a column's head or a row's name
VERDICTS = ("better", "worse", "differ", "equivalent", "undecided")  # shown in colour


@dataclass(frozen=True)
class ReportBlock:
    """A table in a report; each row has as many cells as ``head``."""

    title: str
    note: str  # printed below the table in LaTeX, above it elsewhere
    head: Sequence[str]
    rows: Sequence[Sequence[str]]  # the first cell of a row is its name
    best: Container[tuple[str, str]] = ()  # (row name, column) of each cell to print in bold

    @property
    def noted(self) -> str:
        """The note, with an explanation of bold numbers."""
        notes = [self.note]
        if self.best:
            notes.append(
                "bold: the best value, if it differs from all those that it is compared with"
            )
        return "; ".join(filter(None, notes))

    def format_rows(self, escape: Callable[[str], str], bold: str) -> list[list[str]]:
        """Return the rows with escaped cells; ``bold`` is the format of the cells in ``best``."""
        return [
            [
                (bold if (row[0], name) in self.best else "{}").format(escape(text))
                for name, text in zip(self.head, row, strict=True)
            ]
            for row in self.rows
        ]


@dataclass(frozen=True)
class ResultsPage:
    """A report that ``terminal``, ``markdown``, ``latex`` and ``page`` render as text."""

    name: str  # the name of its folder
    title: str
    command: str  # the command that makes the report
    facts: Sequence[tuple[str, str]]  # pairs (key, text) for the head, about the data and the runs
    blocks: Sequence[ReportBlock]
    notes: Sequence[str] = ()  # printed below the blocks
    ours: str = "our runs"  # whose numbers these are; printed before the title of the page
    plot: str = ""  # a plot of the intervals for the page, as SVG in base64; empty: no plot
    details: Sequence[tuple[str, pd.DataFrame]] = ()  # more tables; Markdown shows the first

    def write(self, folder: Path, name: str, frames: Mapping[str, pd.DataFrame]) -> list[str]:
        """Write the report as NAME.html, NAME.md and NAME.tex, and the frames as CSV files.

        Args:
            folder: the folder to write to; it is created if it is missing.
            name: the name of the report's files, without suffix.
            frames: the content of each CSV file, by its name without suffix.

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
    """Return the report in Markdown, for a web page or a pull request."""
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
    """Escape the characters that Markdown would read as a column, a tag, emphasis or a link."""
    return re.sub(r"([\\|<>*`\[\]]|(?<!\w)_|_(?!\w))", r"\\\1", text)


def latex(report: ResultsPage) -> str:
    """Return the report in LaTeX: a ``table`` environment for each block, with its note.

    All other text becomes comments. The preamble needs ``\\usepackage{booktabs}``.
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


# These extend tabulate's rules. LaTeX would read [ at the start of a row as an option of \\.
_LATEX_SIGNS = str.maketrans({"±": r"$\pm$", "…": r"\dots{}", "†": r"$^\dagger$", "[": "{[}"})


def latex_text(text: str) -> str:
    r"""Escape ``text`` so that LaTeX prints it verbatim.

    >>> latex_text("NDCG_5 & -0.1 to 0.2 of seeds 1-3")
    'NDCG\\_5 \\& $-$0.1 to 0.2 of seeds 1-3'
    """
    escaped = "".join(LATEX_ESCAPE_RULES.get(sign, sign) for sign in text).translate(_LATEX_SIGNS)
    # in math mode, LaTeX prints a minus, not a hyphen
    return re.sub(r"(?<![\w.-])-(?=\d)", "$-$", escaped)


def page(report: ResultsPage) -> str:
    """Return an HTML page that loads no other files; a click on a column head sorts the table."""
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
    """Return a float with four significant digits, None and NaN as ``""``, other values as text."""
    text = f"{value:.4g}" if isinstance(value, float) else str(value)
    is_missing = value is None or value != value
    return "" if is_missing else text


RENDERERS: dict[str, Callable[[ResultsPage], str]] = {".html": page, ".md": markdown, ".tex": latex}
