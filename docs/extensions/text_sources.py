"""Complete the sources of pages that ``llms.txt`` names: docstrings, included parts."""

import inspect
import re
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

from sphinx.application import Sphinx


def described(name: str) -> str:
    """The signature and docstring of ``name``, of a class those of its public methods too."""
    found: Any = resolve_name(name)
    if inspect.ismodule(found):
        return f"{inspect.getdoc(found)}\n"
    parts = [_one(name, found)]
    if inspect.isclass(found):
        members = [(key, value) for key, value in vars(found).items() if key[0] != "_"]
        parts += [_one(f"{name}.{key}", getattr(found, key)) for key, value in members
                  if inspect.isfunction(value) or isinstance(value, classmethod)]  # fmt: skip
    return "\n".join(parts)


def _one(name: str, found: Any) -> str:
    if inspect.isclass(found) and issubclass(found, Exception):
        return f"{name}\n\n{inspect.getdoc(found)}\n"
    parameters = inspect.signature(found).parameters.values()
    plain = [one.replace(annotation=inspect.Parameter.empty) for one in parameters]
    return f"{name}{inspect.Signature(plain)}\n\n{inspect.getdoc(found)}\n"


def complete(text: str, folder: Path) -> str:
    """``text`` with each included part of ``folder`` and each docstring in its place."""
    parts = r"```\{include\} (generated/\S+)\n```\n"
    text = re.sub(parts, lambda found: (folder / found[1]).read_text(), text)
    text = re.sub(r"^ +:[\w-]+:.*\n", "", text, flags=re.M) if ".. auto" in text else text
    text = re.sub(
        r"^\.\. auto(?:class|exception|function|module):: (\S+)$",
        lambda found: described(found[1]), text, flags=re.M,
    )  # fmt: skip
    return text.replace("```{eval-rst}", "```text")


def write_sources(app: Sphinx, error: Exception | None) -> None:
    """Complete the sources of the reference in the output."""
    written = Path(app.outdir, "_sources", "reference")
    if error is None and written.is_dir():
        for path in written.rglob("*.txt"):
            path.write_text(complete(path.read_text(), Path(app.srcdir, "reference")))


def setup(app: Sphinx) -> dict[str, bool]:
    """Come before ``sphinx_llms_txt``, which reads the sources when the build has finished."""
    app.connect("build-finished", write_sources, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
