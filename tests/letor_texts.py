"""Random LETOR text, well formed or corrupted, and what a plain reader makes of it."""

import re

import numpy as np
from hypothesis import strategies as st

from ltr.data.letor import Rules

_NUMBER = rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_WORD = rb"[^\x00-\x20#]+"
_PAIR = rb"0*(\d{1,7}):(" + _NUMBER + rb"|[+-]?[nN][aA][nN])"
_ROW = re.compile(
    rb"\s*(?:(?!qid:)(" + _WORD + rb")\s+)?qid:(" + _WORD + rb")((?:\s+" + _PAIR + rb")+)\s*"
)
Row = tuple[float, str, dict[int, float]]


def plain_rows(text: bytes, rules: Rules) -> list[Row] | int:
    """Label, qid and values of each row, by regular expressions; or the first malformed line."""
    rows = []
    for number, line in enumerate(text.split(b"\n"), 1):
        line = line.partition(b"#")[0]
        if not line.strip():
            continue
        row = _ROW.fullmatch(line)
        pairs = [] if row is None else re.findall(_PAIR, row[3])
        values = {int(index): float(value) for index, value in pairs}
        label = 0.0
        if row is not None and rules.labelled:
            good = row[1] is not None and re.fullmatch(_NUMBER, row[1])
            label = float(row[1]) if good else -1.0
        try:
            qid = "" if row is None else row[2].decode()
        except UnicodeDecodeError:
            return number
        fit = 0 <= label <= rules.largest_label and (rules.labels == "real" or label % 1 == 0)
        if row is None or not fit or len(values) < len(pairs):
            return number
        if not 1 <= min(values) <= max(values) <= rules.largest_index:
            return number
        rows.append((label, qid, values))
    return rows


def arrays_of(rows: list[Row], width: int) -> tuple[np.ndarray, int]:
    """The features of rows, and how many are missing."""
    features = np.zeros((len(rows), width))
    for out, (_, _, values) in zip(features, rows, strict=True):
        out[[index - 1 for index in values]] = list(values.values())
    with np.errstate(over="ignore", under="ignore"):
        single = features.astype(np.float32)
    single[~np.isfinite(single)] = np.nan
    return single, int(np.isnan(single).sum())


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
NUMBERS = st.one_of(
    FLOATS.map(repr),
    FLOATS.map(lambda value: f"{value:.6f}"),
    st.floats(allow_nan=False, allow_infinity=False).map(lambda value: f"{value:.25e}"),
    st.integers(-(10**25), 10**25).map(str),
    st.sampled_from(
        ["0", "-0", "1e400", "-1e39", "+3", "1e-50", ".5", "2.", "1E5", "0.000000", "nan", "-NaN"]
    ),
)
ENDS = st.sampled_from(["\n", "\r\n", " \n", " \r\n", "\t \n", " # docid = 1:2 qid:3\n", "#\r\n"])
RULES = st.sampled_from([Rules(), Rules(width=5), Rules(labels="real"), Rules(labelled=False)])


@st.composite
def texts(draw) -> bytes:
    """Well-formed text."""
    width = draw(st.integers(1, 6))
    dense = draw(st.booleans())
    lines = []
    for query in range(draw(st.integers(1, 4))):
        qid = f"{query}{draw(st.sampled_from(['', '-x', ':y', 'é']))}"
        for _ in range(draw(st.integers(1, 4))):
            some = draw(st.sets(st.integers(1, width), min_size=1))
            pairs = [f"{i}:{draw(NUMBERS)}" for i in (range(1, width + 1) if dense else some)]
            label = f"{draw(st.integers(0, 4))}{draw(st.sampled_from(['', '.0']))}"
            blank = draw(st.sampled_from([" ", " ", " ", "  ", "\t"]))
            lines.append(blank.join([label, f"qid:{qid}", *pairs]) + draw(ENDS))
        if draw(st.integers(0, 5)) == 0:
            lines.append(draw(ENDS))
    return "".join(lines).encode()


@st.composite
def corrupted(draw) -> bytes:
    """A text with one byte inserted, replaced or deleted, or cut off."""
    text = bytearray(draw(texts()))
    noise = draw(st.sampled_from([*b"0123456789.eE+-: \t\n\r\x0b\0#_\"'xnq,\xff", None]))
    how = draw(st.sampled_from(["insert", "replace", "delete", "cut"]))
    place = draw(st.integers(0, len(text) - 1))
    end = {"insert": place, "cut": len(text)}.get(how, place + 1)
    text[place:end] = b"" if noise is None or how in ("delete", "cut") else bytes([noise])
    return bytes(text)
