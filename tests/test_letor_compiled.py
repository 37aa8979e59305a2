"""The compiled path of the reader gives what the plain one gives, or nothing."""

import itertools
import os
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from conftest import real_data
from hypothesis import given, settings
from hypothesis import strategies as st
from letor_texts import RULES, assert_same, corrupted, plain_block, texts

from ltr.data import letor, letor_kernel
from ltr.data.letor import CompiledParser, Parsed, Rules, read_letor
from ltr.errors import DataError


def compiled(text: bytes, rules: Rules) -> Parsed | None:
    return CompiledParser(rules)(text)


def test_every_short_number_is_judged_alike() -> None:
    """All tokens of up to four of these characters, as value and as index."""
    accepted = 0
    for length in range(5):
        for token in map(bytes, itertools.product(b"07.eE+-", repeat=length)):
            pair = b"1:" + token
            text = b"0 qid:1 " + pair + b" 8:1\n"
            fast, plain = compiled(text, Rules()), plain_block(text, 3, Rules())
            assert (fast is None) == isinstance(plain, str), pair
            if fast is not None:
                assert_same(fast, plain)
                accepted += 1
    assert accepted > 200
    for length in range(4):
        for token in map(bytes, itertools.product(b"07.eE+-", repeat=length)):
            text = b"0 qid:1 " + token + b":1\n"
            fast, plain = compiled(text, Rules()), plain_block(text, 3, Rules())
            assert (fast is None) == isinstance(plain, str), token


def test_every_short_word_is_judged_alike() -> None:
    for length in range(5):
        for token in map(bytes, itertools.product(b"naN-", repeat=length)):
            text = b"0 qid:1 1:" + token + b" 8:1\n"
            fast, plain = compiled(text, Rules()), plain_block(text, 3, Rules())
            assert (fast is None) == isinstance(plain, str), token
            if fast is not None:
                assert_same(fast, plain)


def test_numbers_near_a_tie_are_rounded_to_the_nearest_or_left_to_python() -> None:
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
            tokens += [f"{tie:.{digits}e}" for digits in (15, 16, 17)]
        tokens.append(f"{low:.{rng.integers(20)}f}")
        tokens.append(f"{low:.{rng.integers(20)}e}")
    left = 0
    for token in tokens:
        fast = compiled(f"0 qid:1 1:{token}\n".encode(), Rules())
        left += fast is None
        if fast is not None:
            assert fast.features[0, 0] == np.float64(token).astype(np.float32), token
    assert left < len(tokens) / 2


def test_a_label_that_is_not_read_is_text_all_the_same() -> None:
    assert compiled(b"\xff0 qid:0 1:0.0\n", Rules(labelled=False)) is None
    assert compiled(b"yes qid:0 1:0.0\n", Rules(labelled=False)) is not None


@pytest.mark.slow
@settings(max_examples=250, deadline=None)
@given(texts(), RULES)
def test_compiled_path_equals_plain_path(sample, rules) -> None:
    fast, plain = compiled(sample[0].encode(), rules), plain_block(sample[0].encode(), 3, rules)
    if fast is not None:
        assert_same(fast, plain)


@pytest.mark.slow
@settings(max_examples=600, deadline=None)
@given(corrupted(), RULES)
def test_compiled_path_equals_plain_path_on_corrupted_text(text, rules) -> None:
    fast, plain = compiled(text, rules), plain_block(text, 3, rules)
    if fast is not None:
        assert_same(fast, plain)


def test_plain_text_takes_the_compiled_path() -> None:
    """Else the two tests above would say nothing, and large files would take minutes."""
    for text in (
        b"2 qid:1 1:0.5 2:1\r\n0 qid:1 1:3 2:1e9 \r\n",  # Web30K
        b"2 qid:1 1:0.5 2:1 #docid = a inc = 1\n",  # MQ2008
        b"# header\n2 qid:1 2:0.5 7:1\n\n0 qid:2 1:1.8e308\n",  # sparse
        b"2\tqid:1\t1:+5  2:-1e-3\n",
        b"2 qid:1 1:nan 2:-NAN\r\n0 qid:1 2:NaN 3:1 # nan\n",
    ):
        fast, plain = compiled(text, Rules()), plain_block(text, 3, Rules())
        assert fast is not None
        assert_same(fast, plain)
    assert compiled(b"qid:1 1:0.5\n", Rules(labelled=False)) is not None
    assert compiled(b"0.5 qid:1 1:0.5\n", Rules(labels="real", width=3)) is not None


def test_numbers_beyond_what_the_kernel_decides_are_left_to_python(tmp_path, monkeypatch) -> None:
    """Exact ties of float32 with too many digits for exact arithmetic."""
    ties = [str(Decimal(n * 2 + 1) / 2 * Decimal(2) ** power) for n, power in TIES]
    text = "".join(f"0 qid:1 1:{tie} 2:-{tie}\n" for tie in ties)
    assert compiled(text.encode(), Rules()) is None
    (tmp_path / "train.txt").write_text(text)
    monkeypatch.setattr(letor, "COMPILED_BYTES", 0)
    expected = np.array([float(tie) for tie in ties]).astype(np.float32)
    assert np.array_equal(read_letor(tmp_path / "train.txt").features[:, 0], expected)


