"""Read the config files with their comments, and write these as Markdown."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped]


class Key(NamedTuple):
    """A key of a config file."""

    name: str
    default: str  # as the file writes it; empty where the key has keys of its own
    meaning: str  # the comment behind it


class Config(NamedTuple):
    """A config file and its comments."""

    about: str  # the comment at its top
    keys: list[Key]
    chosen: dict[str, str]  # the choices of groups that it makes
    base: list[str]  # files of its own group that it begins with


def read_config(path: Path, prefix: str = "") -> Config:
    """Read a config file; ``prefix`` is the place of its keys, unless it names that itself."""
    text = path.read_text()
    head = re.match(r"(#.*\n)*", text)[0]  # type: ignore[index]
    about = [line[2:] for line in head.splitlines() if not re.match("# (@package|python )", line)]
    chosen, base = dict[str, str](), list[str]()
    for entry in yaml.safe_load(text).get("defaults", []):
        if isinstance(entry, str):
            base += [entry] if entry != "_self_" else []
        else:
            ((group, choice),) = entry.items()
            name = group.removeprefix("override ").partition("@")[0].strip("/")
            chosen[name] = "null" if choice is None else str(choice)
    chosen = {name: choice for name, choice in chosen.items() if not name.startswith("hydra/")}
    prefix = "" if "@package _global_" in head else prefix
    return Config(" ".join(about), list(_keys(yaml.compose(text), text, prefix)), chosen, base)


def _keys(node: Any, text: str, prefix: str) -> Iterator[Key]:
    lines = text.splitlines()
    for key, value in node.value:
        if key.value in ("defaults", "hydra", "_partial_"):
            continue
        nested = isinstance(value, yaml.MappingNode) and not value.flow_style
        end = key.end_mark if nested else value.end_mark
        comments = [lines[end.line][end.column :].partition("#")[2]]
        for line in lines[end.line + 1 :]:
            if not line.strip().startswith("#"):
                break
            comments.append(line.strip()[1:])
        default = "" if nested else text[value.start_mark.index : end.index]
        meaning = " ".join(comment.strip() for comment in comments).strip()
        yield Key(prefix + key.value, default, meaning)
        if nested:
            yield from _keys(value, text, f"{prefix}{key.value}.")


def prose(text: str) -> str:
    """A comment as Markdown: what one types becomes code, and no sign of it is markup.

    >>> prose("docs/x.md; set loss.k=5, not <k> or _k_")
    'docs/x.md; set `loss.k=5`, not \\\\<k> or \\\\_k\\\\_'
    """
    typed = r"('[+\w.]+=[^']*'|`[^`]*`|(?<![\w'])[+\w.]+=(?:\[[^\]]*\]|\.{3}|[\w./*,-]*\w)?)"
    text = re.sub(r"(?:python )?\btrain\.py", "ltr train", text)
    parts = re.split(typed, text)
    parts[::2] = [re.sub(r"([\\*<$|\[_])", r"\\\1", part) for part in parts[::2]]
    parts[1::2] = [code(part.strip("`")) for part in parts[1::2]]
    return "".join(parts)


def code(text: str) -> str:
    """``text`` as code in a cell of a table; nothing where it is empty."""
    return "`" + text.replace("|", r"\|") + "`" if text else ""


def listed(texts: Iterable[str]) -> str:
    """``texts`` as code, with commas between them."""
    return ", ".join(map(code, texts))


def slug(text: str) -> str:
    """``text`` as a part of an anchor."""
    return re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")


def key_table(keys: Iterable[Key], within: str = "") -> list[str]:
    """A table of ``keys``, with an anchor for each: ``key-NAME``, or ``key-WITHIN-NAME``."""
    rows = ["", "| key | default | meaning |", "| --- | --- | --- |"]
    for key in keys:
        anchor = f"key-{slug(f'{within} {key.name}')}"
        name = f"[`{key.name}`]{{#{anchor}}}"
        rows.append(f"| {name} | {code(key.default)} | {prose(key.meaning)} |")
    return [*rows, ""]
