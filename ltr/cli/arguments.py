"""Translate the arguments that a user types into Hydra's grammar, for every command."""

import json
import logging
import re
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import chain
from typing import Any

from hydra._internal.utils import get_args_parser
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException

from ltr.cli.configs import files_of, groups_of, own_configs, own_keys, similar_keys
from ltr.cli.keys import Holds, holds, upgrade_override
from ltr.errors import ConfigError

log = logging.getLogger(__name__)

SEVERAL = {"-m", "--multirun"}  # the options of a sweep
# Hydra's functions that give a key several values
_SWEEP = re.compile(r"(choice|glob|interval|range|shuffle|sort|tag)\(.*\)", re.DOTALL)


def as_hydra(config_name: str, typed: Sequence[str]) -> list[str]:
    """Translate the typed arguments of a command into Hydra's grammar.

    For ``train``, only quotes are added; with ``--multirun``, ``KEY=A,B`` is a sweep. For others,
    ``KEY=A,B`` is a list, unless the value of the key is a single text, and a value without a key
    belongs to the first key. A key ``train`` or ``knobs`` (as in table and search) collects all
    arguments whose keys are not the command's own.

    >>> as_hydra("compare", ["outputs/a b", "margin=0.01", "outputs/c"])
    ['margin=0.01', "runs=['outputs/a b','outputs/c']"]
    >>> as_hydra("table", ["table=ranknet_report", "rows=A B,C", "epochs=1"])
    ['table=ranknet_report', "rows=['A B','C']", "train=['epochs=1']"]
    """
    typed = upgraded(typed)
    overrides = get_args_parser().parse_intermixed_args(typed).overrides
    check_added(overrides, config_name)
    if config_name == "train":
        sweep = bool(SEVERAL & {*typed})
        return [
            with_quotes(argument, sweep=sweep) if argument in overrides else argument
            for argument in typed
        ]
    command_keys = own_keys(config_name)
    collected = dict[str, list[str]]()
    collecting_key = next((key for key in ("train", "knobs") if key in command_keys), None)
    hydra_arguments = [argument for argument in typed if argument not in overrides]
    for override in overrides:
        key, equals, value = override.partition("=")
        name = key.lstrip("+~")
        if name == "convention" and "conventions" in command_keys:  # one or several
            key = name = "conventions"
            override = f"{key}={value}"
        if not equals:
            collected.setdefault(next(iter(command_keys)), []).append(override)
        elif "launcher" in command_keys and name.startswith(("hydra/launcher", "hydra.launcher.")):
            collected.setdefault("launcher", []).append(override)
        elif collecting_key and name not in command_keys and re.split("[./@]", name)[0] != "hydra":
            collected.setdefault(collecting_key, []).append(override)
        elif holds(name, config_name) != Holds.TEXT and len(items := _split(value)) > 1:
            hydra_arguments.append(f"{key}=[{','.join(map(_with_own_quotes, items))}]")
        else:
            hydra_arguments.append(with_quotes(override, config_name))
    for key, values in collected.items():
        several = len(values) > 1 or isinstance(command_keys[key], list)
        hydra_arguments.append(f"{key}={_listed(values) if several else quoted(values[0])}")
    return hydra_arguments


def upgraded(overrides: Iterable[str]) -> list[str]:
    """Return overrides of any version as this one writes them, and warn of those that changed."""
    current_overrides = []
    for override in overrides:
        current_override = upgrade_override(override)
        if current_override != override:
            warn_of_former(override, current_override)
        current_overrides.append(current_override)
    return current_overrides


@cache
def warn_of_former(former: str, current: str) -> None:
    """Warn, once in a process, of a text that the next version will not accept."""
    log.warning("%s: write %s; the next version will not accept the former", former, current)


def check_added(overrides: Sequence[str], config_name: str = "train") -> None:
    """Raise ``ConfigError`` for ``+KEY=VALUE`` with a key that nothing reads: no key or group of
    the command or of the runs that it trains, not in a part of the config such as ``model``, and
    not named by another override or by a config file of the user's own.
    """
    commands = [config_name]
    if {"train", "knobs"} & own_keys(config_name).keys():
        commands.append("train")
    readable_keys = {
        key for command in commands for key in (*own_keys(command), *groups_of(command))
    }
    for override in overrides:
        key = override.lstrip("+").partition("=")[0]
        if not override.startswith("+") or not re.fullmatch(r"\w+", key):
            continue
        if key not in readable_keys and not files_of(key):  # files: a group of the user's own
            link = re.compile(rf"\$\{{{key}\b")
            if any(map(link.search, [*overrides, *_user_config_texts()])):
                continue
            suggestions = " or ".join(similar_keys(key))
            remedy = f"did you mean {suggestions}? " if suggestions else "leave it out; "
            raise ConfigError(
                f"{override}: nothing reads the key {key}; {remedy}--cfg job prints all"
            )


def _user_config_texts() -> list[str]:
    """Return the content of each config file of the user's own."""
    folder = own_configs()
    paths = [] if folder is None else sorted(folder.rglob("*.yaml"))
    return [path.read_text(errors="replace") for path in paths if path.is_file()]


def _listed(values: Sequence[str]) -> str:
    return f"[{','.join(map(quoted, values))}]"


