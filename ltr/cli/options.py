"""Declare the keys of a command in a dataclass, and parse a config into it; types are checked."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import MISSING, Field, field, fields
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_type_hints

from omegaconf import DictConfig, OmegaConf

from ltr.cli.keys import as_list
from ltr.errors import ConfigError
from ltr.knobs import is_number

Options = TypeVar("Options")


def option(
    default: Any = MISSING, *, help: str, at_least: int | None = None, null_is_text: bool = False
) -> Any:
    """Declare a field that a user sets with ``NAME=VALUE``.

    The arguments must be literals, because ``ltr.cli.command_keys`` reads them from the source
    code. ``--help`` therefore imports nothing.

    Args:
        default: the value if the user types none; if there is no default, the user must type a
            value.
        help: the explanation in ``--help``.
        at_least: the smallest integer that is allowed.
        null_is_text: whether ``NAME=null`` means the string null; if False, it means None.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True, kw_only=True)
    ... class Example:
    ...     runs: tuple[str, ...] = option(help="run folders")
    ...     samples: int = option(1000, at_least=100, help="number of resamples")
    >>> Example(runs=("outputs/a",))
    Example(runs=('outputs/a',), samples=1000)
    """
    metadata = {"help": help, "at_least": at_least}
    if isinstance(default, dict):
        return field(default_factory=lambda: deepcopy(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def group(default: Any = MISSING, *, help: str) -> Any:
    """Declare a config group.

    ``NAME=CHOICE`` chooses a file in ``configs/NAME``, and ``NAME.KEY=VALUE`` sets a key in it.
    Without a default, the user must type a choice.
    """
    return field(default=default, metadata={"help": help})


def collected(kind: str) -> Any:
    """Declare a field that collects the typed arguments whose keys are not fields of the dataclass.

    Its type is ``tuple[str, ...]``. ``kind`` is ``"launcher"`` for arguments that choose and set a
    Hydra launcher, and ``"others"`` for all others.
    """
    return field(default=())


def parse_options(options_type: type[Options], cfg: DictConfig) -> Options:
    """Return the options in ``cfg`` as an instance of ``options_type``.

    Args:
        options_type: a dataclass with a field for each key that the command reads. The type of a
            field is ``str``, ``bool``, ``int``, ``float``, ``tuple[str, ...]`` (set by a string or
            a list; null is an empty tuple), ``DictConfig`` (a node with its interpolations, such as
            that of a data set), one of these ``| None`` (for null, or for a key without a value),
            or ``Any`` (for plain lists and dicts).
        cfg: the composed config of the command.

    Raises:
        ConfigError: a key without a default is missing, or a value has the wrong type.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Example:
    ...     runs: tuple[str, ...]
    ...     margin: float
    ...     samples: int = option(1, at_least=1, help="number of resamples")
    >>> parse_options(Example, OmegaConf.create({"runs": "a", "margin": 1, "samples": 5}))
    Example(runs=('a',), margin=1.0, samples=5)
    """
    hints = get_type_hints(options_type)
    option_fields: tuple[Field[Any], ...] = fields(options_type)  # type: ignore[arg-type]
    missing = [
        name
        for name, hint in hints.items()
        if OmegaConf.is_missing(cfg, name) and NoneType not in get_args(hint)
    ]
    if missing:
        raise ConfigError(f"set {' '.join(f'{name}=...' for name in missing)}; see --help")
    values = {
        declared.name: _parse(declared.name, cfg.get(declared.name), hints[declared.name], declared)
        for declared in option_fields
        if declared.name in cfg or _has_no_default(declared)
    }
    return options_type(**values)


def _has_no_default(declared: Field[Any]) -> bool:
    return declared.default is MISSING and declared.default_factory is MISSING


def _parse(name: str, value: Any, hint: Any, declared: Field[Any]) -> Any:
    """Return the value of the key ``name`` as the type ``hint``."""
    if hint is Any:
        return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
    allowed = get_args(hint) if isinstance(hint, UnionType) else (hint,)
    if value is None and NoneType in allowed:
        return None
    kind = next(kind for kind in allowed if kind is not NoneType)
    if kind == tuple[str, ...]:
        return tuple(as_list(value))
    if kind is DictConfig:
        return _require(name, value)
    return _PARSERS[kind](name, value, declared)


def _parse_text(name: str, value: Any, declared: Field[Any]) -> str:
    return str(_require(name, value))


def _require(name: str, value: Any) -> Any:
    """Return ``value``; raise ``ConfigError`` if it is null."""
    if value is None:
        raise ConfigError(f"set {name}=...; see --help")
    return value


def _parse_bool(name: str, value: Any, declared: Field[Any]) -> bool:
    return parse_flag(name, value)


def parse_flag(name: str, value: Any) -> bool:
    """Return ``value``; raise ``ConfigError`` unless the key ``name`` is true or false."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name}={value}: write true or false")
    return value


def _parse_int(name: str, value: Any, declared: Field[Any]) -> int:
    minimum = declared.metadata.get("at_least")
    is_integer = type(value) is int  # True is an int too
    if not is_integer or (minimum is not None and value < minimum):
        limit = "" if minimum is None else f" >= {minimum}"
        raise ConfigError(f"{name}={value}: give a whole number{limit}")
    return int(value)


def _parse_float(name: str, value: Any, declared: Field[Any]) -> float:
    if not is_number(value):
        raise ConfigError(f"{name}={value}: give a number, such as 0.05")
    return float(value)


_PARSERS: dict[type, Callable[[str, Any, Field[Any]], Any]] = {
    str: _parse_text,
    bool: _parse_bool,
    int: _parse_int,
    float: _parse_float,
}
