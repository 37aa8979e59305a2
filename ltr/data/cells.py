"""What the values of a column become: numbers, or texts."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from ltr.data.lists import Doubles, Floats, Ints
from ltr.errors import DataError

_WHOLE = re.compile(r"(-?[0-9]+)\.0+")
_FLAGS = {"True": "true", "TRUE": "true", "False": "false", "FALSE": "false"}
_KINDS = {
    "number": ("boolean", "integer", "floating", "decimal", "null"),
    "text": (
        "string",
        "large_string",
        "string_view",
        "binary",
        "large_binary",
        "fixed_size_binary",
    ),
    "date": ("temporal",),
}


def kind(type_: Any) -> str:
    """``number``, ``text``, ``date`` or ``other``: what a column of an Arrow type holds."""
    if pa.types.is_dictionary(type_):
        return kind(type_.value_type)
    for found, types in _KINDS.items():
        if any(getattr(pa.types, f"is_{name}")(type_) for name in types):
            return found
    return "other"


def numbers(array: Any) -> Doubles | Floats:
    """The numbers of a column, float64 or, where it has no more, float32; NaN where missing."""
    if not (pa.types.is_float32(array.type) or pa.types.is_float64(array.type)):
        array = array.cast(pa.float64(), safe=False)
    return np.asarray(array.to_numpy(zero_copy_only=False))


def distinct(array: Any) -> tuple[list[Any], Ints]:
    """The different values of a column, by their first row, and the place of each row's value.

    A missing value is None, or NaN in a column of floats.
    """
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if pa.types.is_null(array.type):
        return [None], np.zeros(len(array), np.int64)
    coded = array.dictionary_encode("encode")
    known = coded.dictionary
    plain = pa.types.is_integer(known.type) or pa.types.is_floating(known.type)
    # Arrow makes each value of a list anew, which is slow
    values = known.to_numpy().tolist() if plain and not known.null_count else known.to_pylist()
    return values, coded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def query_text(value: Any) -> str:
    """A query id as text; empty where it is missing.

    >>> [query_text(value) for value in (7, 7.0, 2**60 + 1, "007", True, None)]
    ['7', '7', '1152921504606846977', '007', 'true', '']
    """
    if value is None or value != value:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def category_text(value: Any) -> str:
    """The text that a value of a category is known by; empty where it is missing.

    It is the same whether a file has numbers and flags or texts of them: CSV writes a column of
    whole numbers with a missing one as ``1.0``, and a flag as ``True``.

    >>> [category_text(value) for value in ("red", 3, 3.0, "3.0", "1.5", True, "True", None, "")]
    ['red', '3', '3', '3', '1.5', 'true', 'true', '', '']
    """
    text = query_text(value)
    whole = _WHOLE.fullmatch(text)
    return whole[1] if whole else _FLAGS.get(text, text)


def query_texts(column: Any, at: Callable[[int], str]) -> tuple[list[str], Ints]:
    """The texts of the different query ids of a column, and the place there of each row's.

    Args:
        column: a ``pa.Array``, ``[rows]``.
        at: where a row stands, for messages.

    Raises:
        DataError: a row has no query id, or they are lists.
    """
    if kind(column.type) == "other":
        raise DataError(f"{at(0)}: a query id is {column.type}; expected numbers or texts")
    values, places = distinct(column)
    texts = [query_text(value) for value in values]
    if "" in texts:
        row = int(np.flatnonzero(places == texts.index(""))[0])
        raise DataError(f"{at(row)}: no query id; expected one in every row")
    return texts, places


def checked_weights(values: Doubles | Floats, at: Callable[[int], str]) -> Floats:
    """The weights ``values``, ``[rows]``, NaN where a row has none, as float32.

    Raises:
        DataError: one is not a finite number > 0 in float32; ``at`` names the row.
    """
    with np.errstate(over="ignore", under="ignore"):
        single = values.astype(np.float32)
    if len(wrong := np.flatnonzero(~((single > 0) & np.isfinite(single)))):
        row = int(wrong[0])
        found = "no weight" if np.isnan(values[row]) else f"weight {values[row]:g}"
        raise DataError(
            f"{at(row)}: {found}; expected a finite number > 0 in float32, so leave out the "
            "queries of weight zero"
        )
    return single
