"""Read LETOR/LibSVM text: ``label qid:ID index:value ... # comment``, one item per row.

``ltr.kernels.letor`` is the parser; ``explain`` says what is wrong with a row that it refuses.
"""

import re
import string
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from ltr.arrays import Doubles, Flags, Floats
from ltr.data.assemble import Block, assemble
from ltr.data.cache import Place, unreadable
from ltr.data.lists import Lists
from ltr.data.machine import processors
from ltr.data.rounding import inexact_values
from ltr.errors import DataError
from ltr.knobs import check_choice, check_positive

READER_VERSION = 1  # part of every cache key: raise it when the same text gives other arrays
CHUNK_BYTES = 1 << 20  # larger chunks are slower, as they do not fit the processor's cache
_FREED_BYTES = 31 << 20  # reusing freed memory is a third faster than new pages for each chunk
LARGEST_INDEX = 100_000  # if the width is not given; a larger index is probably a mistake
_MOST_LARGE = 4096  # values above 2^24 that are looked at in each chunk
LARGEST_GRADE = 2**24  # float32 cannot hold every larger whole number

_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_VALUE = re.compile(rf"{_NUMBER}|[+-]?(?i:nan)")
_SPACES = string.whitespace  # those of ASCII; any other may be part of an id
_DOCID = re.compile(rf"\bdocid[{_SPACES}]*=[{_SPACES}]*([^{_SPACES}]+)")
_FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Rules:
    """What labels and features in a file may be; ``ConfigError``: a setting is out of range."""

    width: int | None = None  # number of features; None: the largest index in the file
    labels: str = "grade"  # whole numbers (written 2 or 2.0), or "real": any number >= 0
    max_grade: int | None = None  # largest label; None: 2^24 for grades, float32's largest for real
    labelled: bool = True  # False: every label is read as 0, and a row may begin with ``qid:``

    def __post_init__(self) -> None:
        check_choice("dataset.labels", self.labels, ("grade", "real"))
        for key in ("width", "max_grade"):
            if (value := getattr(self, key)) is not None:
                check_positive(f"dataset.{key}", value)

    @property
    def largest_index(self) -> int:
        """The largest index that a row may hold."""
        return self.width or LARGEST_INDEX

    @property
    def largest_label(self) -> float:
        """The largest label that a row may hold."""
        largest = LARGEST_GRADE if self.labels == "grade" else _FLOAT32_MAX
        return largest if self.max_grade is None else min(self.max_grade, _FLOAT32_MAX)

    @property
    def expected_label(self) -> str:
        """What a label must be, in words."""
        if self.labels == "grade":
            whole = f"a whole number from 0 to {self.largest_label:.0f}"
            return f"a grade, {whole} (or set dataset.labels=real)"
        return f"a number from 0 to {self.largest_label:.9g}"

    def good(self, labels: Doubles) -> Flags:
        """Return, for each label, whether it fits the rules."""
        whole = self.labels == "real" or labels == np.floor(labels)
        return (labels >= 0) & (labels <= self.largest_label) & whole

    def checked(self, labels: Doubles, at: Callable[[int], str]) -> Floats:
        """Return ``labels``, ``[rows]``, as float32; ``DataError`` if one is bad or NaN."""
        if len(wrong := np.flatnonzero(~self.good(labels))):
            row = int(wrong[0])
            raise DataError(f"{at(row)}: label {labels[row]:g}; expected {self.expected_label}")
        return np.abs(labels).astype(np.float32)  # -0 is 0


def read_letor(
    path: Place,
    rules: Rules = Rules(),
    *,
    regroup: bool = False,
    see: Callable[[bytes], object] = len,
) -> Lists:
    """Read a file into memory; ``rules``, ``see`` and errors are as for ``read_blocks``.

    A value is the float64 nearest to the text, rounded to the nearest float32. If it is written
    ``nan``, or is too large for float32, it is missing: it becomes NaN and is counted. A feature
    that a row does not name is 0. With ``regroup`` a query may come back later in the file, and its
    items are put together where it first occurs; otherwise that is a ``DataError``.

    >>> path = getfixture("tmp_path") / "train.txt"
    >>> _ = path.write_text("2 qid:a 1:0.5 3:1e3 # best\\n0 qid:a 2:-1\\n1 qid:b 1:nan\\n")
    >>> [(qid, features.tolist(), labels.tolist()) for qid, features, labels in read_letor(path)]
    [('a', [[0.5, 0.0, 1000.0], [0.0, -1.0, 0.0]], [2.0, 0.0]), ('b', [[nan, 0.0, 0.0]], [1.0])]
    """
    return assemble(read_blocks(path, rules, see), together=not regroup)


