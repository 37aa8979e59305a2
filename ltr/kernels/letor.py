"""Parse LETOR text into arrays, compiled by Numba; without Numba the same code runs slowly.

The import takes half a second, and the first call on a machine takes some seconds. The machine code
is then saved on disk.
"""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

try:
    from numba import njit

    from ltr.kernels.compile import keep
except Exception as error:  # whatever a broken installation raises
    logging.getLogger(__name__).warning("Numba cannot be used, reading is slow: %r", error)

    def njit(**_: Any) -> Callable[[Any], Any]:  # type: ignore[no-redef]
        return lambda function: function

    def keep(compiled: Any) -> Any:
        return compiled


_TAB, _NEWLINE, _RETURN, _BLANK, _HASH = 9, 10, 13, 32, 35
_PLUS, _MINUS, _POINT, _ZERO, _COLON = 43, 45, 46, 48, 58
_A, _D, _E, _I, _N, _Q = 97, 100, 101, 105, 110, 113
_TO_LOWER = 32  # the bit that capital letters lack

_DIGITS = 18  # so many digits always fit int64
_MOST = 10**17  # a number below, times ten, has at most _DIGITS digits
_POWERS = np.array([float(f"1e{power}") for power in range(100)])
_EXACT = 2.0**24  # float32 holds every whole number up to this one
_OVERFLOW = float(np.finfo(np.float32).max) + 2.0**103  # least number that rounds to inf

_inlined = njit(forceinline=True)  # makes parsing a fifth faster


@keep
@njit(nogil=True)
def parse(
    text, labelled, fractions, largest_label, largest_index, features, labels, seen, runs, large
):
    """Parse whole lines, without holding Python's lock.

    Args:
        text: ``[bytes]``; the last byte must be a newline.
        labelled: whether each row begins with a label.
        fractions: whether labels may be fractions; otherwise they must be whole numbers.
        largest_label, largest_index: the largest label and feature index that are allowed.
        features, labels: ``[lines, width]`` and ``[lines]``, zeros at the call, filled here. Values
            with an index above ``width`` are dropped.
        seen: ``[width]``, zeros at the call, used as scratch memory.
        runs: ``[lines, 4]``, filled with one entry for each run of rows with the same query id:
            begin and end of the id in the text, the first line (0-based), the number of rows.
        large: ``[values, 2]``, filled with column and value of the first numbers from 2^24 on,
            which float32 may not hold.

    Returns:
        Whether all rows are well formed, then the numbers of lines (up to the malformed one), rows,
        runs and missing values, the largest feature index, and the number of rows of ``large``.
    """
    width = features.shape[1]
    line, row, run, missing, largest, count = 0, 0, 0, 0, 0, 0
    i = 0
    while i < len(text):
        i = _skip_blanks(text, i)
        if _byte(text, i) != _NEWLINE and _byte(text, i) != _HASH:
            if labelled:
                end, value = _number(text, i)
                good = end > i and _is_blank(_byte(text, end))
                if not (good and 0.0 <= value <= largest_label):
                    break
                if not fractions and value != np.floor(value):
                    break
                labels[row] = abs(value)
                i = _skip_blanks(text, end)
            elif not _is_qid(text, i):
                i = _skip_blanks(text, _end_of_word(text, i))

            end = _end_of_word(text, i)
            if not _is_qid(text, i) or end == i + 4:
                break
            i += 4
            if run > 0 and _same(text, runs[run - 1, 0], runs[run - 1, 1], i, end):
                runs[run - 1, 3] += 1
            else:
                runs[run, 0], runs[run, 1], runs[run, 2], runs[run, 3] = i, end, line, 1
                run += 1

            first = end
            i = _skip_blanks(text, end)
            while i > end and _byte(text, i) != _NEWLINE and _byte(text, i) != _HASH:
                begin, index = i, 0
                digit = _byte(text, begin) - _ZERO
                while 0 <= digit <= 9:
                    index = index * 10 + digit
                    begin += 1
                    digit = _byte(text, begin) - _ZERO
                if begin - i > _DIGITS or not 1 <= index <= largest_index:
                    break
                if _byte(text, begin) != _COLON:
                    break
                begin += 1
                end, value = _number(text, begin)
                if end == begin:
                    end, value = _end_of_nan(text, begin), np.inf  # nan is missing too
                    if end == begin:
                        break
                largest = max(largest, index)
                column = index - 1
                if column < width:
                    if seen[column] == row + 1:
                        break
                    seen[column] = row + 1
                    if abs(value) < _EXACT:
                        features[row, column] = value
                    elif abs(value) >= _OVERFLOW:
                        features[row, column] = np.nan
                        missing += 1
                    else:
                        features[row, column] = value
                        if count < len(large):
                            large[count, 0], large[count, 1] = column, value
                            count += 1
                i = _skip_blanks(text, end)
            if end == first or (_byte(text, i) != _NEWLINE and _byte(text, i) != _HASH):
                break
            row += 1
        while _byte(text, i) != _NEWLINE:
            i += 1
        i += 1
        line += 1
    return i >= len(text), line, row, run, missing, largest, count


