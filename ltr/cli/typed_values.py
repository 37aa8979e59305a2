"""Read the arguments of a command other than ``train``: ``KEY=VALUE``, or only a value.

A key of type ``str`` gets the string that was typed, such as 1.10. A key of type
``tuple[str, ...]`` gets the strings between commas. Other keys get a number, true, false or null,
as in YAML.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from hydra.core.override_parser.overrides_parser import OverridesParser

from ltr.cli.arguments import quoted, split_at_commas, upgraded, with_quotes
from ltr.cli.command_keys import CommandKey, command_keys, key_name
from ltr.cli.configs import similar_keys
from ltr.cli.keys import Holds, holds
from ltr.errors import ConfigError

_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_NAMED_VALUES = {"null": None, "true": True, "false": False}


class TypedValues(NamedTuple):
    """The values that a user has typed."""

    values: dict[str, Any]  # by the key of the command, or by KEY.INNER_KEY
    group_overrides: list[str]  # for its config groups, in Hydra's grammar


def read_typed(command: str, arguments: Sequence[str]) -> TypedValues:
    """Return the values that ``arguments`` give to the keys of ``command``.

    An argument without ``=`` is a value of the first key. Some commands pass ``KEY=VALUE`` on if
    the key is not their own: those that train, such as ``table``, and those that check a loss, a
    metric or a model.

    Raises:
        ConfigError: a key is unknown.

    >>> read_typed("compare", ["outputs/a b", "margin=0.01", "outputs/c"]).values
    {'margin': 0.01, 'runs': ['outputs/a b', 'outputs/c']}
    >>> read_typed("table", ["table=ranknet_report", "rows=A B,C", "epochs=1"]).values
    {'table': 'ranknet_report', 'rows': ['A B', 'C'], 'train': ['epochs=1']}
    """
    keys = command_keys(command)
    first_key = next(iter(keys.values()))
    values = dict[str, Any]()
    collected_arguments = dict[str, list[str]]()
    group_overrides = list[str]()
    for argument in upgraded(arguments):
        typed_name, equals, value = argument.partition("=")
        name = key_name(typed_name.lstrip("+~"), keys)
        key = keys.get(name)
        collector = _collector(keys.values(), name)
        if not equals:
            collected_arguments.setdefault(first_key.name, []).append(argument)
        elif key and key.declared_by == "option":
            values[name] = read_value(key, value)
        elif _is_in_group(keys, name):
            group_overrides.append(_as_override(argument))
        elif name in _inner_keys(keys):
            parsed = OverridesParser.create().parse_override(_as_override(argument))
            values[name] = parsed.value()
        elif collector:
            collected_arguments.setdefault(collector, []).append(argument)
        else:
            raise ConfigError(_describe_unknown(name, keys))
    for name, texts in collected_arguments.items():
        values[name] = texts if keys[name].holds_texts else _single(keys[name], texts)
    return TypedValues(values, group_overrides)


def read_value(key: CommandKey, text: str) -> Any:
    """Return the value that ``KEY=text`` gives to ``key``.

    >>> keys = command_keys("predict")
    >>> read_value(keys["output"], "1.10"), read_value(keys["features"], "[price (EUR),1_0]")
    ('1.10', ['price (EUR)', '1_0'])
    >>> read_value(keys["threads"], "4"), read_value(keys["qrels"], "null")
    (4, None)
    """
    if key.holds_text:
        is_none = text == "null" and not key.null_is_text
        return None if is_none else _without_quotes(text)
    if key.holds_texts:
        items = split_at_commas(text)
        return _read_texts(text) if len(items) == 1 else [_read_item(item) for item in items]
    return _read_number(text)


def _read_texts(text: str) -> Any:
    """Return the string, list of strings or dict of strings that ``text`` denotes; null is None.

    >>> _read_texts("{a:[x,y],b: z}"), _read_texts("'a, b'")
    ({'a': ['x', 'y'], 'b': 'z'}, 'a, b')
    """
    stripped = text.strip()
    brackets = stripped[:1] + stripped[-1:]
    inside = stripped[1:-1]
    if stripped == "null":
        return None
    if brackets == "[]":
        return [_read_item(item) for item in split_at_commas(inside) if inside.strip()]
    if brackets == "{}":
        pairs = [item.partition(":") for item in split_at_commas(inside) if inside.strip()]
        return {
            _without_quotes(name.strip()): _read_texts(value.strip()) for name, _, value in pairs
        }
    return _without_quotes(text)


def _read_item(item: str) -> Any:
    """Return an item of a list, in which null is a string."""
    stripped = item.strip()
    return stripped if stripped == "null" else _read_texts(stripped)


def _read_number(text: str) -> Any:
    """Return the number, bool or None that ``text`` denotes; otherwise ``text`` itself."""
    if text.lower() in _NAMED_VALUES:
        return _NAMED_VALUES[text.lower()]
    for number_type in (int, float):
        try:
            return number_type(text)
        except ValueError:
            continue
    return _without_quotes(text)


def _without_quotes(text: str) -> str:
    """Return ``text`` without enclosing quotes.

    >>> print(_without_quotes(quoted("o'neil, a")), _without_quotes("it's"))
    o'neil, a it's
    """
    if not _QUOTED.fullmatch(text):
        return text
    mark = text[0]
    escaped = re.compile(rf"(\\+)({mark}|$)")  # a backslash elsewhere is literal
    return escaped.sub(lambda match: match[1][: len(match[1]) // 2] + match[2], text[1:-1])


def _single(key: CommandKey, arguments: Sequence[str]) -> str:
    """Return the only argument; raise ``ConfigError`` if there are several."""
    if len(arguments) > 1:
        raise ConfigError(
            f"{arguments[1]}: expected KEY=VALUE, got a second value for {key.name}, which is "
            f"already set to {arguments[0]}; see --help"
        )
    return arguments[0]


def _collector(keys: Iterable[CommandKey], name: str) -> str | None:
    """Return the name of the key that collects ``name=VALUE``; None if there is no such key."""
    is_of_launcher = name.startswith(("hydra/launcher", "hydra.launcher."))
    if re.split(r"[./@]", name)[0] == "hydra" and not is_of_launcher:
        return None
    collects = "launcher" if is_of_launcher else "others"
    return next((key.name for key in keys if key.collects == collects), None)


def _is_in_group(keys: dict[str, CommandKey], name: str) -> bool:
    """Return whether ``name`` is a config group of the command, or a key in such a group."""
    key = keys.get(re.split(r"[./@]", name)[0])
    return key is not None and key.declared_by == "group"


def _inner_keys(keys: dict[str, CommandKey]) -> list[str]:
    """Return ``KEY.INNER_KEY`` for each key inside another key, such as ``convention.empty``."""
    return [
        f"{key.name}.{inner_key}"
        for key in keys.values()
        if isinstance(key.default, dict)
        for inner_key in key.default
    ]


def _as_override(argument: str) -> str:
    """Return ``KEY=VALUE`` in Hydra's grammar; ``KEY=A,B`` becomes a list."""
    name, _, value = argument.partition("=")
    items = split_at_commas(value)
    if len(items) == 1 or holds(name.lstrip("+~")) == Holds.TEXT:
        return with_quotes(argument)
    texts = [quoted(_without_quotes(item.strip())) for item in items]
    return f"{name}=[{','.join(texts)}]"


def _describe_unknown(name: str, keys: dict[str, CommandKey]) -> str:
    suggestions = " or ".join(similar_keys(name, [*keys, *_inner_keys(keys)]))
    remedy = f"did you mean {suggestions}? " if suggestions else ""
    return f"{name}: no such key; {remedy}--cfg job lists all keys; see --help"
