"""The reader: what text means, every malformed case, and that the fast path changes nothing."""

import hashlib
import itertools
import os
import time
import tracemalloc
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ltr.data import letor
from ltr.data.letor import parse_letor, read_letor
from ltr.data.letor_fast import parse_fast
from ltr.data.letor_rows import Block, Rules, parse_rows
from ltr.errors import ConfigError, DataError

GRADE = "a grade, a whole number from 0 to 31 (or set dataset.labels=real)"
PAIR = "index:value (write 1:0 for an item whose features are all 0)"
ROWS = "rows of label qid:ID index:value ..."
UNPACK = "(unpack an archive first)"

# A good first line, then what stands on line 2, then what is said of it.
MALFORMED = {
    "a word for a label": (b"good qid:1 1:0", f"label 'good'; expected {GRADE}"),
    "a negative grade": (b"-1 qid:1 1:0", f"label '-1'; expected {GRADE}"),
    "a fractional grade": (b"1.5 qid:1 1:0", f"label '1.5'; expected {GRADE}"),
    "a large grade": (b"32 qid:1 1:0", f"label '32'; expected {GRADE}"),
    "a grade beyond float64": (b"1e999 qid:1 1:0", f"label '1e999'; expected {GRADE}"),
    "a label nan": (b"nan qid:1 1:0", f"label 'nan'; expected {GRADE}"),
    "no label": (b"qid:1 1:0", f"label 'qid:1'; expected {GRADE}"),
    "a label in another script": ("٣ qid:1 1:0".encode(), f"label '٣'; expected {GRADE}"),
    "a byte order mark": (b"\xef\xbb\xbf1 qid:1 1:0", f"label '\\ufeff1'; expected {GRADE}"),
    "a label alone": (b"2", "nothing after the label '2'; expected qid:ID"),
    "no qid": (b"2 1:0.5 2:1", "'1:0.5' after the label; expected qid:ID"),
    "an empty qid": (b"2 qid: 1:0", "'qid:' after the label; expected qid:ID"),
    "a bare number as qid": (b"2 7 1:0", "'7' after the label; expected qid:ID"),
    "no feature": (b"2 qid:1", f"nothing after 'qid:1'; expected {PAIR}"),
    "no feature but a comment": (b"2 qid:1 # 1:0", f"nothing after 'qid:1'; expected {PAIR}"),
    "a word": (b"2 qid:1 1:0 best", "'best'; expected index:value"),
    "a number without its index": (b"2 qid:1 0.5", "'0.5'; expected index:value"),
    "cut after the colon": (b"2 qid:1 1:0 2:", "'2:'; expected index:value"),
    "cut before the colon": (b"2 qid:1 1:0 12", "'12'; expected index:value"),
    "a blank after the colon": (b"2 qid:1 1: 0", "'1:'; expected index:value"),
    "a value of two": (b"2 qid:1 1:2:3", "value '2:3' in '1:2:3'; expected a finite number"),
    "a word for a value": (b"2 qid:1 1:x", "value 'x' in '1:x'; expected a finite number"),
    "nan": (b"2 qid:1 1:nan", "value 'nan' in '1:nan'; expected a finite number"),
    "inf": (b"2 qid:1 1:-inf", "value '-inf' in '1:-inf'; expected a finite number"),
    "true": (b"2 qid:1 1:True", "value 'True' in '1:True'; expected a finite number"),
    "underscores": (b"2 qid:1 1:1_0", "value '1_0' in '1:1_0'; expected a finite number"),
    "hexadecimal": (b"2 qid:1 1:0x1", "value '0x1' in '1:0x1'; expected a finite number"),
    "two signs": (b"2 qid:1 1:+-1", "value '+-1' in '1:+-1'; expected a finite number"),
    "a comma": (b"2 qid:1 1:0,5", "value '0,5' in '1:0,5'; expected a finite number"),
    "an exponent cut short": (b"2 qid:1 1:1e", "value '1e' in '1:1e'; expected a finite number"),
    "a quote": (b'2 qid:1 1:"1"', "value '\"1\"' in '1:\"1\"'; expected a finite number"),
    "index 0": (b"2 qid:1 0:1", "index '0' in '0:1'; expected a whole number from 1 to 1000000"),
    "a negative index": (
        b"2 qid:1 -3:1",
        "index '-3' in '-3:1'; expected a whole number from 1 to 1000000",
    ),
    "an index with a plus": (
        b"2 qid:1 +3:1",
        "index '+3' in '+3:1'; expected a whole number from 1 to 1000000",
    ),
    "a fractional index": (
        b"2 qid:1 1.0:1",
        "index '1.0' in '1.0:1'; expected a whole number from 1 to 1000000",
    ),
    "a word for an index": (
        b"2 qid:1 1:1 docid:7",
        "index 'docid' in 'docid:7'; expected a whole number from 1 to 1000000",
    ),
    "no index": (b"2 qid:1 :1", "index '' in ':1'; expected a whole number from 1 to 1000000"),
    "an index beyond any sense": (
        b"2 qid:1 99999999999999999999:1",
        "index '99999999999999999999' in '99999999999999999999:1'; "
        "expected a whole number from 1 to 1000000",
    ),
    "a repeated index": (
        b"2 qid:1 1:1 2:0 01:3",
        "index 1 twice, again as '01:3'; expected each index once a row",
    ),
    "a long token": (
        b"2 qid:1 1:" + b"9" * 60 + b"x",
        "value '" + "9" * 37 + "...' in '1:" + "9" * 35 + "...'; expected a finite number",
    ),
    "a NUL byte": (
        b"2 qid:1 1:0 # \0",
        f"a NUL byte, as in a binary file; expected LETOR text {UNPACK}",
    ),
    "bytes that are not text": (
        b"\x1f\x8b\x08\x00"[:3],
        f"bytes that are not text, b'\\x8b\\x08'; expected LETOR text in UTF-8 {UNPACK}",
    ),
    "a qid that is not text": (
        b"2 qid:\xff 1:0",
        f"bytes that are not text, b'\\xff 1:0'; expected LETOR text in UTF-8 {UNPACK}",
    ),
    "two rows on one line": (b"2 qid:1 1:0\r2 qid:1 1:0", "'2'; expected index:value"),
}


