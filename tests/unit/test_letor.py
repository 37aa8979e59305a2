"""The reader: what text means, every malformed case, and that it reads as a plain one does."""

import importlib
import itertools
import re
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ltr.data import letor
from ltr.data.assemble import assemble
from ltr.data.files import LetorFiles
from ltr.data.letor import Malformed, ParseOptions, Parser, item_ids, read_blocks, read_letor
from ltr.errors import ConfigError
from ltr.kernels import letor as letor_kernel
from tests.helpers.folders import refused

# A line, what the error shows of it, and what it expects; more lines are compared with the plain
# reader below.
MALFORMED = [
    (b"good qid:1 1:0", "label 'good'", "a whole number from 0 to 16777216 (or set dataset.labels"),
    (b"1.5 qid:1 1:0", "label '1.5'", "a grade"),
    (b"qid:1 1:0", "label 'qid:1'", "a grade"),
    ("\u0663 qid:1 1:0".encode(), "label '\u0663'", "a grade"),
    (b"\xef\xbb\xbf1 qid:1 1:0", "a byte order mark", "one only at the start of the file"),
    (b"2", "nothing after the label", "qid:ID"),
    (b"2 qid:1 # 1:0", "nothing after 'qid:1'", "index:value (1:0 if"),
    (b"2 qid:1 1:0 12", "'12'", "index:value"),
    (b"2 qid:1 1:1_0", "'1:1_0'", "a finite number"),
    (b"2 qid:1 0:1", "'0:1'", "an index from 1 to 100000 (or set dataset.width)"),
    (b"2 qid:1 " + b"0" * 5000 + b"1:1", "'" + "0" * 37 + "...'", "an index from 1 to 100000"),
    (b"2 qid:1 1:1 2:0 01:3", "index 1 twice, again as '01:3'", "each index once per row"),
    (b"2 qid:1 1:" + b"9" * 60 + b"x", "'1:" + "9" * 35 + "...'", "a finite number"),
    (b"2 qid:1\0 1:0", "b'2 qid:1\\x00 1:0'", "in UTF-8"),
    (b"\x1f\x8b\x08", "b'\\x1f\\x8b\\x08'", "in UTF-8 (if this is an archive, unpack it first)"),
    (b"2 qid:1 1:0\r2 qid:1 1:0", "'2'", "index:value"),
]


def write(folder: Path, content: bytes | str) -> Path:
    path = folder / "train.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.mark.parametrize(("line", "shown", "expected"), MALFORMED)
def test_read_letor_refuses_malformed_rows(tmp_path, line, shown, expected) -> None:
    for end in (b"", b"\r\n2 qid:1 1:0\r\n2 qid:1 x\n"):
        path = write(tmp_path, b"2 qid:1 1:0.5 2:1\n" + line + end)
        message = refused(lambda path=path: read_letor(path))
        assert message.startswith(f"{path}:2: {shown}; expected ")
        assert expected in message


def test_rules_limit_widths_and_labels(tmp_path) -> None:
    path = write(tmp_path, "0 qid:1 1:1\n\n# comment\n0 qid:1 4:1\n5 qid:1 2:1")
    assert read_letor(path, ParseOptions(width=4)).width == 4
    for knobs, expected in (
        ({"width": 3}, "4: '4:1'; expected index:value with an index from 1 to 3 (dataset.width)"),
        ({"max_grade": 4}, "5: label '5'; expected a grade, which is a whole number from 0 to 4"),
        ({"labels": "real", "max_grade": 4}, "5: label '5'; expected a number from 0 to 4"),
    ):
        message = refused(lambda knobs=knobs: read_letor(path, ParseOptions(**knobs)))
        assert message.startswith(f"{path}:{expected}")
    for label in ("-0.5", "inf", "1e39"):
        path = write(tmp_path, f"{label} qid:1 1:1")
        message = refused(lambda path=path: read_letor(path, ParseOptions(labels="real")))
        assert f"1: label '{label}'" in message
    for knobs, expected in (
        ({"labels": "grades"}, "dataset.labels=grades is not known: choose one of grade, real"),
        ({"width": 0}, "dataset.width=0 is out of range"),
        ({"max_grade": 0}, "dataset.max_grade=0 is out of range"),
    ):
        assert expected in refused(lambda knobs=knobs: ParseOptions(**knobs), ConfigError)
    grades = read_letor(write(tmp_path, "5000 qid:1 1:1\n16777216 qid:1 1:1")).labels
    assert grades.tolist() == [5000, 2**24]


