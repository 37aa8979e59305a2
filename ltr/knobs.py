"""Checks of settings (knobs), one for each kind of value, for all packages. Needs no torch."""

import math
import re
import sys
from collections.abc import Sequence
from itertools import pairwise

from ltr.errors import ConfigError

Gain = str | Sequence[float | int]  # exp2, linear, or the gains of the grades 0, 1, 2 and so on
_NUMBER = re.compile(
    r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|infinity|nan)",
    re.ASCII | re.IGNORECASE,
)
_MOST = 10**18  # cutoffs are compared with ranks, which are int64


def check_k(k: int | None) -> None:
    """Raise ``ConfigError`` unless ``k`` is a cutoff rank or None (the whole list)."""
    if k is not None and not (_is_whole(k) and 1 <= k < _MOST):
        raise ConfigError(f"k={k} is not a cutoff: write an integer k >= 1, or null for all ranks")


def positive_int(knob: str, value: int) -> int:
    """Return ``value`` if it is an integer >= 1, else raise ``ConfigError``."""
    if not (_is_whole(value) and value >= 1):
        raise ConfigError(f"{knob}={value} is out of range: write an integer >= 1")
    return value


def check_choice(knob: str, value: str, choices: Sequence[str]) -> None:
    """Raise ``ConfigError`` naming the choices unless ``value`` is one of them."""
    if value not in choices:
        raise ConfigError(f"{knob}={value} is not known: choose one of {', '.join(choices)}")


def check_empty(empty: float | int | str) -> None:
    """Raise ``ConfigError`` unless ``empty`` is a number from 0 to 1 or ``"skip"``."""
    if empty != "skip" and (not is_number(empty) or not 0 <= float(empty) <= 1):
        raise ConfigError(
            f"empty={empty} is not a value of an empty list: write a number from 0 to 1, or skip"
        )


def check_gain(gain: Gain, choices: Sequence[str]) -> None:
    """Raise ``ConfigError`` unless ``gain`` is one of ``choices`` or a table of gains.

    A table holds the gains of grade 0, 1, 2, ...: finite, >= 0, and never falling, so that labels
    and gains have the same order.
    """
    table = "a list of gains such as [0,1,3]: that of grade 0, of grade 1, ..., none below the last"
    if isinstance(gain, str):
        if gain not in choices:
            raise ConfigError(
                f"gain={gain} is not known: choose one of {', '.join(choices)}, or write {table}"
            )
        return
    good = isinstance(gain, Sequence) and len(gain) > 1 and all(map(is_number, gain))
    if not good or gain[0] < 0 or any(a > b for a, b in pairwise(gain)):
        raise ConfigError(f"gain={gain} is not a table of gains: write {table}")


def check_positive(knob: str, value: float | int) -> None:
    """Raise ``ConfigError`` unless ``value`` is a finite number above 0."""
    if not (is_number(value) and value > 0):
        raise ConfigError(f"{knob}={value} is out of range: write a finite number above 0")


def check_share(knob: str, value: float | int) -> None:
    """Raise ``ConfigError`` unless ``value`` is a number from 0 to 1."""
    if not (is_number(value) and 0 <= value <= 1):
        raise ConfigError(f"{knob}={value} is out of range: write a number from 0 to 1")


def check_levels(levels: int) -> None:
    """Raise ``ConfigError`` unless ``levels``, a number of grades, is an integer >= 2."""
    if not (_is_whole(levels) and levels >= 2):
        raise ConfigError(
            f"levels={levels} is not a number of grades: write an integer >= 2, such as 5 for the "
            "labels 0 to 4"
        )


def levels_for(largest: float | int) -> int:
    """Return the number of grades, >= 2, of data whose largest label is ``largest``.

    A fractional label is rounded up.

    >>> levels_for(4), levels_for(3.2), levels_for(0)
    (5, 5, 2)
    """
    return max(2, math.ceil(largest) + 1)


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and is_number(value)


def is_number(value: object) -> bool:
    """Return whether ``value`` is a finite ``int`` or ``float`` and not a ``bool``."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max  # math.isfinite overflows on huge integers


def parse_number(text: str) -> float:
    """Return the number that ``text`` writes, with spaces or tabs around it; else ``ValueError``.

    Unlike ``float``, this reads only what C, pandas and pyarrow read too: it refuses underscores,
    and digits and spaces outside ASCII.

    >>> parse_number(" -1.5e3")
    -1500.0
    >>> parse_number("1_000")
    Traceback (most recent call last):
    ValueError: '1_000' is not a number
    """
    if not _NUMBER.fullmatch(text.strip(" \t")):
        raise ValueError(f"{text[:40]!r} is not a number")
    return float(text)