def write(folder: Path, content: bytes | str) -> Path:
    path = folder / "train.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def message(path: Path, **knobs) -> str:
    with pytest.raises(DataError) as error:
        read_letor(path, **knobs)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(("line", "said"), MALFORMED.values(), ids=MALFORMED.keys())
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n2 qid:1 1:0\r\n"], ids=["cut", "last", "amid"])
def test_malformed_rows(tmp_path, line, said, end) -> None:
    path = write(tmp_path, b"2 qid:1 1:0.5 2:1\n" + line + end)
    assert message(path) == f"{path}:2: {said}"


def test_index_beyond_the_width(tmp_path) -> None:
    path = write(tmp_path, "0 qid:1 1:1\n\n# comment\n0 qid:1 4:1\n")
    assert read_letor(path, width=4).width == 4
    assert message(path, width=3) == (
        f"{path}:4: index '4' in '4:1'; expected a whole number from 1 to 3 (dataset.width)"
    )


def test_labels_beyond_the_settings(tmp_path) -> None:
    path = write(tmp_path, "4 qid:1 1:1\n5 qid:1 1:1")
    assert message(path, max_grade=4) == (
        f"{path}:2: label '5'; expected a grade, a whole number from 0 to 4 "
        "(or set dataset.labels=real)"
    )
    assert message(path, labels="real", max_grade=4) == (
        f"{path}:2: label '5'; expected a finite number >= 0 up to 4"
    )
    for label in ("-0.5", "inf", "1e39"):
        path = write(tmp_path, f"{label} qid:1 1:1")
        assert message(path, labels="real") == (
            f"{path}:1: label '{label}'; expected a finite number >= 0"
        )


def test_query_id_that_comes_back(tmp_path) -> None:
    path = write(
        tmp_path, "0 qid:a 1:1\n\n1 qid:b 1:2\n0 qid:b 1:3\n2 qid:a 1:4\n0 qid:c 1:5\n1 qid:b 1:6"
    )
    assert message(path) == (
        f"{path}:5: query id 'a' comes back, its items began at line 1; "
        "expected the items of a query together (or set dataset.regroup=true)"
    )
    lists = read_letor(path, regroup=True)
    assert lists.qids.tolist() == ["a", "b", "c"]
    assert lists.offsets.tolist() == [0, 2, 5, 6]
    assert lists.features[:, 0].tolist() == [1, 4, 2, 3, 6, 5]
    assert lists.labels.tolist() == [0, 2, 1, 0, 1, 0]


