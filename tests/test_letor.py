"""The reader: what text means, every malformed case, and that the fast path changes nothing."""

import hashlib
import os
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from letor_texts import texts

from ltr.data import letor
from ltr.data.assemble import Assembler, assemble
from ltr.data.letor import Rules, item_ids, read_blocks, read_letor
from ltr.errors import ConfigError, DataError

GRADE = "a grade, a whole number from 0 to 16777216 (or set dataset.labels=real)"
PAIR = "index:value (write 1:0 for an item whose features are all 0)"
VALUE = "a finite number (or nan, which is missing)"
ROWS = "rows of label qid:ID index:value ..."
MOST = "100000 (or set dataset.width to the number of all)"
UNPACK = "(unpack an archive first)"

# A good first line, then what stands on line 2, then what is said of it.
MALFORMED = {
    "a word for a label": (b"good qid:1 1:0", f"label 'good'; expected {GRADE}"),
    "a negative grade": (b"-1 qid:1 1:0", f"label '-1'; expected {GRADE}"),
    "a fractional grade": (b"1.5 qid:1 1:0", f"label '1.5'; expected {GRADE}"),
    "a large grade": (b"16777217 qid:1 1:0", f"label '16777217'; expected {GRADE}"),
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
    "a value of two": (b"2 qid:1 1:2:3", f"value '2:3' in '1:2:3'; expected {VALUE}"),
    "a word for a value": (b"2 qid:1 1:x", f"value 'x' in '1:x'; expected {VALUE}"),
    "almost nan": (b"2 qid:1 1:nano", f"value 'nano' in '1:nano'; expected {VALUE}"),
    "nan cut short": (b"2 qid:1 1:na", f"value 'na' in '1:na'; expected {VALUE}"),
    "nan for an index": (
        b"2 qid:1 nan:1",
        f"index 'nan' in 'nan:1'; expected a whole number from 1 to {MOST}",
    ),
    "inf": (b"2 qid:1 1:-inf", f"value '-inf' in '1:-inf'; expected {VALUE}"),
    "true": (b"2 qid:1 1:True", f"value 'True' in '1:True'; expected {VALUE}"),
    "underscores": (b"2 qid:1 1:1_0", f"value '1_0' in '1:1_0'; expected {VALUE}"),
    "hexadecimal": (b"2 qid:1 1:0x1", f"value '0x1' in '1:0x1'; expected {VALUE}"),
    "two signs": (b"2 qid:1 1:+-1", f"value '+-1' in '1:+-1'; expected {VALUE}"),
    "a comma": (b"2 qid:1 1:0,5", f"value '0,5' in '1:0,5'; expected {VALUE}"),
    "an exponent cut short": (b"2 qid:1 1:1e", f"value '1e' in '1:1e'; expected {VALUE}"),
    "a quote": (b'2 qid:1 1:"1"', f"value '\"1\"' in '1:\"1\"'; expected {VALUE}"),
    "index 0": (b"2 qid:1 0:1", f"index '0' in '0:1'; expected a whole number from 1 to {MOST}"),
    "a negative index": (
        b"2 qid:1 -3:1",
        f"index '-3' in '-3:1'; expected a whole number from 1 to {MOST}",
    ),
    "an index with a plus": (
        b"2 qid:1 +3:1",
        f"index '+3' in '+3:1'; expected a whole number from 1 to {MOST}",
    ),
    "a fractional index": (
        b"2 qid:1 1.0:1",
        f"index '1.0' in '1.0:1'; expected a whole number from 1 to {MOST}",
    ),
    "a word for an index": (
        b"2 qid:1 1:1 docid:7",
        f"index 'docid' in 'docid:7'; expected a whole number from 1 to {MOST}",
    ),
    "no index": (b"2 qid:1 :1", f"index '' in ':1'; expected a whole number from 1 to {MOST}"),
    "an index beyond any sense": (
        b"2 qid:1 99999999999999999999:1",
        "index '99999999999999999999' in '99999999999999999999:1'; "
        f"expected a whole number from 1 to {MOST}",
    ),
    "a repeated index": (
        b"2 qid:1 1:1 2:0 01:3",
        "index 1 twice, again as '01:3'; expected each index once a row",
    ),
    "a long token": (
        b"2 qid:1 1:" + b"9" * 60 + b"x",
        "value '" + "9" * 37 + "...' in '1:" + "9" * 35 + f"...'; expected {VALUE}",
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


@pytest.fixture(scope="module", params=["plain", "compiled"], autouse=True)
def _both_paths(request) -> Iterator[None]:
    """Every file here is read as a small one and as a large one is."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(letor, "COMPILED_BYTES", 0 if request.param == "compiled" else 1 << 40)
        yield


def write(folder: Path, content: bytes | str) -> Path:
    path = folder / "train.txt"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def message(path: Path, **knobs) -> str:
    with pytest.raises(DataError) as error:
        read_letor(path, **knobs)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.slow
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
        f"{path}:2: label '5'; expected a number from 0 to 4"
    )
    for label in ("-0.5", "inf", "1e39"):
        path = write(tmp_path, f"{label} qid:1 1:1")
        assert message(path, labels="real") == (
            f"{path}:1: label '{label}'; expected a number from 0 to 3.40282347e+38"
        )


def test_clicks_are_grades(tmp_path) -> None:
    lists = read_letor(write(tmp_path, "0 qid:1 1:1\n5000 qid:1 1:1\n16777216 qid:1 1:1"))
    assert lists.labels.tolist() == [0, 5000, 2**24]


def test_query_id_that_comes_back(tmp_path) -> None:
    path = write(
        tmp_path, "0 qid:a 1:1\n\n1 qid:b 1:2\n0 qid:b 1:3\n2 qid:a 1:4\n0 qid:c 1:5\n1 qid:b 1:6"
    )
    assert message(path) == (
        f"{path}:5: query id 'a' comes back, its items began at {path}:1; "
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


def test_nan_is_missing(tmp_path) -> None:
    text = "0 qid:1 1:nan 2:NaN 3:NAN 4:-nan\t5:nan#1:nan\n1 qid:1 2:1e39 5:+nAn\r\n1 qid:2 5:nan"
    lists = read_letor(write(tmp_path, text))
    nan = np.nan
    expected = np.array([[nan] * 5, [0, nan, 0, 0, nan], [0, 0, 0, 0, nan]], np.float32)
    assert lists.features.tobytes() == expected.tobytes()  # no sign either
    assert lists.missing == 8
    for labels in ("grade", "real"):
        assert "label 'nan'; expected" in message(write(tmp_path, "nan qid:1 1:1"), labels=labels)


def test_comments_are_ids_of_items(tmp_path) -> None:
    path = write(
        tmp_path,
        "# a header\n2 qid:b 1:1 #docid = GX-1 inc = 0.5\n\n0 qid:a 1:2 # my id: 7 \r\n"
        " # more\n1 qid:b 1:3\n0 qid:a 1:4 #docid=#2",
    )
    for chunk in (1, 1 << 20):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(letor, "CHUNK_BYTES", chunk)
            seen = list[bytes]()
            list(read_blocks(path, Rules(), seen.append))
            ids = [one for text in seen for one in item_ids(text)]
        assert ids == ["GX-1", "my id: 7", "", "#2"]


def test_real_labels_and_rows_without_label(tmp_path) -> None:
    path = write(tmp_path, "? qid:1 1:1\n qid:1 1:2\nqid:2 1:3 # new\n-3 qid:2 1:4\n")
    lists = read_letor(path, labels="real", labelled=False)
    assert lists.labels.tolist() == [0, 0, 0, 0], "whatever stands there is not read"
    assert lists.features[:, 0].tolist() == [1, 2, 3, 4]
    assert lists.qids.tolist() == ["1", "2"]
    said = message(path, labels="real")
    assert said == f"{path}:1: label '?'; expected a number from 0 to 3.40282347e+38"


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
            f"{path}:202: query id '1' comes back, its items began at {path}:8;"
        )


class Dropping(Assembler):
    """Keeps nothing."""

    rows = 0

    def append(self, features, labels, missing=0) -> None:
        self.rows += len(labels)

    def finish(self, offsets, qids, **rest) -> None:
        self.lists = len(qids)


@pytest.mark.slow
def test_memory_is_bounded(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(letor, "CHUNK_BYTES", 1 << 14)
    monkeypatch.setattr(letor, "_keep_freed_memory", lambda: None)
    row = "1 qid:{} " + " ".join(f"{i}:{i % 7}" for i in range(1, 35)) + "\n"
    read_letor(write(tmp_path, row.format(0)))  # what is loaded or compiled once is not measured
    peaks = []
    for rows in (500, 2500):
        path = write(tmp_path, "".join(row.format(i // 50) for i in range(rows)))
        sink = Dropping()
        tracemalloc.start()
        assemble(read_blocks(path, Rules()), sink)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert (sink.rows, sink.lists) == (rows, rows // 50)
    assert peaks[1] < peaks[0] + 200_000  # the rest of the text has 370,000

    tracemalloc.start()
    lists = read_letor(path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2.3 * lists.features.nbytes + peaks[0]


def test_a_file_that_changes_while_it_is_read(tmp_path) -> None:
    text = "0 qid:1 1:1\n"
    path = write(tmp_path, text)
    changed = f"{path}: changed while it was read; run again when it is complete"

    def grow(_: bytes) -> None:
        with path.open("a") as file:
            file.write(text)

    def rewrite(_: bytes) -> None:
        time.sleep(0.02)  # the clock of the file system ticks
        path.write_text(text)

    for change in (grow, lambda _: os.truncate(path, 5), rewrite):
        path.write_text(text)
        with pytest.raises(DataError) as error:
            list(read_blocks(path, Rules(), change))
        assert str(error.value) == changed


@pytest.mark.slow
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
    missing = ~np.isfinite(expected)
    assert lists.missing == missing.sum()
    expected[missing] = np.nan
    assert np.array_equal(lists.features, expected, equal_nan=True)
    assert lists.labels.tolist() == [label for label, _, _ in rows]
    qids = list(dict.fromkeys(qid for _, qid, _ in rows))
    assert lists.qids.tolist() == qids
    assert lists.lengths.tolist() == [sum(row[1] == qid for row in rows) for qid in qids]


def test_a_query_id_that_never_ends_is_refused(tmp_path) -> None:
    path = tmp_path / "train.txt"
    path.write_text("1 qid:1 1:1\n1 qid:" + "9" * 1001 + " 1:1\n")
    with pytest.raises(DataError, match=r"train\.txt:2: a query id of 1,001 characters; expected"):
        read_letor(path)
