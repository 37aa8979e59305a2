"""The fast path of the LETOR reader: a whole piece of text at once, or not at all."""

import re
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ltr.data.letor_rows import (
    Block,
    Malformed,
    Refusal,
    Rules,
    never_refused,
    parse_label,
    runs_of,
    to_float32,
)

_NUMBER_BYTES = b"0123456789+-.eE"
_ONE_PAIR_A_LINE = bytes.maketrans(b" :", b"\n ")


def parse_fast(
    text: bytes, first_line: int, rules: Rules, refusal: Refusal = never_refused
) -> Block | None:
    """Parse whole lines of text together.

    Gives exactly what ``letor_rows.parse_rows`` gives, or None where that is not certain: the text
    is malformed or refused, or written in a way too rare to be worth the code. ``parse_rows`` then
    reads it, or says what is wrong.
    """
    if b"\0" in text:
        return None
    lines = text.split(b"\n")
    if b"#" in text:
        lines = [line.partition(b"#")[0] for line in lines]
    if not rules.labelled:
        lines = [b"0 " + line if line.lstrip().startswith(b"qid:") else line for line in lines]
    rows = [line.split(None, 2) for line in lines]
    numbers = [number for number, row in enumerate(rows, first_line) if row]
    try:
        labels, qids, bodies = zip(*filter(None, rows), strict=True)
        grades = {x: _grade(x, rules) for x in set(labels)}
        runs = runs_of([_qid(token) for token in qids], numbers)
    except (Malformed, ValueError):  # also: no row, a row of fewer than three tokens, not UTF-8
        return None
    pairs = _read_pairs(b"\n".join([body.rstrip() for body in bodies]))
    if pairs is None or not 1 <= pairs[1].min() <= pairs[1].max() <= rules.largest_index:
        return None
    counts, index, exact = pairs
    width = rules.width or int(index.max())
    if refusal(np.maximum.reduceat(index, np.cumsum(counts) - counts), width) is not None:
        return None
    values, missing = to_float32(exact)
    features = _dense(counts, index, values, width)
    if features is None:
        return None
    return Block(features, np.array([grades[x] for x in labels], np.float32), runs, missing)


def _grade(token: bytes, rules: Rules) -> float:
    if rules.labelled:
        return parse_label(token, rules)
    token.decode()  # not read, but text
    return 0.0


def _qid(token: bytes) -> bytes:
    if not token.startswith(b"qid:") or len(token) == 4:
        raise ValueError("not qid:ID")
    return token[4:]


def _read_pairs(
    body: bytes,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]] | None:
    """Parse lines of ``index:value index:value ...``; None if anything else stands there.

    Returns:
        How many pairs each line has ``[lines]``, and index and value of each pair ``[pairs]``.
    """
    # What is left without the numbers must be ": : :" on every line. So no other byte occurs, and
    # pandas cannot meet a quote, a word such as nan or True, or a row of another length.
    marks = body.translate(None, _NUMBER_BYTES)
    if b"\t" in marks or b"  " in marks:
        body = re.sub(rb"[ \t]+", b" ", body)
        marks = body.translate(None, _NUMBER_BYTES)
    counts = np.array([(len(line) + 1) // 2 for line in marks.split(b"\n")], np.int64)
    total = int(counts.sum())
    if marks.replace(b"\n", b" ") != (b": " * total)[:-1]:
        return None
    text = body.translate(_ONE_PAIR_A_LINE)
    if b"+" in text and (text.startswith(b"+") or b"\n+" in text):
        return None  # pandas takes +1 for an index
    import pandas as pd  # 0.4 s that a run from the cache need not spend

    # pandas 3.1 always rounds to the nearest float64 and deprecates the option.
    version = tuple(map(int, pd.__version__.split(".")[:2]))
    exact: dict[str, Any] = {} if version >= (3, 1) else {"float_precision": "round_trip"}
    try:
        table = pd.read_csv(
            BytesIO(text),
            sep=" ",
            header=None,
            names=["index", "value"],
            dtype={"value": np.float64},  # the index is left open: asked for int64, 1.0 would pass
            na_filter=False,
            low_memory=False,
            engine="c",
            **exact,
        )
    except (ValueError, OverflowError):  # an empty number, 1.2.3, --1, an index of 30 digits
        return None
    index = table["index"].to_numpy()
    if index.dtype != np.int64 or len(index) != total:
        return None
    return counts, index, table["value"].to_numpy()


def _dense(
    counts: NDArray[np.int64],
    index: NDArray[np.int64],
    values: NDArray[np.float32],
    width: int,
) -> NDArray[np.float32] | None:
    """Put the pairs into ``[lines, width]``, 0 elsewhere; None unless they ascend in every row."""
    rows, first = len(counts), int(counts[0])
    if (counts == first).all() and (index.reshape(rows, first) == np.arange(1, first + 1)).all():
        if first == width:
            return values.reshape(rows, width)
    else:
        ascends = np.diff(index) > 0
        ascends[np.cumsum(counts[:-1]) - 1] = True  # from the end of a row to the next one
        if not ascends.all():
            return None
    features = np.zeros((rows, width), np.float32)
    features[np.repeat(np.arange(rows), counts), index - 1] = values
    return features