def read_blocks(
    path: Place, rules: Rules, see: Callable[[bytes], object] = len
) -> Generator[Block, None, None]:
    """Yield the rows of a file, or a pipe, block by block; memory does not grow with the file.

    Lines end in LF or CRLF; blank lines and comments hold no item. ``see`` is called with the text
    of each block, in order. ``DataError``: the file has no rows, cannot be read, or a row is
    malformed; for the first such row the message is ``FILE:LINE: what was found; expected ...``.
    """
    path, line, rows = Path(path), 1, 0
    try:
        with path.open("rb") as file:
            np.empty(_FREED_BYTES, np.uint8)  # glibc keeps freed blocks up to this size
            with closing(_parse_ahead(text_chunks(file), Parser(rules))) as pieces:
                for text, future in pieces:
                    see(text)
                    piece = future.result()
                    if len(piece.labels):
                        qids, lines, lengths = zip(*piece.runs, strict=True)
                        numbers = np.repeat(np.add(lines, line), lengths)
                        at = lambda row, of=numbers: f"{path}:{of[row]}"  # noqa: E731
                        places = np.repeat(np.arange(len(qids)), lengths)
                        yield Block(
                            piece.features, piece.labels, qids, places, piece.missing, at,
                            inexact=piece.inexact,
                        )  # fmt: skip
                    rows += len(piece.labels)
                    line += piece.lines
    except Malformed as error:
        number, found, expected = error.args
        raise DataError(f"{path}:{line + number}: {found}; expected {expected}") from None
    except OSError as error:
        raise DataError(f"{unreadable(path, error)} of LETOR text") from None
    if not rows:
        raise DataError(f"{path}: no rows; expected rows of label qid:ID index:value ...")


def text_chunks(file: BinaryIO) -> Iterator[bytes]:
    """Yield pieces of about ``CHUNK_BYTES`` that end with a whole line. The byte order mark with
    which some programs begin a file is left out.
    """
    mark = BOM_UTF8
    while chunk := file.read(CHUNK_BYTES):
        whole = chunk if chunk.endswith(b"\n") else chunk + file.readline()
        yield whole.removeprefix(mark)
        mark = b""


class Piece(NamedTuple):
    """The rows of one piece of text."""

    features: Floats  # [rows, width]; the width of the rules, else the largest index so far
    labels: Floats  # [rows]
    runs: list[tuple[str, int, int]]  # consecutive rows of a query: qid, line (from 0), number
    missing: int  # number of NaN: values written so, or too large for float32
    lines: int  # number of lines in the text, blank ones included
    inexact: dict[int, Doubles]  # column -> see ``inexact_values``


class Malformed(ValueError):
    """A row breaks the rules; the arguments are its line, what was found and what is expected."""


class Parser:
    """Parses pieces of one file, in any order and in several threads at once."""

    def __init__(self, rules: Rules) -> None:
        from ltr.kernels.letor import parse  # takes half a second

        self._rules, self._parse, self.width = rules, parse, rules.width or 0

    def __call__(self, text: bytes) -> Piece:
        """Parse whole lines of text; raise ``Malformed`` if a row breaks the rules."""
        if not text.endswith(b"\n"):
            text += b"\n"
        rules, lines, width = self._rules, text.count(b"\n"), self.width
        runs = np.empty((lines, 4), np.int64)
        while True:
            features = np.zeros((lines, width), np.float32)
            labels = np.zeros(lines, np.float32)
            large = np.empty((_MOST_LARGE, 2))
            complete, line, row, run, missing, largest, count = self._parse(
                np.frombuffer(text, np.uint8), rules.labelled, rules.labels == "real",
                float(rules.largest_label), rules.largest_index,
                features, labels, np.zeros(width, np.int32), runs, large,
            )  # fmt: skip
            if largest <= width:
                break
            width = largest
        self.width, ids = max(self.width, width), []
        for begin, end, first, rows in runs[:run].tolist():
            try:
                ids.append((text[begin:end].decode(), first, rows))
            except UnicodeDecodeError:
                raise self._malformed(text, first) from None
        if not complete:
            raise self._malformed(text, line)
        return Piece(features[:row], labels[:row], ids, missing, lines, _inexact(large[:count]))

    def _malformed(self, text: bytes, line: int) -> Malformed:
        return Malformed(line, *explain(text.split(b"\n", line + 1)[line], self._rules))


