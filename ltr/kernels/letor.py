"""Parse LETOR text into arrays. Numba compiles the code; without Numba it runs slowly.

The import takes half a second, and the first call on a machine takes a few seconds. The machine
code is then saved on disk.
"""

import logging
from collections.abc import Callable
from typing import Any

import numpy as np

try:
    from numba import njit

    from ltr.kernels.compile import cache_on_disk
except Exception as error:  # whatever a broken installation raises
    logging.getLogger(__name__).warning(
        "Numba cannot be used, so reading LETOR files is slow: %r", error
    )

    def njit(**_: Any) -> Callable[[Any], Any]:  # type: ignore[no-redef]
        return lambda function: function

    def cache_on_disk(compiled: Any) -> Any:
        return compiled


_TAB = ord("\t")
_NEWLINE = ord("\n")
_RETURN = ord("\r")
_BLANK = ord(" ")
_HASH = ord("#")
_PLUS = ord("+")
_MINUS = ord("-")
_POINT = ord(".")
_ZERO = ord("0")
_COLON = ord(":")
_A = ord("a")
_D = ord("d")
_E = ord("e")
_I = ord("i")
_N = ord("n")
_Q = ord("q")
_TO_LOWER = 32  # the bit that capital letters lack

_MAX_DIGITS = 18  # a number with this many digits always fits into int64
_DIGITS_FULL = 10**17  # ten times a smaller number has at most _MAX_DIGITS digits
_POWERS = np.array([float(f"1e{power}") for power in range(100)])
_EXACT = 2.0**24  # float32 holds every whole number up to this one
_OVERFLOW = float(np.finfo(np.float32).max) + 2.0**103  # the smallest number that rounds to inf

_inlined = njit(forceinline=True)  # makes parsing a fifth faster


@cache_on_disk
@njit(nogil=True)
def parse(
    text, labelled, fractions, largest_label, largest_index, features, labels, seen, runs, large
):
    """Parse whole lines, without holding Python's global interpreter lock.

    Args:
        text: ``[bytes]``; the last byte must be a newline.
        labelled: whether each row begins with a label.
        fractions: whether labels may be fractions; otherwise they must be whole numbers.
        largest_label, largest_index: the largest label and feature index that are allowed.
        features, labels: ``[lines, width]`` and ``[lines]``, zeros on entry, filled here. Values
            with an index above ``width`` are dropped.
        seen: ``[width]``, zeros on entry, used as scratch memory.
        runs: ``[lines, 4]``, filled with one entry for each run of rows with the same query id:
            start and end of the id in the text, the first line (0-based), the number of rows.
        large: ``[values, 2]``, filled with column and value of the first numbers of at least 2^24
            in absolute value, which float32 might not represent exactly.

    Returns:
        Whether all rows are well formed, then the numbers of lines (up to the malformed one), rows,
        runs and missing values, the largest feature index, and the number of entries in ``large``.
    """
    width = features.shape[1]
    line = 0
    row = 0
    run = 0
    missing = 0
    largest = 0
    large_count = 0
    i = 0
    while i < len(text):
        i = _skip_blanks(text, i)
        if not _ends_row(_byte(text, i)):
            if labelled:
                end, value = _number(text, i)
                is_number = end > i and _is_blank(_byte(text, end))
                if not (is_number and 0.0 <= value <= largest_label):
                    break
                if not fractions and value != np.floor(value):
                    break
                labels[row] = abs(value)
                i = _skip_blanks(text, end)
            elif not _begins_qid(text, i):
                i = _skip_blanks(text, _end_of_word(text, i))

            end = _end_of_word(text, i)
            if not _begins_qid(text, i) or end == i + 4:
                break
            i += 4
            if run > 0 and _is_same_text(text, runs[run - 1, 0], runs[run - 1, 1], i, end):
                runs[run - 1, 3] += 1
            else:
                runs[run, 0] = i
                runs[run, 1] = end
                runs[run, 2] = line
                runs[run, 3] = 1
                run += 1

            end_of_qid = end
            i = _skip_blanks(text, end)
            while i > end and not _ends_row(_byte(text, i)):
                begin = i
                index = 0
                digit = _byte(text, begin) - _ZERO
                while 0 <= digit <= 9:
                    index = index * 10 + digit
                    begin += 1
                    digit = _byte(text, begin) - _ZERO
                if begin - i > _MAX_DIGITS or not 1 <= index <= largest_index:
                    break
                if _byte(text, begin) != _COLON:
                    break
                begin += 1
                end, value = _number(text, begin)
                if end == begin:
                    end = _end_of_nan(text, begin)
                    value = np.inf  # nan is missing too
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
                        if large_count < len(large):
                            large[large_count, 0] = column
                            large[large_count, 1] = value
                            large_count += 1
                i = _skip_blanks(text, end)
            if end == end_of_qid or not _ends_row(_byte(text, i)):
                break
            row += 1
        while _byte(text, i) != _NEWLINE:
            i += 1
        i += 1
        line += 1
    return i >= len(text), line, row, run, missing, largest, large_count