TIES = [(16777215, -60), (8388608, -70), (8388609, -70), (12345679, -80)]


def test_real_labels_with_all_their_digits() -> None:
    rules = Rules(labels="real", max_grade=4)
    labels = [
        "0.12345678901234567",
        "3.99999999999",
        "1.00000005960464",
    ]
    text = "".join(f"{label} qid:1 1:1\n" for label in labels).encode()
    fast = compiled(text, rules)
    assert fast is not None
    assert_same(fast, plain_block(text, 3, rules))
    assert compiled(b"3.9999999999999999 qid:1 1:1\n", rules) is None, "too near to tell"
    for label in ("4.0000000000000019", "-1e-80", "1e80"):
        text = f"{label} qid:1 1:1\n".encode()
        assert isinstance(plain_block(text, 3, rules), str)
        assert compiled(text, rules) is None


def test_width_grows_from_block_to_block() -> None:
    parser = CompiledParser(Rules())
    first, second, third = (parser(b"0 qid:1 %d:1 1:2\n" % width) for width in (5, 9, 3))
    assert [block.features.shape[1] for block in (first, second, third)] == [5, 9, 9]
    assert np.flatnonzero(third.features).tolist() == [0, 2]
    assert parser(b"0 qid:1 12:1 12:2\n") is None, "the index is twice there, beyond the width"


def test_file_in_many_threads(tmp_path, monkeypatch) -> None:
    """In order whatever thread ends first; the first malformed line is the one that is named."""
    rows = [f"{i % 3} qid:{i // 7} {i % 5 + 1}:{i} 9:1 # {i}\r\n" for i in range(3000)]
    path = tmp_path / "train.txt"
    path.write_text("".join(rows), newline="")
    monkeypatch.setattr(letor, "CHUNK_BYTES", 1000)
    plain = read_letor(path)
    monkeypatch.setattr(letor, "COMPILED_BYTES", 0)
    called = []
    real = letor_kernel.parse
    monkeypatch.setattr(letor_kernel, "parse", lambda *args: called.append(1) or real(*args))
    lists = read_letor(path)
    for name in ("features", "labels", "offsets", "qids"):
        assert np.array_equal(getattr(lists, name), getattr(plain, name))
    assert (lists.digest, lists.missing) == (plain.digest, 0)
    assert len(called) > 50
    rows[1500] = rows[1500].replace(" 9:1", " 9:x")
    rows[1400] = rows[1400].replace(" 9:1", " 9:1 9:2")
    path.write_text("".join(rows), newline="")
    with pytest.raises(DataError, match=r"train.txt:1401: index 9 twice, again as '9:2'; expected"):
        read_letor(path)


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(st.one_of(texts().map(lambda sample: sample[0].encode()), corrupted()), st.integers(1, 60))
def test_blocks_cut_anywhere(tmp_path_factory, text, size) -> None:
    path = tmp_path_factory.mktemp("letor") / "train.txt"
    path.write_bytes(text)

    def read() -> tuple[object, ...]:
        try:
            lists = read_letor(path)
        except DataError as error:
            return (str(error),)
        arrays = lists.features, lists.labels, lists.offsets, lists.qids
        return lists.missing, lists.features.shape, *(array.tobytes() for array in arrays)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(letor, "CHUNK_BYTES", size)
        plain = read()
        patch.setattr(letor, "COMPILED_BYTES", 0)
        assert read() == plain


def test_without_numba_the_file_is_read_all_the_same(tmp_path, monkeypatch) -> None:
    path = tmp_path / "train.txt"
    path.write_text("0 qid:1 1:1\n")
    monkeypatch.setattr(letor, "COMPILED_BYTES", 0)
    monkeypatch.setitem(sys.modules, "ltr.data.letor_kernel", None)
    assert read_letor(path).features.tolist() == [[1.0]]


@real_data
@pytest.mark.parametrize("folder", ["MQ2008/Fold1", "MSLR-WEB-sample/Fold1"])
def test_real_lists_are_read_alike(folder, monkeypatch) -> None:
    path = Path(os.environ["LTR_DATA_DIR"], folder, "vali.txt")
    plain = read_letor(path)
    monkeypatch.setattr(letor, "COMPILED_BYTES", 0)
    monkeypatch.setattr(letor, "parse_rows", None)  # no block may need it
    lists = read_letor(path)
    for name in ("features", "labels", "offsets", "qids"):
        assert getattr(lists, name).tobytes() == getattr(plain, name).tobytes()
    assert (lists.digest, lists.missing) == (plain.digest, plain.missing)
