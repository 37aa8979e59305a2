"""Translate the arguments that a user types to Hydra's grammar, in one way for every command."""

import json
import os
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from ltr.console.configs import own_keys
from ltr.errors import ConfigError


class Grammar(NamedTuple):
    """The arguments of a command besides ``KEY=VALUE`` of its own."""

    bare: str | None = None  # the key whose values may be typed without ``KEY=``
    lists: tuple[str, ...] = ()  # keys that may be typed ``KEY=A,B``, which Hydra takes for a sweep
    rest: str | None = None  # the list that collects ``KEY=VALUE`` of another command
    texts: tuple[str, ...] = ()  # keys whose value is text, whatever it looks like
    launcher: str | None = None  # the list that collects the settings of Hydra's launcher


GRAMMARS = {
    "evaluate": Grammar(lists=("metrics_as", "metrics")),
    "predict": Grammar(lists=("id", "features", "names")),
    "export": Grammar(lists=("id", "features", "names")),
    "ensemble": Grammar(bare="runs", lists=("runs", "weights")),
    "compare": Grammar(bare="runs", lists=("runs",)),
    "runs": Grammar(bare="folder"),
    "importances": Grammar(bare="run"),
    "explain": Grammar(bare="checkpoint", lists=("items",), texts=("qid",)),
    "list_losses": Grammar(bare="name"),
    **dict.fromkeys(("check_loss", "check_metric", "check_model"), Grammar("name", rest="knobs")),
    "table": Grammar(lists=("rows",), rest="train", launcher="launcher"),
    "search": Grammar(lists=("space", "folds", "seeds"), rest="train"),
}
# Hydra's options
_FLAGS = (
    "--help", "-h", "--hydra-help", "--version", "--resolve", "--run", "-r", "--multirun", "-m",
)  # fmt: skip
_WITH_VALUE = (
    "--config-dir", "-cd", "--config-path", "-cp", "--config-name", "-cn", "--package", "-p",
    "--cfg", "-c", "--info", "-i", "--shell-completion", "-sc", "--experimental-rerun",
)  # fmt: skip


def as_hydra(config_name: str, typed: Sequence[str]) -> list[str]:
    """The arguments of a command as Hydra takes them; ``ConfigError`` where one is wrong.

    >>> as_hydra("compare", ["outputs/a b", "margin=0.01", "outputs/c"])
    ['margin=0.01', "runs=['outputs/a b','outputs/c']"]
    >>> as_hydra("table", ["table=ranknet_report", "rows=A B,C", "epochs=1"])
    ['table=ranknet_report', "rows=['A B','C']", "train=['epochs=1']"]
    >>> as_hydra("table", ["rows=null"])
    ['rows=null']
    """
    grammar, own = GRAMMARS.get(config_name, Grammar()), own_keys(config_name)
    out: list[str] = []
    lists: dict[str, list[str]] = {}  # what ``bare``, ``rest`` and ``launcher`` collect
    follows = False  # an option, whose value this is
    for argument in typed:
        key, equals, value = argument.partition("=")
        name = key.lstrip("+~")
        group = re.split(r"[./@]", name)[0]
        if follows or key in _WITH_VALUE or argument in _FLAGS:
            out.append(argument)
            follows = not follows and argument in _WITH_VALUE
        elif argument.startswith("-"):
            raise ConfigError(f"{argument}: write {key.lstrip('-')}={value or 'VALUE'}, see --help")
        elif grammar.launcher and name.startswith(("hydra/launcher", "hydra.launcher.")):
            lists.setdefault(grammar.launcher, []).append(argument)
        # Path.exists raises at what is longer than a name can be
        elif grammar.bare and (not equals or os.path.exists(argument)):  # noqa: PTH110
            lists.setdefault(grammar.bare, []).append(argument)
        elif not equals and not key.startswith("~"):
            raise ConfigError(f"{argument}: write KEY=VALUE, 'KEY=[A, B]' in quotes, see --help")
        elif grammar.rest and name not in own and group != "hydra":
            lists.setdefault(grammar.rest, []).append(argument)
        elif value == "null":  # a key's own default, as the help writes it
            out.append(argument)
        elif key in grammar.lists and value and not value.startswith("["):
            out.append(f"{key}={_listed(value.split(','))}")
        elif key in grammar.texts and value[:1] not in ("'", '"', ""):
            out.append(f"{key}={quoted(value)}")
        else:
            out.append(with_quotes(argument))
    for to, values in lists.items():
        if to == grammar.bare and to not in grammar.lists:
            if len(values) > 1:
                raise ConfigError(f"{values[1]}: write KEY=VALUE, see --help")
            out.append(f"{to}={quoted(values[0])}")
        else:
            out.append(f"{to}={_listed(values)}")
    return out


def _listed(values: Sequence[str]) -> str:
    return f"[{','.join(quoted(value.strip()) for value in values if value.strip())}]"


_PATHS = (
    "resume", "init_from", "teacher", "checkpoint", "input", "output", "archive", "scores", "data",
    "write", "only", "run", "name", "table", "baseline", "data_dir", "cache_dir", "output_dir",
    "storage", "folder",
)  # fmt: skip
_PLAIN = re.compile(r"[\w./%+@*?|$-]*", re.ASCII)  # what Hydra reads as it is
_NAMED = re.compile(r"\{[^{}:]+:")  # {NAME:FILE}, several paths


def with_quotes(arg: str) -> str:
    """``KEY=PATH`` so that Hydra takes the path as it is, whatever characters are in it.

    >>> with_quotes("resume=outputs/a,b"), with_quotes("resume=outputs/a"), with_quotes("seed=1,2")
    ("resume='outputs/a,b'", 'resume=outputs/a', 'seed=1,2')
    """
    key, _, value = arg.partition("=")
    if key not in _PATHS or _PLAIN.fullmatch(value) or value[0] in "'\"[" or _NAMED.match(value):
        return arg
    return f"{key}={quoted(value)}"


def quoted(value: str) -> str:
    """``value`` as Hydra's grammar quotes it: backslashes count only before a quote.

    >>> print(quoted("/home/o'neil/a#b"))
    '/home/o\\'neil/a#b'
    """
    inside = re.sub(r"(\\*)('|$)", lambda m: m[1] * 2 + ("\\'" if m[2] else ""), value)
    return f"'{inside}'"


def as_text(value: Any) -> str:
    """``value`` as it is written behind ``KEY=`` on a command line.

    >>> as_text([64, None, True, 1e-5, "relu", "two words"])
    "[64,null,true,1e-05,relu,'two words']"
    """
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return str(value)
    if isinstance(value, (list, tuple)):
        return f"[{','.join(as_text(item) for item in value)}]"
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{as_text(item)}" for key, item in value.items()) + "}"
    words = ("null", "true", "false", "nan", "inf")
    if re.fullmatch(r"[A-Za-z_][\w./+-]*", str(value)) and str(value).lower() not in words:
        return str(value)
    return quoted(str(value))


def merged(*parts: Sequence[str]) -> list[str]:
    """Overrides of which a later one replaces an earlier one of the same key.

    Another choice of a group takes the settings inside that group along.

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
