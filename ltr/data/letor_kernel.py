"""LETOR text to arrays, compiled by Numba: the result of ``parse_rows``, or "not sure".

The import takes half a second, the first call on a machine some seconds; the machine code is kept.
"""

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from ltr.kernels.compile import keep

SURE, UNSURE, NARROW = 0, 1, 2  # the states that ``parse`` returns

_TAB, _NEWLINE, _RETURN, _BLANK, _HASH = 9, 10, 13, 32, 35
_PLUS, _MINUS, _POINT, _ZERO, _COLON = 43, 45, 46, 48, 58
_A, _D, _E, _I, _N, _Q = 97, 100, 101, 105, 110, 113
_TO_LOWER = 32  # the bit that capitals lack

_EXACT, _NEAR, _DOUBTFUL, _MALFORMED = 0, 1, 2, 3
_LARGEST_EXACT = 1 << 53  # whole numbers up to here, and powers of ten up to 22, are exact
_LARGEST_EXACT_POWER = 22
_DIGITS = 18  # always fit int64
_POWERS = np.array([float(f"1e{power}") for power in range(100)])
_MARGIN = 2.0**-49  # more than the error of three roundings and of the digits beyond the 18th
_OVERFLOW = float(np.finfo(np.float32).max) + 2.0**103  # the least number that rounds to inf

_inlined = njit(forceinline=True)  # a fifth faster


@keep
@njit(nogil=True)
def parse(
    text: NDArray[np.uint8],
    labelled: bool,
    fractions: bool,
    largest_label: float,
    largest_index: int,
    features: NDArray[np.float32],
    labels: NDArray[np.float32],
    seen: NDArray[np.int32],
    runs: NDArray[np.int64],
) -> tuple[int, int, int, int, int]:
    """Parse whole lines, without the interpreter's lock.

    Args:
        text: ``[bytes]``, no NUL; the last byte is a newline.
        labelled, fractions, largest_label, largest_index: the rules; ``fractions``: labels need
            not be whole.
        features: ``[lines, width]`` of zeros, filled; a larger index than ``width`` is left out.
        labels: ``[lines]`` of zeros, filled.
        seen: ``[width]`` of zeros, scratch.
        runs: ``[lines, 4]``, filled for each run of rows with one query id: begin and end of the
            id in the text, the first line (0-based), the number of rows.

    Returns:
        state, rows, runs, missing values, largest index. The state is ``SURE``, ``UNSURE``
        (malformed, or a number whose rounding is not certain here) or ``NARROW`` (the width is too
        small).
    """
    width = features.shape[1]
    row, run, missing, largest, line = 0, 0, 0, 0, 0
    unsure = UNSURE, 0, 0, 0, 0
    i = 0
    while i < len(text):
        i = _skip_blanks(text, i)
        if _byte(text, i) == _NEWLINE or _byte(text, i) == _HASH:
            i = _next_line(text, i)
            line += 1
            continue

        if labelled:
            end, kind, value = _number(text, i)
            if kind == _MALFORMED or not _is_blank(_byte(text, end)):
                return unsure
            whole = fractions or value == np.floor(value)
            if kind == _EXACT and 0.0 <= value <= largest_label and whole:
                labels[row] = abs(value)
            elif kind == _NEAR and 0.0 < value < largest_label * (1 - 2 * _MARGIN) and fractions:
                labels[row] = value
            else:
                return unsure
            i = _skip_blanks(text, end)
        elif not _is_qid(text, i):
            i = _end_of_word(text, i)
            if not _is_blank(_byte(text, i)):
                return unsure
            i = _skip_blanks(text, i)

        if not _is_qid(text, i):
            return unsure
        i += 4
        end = i
        while _byte(text, end) > _BLANK and _byte(text, end) != _HASH:
            end += 1
        if end == i:
            return unsure
        if run > 0 and _same(text, runs[run - 1, 0], runs[run - 1, 1], i, end):
            runs[run - 1, 3] += 1
        else:
            runs[run, 0], runs[run, 1], runs[run, 2], runs[run, 3] = i, end, line, 1
            run += 1
        i = end

        empty = True
        while True:
            i = _skip_blanks(text, end)
            if _byte(text, i) == _NEWLINE or _byte(text, i) == _HASH:
                break
            if i == end:
                return unsure
            index = 0
            digit = _byte(text, i) - _ZERO
            while 0 <= digit <= 9 and index <= largest_index:
                index = index * 10 + digit
                i += 1
                digit = _byte(text, i) - _ZERO
            if not 1 <= index <= largest_index or _byte(text, i) != _COLON:
                return unsure
            i += 1
            end, kind, value = _number(text, i)
            if kind == _MALFORMED:
                end = _end_of_nan(text, i)
                if end == i:
                    return unsure
                value = np.inf  # missing too
            empty = False
            largest = max(largest, index)
            column = index - 1
            if column >= width:
                continue
            if seen[column] == row + 1:
                return unsure
            seen[column] = row + 1
            if kind == _DOUBTFUL:
                return unsure
            if abs(value) >= _OVERFLOW:
                features[row, column] = np.nan
                missing += 1
            else:
                features[row, column] = value
        if empty:
            return unsure
        row += 1
        i = _next_line(text, i)
        line += 1
    return SURE if largest <= width else NARROW, row, run, missing, largest