def _with_own_quotes(item: str) -> str:
    """Quote ``item``, unless the user did."""
    item = item.strip()
    return item if item[:1] in ("'", '"') and _is_readable(item) else quoted(item)


def with_quotes(override: str, config_name: str = "train", *, sweep: bool = False) -> str:
    """Return an override ``KEY=VALUE`` with quotes around the texts that Hydra would read as
    something else. A key whose value is a text gets the text that was typed; ``null`` is none.

    Args:
        override: what was typed. A value in quotes stays as it is.
        config_name: the command that has the key.
        sweep: whether ``KEY=A,B`` gives the key several values.

    >>> with_quotes("resume=outputs/a (b)"), with_quotes("seed=1,2")
    ("resume='outputs/a (b)'", 'seed=1,2')
    >>> with_quotes("dataset.folder=2024_05"), with_quotes("dataset.features=[price (EUR),1_0]")
    ("dataset.folder='2024_05'", "dataset.features=['price (EUR)','1_0']")
    """
    key, equals, value = override.partition("=")
    if not equals:
        return override
    name = key.lstrip("+~")
    value_kind = Holds.TEXTS if name in groups_of(config_name) else holds(name, config_name)
    if sweep and _SWEEP.fullmatch(value):
        return override
    if value == "null" and name == "qid":
        return f"{key}={quoted(value)}"  # there is no explanation of no query
    if sweep or value_kind == Holds.TEXTS:
        return f"{key}={','.join(_readable(item.strip(), value_kind) for item in _split(value))}"
    return f"{key}={_readable(value, value_kind)}"


def _readable(value: str, value_kind: Holds | None) -> str:
    """Return ``value`` as Hydra reads it: quoted, or with quotes inside if it is a list or dict."""
    if _is_readable(value, texts=value_kind is not None, containers=value_kind != Holds.TEXT):
        return value
    if value_kind != Holds.TEXT and value[0] + value[-1] in ("[]", "{}"):
        inside = [_entry(item, value_kind, value[0]) for item in _split(value[1:-1])]
        return f"{value[0]}{','.join(inside)}{value[-1]}"
    return quoted(value)


def _entry(item: str, value_kind: Holds | None, bracket: str) -> str:
    """Return an item of a list, or ``KEY:VALUE`` of a dict, as Hydra reads it."""
    if bracket == "{":
        key, _, value = item.partition(":")
        return f"{key.strip()}:{_readable(value.strip(), value_kind)}"
    value = item.strip()
    return quoted(value) if value_kind and value == "null" else _readable(value, value_kind)


def _is_readable(value: str, *, texts: bool = False, containers: bool = True) -> bool:
    """Return whether Hydra can read ``value``; with ``texts``, as nothing but the texts in it."""
    try:
        parsed = OverridesParser.create().parse_override(f"KEY={value}").value()
    except HydraException:
        return False
    if not texts:
        return True
    if isinstance(parsed, (list, dict)):
        return containers and _has_only_texts(parsed)
    if not isinstance(parsed, str):
        return parsed is None
    return parsed == value or value[:1] in ("'", '"') or "\\" in value


def _has_only_texts(parsed: Any) -> bool:
    if isinstance(parsed, list):
        return all(_has_only_texts(item) and item is not None for item in parsed)
    if isinstance(parsed, dict):
        return all(map(_has_only_texts, parsed.values()))
    return parsed is None or isinstance(parsed, str)


def _split(value: str) -> list[str]:
    """Split ``value`` at the commas that stand outside quotes and brackets.

    >>> _split("[a,b],'c,d',it's")
    ['[a,b]', "'c,d'", "it's"]
    """
    parts = [""]
    depth = 0
    quote = ""
    for sign in value:
        if quote:
            quote = "" if sign == quote and parts[-1][-1] != "\\" else quote
        elif sign in "'\"" and not parts[-1].strip():
            quote = sign
        elif sign in "[{(":
            depth += 1
        elif sign in ")}]":
            depth -= 1
        if sign == "," and not quote and depth <= 0:
            parts.append("")
        else:
            parts[-1] += sign
    return parts


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
    if hasattr(value, "tolist"):  # a number or an array of NumPy
        value = value.tolist()
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(as_text, value))}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{as_text(item)}" for key, item in value.items()) + "}"
    reserved_words = ("null", "true", "false", "nan", "inf")
    if re.fullmatch(r"[A-Za-z_][\w./+-]*", str(value)) and str(value).lower() not in reserved_words:
        return str(value)
    return quoted(str(value))


def merged(*override_lists: Sequence[str]) -> list[str]:
    """Join lists of overrides; a later override replaces an earlier one with the same key.

    If the choice of a group changes, earlier settings inside that group are removed too.

    >>> merged(["dataset=mq2008", "dataset.fold=2", "epochs=5"], ["dataset=synthetic", "epochs=1"])
    ['dataset=synthetic', 'epochs=1']
    """
    by_key: dict[str, str] = {}
    for override in upgraded(chain.from_iterable(override_lists)):
        key = override.lstrip("+").partition("=")[0]
        if by_key.get(key, override) != override:
            by_key = {
                other_key: text
                for other_key, text in by_key.items()
                if not other_key.startswith(f"{key}.")
            }
        by_key[key] = override
    return list(by_key.values())