@_inlined
def _number(text, i):
    """Return the end of the number at ``i`` (``i`` if there is no number) and its value.

    For up to 15 digits and powers of ten up to 22, the value is the float64 nearest to the text.
    """
    begin = i
    negative = _byte(text, i) == _MINUS
    if negative or _byte(text, i) == _PLUS:
        i += 1
    first_digit = i
    mantissa = 0
    digit = _byte(text, i) - _ZERO
    while 0 <= digit <= 9:  # a function for these loops would double the time
        mantissa = mantissa * 10 + digit
        i += 1
        digit = _byte(text, i) - _ZERO
    count = i - first_digit
    exponent = 0
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
    if count > _MAX_DIGITS:  # the mantissa may have overflowed: ignore the later digits
        mantissa, ignored = _leading_digits(text, first_digit, i)
        exponent += ignored
    if _byte(text, i) | _TO_LOWER == _E:
        is_below_1 = _byte(text, i + 1) == _MINUS
        i += 1
        if is_below_1 or _byte(text, i) == _PLUS:
            i += 1
        first_digit = i
        power = 0
        digit = _byte(text, i) - _ZERO
        while 0 <= digit <= 9:
            power = min(power * 10 + digit, _DIGITS_FULL)
            i += 1
            digit = _byte(text, i) - _ZERO
        if i == first_digit:
            return begin, 0.0
        exponent += -power if is_below_1 else power

    value = _scaled(mantissa, exponent)
    return i, -value if negative else value


@_inlined
def _leading_digits(text, begin, end):
    """Return the first 18 digits as a number, and the count of further digits; skip the point."""
    mantissa = 0
    ignored = 0
    for i in range(begin, end):
        digit = _byte(text, i) - _ZERO
        if digit >= 0 and mantissa < _DIGITS_FULL:
            mantissa = mantissa * 10 + digit
        elif digit >= 0:
            ignored += 1
    return mantissa, ignored


@_inlined
def _scaled(mantissa, exponent):
    """Return ``mantissa`` times 10 to the power ``exponent``."""
    if exponent > 60:
        return np.inf if mantissa else 0.0  # float32 ends at 3.4e38
    if exponent < -70:
        return 0.0  # with fewer than 19 digits below 1e-52; float32 begins at 1.4e-45
    if exponent < 0:
        return float(mantissa) / _POWERS[-exponent]
    return float(mantissa) * _POWERS[exponent]


@_inlined
def _end_of_nan(text, i):
    """Return the end of ``nan`` (in small or capital letters) at ``i``; ``i`` if there is none."""
    position = i
    if _byte(text, i) == _MINUS or _byte(text, i) == _PLUS:
        position += 1
    for letter in (_N, _A, _N):  # the newline at the end of the text stops the loop
        if _byte(text, position) | _TO_LOWER != letter:
            return i
        position += 1
    return position


@_inlined
def _byte(text, i):
    # With a signed index Numba would test at every byte whether it is negative.
    return np.int64(text[np.uintp(i)])


@_inlined
def _skip_blanks(text, i):
    """Return the index of the first byte from ``i`` on that is a newline or not white space."""
    while _is_blank(_byte(text, i)):
        i += 1
    return i


@_inlined
def _is_blank(byte):
    return byte == _BLANK or (_TAB <= byte <= _RETURN and byte != _NEWLINE)


@_inlined
def _ends_row(byte):
    return byte in (_NEWLINE, _HASH)


@_inlined
def _begins_qid(text, i):
    # One byte after the other, so that the newline at the end of the text stops the comparison.
    begins_qi = _byte(text, i) == _Q and _byte(text, i + 1) == _I
    return begins_qi and _byte(text, i + 2) == _D and _byte(text, i + 3) == _COLON


@_inlined
def _end_of_word(text, i):
    while _byte(text, i) > _BLANK and _byte(text, i) != _HASH:
        i += 1
    return i


@_inlined
def _is_same_text(text, first, first_end, second, second_end):
    if first_end - first != second_end - second:
        return False
    while first < first_end and _byte(text, first) == _byte(text, second):
        first += 1
        second += 1
    return first == first_end