@_inlined
def _number(text, i):
    """Return the end of the number at ``i`` (``i`` if there is no number) and its value.

    With up to 15 digits and powers up to 22, the value is the float64 nearest to the text.
    """
    begin = i
    negative = _byte(text, i) == _MINUS
    if negative or _byte(text, i) == _PLUS:
        i += 1
    start = i
    mantissa = 0
    digit = _byte(text, i) - _ZERO
    while 0 <= digit <= 9:  # a function for these loops would double the time
        mantissa = mantissa * 10 + digit
        i += 1
        digit = _byte(text, i) - _ZERO
    count, exponent = i - start, 0
    if _byte(text, i) == _POINT:
        i += 1
        point = i
        digit = _byte(text, i) - _ZERO
        while 0 <= digit <= 9:
            mantissa = mantissa * 10 + digit
            i += 1
            digit = _byte(text, i) - _ZERO
        exponent = point - i
        count -= exponent
    if count == 0:
        return begin, 0.0
    if count > _DIGITS:  # the mantissa may have overflowed: ignore the later digits
        mantissa = 0
        for place in range(start, i):
            digit = _byte(text, place) - _ZERO
            if digit >= 0 and mantissa < _MOST:
                mantissa = mantissa * 10 + digit
            elif digit >= 0:
                exponent += 1
    if _byte(text, i) | _TO_LOWER == _E:
        below = _byte(text, i + 1) == _MINUS
        first = i + 1 + (below or _byte(text, i + 1) == _PLUS)
        i, power = first, 0
        digit = _byte(text, i) - _ZERO
        while 0 <= digit <= 9:
            power = min(power * 10 + digit, _MOST)
            i += 1
            digit = _byte(text, i) - _ZERO
        if i == first:
            return begin, 0.0
        exponent += -power if below else power

    value = float(mantissa)
    if exponent > 60:
        value = np.inf if mantissa else 0.0  # float32 ends at 3.4e38
    elif exponent < -70:
        value = 0.0  # with fewer than 19 digits below 1e-52; float32 begins at 1.4e-45
    else:
        value = value / _POWERS[-exponent] if exponent < 0 else value * _POWERS[exponent]
    return i, -value if negative else value


@_inlined
def _end_of_nan(text, i):
    """Return the end of ``nan``, in any case, at ``i``; ``i`` if something else stands there."""
    start = i + (_byte(text, i) == _MINUS or _byte(text, i) == _PLUS)
    for letter in (_N, _A, _N):  # the newline at the end of the text stops the loop
        if _byte(text, start) | _TO_LOWER != letter:
            return i
        start += 1
    return start


@_inlined
def _byte(text, i):
    # With a signed index Numba would test at every byte whether it is negative.
    return np.int64(text[np.uintp(i)])


@_inlined
def _skip_blanks(text, i):
    """Return the index of the first byte from ``i`` on that is not white space within a line."""
    while _is_blank(_byte(text, i)):
        i += 1
    return i


@_inlined
def _is_blank(byte):
    return byte == _BLANK or (_TAB <= byte <= _RETURN and byte != _NEWLINE)


@_inlined
def _is_qid(text, i):
    # One byte after the other, so that the newline at the end of the text stops the comparison.
    begins = _byte(text, i) == _Q and _byte(text, i + 1) == _I
    return begins and _byte(text, i + 2) == _D and _byte(text, i + 3) == _COLON


@_inlined
def _end_of_word(text, i):
    while _byte(text, i) > _BLANK and _byte(text, i) != _HASH:
        i += 1
    return i


@_inlined
def _same(text, a, a_end, b, b_end):
    if a_end - a != b_end - b:
        return False
    while a < a_end and _byte(text, a) == _byte(text, b):
        a, b = a + 1, b + 1
    return a == a_end