def test_read_letor_regroups_a_query_only_if_asked(tmp_path) -> None:
    path = write(
        tmp_path, "0 qid:a 1:1\n\n1 qid:b 1:2\n0 qid:b 1:3\n2 qid:a 1:4\n0 qid:c 1:5\n1 qid:b 1:6"
    )
    message = refused(lambda: read_letor(path))
    assert message.startswith(f"{path}:5: query id 'a' appears again ")
    assert "dataset.regroup=true" in message
    lists = read_letor(path, regroup=True)
    assert lists.qids.tolist() == ["a", "b", "c"]
    assert lists.offsets.tolist() == [0, 2, 5, 6]
    assert lists.features[:, 0].tolist() == [1, 4, 2, 3, 6, 5]
    assert lists.labels.tolist() == [0, 2, 1, 0, 1, 0]
    path = write(tmp_path, "1 qid:1 1:1\n1 qid:" + "9" * 1001 + " 1:1\n")
    assert "has 1,001 characters" in refused(lambda: read_letor(path))


def test_read_letor_refuses_unreadable_files(tmp_path) -> None:
    empty = write(tmp_path, "# nothing\r\n \t\n")
    missing = tmp_path / "vali.txt"
    messages = {empty: "no rows; expected rows", missing: "No such file", tmp_path: "a folder"}
    for path, message in messages.items():
        assert message in refused(lambda path=path: read_letor(path))


def test_read_letor_reads_every_allowed_notation(tmp_path) -> None:
    path = write(
        tmp_path,
        b"# a header\r\n"
        b"2.0 qid:caf\xc3\xa9:1\t1:-1.5e-3   3:+7 \t\r\n"
        b"\n"
        b"  1e0\tqid:caf\xc3\xa9:1 003:.5 1:4. # docid = \xff inc = 1:1\n"
        b"0 qid:2 2:1E+2#touching\n"
        b"-0 qid:3 2:-0.0 1:1e-46",
    )
    lists = read_letor(path, ParseOptions(width=4))
    assert lists.qids.tolist() == ["café:1", "2", "3"]
    assert lists.offsets.tolist() == [0, 2, 3, 4]
    assert lists.labels.tolist() == [2, 1, 0, 0]
    assert not np.signbit(lists.labels).any()
    expected = [[-1.5e-3, 0, 7, 0], [4, 0, 0.5, 0], [0, 100, 0, 0], [0, -0.0, 0, 0]]
    assert np.array_equal(lists.features, np.array(expected, np.float32))
    assert np.signbit(lists.features[3, 1])
    dtypes = [array.dtype for array in (lists.features, lists.labels, lists.offsets)]
    assert (lists.missing, dtypes) == (0, [np.float32, np.float32, np.int64])


def test_item_ids_reads_the_comments(tmp_path, monkeypatch) -> None:
    path = write(
        tmp_path,
        "# a header\n2 qid:b 1:1 #docid = GX-1 inc = 0.5\n\n0 qid:a 1:2 # my id: 7 \r\n"
        " # more\n1 qid:b 1:3\n0 qid:a 1:4 #docid=#2\n0 qid:a 1:5 # \u3000x\xa0\n"
        "0 qid:a 1:6 #docid = a\xa0b c",
    )
    for chunk in (1, 1 << 20):
        monkeypatch.setattr(letor, "CHUNK_BYTES", chunk)
        texts = list[bytes]()
        list(read_blocks(path, ParseOptions(), texts.append))
        ids = [item_id for text in texts for item_id in item_ids(text)]
        assert ids == ["GX-1", "my id: 7", "", "#2", "\u3000x\xa0", "a\xa0b"]


def test_read_letor_skips_a_byte_order_mark_at_the_beginning(tmp_path, monkeypatch) -> None:
    text = "# a header\n2 qid:b 1:1 # sku-1\n0 qid:b 1:2 # sku-2\n"
    for begin, chunk in itertools.product((text, text.split("\n", 1)[1]), (1, 1 << 20)):
        monkeypatch.setattr(letor, "CHUNK_BYTES", chunk)
        path = write(tmp_path, begin.encode("utf-8-sig"))
        assert read_letor(path).labels.tolist() == [2, 0]
        folder = LetorFiles(
            name="mine", folder=".", data_dir=tmp_path, cache_dir=tmp_path / "cache"
        )
        assert folder.ids("train", [0, 1]) == ["sku-1", "sku-2"]
    assert "no rows" in refused(lambda: read_letor(write(tmp_path, "".encode("utf-8-sig"))))


