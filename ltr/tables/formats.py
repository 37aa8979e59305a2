"""A report as text for a terminal, as Markdown, and as LaTeX with booktabs."""

import re
import textwrap
from collections.abc import Callable, Sequence

import pandas as pd
from tabulate import LATEX_ESCAPE_RULES, tabulate

from ltr.tables.report import Block, Report

# What tabulate's rules for LaTeX leave as it is.
_MORE = str.maketrans(
    {
        "±": r"$\pm$",
        "…": r"\dots{}",
        "[": "{[}",  # at the start of a row it would belong to the line break before
    }
)


def terminal(report: Report) -> str:
    """For reading at once: the head, then block after block."""
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
    """Lines that fit a terminal; what is longer goes on further in."""
    return "\n".join(textwrap.wrap(text, 100, subsequent_indent=" " * indent))


def markdown(report: Report, details: Sequence[tuple[str, pd.DataFrame]] = ()) -> str:
    """For a page or a pull request, with the tables of ``details`` at the end."""
    head = "\n".join(f"- {_markdown(key)}: {_markdown(value)}" for key, value in report.facts)
    text = _joined(
        f"# {_markdown(report.title)}",
        f"{_code(report.command)}\n\n{head}",
        report,
        lambda block: f"## {_markdown(block.title)}\n\n{_markdown(block.note)}",
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
    for block in report.blocks:
        rows = [[escape(cell.text) for cell in row] for row in block.rows]
        table = tabulate(rows, [escape(text) for text in block.head], form, disable_numparse=True)
        parts += [heading(block), table]
    return "\n\n".join(parts) + "\n"


def _markdown(text: str) -> str:
    """So that no character of a name makes a column, a tag, emphasis or a link."""
    return re.sub(r"([\\|<>*`\[\]]|(?<!\w)_|_(?!\w))", r"\\\1", text)


def _code(text: str) -> str:
    """As code, whatever backticks are in it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    return f"{fence} {text} {fence}" if longest else f"{fence}{text}{fence}"


def latex(report: Report) -> str:
    r"""A ``table`` environment for each block; the preamble needs ``\usepackage{booktabs}``."""
    lines = [f"% {report.title}", f"% {report.command}"]
    lines += [f"% {key}: {value}" for key, value in report.facts]
    lines = [" ".join(line.split()) for line in lines]
    for number, block in enumerate(report.blocks, 1):
        rows = [[cell.text for cell in row] for row in block.rows]
        sides = ["left", *["right"] * (len(block.head) - 1)]
        table = tabulate(rows, block.head, "latex_booktabs", disable_numparse=True, colalign=sides)
        lines += [
            "",
            r"\begin{table}",
            r"\centering",
            rf"\caption{{{latex_text(f'{report.title}. {block.title}: {block.note}.')}}}",
            rf"\label{{tab:{_label(report.name)}-{number}}}",
            table.translate(_MORE),
            r"\par\smallskip\footnotesize",
            latex_text("; ".join(f"{key}: {value}" for key, value in report.facts)),
            r"\end{table}",
        ]
    return "\n".join(lines) + "\n"


def latex_text(text: str) -> str:
    r"""``text`` so that LaTeX prints it as it is.

    >>> latex_text("NDCG_5 & 50%")
    'NDCG\\_5 \\& 50\\%'
    """
    return "".join(LATEX_ESCAPE_RULES.get(character, character) for character in text).translate(
        _MORE
    )


def _label(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", name)