@_inlined
def _number(text: NDArray[np.uint8], i: int) -> tuple[int, int, float]:
    """The end of the number at ``i``, its kind, and the number.

    ``_EXACT``: the float64 nearest to the text. ``_NEAR``: another float64 that rounds to the same
    float32. ``_DOUBTFUL``: one that may round to another float32.
    """
    negative = _byte(text, i) == _MINUS
    if negative or _byte(text, i) == _PLUS:
        i += 1
    start = i
    mantissa = 0
    exponent = 0
    digit = _byte(text, i) - _ZERO
    while 0 <= digit <= 9:
        mantissa = mantissa * 10 + digit
        i += 1
        digit = _byte(text, i) - _ZERO
    count = i - start
    if _byte(text, i) == _POINT:
        i += 1
        point = i
        digit = _byte(text, i) - _ZERO
        while 0 <= digit <= 9:
            mantissa = mantissa * 10 + digit
            i += 1
            digit = _byte(text, i) - _ZERO
        exponent = point - i
        count += i - point
    if count == 0:
        return i, _MALFORMED, 0.0
    cut = False
    if count > _DIGITS:
        mantissa, exponent, cut = _leading_digits(text, start, i)
    if _byte(text, i) | _TO_LOWER == _E:
        i += 1
        below = _byte(text, i) == _MINUS
        if below or _byte(text, i) == _PLUS:
            i += 1
        first = i
        power = 0
        digit = _byte(text, i) - _ZERO
        while 0 <= digit <= 9:
            power = min(power * 10 + digit, 1 << 40)
            i += 1
            digit = _byte(text, i) - _ZERO
        if i == first:
            return i, _MALFORMED, 0.0
        exponent += -power if below else power

    kind = _EXACT
    value = float(mantissa)
    if exponent == 0 and mantissa <= _LARGEST_EXACT and not cut:
        pass
    elif mantissa == 0:
        value = 0.0
    elif mantissa <= _LARGEST_EXACT and abs(exponent) <= _LARGEST_EXACT_POWER and not cut:
        value = value / _POWERS[-exponent] if exponent < 0 else value * _POWERS[exponent]
    elif exponent > 60:
        kind, value = _NEAR, np.inf  # float32 ends at 3.4e38
    elif exponent < -70:
        kind, value = _NEAR, 0.0  # fewer than 19 digits: below 1e-52, float32 begins at 1.4e-45
    else:
        value = value / _POWERS[-exponent] if exponent < 0 else value * _POWERS[exponent]
        same = np.float32(value * (1 - _MARGIN)) == np.float32(value * (1 + _MARGIN))
        kind = _NEAR if same else _DOUBTFUL
    return i, kind, -value if negative else value


@_inlined
def _end_of_nan(text: NDArray[np.uint8], i: int) -> int:
    """The end of ``nan``, in capitals or not, at ``i``; ``i`` where it is something else."""
    start = i + (_byte(text, i) == _MINUS or _byte(text, i) == _PLUS)
    for letter in (_N, _A, _N):  # the newline at the end of the text stops it
        if _byte(text, start) | _TO_LOWER != letter:
            return i
        start += 1
    return start


@_inlined
def _leading_digits(text: NDArray[np.uint8], i: int, end: int) -> tuple[int, int, bool]:
    """The first digits of ``text[i:end]``, the power of ten, and whether others were cut."""
    mantissa, exponent, count = 0, 0, 0
    cut, fraction = False, False
    while i < end:
        digit = _byte(text, i) - _ZERO
        i += 1
        if digit < 0:  # the point
            fraction = True
            continue
        if count < _DIGITS:
            mantissa = mantissa * 10 + digit
            count += mantissa > 0
            exponent -= fraction
        else:
            cut |= digit > 0
            exponent += not fraction
    return mantissa, exponent, cut


@_inlined
def _byte(text: NDArray[np.uint8], i: int) -> Any:
    # With a signed index Numba tests at every byte whether it counts from the end.
    return np.int64(text[np.uintp(i)])


@_inlined
def _skip_blanks(text: NDArray[np.uint8], i: int) -> int:
    """The place of the first byte from ``i`` on that is no white space inside a line."""
    while _is_blank(_byte(text, i)):
        i += 1
    return i


@_inlined
def _is_blank(byte: int) -> bool:
    return byte == _BLANK or (_TAB <= byte <= _RETURN and byte != _NEWLINE)


@_inlined
def _next_line(text: NDArray[np.uint8], i: int) -> int:
    while _byte(text, i) != _NEWLINE:
        i += 1
    return i + 1


@_inlined
def _is_qid(text: NDArray[np.uint8], i: int) -> bool:
    # One after the other: the newline at the end of the text stops the comparison.
    return (
        _byte(text, i) == _Q
        and _byte(text, i + 1) == _I
        and _byte(text, i + 2) == _D
        and _byte(text, i + 3) == _COLON
    )


@_inlined
def _end_of_word(text: NDArray[np.uint8], i: int) -> int:
    """The end of printable ASCII from ``i`` on."""
    while _BLANK < _byte(text, i) < 127 and _byte(text, i) != _HASH:
        i += 1
    return i


@_inlined
def _same(text: NDArray[np.uint8], a: int, a_end: int, b: int, b_end: int) -> bool:
    if a_end - a != b_end - b:
        return False
    while a < a_end:
        if _byte(text, a) != _byte(text, b):
            return False
        a, b = a + 1, b + 1
    return True
