"""Parse the composed config of a command into a dataclass of its options, checked by type."""

from collections.abc import Callable
from dataclasses import MISSING, Field, field, fields
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_type_hints

from omegaconf import DictConfig, OmegaConf

from ltr.cli.keys import as_list
from ltr.errors import ConfigError
from ltr.knobs import is_number

Options = TypeVar("Options")


def at_least(minimum: int) -> Any:
    """Declare a field that is an integer of at least ``minimum``."""
    return field(metadata={"minimum": minimum})


def parse_options(options_type: type[Options], cfg: DictConfig) -> Options:
    """Return the options in ``cfg`` as an instance of ``options_type``.

    Args:
        options_type: a dataclass with a field for each key that the command reads. A field is a
            ``str``, ``bool``, ``int``, ``float``, ``tuple[str, ...]`` (a single text, a list, or
            null for an empty one), a ``DictConfig`` (a node, such as a data set's, with its
            interpolations), one of these or None (null, or a key that must be given and is not),
            or ``Any`` (plain lists and dicts).
        cfg: the composed config of the command.

    Raises:
        ConfigError: a key without a default is missing, or a value has another type.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Example:
    ...     runs: tuple[str, ...]
    ...     margin: float
    ...     samples: int = at_least(1)
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
        raise ConfigError(f"give {' '.join(f'{name}=...' for name in missing)}; see --help")
    values = {
        option.name: _parse(option.name, cfg.get(option.name), hints[option.name], option)
        for option in option_fields
        if option.name in cfg or option.default is MISSING
    }
    return options_type(**values)


def _parse(name: str, value: Any, hint: Any, option: Field[Any]) -> Any:
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
    return _PARSERS[kind](name, value, option)


def _parse_text(name: str, value: Any, option: Field[Any]) -> str:
    return str(_require(name, value))


def _require(name: str, value: Any) -> Any:
    """Return ``value``; raise ``ConfigError`` if it is null."""
    if value is None:
        raise ConfigError(f"give {name}=...; see --help")
    return value


def _parse_bool(name: str, value: Any, option: Field[Any]) -> bool:
    return parse_flag(name, value)


def parse_flag(name: str, value: Any) -> bool:
    """Return ``value``; raise ``ConfigError`` unless the key ``name`` is true or false."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name}={value}: write true or false")
    return value


def _parse_int(name: str, value: Any, option: Field[Any]) -> int:
    minimum = option.metadata.get("minimum")
    is_integer = type(value) is int  # True is an int, too
    if not is_integer or (minimum is not None and value < minimum):
        limit = "" if minimum is None else f" >= {minimum}"
        raise ConfigError(f"{name}={value}: give a whole number{limit}")
    return int(value)


def _parse_float(name: str, value: Any, option: Field[Any]) -> float:
    if not is_number(value):
        raise ConfigError(f"{name}={value}: give a number, such as 0.05")
    return float(value)


_PARSERS: dict[type, Callable[[str, Any, Field[Any]], Any]] = {
    str: _parse_text,
    bool: _parse_bool,
    int: _parse_int,
    float: _parse_float,
}
