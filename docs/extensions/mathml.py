"""Formulas as MathML, which browsers draw themselves: no script, no font from elsewhere."""

import re
from html import escape
from typing import Any

from docutils import nodes  # type: ignore[import-untyped]
from docutils.utils.math import MathError  # type: ignore[import-untyped]
from docutils.utils.math.latex2mathml import tex2mathml  # type: ignore[import-untyped]
from sphinx.application import Sphinx
from sphinx.util import logging

log = logging.getLogger(__name__)
_ALIASES = {r"\dots": r"\ldots"}  # LaTeX's own that docutils does not know
# an accent with an index: docutils would put the index below the letter instead of beside it
_ACCENT = re.compile(r"\\(?:wide)?(?:hat|tilde|bar|vec|dot|ddot|check)\{[^{}]*\}(?=\s*[_^])")


def mathml(node: nodes.Element, *, block: bool) -> str:
    """The MathML of ``node``; a formula that docutils cannot read stays text, with a warning."""
    text = re.sub(r"\\[A-Za-z]+", lambda found: _ALIASES.get(found[0], found[0]), node.astext())
    text = _ACCENT.sub(r"{\g<0>{}}", text)
    try:
        return str(tex2mathml(text, as_block=block))
    except MathError as error:
        log.warning("formula: %s", error, location=node)
        return f"<code>{escape(text)}</code>"


def visit_inline(self: Any, node: nodes.math) -> None:
    """Write ``node`` into the line."""
    self.body.append(mathml(node, block=False))
    raise nodes.SkipNode


def visit_block(self: Any, node: nodes.math_block) -> None:
    """Write ``node`` as a line of its own, with its number where it has one."""
    number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
    self.body.append(f'<div class="math">{number}{mathml(node, block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Take the place of MathJax."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
