"""Read values of a command's config; a wrong one is one line with the remedy."""

import sys
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ltr.errors import ConfigError


def whole(cfg: DictConfig, key: str, *, least: int) -> int:
    """The whole number ``cfg.key``; ``ConfigError`` where it is none, or below ``least``."""
    value = cfg[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{key}={value}: give a whole number >= {least}")
    return value


def number(cfg: DictConfig, key: str) -> float:
    """The finite number ``cfg.key``; ``ConfigError`` where it is none."""
    value = cfg[key]
    plain = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not (plain and abs(value) <= sys.float_info.max):  # math.isfinite overflows at long integers
        raise ConfigError(f"{key}={value}: give a number, such as 0.05")
    return float(value)


def flag(cfg: DictConfig, key: str) -> bool:
    """True or false; ``ConfigError`` where ``cfg.key`` is neither."""
    if not isinstance(value := cfg[key], bool):
        raise ConfigError(f"{key}={value}: write true or false")
    return value


def text(cfg: DictConfig, key: str) -> str | None:
    """``cfg.key`` as text, None where it is null."""
    return None if cfg[key] is None else str(cfg[key])


def texts(cfg: DictConfig, key: str) -> tuple[str, ...]:
    """The texts of the list ``cfg.key``; none where it is null, one where it is no list."""
    value: Any = None if OmegaConf.is_missing(cfg, key) else cfg[key]
    if value is None:
        return ()
    plain: Any = OmegaConf.to_container(value) if OmegaConf.is_config(value) else [value]
    return tuple(map(str, plain))


def required(cfg: DictConfig, *keys: str) -> None:
    """Raise ``ConfigError`` that names every one of ``keys`` that was not given."""
    missing = [key for key in keys if OmegaConf.is_missing(cfg, key) or cfg.get(key) is None]
    if missing:
        raise ConfigError(f"give {' '.join(f'{key}=...' for key in missing)}; see --help")