def _inexact(large: Doubles) -> dict[int, Doubles]:
    """Return column -> ``inexact_values`` of rows of ``large``: a column and a value."""
    columns, values = large.T
    found = {
        int(column): inexact_values(values[columns == column]) for column in np.unique(columns)
    }
    return {column: distinct for column, distinct in found.items() if len(distinct)}


def _parse_ahead(
    texts: Iterator[bytes], parse: Parser
) -> Generator[tuple[bytes, "Future[Piece]"], None, None]:
    """Yield each text with the future result of ``parse``, which threads run a few texts ahead."""
    threads = processors() + 1
    waiting: deque[tuple[bytes, Future[Piece]]] = deque()
    pool = ThreadPoolExecutor(threads, "letor")
    try:
        for text in texts:
            waiting.append((text, pool.submit(parse, text)))
            if len(waiting) > threads + 1:
                yield waiting.popleft()
        yield from waiting
    finally:
        # The generator may be closed half read while this thread compiles the parser; the pool's
        # threads would wait for that.
        pool.shutdown(wait=False, cancel_futures=True)


def explain(row: bytes, rules: Rules) -> tuple[str, str]:
    """Return the first part of a malformed row that breaks the rules, and what is expected."""
    if row.startswith(BOM_UTF8):
        return "a byte order mark", "one at the begin of the file alone: remove it here"
    row = row.partition(b"#")[0].rstrip()
    unread = repr(row[:40]), "label qid:ID index:value ... in UTF-8 (unpack an archive first)"
    try:
        words = [word.decode() for word in row.split()]
    except UnicodeDecodeError:
        return unread
    if rules.labelled or not words[0].startswith("qid:"):
        label = words.pop(0)
        number = float(label) if re.fullmatch(_NUMBER, label) else -1.0
        if rules.labelled and not rules.good(np.array([number])):
            return f"label {_show(label)}", rules.expected_label
    if not words or not words[0].startswith("qid:") or words[0] == "qid:":
        return f"{_show(words[0]) if words else 'nothing'} after the label", "qid:ID"
    if len(words) == 1:  # an item without any feature looks just like a line cut in the middle
        return f"nothing after {_show(words[0])}", "index:value (1:0 if its features are all 0)"
    seen = set[int]()
    for word in words[1:]:
        index, _, value = word.partition(":")
        if not re.fullmatch("[0-9]{1,18}", index) or not 1 <= int(index) <= rules.largest_index:
            whole = f"an index from 1 to {rules.largest_index} ({'' if rules.width else 'or set '}"
            return _show(word), f"index:value, {whole}dataset.width)"
        if not _VALUE.fullmatch(value):
            return _show(word), "index:value, a finite number (or nan, which is missing)"
        if int(index) in seen:
            return f"index {int(index)} twice, again as {_show(word)}", "each index once a row"
        seen.add(int(index))
    return unread


def _show(text: str) -> str:
    """Return a text for a message: quoted, on one line, and cut to 40 characters."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


def item_ids(text: bytes) -> list[str]:
    """Return the item id in the comment of each row of ``text``; empty if there is no comment. The
    id is X if the comment has ``docid = X``, as in LETOR 4.0, else the whole comment.

    >>> text = b"# made\\n2 qid:1 1:1 #docid = GX004 inc = 1\\n0 qid:1 1:2 # sku-7\\n0 qid:1 1:3"
    >>> item_ids(text)
    ['GX004', 'sku-7', '']
    """
    ids = []
    for line in text.split(b"\n"):
        row, _, comment = line.partition(b"#")
        if row.strip():
            written = comment.decode("utf-8", "backslashreplace").strip(_SPACES)
            named = _DOCID.search(written)
            ids.append(named[1] if named else written)
    return ids
