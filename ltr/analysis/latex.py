"""Text and tables as LaTeX; the preamble needs ``\\usepackage{booktabs}``."""

import re
from collections.abc import Sequence

from tabulate import LATEX_ESCAPE_RULES

# Added to tabulate's rules; a row that begins with [ would be an option of the line break before.
_MORE = str.maketrans({"±": r"$\pm$", "…": r"\dots{}", "†": r"$^\dagger$", "[": "{[}"})


def latex_text(text: str) -> str:
    r"""Escape ``text`` so that LaTeX prints it as it is.

    >>> latex_text("NDCG_5 & 50%")
    'NDCG\\_5 \\& 50\\%'
    >>> latex_text("-0.1 to 0.2 of seeds 1-3")
    '$-$0.1 to 0.2 of seeds 1-3'
    """
    escaped = "".join(LATEX_ESCAPE_RULES.get(sign, sign) for sign in text).translate(_MORE)
    return re.sub(r"(?<![\w.-])-(?=\d)", "$-$", escaped)  # a minus is longer than a hyphen


def latex_comment(text: str) -> str:
    """``text`` in one line that LaTeX does not print."""
    return " ".join(f"% {text}".split())


def latex_table(
    caption: str, label: str, head: Sequence[str], rows: Sequence[Sequence[str]], foot: str = ""
) -> str:
    """A ``table`` environment: the first column to the left, the others to the right.

    Args:
        caption, head, foot: plain text; an empty ``foot`` is left out.
        label: of ``\\ref``, without its ``tab:``.
        rows: LaTeX, each as long as ``head``.
    """
    begin = rf"\begin{{tabular}}{{l{'r' * (len(head) - 1)}}}"
    small = [r"\par\smallskip\footnotesize", latex_text(foot)] if foot else []
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{latex_text(caption)}}}",
        rf"\label{{tab:{label}}}",
        begin,
        r"\toprule",
        _row([latex_text(text) for text in head]),
        r"\midrule",
        *map(_row, rows),
        r"\bottomrule",
        r"\end{tabular}",
        *small,
        r"\end{table}",
    ]
    return "\n".join(lines)


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"