def test_read_letor_reads_real_labels_and_rows_without_label(tmp_path) -> None:
    path = write(tmp_path, "? qid:1 1:1\n qid:1 1:2\nqid:2 1:3 # new\n-3 qid:2 1:4\n")
    real = ParseOptions(labels="real")
    lists = read_letor(path, ParseOptions(labels="real", labelled=False))
    assert lists.labels.tolist() == [0, 0, 0, 0], "whatever stands there is not read"
    assert lists.features[:, 0].tolist() == [1, 2, 3, 4]
    assert lists.qids.tolist() == ["1", "2"]
    assert "1: label '?'" in refused(lambda: read_letor(path, real))
    table_labels = np.array([0.0, -3.0, -4.0])
    message = refused(lambda: real.check_labels(table_labels, "row {}".format))
    assert message.startswith("row 1: label -3; expected")
    labels = ["0.12345678901234567", "3.99999999999", "1.00000005960464", "0.1234567890123456789"]
    path = write(tmp_path, "".join(f"{label} qid:1 1:1\n" for label in labels))
    assert read_letor(path, real).labels.tolist() == [np.float32(label) for label in labels]


def test_read_letor_reads_chunks_of_any_size_alike(tmp_path, monkeypatch) -> None:
    rows = [f"{i % 3} qid:{i // 7} {i % 5 + 1}:{i} 9:1\n" for i in range(200)]
    rows[150] = rows[150].replace(" 9:1", " 9:1 30:2")  # the width grows in a late chunk
    path = write(tmp_path, "".join(rows))
    expected = read_letor(path)
    for size in (333, 50, 1):
        monkeypatch.setattr(letor, "CHUNK_BYTES", size)
        write(tmp_path, "".join(rows))
        lists = read_letor(path)
        for name in ("features", "labels", "offsets", "qids"):
            assert np.array_equal(getattr(lists, name), getattr(expected, name))
        write(tmp_path, "".join([*rows, "\n", "0 qid:99 1:0\n", "x\n", "y\n"]))
        assert refused(lambda: read_letor(path)).startswith(f"{path}:203: label 'x';")
        write(tmp_path, "".join([*rows, "\n", "0 qid:1 1:0\n"]))
        assert f"{path}:202: query id '1' appears again" in refused(lambda: read_letor(path))


