"""Checks of the knobs that metrics, relaxations and losses share. No torch here."""

import math
from collections.abc import Sequence

from ltr.errors import ConfigError


def check_k(k: int | None) -> None:
    """Raise ``ConfigError`` unless ``k`` is a cutoff rank or None (the whole list)."""
    if k is not None and (isinstance(k, bool) or not isinstance(k, int) or k < 1):
        raise ConfigError(f"k={k} is not a cutoff: write an integer k >= 1, or null for all ranks")


def check_choice(knob: str, value: str, choices: Sequence[str]) -> None:
    """Raise ``ConfigError`` naming the choices unless ``value`` is one of them."""
    if value not in choices:
        raise ConfigError(f"{knob}={value} is not known: choose one of {', '.join(choices)}")


def check_empty(empty: float | int | str) -> None:
    """Raise ``ConfigError`` unless ``empty`` is a number from 0 to 1 or ``"skip"``."""
    if empty != "skip" and not (isinstance(empty, int | float) and 0 <= empty <= 1):
        raise ConfigError(
            f"empty={empty} is not a value of an empty list: write a number from 0 to 1, or skip"
        )


def check_positive(knob: str, value: float | int) -> None:
    """Raise ``ConfigError`` unless ``value`` is a finite number above 0."""
    if not (value > 0 and math.isfinite(value)):
        raise ConfigError(f"{knob}={value} is out of range: write a finite number above 0")
