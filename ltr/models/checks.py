"""Checks of the settings that the models share."""

from collections.abc import Iterable

from ltr.errors import ConfigError


def positive_int(setting: str, value: int) -> int:
    """``value`` if it is an integer >= 1, else ``ConfigError``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigError(f"{setting}={value} is out of range: write an integer >= 1")
    return value


def sizes_tuple(setting: str, sizes: Iterable[int]) -> tuple[int, ...]:
    """A tuple of the layer sizes, all integers >= 1, else ``ConfigError``; ``sizes`` is kept."""
    if isinstance(sizes, int | str):
        raise ConfigError(f"{setting}={sizes} is not a list: write {setting}=[{sizes}]")
    return tuple(positive_int(f"{setting}[{i}]", size) for i, size in enumerate(sizes))


def dropout_rate(setting: str, value: float | int) -> float:
    """``value`` if it is a rate in [0, 1), else ``ConfigError``."""
    if not 0 <= value < 1:
        raise ConfigError(f"{setting}={value} is out of range: write a number in [0, 1)")
    return float(value)