@pytest.mark.slow
def test_read_blocks_needs_memory_for_a_few_chunks_only(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(letor, "CHUNK_BYTES", 1 << 14)
    monkeypatch.setattr(letor, "_FREED_BYTES", 0)
    row = "1 qid:{} " + " ".join(f"{i}:{i % 7}" for i in range(1, 35)) + "\n"
    read_letor(write(tmp_path, row.format(0)))  # what is loaded or compiled once is not measured
    peaks = []
    for rows in (500, 2500):
        path = write(tmp_path, "".join(row.format(i // 50) for i in range(rows)))
        tracemalloc.start()
        lists = assemble(read_blocks(path, ParseOptions()), tmp_path / "features.npy")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert (lists.items, len(lists)) == (rows, rows // 50)
    assert peaks[1] < peaks[0] + 200_000  # the rest of the text has 370,000


# The kernel, beside a plain reader.


_NUMBER = rb"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?"
_WORD = rb"[^\x00-\x20#]+"
_PAIR = rb"0*(\d{1,7}):(" + _NUMBER + rb"|[+-]?[nN][aA][nN])"
_ROW = re.compile(
    rb"\s*(?:(?!qid:)(" + _WORD + rb")\s+)?qid:(" + _WORD + rb")((?:\s+" + _PAIR + rb")+)\s*"
)
Row = tuple[float, str, dict[int, float]]


def plain_rows(text: bytes, rules: ParseOptions) -> list[Row] | int:
    """Label, qid and values of each row, by regular expressions; or the first malformed line."""
    rows = []
    for number, line in enumerate(text.split(b"\n"), 1):
        line = line.partition(b"#")[0]
        if not line.strip():
            continue
        row = _ROW.fullmatch(line)
        if row is None:
            return number
        pairs = re.findall(_PAIR, row[3])
        label = 0.0
        values = {int(index): float(value) for index, value in pairs}
        if rules.labelled:
            label = float(row[1]) if re.fullmatch(_NUMBER, row[1] or b"") else -1.0
        is_valid = 0 <= label <= rules.largest_label and (rules.labels == "real" or label % 1 == 0)
        if not is_valid or len(values) < len(pairs):
            return number
        if not 1 <= min(values) <= max(values) <= rules.largest_index:
            return number
        try:
            rows.append((label, row[2].decode(), values))
        except UnicodeDecodeError:
            return number
    return rows


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
RULES = st.sampled_from(
    [
        ParseOptions(),
        ParseOptions(width=5),
        ParseOptions(labels="real"),
        ParseOptions(labelled=False),
    ]
)


@st.composite
def texts(draw) -> bytes:
    """Well-formed text."""
    width = draw(st.integers(1, 6))
    dense = draw(st.booleans())
    lines = []
    for query in range(draw(st.integers(1, 4))):
        qid = f"{query}{draw(st.sampled_from(['', '-x', ':y', 'é']))}"
        for _ in range(draw(st.integers(1, 4))):
            sparse_indices = draw(st.sets(st.integers(1, width), min_size=1))
            indices = range(1, width + 1) if dense else sparse_indices
            pairs = [f"{index}:{draw(NUMBERS)}" for index in indices]
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
    action = draw(st.sampled_from(["insert", "replace", "delete", "cut"]))
    start = draw(st.integers(0, len(text) - 1))
    end = {"insert": start, "cut": len(text)}.get(action, start + 1)
    text[start:end] = b"" if noise is None or action in ("delete", "cut") else bytes([noise])
    return bytes(text)


def check_as_plain(text: bytes, rules: ParseOptions) -> bool:
    """Check that the kernel reads as the plain reader does; return whether the text is valid."""
    plain = plain_rows(text, rules)
    if isinstance(plain, int):
        with pytest.raises(Malformed) as error:
            Parser(rules)(text)
        assert error.value.args[0] + 1 == plain, text
        is_explained = not error.value.args[2].startswith("label qid:ID")
        assert is_explained or re.search(rb"[^\t-\r -~]", text), "no reason was found"
        return False
    chunk = Parser(rules)(text)
    width = rules.width or max((max(values) for *_, values in plain), default=0)
    features = np.zeros((len(plain), width))
    for row, (_, _, values) in zip(features, plain, strict=True):
        row[[index - 1 for index in values]] = list(values.values())
    with np.errstate(over="ignore", under="ignore"):
        single = features.astype(np.float32)
    single[~np.isfinite(single)] = np.nan
    assert chunk.features.tobytes() == single.tobytes(), text  # -0 and NaN too
    assert chunk.missing == np.isnan(single).sum()
    assert chunk.labels.tolist() == [np.float32(label) for label, *_ in plain]
    qids = [qid for _, qid, _ in plain]
    runs = [(qid, len(list(group))) for qid, group in itertools.groupby(qids)]
    assert [(qid, rows) for qid, _, rows in chunk.runs] == runs
    return True


def test_parser_judges_short_tokens_as_the_plain_reader_does() -> None:
    """All tokens of up to four of these characters, as value, as index and as a pair."""
    accepted = 0
    for length in range(5):
        for token in map(bytes, itertools.product(b"07.eE+-", repeat=length)):
            accepted += check_as_plain(b"0 qid:1 1:" + token + b" 8:1\n", ParseOptions())
            if length < 4:
                check_as_plain(b"0 qid:1 " + token + b":1\n", ParseOptions())
        for token in map(bytes, itertools.product(b"naN-", repeat=length)):
            check_as_plain(b"0 qid:1 1:" + token + b" 8:1\n", ParseOptions())
    assert accepted > 200


def test_parser_reads_numbers_of_many_digits_to_the_last_bit_but_one() -> None:
    rng = np.random.default_rng(0)
    tokens = ["1e-0000000000000000000001", "0." + 29 * "0" + "1"]
    for power in rng.integers(-44, 38, 400):
        low = rng.uniform(1, 10) * 10.0**power
        tokens += [f"{low:.{rng.integers(30)}{form}}" for form in "fe"]
    rows = [f"0 qid:1 1:{token}\n" for token in [*tokens, "1e" + "9" * 30]]
    chunk = Parser(ParseOptions())("".join(rows).encode())
    assert (np.isnan(chunk.features).sum(), chunk.missing) == (1, 1)
    expected = np.array(tokens, np.float64).astype(np.float32)
    np.testing.assert_array_max_ulp(chunk.features[:-1, 0], expected, 1)
    short = [f"{rng.normal():.{digits}g}" for digits in range(1, 16) for _ in range(200)]
    assert check_as_plain(
        "".join(f"0 qid:1 1:{token}\n" for token in short).encode(), ParseOptions()
    )


@pytest.mark.slow
@settings(max_examples=170, deadline=None)
@given(st.one_of(texts(), corrupted(), corrupted()), RULES)
def test_parser_reads_random_text_as_the_plain_reader_does(text, rules) -> None:
    check_as_plain(text, rules)


def test_read_letor_works_without_numba(tmp_path, monkeypatch, caplog) -> None:
    path = write(tmp_path, "0 qid:1 1:1 2:-0.25 # x\n1 qid:2 1:1e400\n")
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "numba", None)
        plain = importlib.reload(letor_kernel).parse
        assert "reading LETOR files is slow" in caplog.text
        assert read_letor(path).features.tolist()[0] == [1.0, -0.25]
    importlib.reload(letor_kernel)
    assert plain is not letor_kernel.parse