def test_files_that_hold_no_rows(tmp_path) -> None:
    path = write(tmp_path, "")
    assert message(path) == f"{path}: the file is empty; expected {ROWS}"
    path = write(tmp_path, "# nothing\r\n \t\n")
    assert message(path) == f"{path}: no rows, only blank lines and comments; expected {ROWS}"
    missing = tmp_path / "vali.txt"
    assert message(missing) == f"{missing}: no such file; expected a file of LETOR text"
    assert message(tmp_path) == f"{tmp_path}: a folder; expected a file of LETOR text"


def test_a_file_that_cannot_be_read(tmp_path, monkeypatch) -> None:
    def refuse(*args, **knobs):
        raise PermissionError(13, "Permission denied")

    path = write(tmp_path, "0 qid:1 1:1")
    monkeypatch.setattr(Path, "open", refuse)
    assert message(path) == (
        f"{path}: cannot be read, Permission denied; expected a file of LETOR text"
    )


def test_settings_out_of_range(tmp_path) -> None:
    for knobs, said in (
        ({"labels": "grades"}, "labels='grades' is not known: set dataset.labels to grade or real"),
        ({"width": 0}, "width=0 is out of range: set dataset.width to 1..1000000"),
        ({"max_grade": 0}, "max_grade=0 is out of range: set dataset.max_grade to 1 or more"),
    ):
        with pytest.raises(ConfigError) as error:
            read_letor(tmp_path, **knobs)
        assert str(error.value) == said


def test_what_may_be_written(tmp_path) -> None:
    path = write(
        tmp_path,
        b"# a header\r\n"
        b"2.0 qid:caf\xc3\xa9:1\t1:-1.5e-3   3:+7 \t\r\n"
        b"\n"
        b"  1e0\tqid:caf\xc3\xa9:1 003:.5 1:4. # docid = \xff inc = 1:1\n"
        b"0 qid:2 2:1E+2#touching\n"
        b"-0 qid:3 2:-0.0 1:1e-46",
    )
    lists = read_letor(path, width=4)
    assert lists.qids.tolist() == ["café:1", "2", "3"]
    assert lists.offsets.tolist() == [0, 2, 3, 4]
    assert lists.labels.tolist() == [2, 1, 0, 0]
    assert not np.signbit(lists.labels).any()
    expected = [[-1.5e-3, 0, 7, 0], [4, 0, 0.5, 0], [0, 100, 0, 0], [0, -0.0, 0, 0]]
    assert np.array_equal(lists.features, np.array(expected, np.float32))
    assert np.signbit(lists.features[3, 1])
    assert lists.missing == 0
    assert lists.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert (lists.features.dtype, lists.labels.dtype) == (np.float32, np.float32)
    assert lists.offsets.dtype == np.int64


def test_values_beyond_float32_are_missing(tmp_path) -> None:
    huge = ["1.8e308", "-1e39", "1e400", "-1e99999", "1" + "0" * 308, "3.4028235677973366e38"]
    fits = ["3.4028235e38", "-3.4028235677973362e38", "1e-400", "1e-40"]
    text = " ".join(f"{i}:{value}" for i, value in enumerate(huge + fits, 1))
    lists = read_letor(write(tmp_path, f"0 qid:1 {text}\n1 qid:1 1:1e400\n"))
    assert np.isnan(lists.features[0, :6]).all()
    assert lists.features[0, 6:].tolist() == [float(np.float32(value)) for value in fits]
    assert lists.features[0, 9] > 0  # a subnormal is kept
    assert np.isnan(lists.features[1, 0])
    assert lists.missing == 7


def test_real_labels_and_rows_without_label(tmp_path) -> None:
    path = write(tmp_path, "? qid:1 1:1\n qid:1 1:2\nqid:2 1:3 # new\n-3 qid:2 1:4\n")
    lists = read_letor(path, labels="real", labelled=False)
    assert lists.labels.tolist() == [0, 0, 0, 0], "whatever stands there is not read"
    assert lists.features[:, 0].tolist() == [1, 2, 3, 4]
    assert lists.qids.tolist() == ["1", "2"]
    assert message(path, labels="real") == (f"{path}:1: label '?'; expected a finite number >= 0")


