"""Random LETOR text, well formed or corrupted, and what the plain reader makes of it."""

from hypothesis import strategies as st

from ltr.data.letor import Parsed, Rules, parse_rows
from ltr.errors import DataError


def plain_block(text: bytes, first_line: int, rules: Rules) -> Parsed | str:
    """The rows, or what is said of the first malformed one."""
    try:
        return parse_rows(text, rules, "f", first_line)
    except DataError as error:
        return str(error)


def assert_same(fast: Parsed, plain: Parsed | str) -> None:
    assert isinstance(plain, Parsed), plain
    assert fast.features.shape == plain.features.shape
    assert fast.features.tobytes() == plain.features.tobytes()  # -0 and NaN too
    assert fast.labels.tobytes() == plain.labels.tobytes()
    assert (fast.runs, fast.missing) == (plain.runs, plain.missing)


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
NUMBERS = st.one_of(
    FLOATS.map(repr),
    FLOATS.map(lambda value: f"{value:.6f}"),
    st.integers(-(10**12), 10**12).map(str),
    st.sampled_from(
        ["0", "-0", "1e400", "-1e39", "+3", "1e-50", ".5", "2.", "1E5", "0.000000", "nan", "-NaN"]
    ),
)
ENDS = st.sampled_from(["\n", "\r\n", " \n", " \r\n", "\t \n", " # docid = 1:2 qid:3\n", "#\r\n"])


@st.composite
def texts(draw) -> tuple[str, list[tuple[int, str, dict[int, str]]]]:
    """A text and its rows: label, qid, ``{index: number}``."""
    width = draw(st.integers(1, 6))
    dense = draw(st.booleans())
    lines, rows = [], []
    for query in range(draw(st.integers(1, 4))):
        qid = f"{query}{draw(st.sampled_from(['', '-x', ':y', 'é']))}"
        for _ in range(draw(st.integers(1, 4))):
            some = draw(st.sets(st.integers(1, width), min_size=1))
            indices = range(1, width + 1) if dense else sorted(some)
            pairs = {index: draw(NUMBERS) for index in indices}
            label = draw(st.integers(0, 4))
            written = draw(st.sampled_from([f"{label}", f"{label}.0"]))
            blank = draw(st.sampled_from([" ", " ", " ", "  ", "\t"]))
            tokens = [written, f"qid:{qid}", *(f"{i}:{v}" for i, v in pairs.items())]
            lines.append(blank.join(tokens) + draw(ENDS))
            rows.append((label, qid, pairs))
        if draw(st.integers(0, 5)) == 0:
            lines.append(draw(ENDS))
    return "".join(lines), rows


@st.composite
def corrupted(draw) -> bytes:
    """A text with one byte inserted, replaced or deleted, or cut off."""
    text = bytearray(draw(texts())[0].encode())
    noise = draw(st.sampled_from([*b"0123456789.eE+-: \t\n\r\x0b\0#_\"'xnq,\xff", None]))
    how = draw(st.sampled_from(["insert", "replace", "delete", "cut"]))
    place = draw(st.integers(0, len(text) - 1))
    end = {"insert": place, "cut": len(text)}.get(how, place + 1)
    text[place:end] = b"" if noise is None or how in ("delete", "cut") else bytes([noise])
    return bytes(text)


RULES = st.sampled_from([Rules(), Rules(width=5), Rules(labels="real"), Rules(labelled=False)])
