"""Find columns in which different values become equal because features are float32.

These columns have numbers with more digits than the 7 that float32 holds, such as dates or ids.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from ltr.arrays import Doubles, Floats

LARGEST_EXACT = float(1 << 24)  # float32 holds every whole number up to this one
_FEW_STEPS = 1 << 20  # a column is examined if float32 has fewer steps than this in its range
_NOISE = 1e-12  # smaller differences, relative to the largest value, are float64 rounding
_MAX_VALUES = 1 << 16  # the most distinct values of a column that are kept
_SHARE = 0.01  # a column is not reported if it loses a smaller share of its distinct values
_MAX_NAMES = 12  # the most columns that the warning names


def to_float32(values: Doubles | Floats) -> tuple[Floats, int]:
    """Return ``values`` rounded to the nearest float32, and the number of NaNs in the result.

    Values that are missing (NaN), infinite, or too large for float32 become NaN.
    """
    with np.errstate(over="ignore", under="ignore"):
        rounded = values.astype(np.float32)
    unfit = ~np.isfinite(rounded)
    rounded[unfit] = np.nan
    return rounded, int(unfit.sum())


def inexact_values(values: Any) -> Any:
    """Return the distinct values of a column if different ones could become equal in float32.

    Values could become equal if they are larger than 2^24, or so close together that float32 has
    few steps between the smallest and the largest. Otherwise the result is empty. Missing and
    infinite values are ignored. ``values`` may be only a part of the column, so large values are
    returned even if they are all equal, or all exact.
    """
    if values.dtype == np.float32 or not len(values):
        return values[:0]
    large, close = _large_or_close(np.fmin.reduce(values), np.fmax.reduce(values))
    if not large and not close:
        return values[:0]
    distinct = np.unique(values)
    distinct = distinct[np.isfinite(distinct)]
    if large:
        if not close:
            distinct = distinct[np.abs(distinct) >= LARGEST_EXACT]
        return distinct[:_MAX_VALUES]
    with np.errstate(over="ignore", invalid="ignore"):
        exact = distinct.astype(np.float32).astype(distinct.dtype) == distinct
    return distinct[:0] if exact.all() else distinct[:_MAX_VALUES]


def inexact_columns(values: Any) -> dict[int, Any]:
    """Return the ``inexact_values`` of each column of ``values``, ``[rows, width]``.

    Columns without such values are left out.
    """
    if values.dtype == np.float32 or not len(values):
        return {}
    low = np.fmin.reduce(values, axis=0)
    high = np.fmax.reduce(values, axis=0)
    inexact = dict[int, Any]()
    for column in range(len(low)):
        if any(_large_or_close(low[column], high[column])):
            distinct = inexact_values(values[:, column])
            if len(distinct):
                inexact[column] = distinct
    return inexact


def _large_or_close(low: Any, high: Any) -> tuple[bool, bool]:
    """Return whether a column has numbers above 2^24, and whether its numbers are close together.

    ``low`` and ``high`` are its smallest and largest number. The numbers are close together if
    float32 has few steps between these two. The numbers of a constant column are not close.
    """
    low = low.item()  # Python subtracts whole numbers exactly
    high = high.item()
    largest = float(max(abs(low), abs(high)))
    span = float(high - low)
    if not span >= 0 or not np.isfinite(span):
        return False, False
    with np.errstate(over="ignore"):
        step = float(np.spacing(np.float32(largest)))
    return largest > LARGEST_EXACT, _NOISE * largest < span < _FEW_STEPS * step


def add_distinct(distinct: Any, values: Any) -> Any:
    """Return the distinct values of both arrays, but at most ``_MAX_VALUES`` of them."""
    if len(distinct) >= _MAX_VALUES:
        return distinct
    return np.union1d(distinct, values)[:_MAX_VALUES]


def rounding_remarks(inexact: Mapping[str, Any]) -> dict[str, str]:
    """Return a warning about the columns that lose distinct values; empty if there are none.

    ``inexact`` maps the name of each column to its ``inexact_values``.
    """
    lossy = []
    for name, values in inexact.items():
        with np.errstate(over="ignore"):
            remaining = len(np.unique(values.astype(np.float32)))
        if len(values) - remaining > _SHARE * len(values):
            lossy.append(f"{name} ({len(values):,} different values become {remaining:,})")
    if not lossy:
        return {}
    shown = ", ".join(lossy[:_MAX_NAMES])
    if len(lossy) > _MAX_NAMES:
        shown += ", ..."
    return {
        "rounding": "different numbers become equal because they have more digits than float32 "
        f"holds: {shown}; subtract the same constant from the column in every table (for dates, "
        "the first day), or leave the column out"
    }