def test_pieces_of_a_file_are_one_file(tmp_path, monkeypatch) -> None:
    rows = [f"{i % 3} qid:{i // 7} {i % 5 + 1}:{i} 9:1\n" for i in range(200)]
    rows[150] = rows[150].replace(" 9:1", " 9:1 30:2")  # the width grows in a late piece
    path = write(tmp_path, "".join(rows))
    whole = read_letor(path)
    for size in (333, 50, 1):
        monkeypatch.setattr(letor, "CHUNK_BYTES", size)
        lists = read_letor(path)
        assert np.array_equal(lists.features, whole.features)
        assert np.array_equal(lists.labels, whole.labels)
        assert np.array_equal(lists.offsets, whole.offsets)
        assert np.array_equal(lists.qids, whole.qids)
        assert lists.digest == whole.digest
    for size in (333, 50, 1):
        monkeypatch.setattr(letor, "CHUNK_BYTES", size)
        write(tmp_path, "".join([*rows, "\n", "0 qid:99 1:0\n", "x\n"]))
        assert message(path).startswith(f"{path}:203: label 'x';")
        write(tmp_path, "".join([*rows, "\n", "0 qid:1 1:0\n"]))
        assert message(path).startswith(
            f"{path}:202: query id '1' comes back, its items began at line 8;"
        )


class Dropping:
    """A sink that keeps nothing."""

    rows = 0

    def append(self, features, labels) -> None:
        self.rows += len(labels)

    def finish(self, offsets, qids, *, digest, missing=0, order=None) -> None:
        self.lists = len(qids)


