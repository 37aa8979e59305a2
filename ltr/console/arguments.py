"""Translate the arguments that a user types into Hydra's grammar, for every command."""

import json
import re
from collections.abc import Sequence
from typing import Any

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from ltr.console.configs import own_keys


def as_hydra(config_name: str, typed: Sequence[str]) -> list[str]:
    """Translate the typed arguments of a command into Hydra's grammar.

    For ``train``, where ``KEY=A,B`` is a sweep, only quotes are added. For others, ``KEY=A,B`` is a
    list, and a value without a key belongs to the first key. A key ``train`` or ``knobs`` (as in
    table and search) collects all arguments whose keys are not the command's own.

    >>> as_hydra("compare", ["outputs/a b", "margin=0.01", "outputs/c"])
    ['margin=0.01', "runs=['outputs/a b','outputs/c']"]
    >>> as_hydra("table", ["table=ranknet_report", "rows=A B,C", "epochs=1"])
    ['table=ranknet_report', "rows=['A B','C']", "train=['epochs=1']"]
    """
    overrides = get_args_parser().parse_intermixed_args(list(typed)).overrides
    if config_name == "train":
        return [with_quotes(one) if one in overrides else one for one in typed]
    own, lists = own_keys(config_name), dict[str, list[str]]()
    rest = next((key for key in ("train", "knobs") if key in own), None)
    out = [one for one in typed if one not in overrides]
    for override in overrides:
        key, equals, value = override.partition("=")
        name = key.lstrip("+~")
        if not equals:
            lists.setdefault(next(iter(own)), []).append(override)
        elif "launcher" in own and name.startswith(("hydra/launcher", "hydra.launcher.")):
            lists.setdefault("launcher", []).append(override)
        elif rest and name not in own and re.split("[./@]", name)[0] != "hydra":
            lists.setdefault(rest, []).append(override)
        elif "," in value and own.get(key) != "???" and value[0] not in "'\"[{":
            out.append(f"{key}={_listed(value.split(','))}")
        else:
            out.append(with_quotes(override))
    for key, values in lists.items():
        several = len(values) > 1 or isinstance(own[key], list)
        out.append(f"{key}={_listed(values) if several else quoted(values[0])}")
    return out


def _listed(values: Sequence[str]) -> str:
    return f"[{','.join(quoted(value.strip()) for value in values)}]"


def with_quotes(override: str) -> str:
    """Return an override ``KEY=VALUE`` with the value in quotes if Hydra could not read it.

    >>> with_quotes("resume=outputs/a (b)"), with_quotes("seed=1,2")
    ("resume='outputs/a (b)'", 'seed=1,2')
    """
    key, equals, value = override.partition("=")
    try:
        OverridesParser.create().parse_override(override)
    except HydraException:
        return f"{key}={quoted(value)}" if equals else override
    return override


def quoted(value: str) -> str:
    """Quote ``value`` for Hydra's grammar, in which backslashes escape only before a quote.

    >>> print(quoted("/home/o'neil/a#b"))
    '/home/o\\'neil/a#b'
    """
    inside = re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + ("\\'" if m[2] else ""), value)
    return f"'{inside}'"


def as_text(value: Any) -> str:
    """Return ``value`` as it is written after ``KEY=`` on a command line.

    >>> as_text([64, None, True, 1e-5, "relu", "two words"])
    "[64,null,true,1e-05,relu,'two words']"
    """
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(as_text, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{as_text(item)}" for key, item in value.items()) + "}"
    words = ("null", "true", "false", "nan", "inf")
    if re.fullmatch(r"[A-Za-z_][\w./+-]*", str(value)) and str(value).lower() not in words:
        return str(value)
    return quoted(str(value))


def merged(*parts: Sequence[str]) -> list[str]:
    """Join lists of overrides; a later override replaces an earlier one with the same key.

    If the choice of a group changes, earlier settings inside that group are removed too.

    >>> merged(["dataset=mq2008", "dataset.fold=2", "epochs=5"], ["dataset=synthetic", "epochs=1"])
    ['dataset=synthetic', 'epochs=1']
    """
    kept: dict[str, str] = {}
    for override in (item for part in parts for item in part):
        key = override.lstrip("+").partition("=")[0]
        if kept.get(key, override) != override:
            kept = {other: text for other, text in kept.items() if not other.startswith(f"{key}.")}
        kept[key] = override
    return list(kept.values())
