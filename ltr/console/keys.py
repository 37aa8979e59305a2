"""What each key of ``configs/train.yaml`` does to a run, in one table; read values of a config."""

from collections.abc import Mapping
from enum import Enum, auto
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from ltr.errors import ConfigError
from ltr.knobs import is_number


class Kind(Enum):
    """What of a run a key decides; one that is listed under none is of the method."""

    SELECTION = auto()  # which of its epochs is tested
    REPEAT = auto()  # seed and fold: runs that differ in nothing else are of one system
    MEASUREMENT = auto()  # what is reported
    PLACE = auto()  # where and how fast it is computed, and how much of it is shown
    PROPOSAL = auto()  # values that other keys read


class Resumed(Enum):
    """Where a key's value is from when a run is resumed; others are the checkpoint's alone."""

    TYPED = auto()  # the checkpoint, unless another value is typed
    OWN = auto()  # the command line; no checkpoint holds it
    FOLDER = auto()  # no checkpoint holds it, and typing it is refused: the folder exists


_KEYS: dict[Kind | Resumed, tuple[str, ...]] = {
    Kind.SELECTION: ("select_on", "select"),
    Kind.REPEAT: ("seed", "dataset.fold", "dataset.seed"),
    Kind.MEASUREMENT: ("metrics", "own_metrics", "monitor", "convention", "metrics_as"),
    Kind.PLACE: (
        "device", "threads", "deterministic", "evaluation_items", "checkpoint_minutes", "data_dir",
        "cache_dir", "output_dir", "sweep", "show_test", "resume", "for_engine", "trust",
        "tracking", "tracking.experiment", "tracking.project", "dataset.data_dir",
        "dataset.cache_dir",
    ),
    Kind.PROPOSAL: ("suggested",),
    Resumed.TYPED: (
        "epochs", "patience", "device", "threads", "deterministic", "evaluation_items",
        "checkpoint_minutes", "data_dir",
    ),
    Resumed.OWN: (
        "cache_dir", "show_test", "resume", "for_engine", "trust", "tracking",
        "tracking.experiment", "tracking.project",
    ),
    Resumed.FOLDER: ("output_dir", "sweep"),
}  # fmt: skip


def keys(*what: Kind | Resumed) -> tuple[str, ...]:
    """The keys that are one of ``what``.

    >>> keys(Kind.REPEAT)
    ('seed', 'dataset.fold', 'dataset.seed')
    """
    return tuple(key for one in what for key in _KEYS[one])


def without(config: Mapping[str, Any], *what: Kind | Resumed) -> dict[str, Any]:
    """``config`` without the keys that are one of ``what``.

    >>> without({"seed": 1, "l2": 0.0, "dataset": {"fold": 2, "name": "mq2008"}}, Kind.REPEAT)
    {'l2': 0.0, 'dataset': {'name': 'mq2008'}}
    """
    gone = keys(*what)
    return {
        key: {name: one for name, one in value.items() if f"{key}.{name}" not in gone}
        if isinstance(value, Mapping)
        else value
        for key, value in config.items()
        if key not in gone
    }


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of a nested config by their whole keys.

    >>> flat({"seed": 1, "loss": {"temperature": 0.5}})
    {'seed': 1, 'loss.temperature': 0.5}
    """
    found: dict[str, Any] = {}
    for key, value in config.items():
        whole = f"{prefix}{key}"
        found |= flat(value, f"{whole}.") if isinstance(value, Mapping) else {whole: value}
    return found


def stated(config: Mapping[str, Any]) -> dict[str, Any]:
    """The entries that are neither null nor false.

    A later version adds a key as null or false, so that a digest of the others stays the same.

    >>> stated({"seed": 0, "patience": None, "compile": False})
    {'seed': 0}
    """
    return {key: value for key, value in config.items() if value is not None and value is not False}


def whole(cfg: DictConfig, key: str, *, least: int) -> int:
    """The whole number ``cfg.key``; ``ConfigError`` where it is none, or below ``least``."""
    value = cfg[key]
    if type(value) is not int or value < least:  # True is no number
        raise ConfigError(f"{key}={value}: give a whole number >= {least}")
    return value


def number(cfg: DictConfig, key: str) -> float:
    """The finite number ``cfg.key``; ``ConfigError`` where it is none."""
    if not is_number(cfg[key]):
        raise ConfigError(f"{key}={cfg[key]}: give a number, such as 0.05")
    return float(cfg[key])


def flag(cfg: DictConfig, key: str) -> bool:
    """True or false; ``ConfigError`` where ``cfg.key`` is neither."""
    if not isinstance(value := cfg[key], bool):
        raise ConfigError(f"{key}={value}: write true or false")
    return value


def text(cfg: DictConfig, key: str) -> str | None:
    """``cfg.key`` as text, None where it is null."""
    return None if cfg[key] is None else str(cfg[key])


def as_list(value: Any) -> list[str]:
    """The texts of a setting that is a list; one alone may be written without brackets."""
    if isinstance(value, (list, tuple, ListConfig)):
        return list(map(str, value))
    return [] if value is None else [str(value)]


def texts(cfg: DictConfig, key: str) -> tuple[str, ...]:
    """The texts of the list ``cfg.key``; none where it is null or missing."""
    return tuple(as_list(cfg.get(key)))


def required(cfg: DictConfig, *keys: str) -> None:
    """Raise ``ConfigError`` that names every one of ``keys`` that was not given."""
    missing = [key for key in keys if OmegaConf.is_missing(cfg, key) or cfg.get(key) is None]
    if missing:
        raise ConfigError(f"give {' '.join(f'{key}=...' for key in missing)}; see --help")