def test_memory_is_bounded(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(letor, "CHUNK_BYTES", 1 << 16)
    monkeypatch.setattr(letor, "_keep_freed_memory", lambda: None)
    row = "1 qid:{} " + " ".join(f"{i}:{i % 7}" for i in range(1, 137)) + "\n"
    peaks = []
    for rows in (1000, 4000):
        path = write(tmp_path, "".join(row.format(i // 50) for i in range(rows)))
        sink = Dropping()
        tracemalloc.start()
        parse_letor(path, sink, rules=Rules())
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert (sink.rows, sink.lists) == (rows, rows // 50)
    assert peaks[1] < peaks[0] + 200_000

    tracemalloc.start()
    lists = read_letor(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.2 * lists.features.nbytes + peaks[0]


def test_a_file_that_changes_while_it_is_read(tmp_path) -> None:
    text = "0 qid:1 1:1\n"
    path = write(tmp_path, text)
    changed = f"{path}: changed while it was read; run again when it is complete"

    def grow(_: int) -> None:
        with path.open("a") as file:
            file.write(text)

    def rewrite(_: int) -> None:
        time.sleep(0.02)  # the clock of the file system ticks
        path.write_text(text)

    for change in (grow, lambda _: os.truncate(path, 5), rewrite):
        path.write_text(text)
        with pytest.raises(DataError) as error:
            parse_letor(path, Dropping(), rules=Rules(), progress=change)
        assert str(error.value) == changed
    with pytest.raises(DataError) as error:
        parse_letor(path, Dropping(), rules=Rules(), digest="0" * 64)
    assert str(error.value) == changed


# The fast path against the plain one.


def both(text: bytes, rules: Rules) -> tuple[Block | None, Block | str]:
    try:
        plain: Block | str = parse_rows(text, 3, rules, "f")
    except DataError as error:
        plain = str(error)
    return parse_fast(text, 3, rules), plain


def assert_same(fast: Block, plain: Block | str) -> None:
    assert isinstance(plain, Block), plain
    assert fast.features.shape == plain.features.shape
    assert fast.features.tobytes() == plain.features.tobytes()  # -0 and NaN too
    assert fast.labels.tobytes() == plain.labels.tobytes()
    assert (fast.runs, fast.missing) == (plain.runs, plain.missing)


def test_every_short_number_is_judged_alike() -> None:
    """All tokens of up to four of these characters, as value and as index."""
    accepted = 0
    for length in range(5):
        for token in map(bytes, itertools.product(b"07.eE+-", repeat=length)):
            pair = b"1:" + token
            fast, plain = both(b"0 qid:1 " + pair + b" 8:1\n", Rules())
            assert (fast is None) == isinstance(plain, str), pair
            if fast is not None:
                assert_same(fast, plain)
                accepted += 1
    assert accepted > 200
    for length in range(4):
        for token in map(bytes, itertools.product(b"07.eE+-", repeat=length)):
            fast, plain = both(b"0 qid:1 " + token + b":1\n", Rules())
            assert (fast is None) == isinstance(plain, str), token


def test_numbers_near_a_tie_are_rounded_to_the_nearest() -> None:
    rng = np.random.default_rng(0)
    tokens = []
    for power in rng.integers(-44, 38, 400):
        low = np.float32(rng.uniform(1, 10) * 10.0**power)
        for kind in (np.float32, np.float64):
            below = kind(low)
            tie = (Decimal(float(below)) + Decimal(float(np.nextafter(below, kind(np.inf))))) / 2
            for nudge in (0, 1, -1):
                tokens.append(str(tie * (1 + nudge * Decimal(10) ** -25)))
                tokens.append(str(tie * (1 + nudge * Decimal(10) ** -12)))
        tokens.append(f"{low:.{rng.integers(20)}f}")
        tokens.append(f"{low:.{rng.integers(20)}e}")
    text = "".join(f"0 qid:1 1:{token}\n" for token in tokens).encode()
    fast, plain = both(text, Rules())
    assert fast is not None
    assert_same(fast, plain)
    expected = np.array([float(token) for token in tokens]).astype(np.float32)
    assert np.array_equal(fast.features[:, 0], expected)


FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
NUMBERS = st.one_of(
    FLOATS.map(repr),
    FLOATS.map(lambda value: f"{value:.6f}"),
    st.integers(-(10**12), 10**12).map(str),
    st.sampled_from(["0", "-0", "1e400", "-1e39", "+3", "1e-50", ".5", "2.", "1E5", "0.000000"]),
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


@settings(max_examples=150, deadline=None)
@given(texts(), st.booleans(), st.integers(1, 200))
def test_round_trip(tmp_path_factory, sample, fixed, chunk) -> None:
    text, rows = sample
    path = write(tmp_path_factory.mktemp("letor"), text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(letor, "CHUNK_BYTES", chunk)
        lists = read_letor(path, width=8 if fixed else None)
    width = 8 if fixed else max(max(pairs) for _, _, pairs in rows)
    expected = np.zeros((len(rows), width), np.float32)
    with np.errstate(over="ignore", under="ignore"):
        for row, (_, _, pairs) in zip(expected, rows, strict=True):
            for index, number in pairs.items():
                row[index - 1] = np.float32(float(number))
    missing = np.isinf(expected)
    assert lists.missing == missing.sum()
    expected[missing] = np.nan
    assert np.array_equal(lists.features, expected, equal_nan=True)
    assert lists.labels.tolist() == [label for label, _, _ in rows]
    qids = list(dict.fromkeys(qid for _, qid, _ in rows))
    assert lists.qids.tolist() == qids
    assert lists.lengths.tolist() == [sum(row[1] == qid for row in rows) for qid in qids]


RULES = st.sampled_from([Rules(), Rules(width=5), Rules(labels="real"), Rules(labelled=False)])


@settings(max_examples=250, deadline=None)
@given(texts(), RULES)
def test_fast_path_equals_plain_path(sample, rules) -> None:
    fast, plain = both(sample[0].encode(), rules)
    if fast is not None:
        assert_same(fast, plain)


@settings(max_examples=600, deadline=None)
@given(
    texts(),
    RULES,
    st.data(),
    st.sampled_from([*b"0123456789.eE+-: \t\n\r\x0b\0#_\"'xnq,\xff", None]),
    st.sampled_from(["insert", "replace", "delete", "cut"]),
)
def test_fast_path_equals_plain_path_on_corrupted_text(sample, rules, data, byte, how) -> None:
    text = bytearray(sample[0].encode())
    place = data.draw(st.integers(0, len(text) - 1))
    noise = b"" if byte is None else bytes([byte])
    end = {"insert": place, "cut": len(text)}.get(how, place + 1)
    text[place:end] = b"" if how in ("delete", "cut") else noise
    fast, plain = both(bytes(text), rules)
    if fast is not None:
        assert_same(fast, plain)


def test_plain_text_takes_the_fast_path() -> None:
    """Else the two tests above would say nothing, and large files would take minutes."""
    for text in (
        b"2 qid:1 1:0.5 2:1\r\n0 qid:1 1:3 2:1e9 \r\n",  # Web30K
        b"2 qid:1 1:0.5 2:1 #docid = a inc = 1\n",  # MQ2008
        b"# header\n2 qid:1 2:0.5 7:1\n\n0 qid:2 1:1.8e308\n",  # sparse
        b"2\tqid:1\t1:+5  2:-1e-3\n",
    ):
        fast, plain = both(text, Rules())
        assert fast is not None
        assert_same(fast, plain)
    assert parse_fast(b"qid:1 1:0.5\n", 1, Rules(labelled=False)) is not None
    assert parse_fast(b"0.5 qid:1 1:0.5\n", 1, Rules(labels="real", width=3)) is not None
