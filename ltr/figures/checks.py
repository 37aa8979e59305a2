"""Checks of the knobs that the figures share."""

import math
from collections.abc import Sequence

from torch import Tensor, tensor

from ltr.errors import ConfigError
from ltr.metrics.checks import check_positive


def numbers(knob: str, values: object, *, least: int = 1) -> list[float]:
    """``values`` as floats.

    Raises:
        ConfigError: it is not a list of at least ``least`` finite numbers.

    >>> numbers("scores", [1, 0.5])
    [1.0, 0.5]
    """
    good = isinstance(values, Sequence) and not isinstance(values, str) and len(values) >= least
    if not good or not all(_is_number(value) for value in values):  # type: ignore[attr-defined]
        raise ConfigError(
            f"{knob}={values}: write a list of {least} or more finite numbers, such as [1,0.5]"
        )
    return [float(value) for value in values]  # type: ignore[attr-defined]


def positive(knob: str, value: float) -> float:
    """``value`` as a float; ``ConfigError`` unless it is a finite number above 0."""
    check_positive(knob, value)
    return float(value)


def check_whole(knob: str, value: object, *, least: int) -> None:
    """Raise ``ConfigError`` unless ``value`` is a whole number >= ``least``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ConfigError(f"{knob}={value}: write a whole number >= {least}")


def as_list(values: Sequence[float]) -> Tensor:
    """One list in float64, ``[1, list]``."""
    return tensor([list(values)]).double()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
