"""Checks of the settings ("knobs") of losses and metrics: one function for each kind of value.

The module does not import torch. A number may have a NumPy type; the checks return a Python number,
so results do not depend on the type.
"""

import math
import re
import sys
from collections.abc import Sequence
from itertools import pairwise
from numbers import Integral, Real
from typing import Any

from ltr.errors import ConfigError

Gain = str | Sequence[float | int]  # exp2, linear, or the gains of the grades 0, 1, 2, ...
_NUMBER = re.compile(
    r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|inf|infinity|nan)",
    re.ASCII | re.IGNORECASE,
)
_MOST = 10**18  # cutoffs are compared with ranks, which are int64


def check_k(k: int | None) -> int | None:
    """Return ``k``.

    Raises ``ConfigError`` unless it is a cutoff rank >= 1 or None (the whole list).
    """
    if k is None:
        return None
    if not (_is_whole(k) and 1 <= k < _MOST):
        raise ConfigError(
            f"k={k} is not a cutoff rank: write an integer k >= 1, or null for all ranks"
        )
    return int(k)


def positive_int(knob: str, value: int) -> int:
    """Return ``value`` if it is an integer >= 1, else raise ``ConfigError``."""
    if not (_is_whole(value) and value >= 1):
        raise ConfigError(f"{knob}={value} is out of range: write an integer >= 1")
    return int(value)


def check_choice(knob: str, value: str, choices: Sequence[str]) -> None:
    """Raise ``ConfigError``, which names the ``choices``, unless ``value`` is one of them."""
    if value not in choices:
        raise ConfigError(f"{knob}={value} is not known: choose one of {', '.join(choices)}")


def check_empty(empty: float | int | str) -> float | int | str:
    """Return ``empty``; raise ``ConfigError`` unless it is a number from 0 to 1 or ``"skip"``."""
    if isinstance(empty, str) and empty == "skip":
        return empty
    if not is_number(empty) or not 0 <= float(empty) <= 1:
        raise ConfigError(
            f"empty={empty} is not a valid value for lists without a relevant item: write a number "
            "from 0 to 1, or skip"
        )
    return python_number(empty)


def check_gain(gain: Gain, choices: Sequence[str]) -> Gain:
    """Return ``gain``; raise ``ConfigError`` unless it is one of ``choices`` or a table of gains.

    A table holds the gains of the grades 0, 1, 2, ... The gains are finite, >= 0 and never
    decrease, so labels and gains have the same order.
    """
    table = "the gains of the grades 0, 1, 2, ... in ascending order, such as [0,1,3]"
    if isinstance(gain, str):
        if gain not in choices:
            raise ConfigError(
                f"gain={gain} is not known: choose one of {', '.join(choices)}, or write {table}"
            )
        return gain
    values = gain.tolist() if hasattr(gain, "tolist") else gain  # a NumPy array
    good = isinstance(values, Sequence) and len(values) > 1 and all(map(is_number, values))
    if not good or values[0] < 0 or any(a > b for a, b in pairwise(values)):
        raise ConfigError(f"gain={gain} is not a valid table of gains: write {table}")
    return tuple(map(python_number, values))


def check_positive(knob: str, value: float | int) -> float | int:
    """Return ``value``; raise ``ConfigError`` unless it is a finite number above 0."""
    if not (is_number(value) and value > 0):
        raise ConfigError(f"{knob}={value} is out of range: write a finite number above 0")
    return python_number(value)


def check_share(knob: str, value: float | int) -> float | int:
    """Return ``value``; raise ``ConfigError`` unless it is a number from 0 to 1."""
    if not (is_number(value) and 0 <= value <= 1):
        raise ConfigError(f"{knob}={value} is out of range: write a number from 0 to 1")
    return python_number(value)


def check_levels(levels: int) -> int:
    """Return ``levels``, the number of grades.

    Raises ``ConfigError`` unless it is an integer >= 2.
    """
    if not (_is_whole(levels) and levels >= 2):
        raise ConfigError(
            f"levels={levels} is not a number of grades: write an integer >= 2, such as 5 for the "
            "labels 0 to 4"
        )
    return int(levels)


def levels_for(largest: float | int) -> int:
    """Return the number of grades (at least 2) of data whose largest label is ``largest``.

    A fractional label is rounded up.

    >>> levels_for(4), levels_for(3.2), levels_for(0)
    (5, 5, 2)
    """
    return max(2, math.ceil(largest) + 1)


def _is_whole(value: object) -> bool:
    return isinstance(python_number(value), int) and is_number(value)


def is_number(value: object) -> bool:
    """Return whether ``value`` is a finite integer or float, and not a ``bool``.

    >>> import numpy as np
    >>> is_number(np.float32(0.5)), is_number(np.int64(3)), is_number(np.True_), is_number(math.inf)
    (True, True, False, False)
    """
    value = python_number(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max  # math.isfinite overflows on huge integers


def parse_number(text: str) -> float:
    """Return the number that ``text`` represents; raise ``ValueError`` if it is not a number.

    Spaces and tabs around the number are allowed. Unlike ``float``, this function accepts only what
    C, pandas and pyarrow also accept: no underscores, and no digits or spaces outside ASCII.

    >>> parse_number(" -1.5e3")
    -1500.0
    >>> parse_number("1_000")
    Traceback (most recent call last):
    ValueError: '1_000' is not a number
    """
    if not _NUMBER.fullmatch(text.strip(" \t")):
        raise ValueError(f"{text[:40]!r} is not a number")
    return float(text)


def python_number(value: Any) -> Any:
    """Return a NumPy number as an ``int`` or ``float``, and any other value unchanged."""
    if isinstance(value, int) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)
