"""Translate the arguments that a user types after ``train`` into Hydra's grammar."""

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

from ltr.cli.configs import files_of, groups_of, own_configs, similar_keys, train_keys
from ltr.cli.keys import Holds, holds, upgrade_override
from ltr.errors import ConfigError

log = logging.getLogger(__name__)

SEVERAL = {"-m", "--multirun"}  # the options of a sweep
# Hydra's functions, which give a key several values
_SWEEP = re.compile(r"(choice|glob|interval|range|shuffle|sort|tag)\(.*\)", re.DOTALL)


def as_hydra(typed: Sequence[str]) -> list[str]:
    """Return the typed arguments of ``train`` in Hydra's grammar, with quotes around strings.

    If ``--multirun`` is among them, ``KEY=A,B`` gives the key several values, as in a sweep.

    >>> as_hydra(["loss=listnet", "data_dir=outputs/a (b)", "-m", "seed=1,2"])
    ['loss=listnet', "data_dir='outputs/a (b)'", '-m', 'seed=1,2']
    """
    typed = upgraded(typed)
    overrides = get_args_parser().parse_intermixed_args(typed).overrides
    check_added(overrides)
    sweep = bool(SEVERAL & {*typed})
    return [
        with_quotes(argument, sweep=sweep) if argument in overrides else argument
        for argument in typed
    ]


def upgraded(overrides: Iterable[str]) -> list[str]:
    """Return overrides of any version in the form of this version; warn of those that changed."""
    current_overrides = []
    for override in overrides:
        current_override = upgrade_override(override)
        if current_override != override:
            warn_of_former(override, current_override)
        current_overrides.append(current_override)
    return current_overrides


@cache
def warn_of_former(former: str, current: str) -> None:
    """Warn once per process that the next version will not accept ``former``."""
    log.warning(
        "%s: write %s instead; the next version will not accept the former name", former, current
    )


def check_added(overrides: Sequence[str]) -> None:
    """Raise ``ConfigError`` for ``+KEY=VALUE`` if nothing reads the key.

    A key is read if it is a key or group of ``train``, if it is in a part of the config such as
    ``model``, or if another override or one of the user's config files refers to it.
    """
    readable_keys = {*train_keys(), *groups_of("train")}
    for override in overrides:
        key = override.lstrip("+").partition("=")[0]
        if not override.startswith("+") or not re.fullmatch(r"\w+", key):
            continue
        if key not in readable_keys and not files_of(key):  # files_of: a group of the user
            link = re.compile(rf"\$\{{{key}\b")
            if any(map(link.search, [*overrides, *_user_config_texts()])):
                continue
            suggestions = " or ".join(similar_keys(key))
            remedy = f"did you mean {suggestions}? " if suggestions else "leave it out; "
            raise ConfigError(
                f"{override}: the key {key} has no effect; {remedy}--cfg job lists all keys"
            )


def _user_config_texts() -> list[str]:
    """Return the content of each of the user's config files."""
    folder = own_configs()
    paths = [] if folder is None else sorted(folder.rglob("*.yaml"))
    return [path.read_text(errors="replace") for path in paths if path.is_file()]


def with_quotes(override: str, *, sweep: bool = False) -> str:
    """Return ``KEY=VALUE`` with quotes around the strings that Hydra would read as something else.

    A key that holds a string gets exactly the string that was typed; ``null`` becomes None.

    Args:
        override: the typed override. A value in quotes is not changed.
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
    value_kind = Holds.TEXTS if name in groups_of("train") else holds(name)
    if sweep and _SWEEP.fullmatch(value):
        return override
    if sweep or value_kind == Holds.TEXTS:
        items = [_readable(item.strip(), value_kind) for item in split_at_commas(value)]
        return f"{key}={','.join(items)}"
    return f"{key}={_readable(value, value_kind)}"


def _readable(value: str, value_kind: Holds | None) -> str:
    """Return ``value`` in Hydra's grammar: in quotes or, for a list or dict, with quotes inside."""
    if _is_readable(value, texts=value_kind is not None, containers=value_kind != Holds.TEXT):
        return value
    if value_kind != Holds.TEXT and value[0] + value[-1] in ("[]", "{}"):
        inside = [_entry(item, value_kind, value[0]) for item in split_at_commas(value[1:-1])]
        return f"{value[0]}{','.join(inside)}{value[-1]}"
    return quoted(value)


def _entry(item: str, value_kind: Holds | None, bracket: str) -> str:
    """Return an item of a list, or ``KEY:VALUE`` of a dict, in Hydra's grammar."""
    if bracket == "{":
        key, _, value = item.partition(":")
        return f"{key.strip()}:{_readable(value.strip(), value_kind)}"
    value = item.strip()
    return quoted(value) if value_kind and value == "null" else _readable(value, value_kind)


def _is_readable(value: str, *, texts: bool = False, containers: bool = True) -> bool:
    """Return whether Hydra can read ``value`` and, if ``texts``, reads all of it as strings."""
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


def split_at_commas(value: str) -> list[str]:
    """Split ``value`` at the commas outside quotes and brackets.

    >>> split_at_commas("[a,b],'c,d',it's")
    ['[a,b]', "'c,d'", "it's"]
    >>> split_at_commas("[')',b],c")
    ["[')',b]", 'c']
    """
    parts = [""]
    depth = 0
    quote = ""
    for sign in value:
        written = parts[-1].rstrip(" ")
        backslashes = len(parts[-1]) - len(parts[-1].rstrip("\\"))
        if quote:
            is_end = sign == quote and backslashes % 2 == 0
            quote = "" if is_end else quote
        elif sign in "'\"" and (not written or (depth > 0 and written[-1] in "[{(,:")):
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
    """Quote ``value`` for Hydra's grammar, in which a backslash escapes only before a quote.

    >>> print(quoted("/home/o'neil/a#b"))
    '/home/o\\'neil/a#b'
    """
    inside = re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + ("\\'" if m[2] else ""), value)
    return f"'{inside}'"


def as_text(value: Any) -> str:
    """Return ``value`` in the form in which a user types it after ``KEY=``.

    >>> as_text([64, None, True, 1e-5, "relu", "two words"])
    "[64,null,true,1e-05,relu,'two words']"
    """
    if hasattr(value, "tolist"):  # a NumPy number or array
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
    """Join lists of overrides. A later override replaces an earlier one with the same key.

    If the choice of a group changes, earlier settings in that group are removed too.

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
