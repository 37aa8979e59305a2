"""Read LETOR/LibSVM text: ``label qid:ID index:value ... # comment``, one item per row.

``ltr.kernels.letor`` is the parser. If it rejects a row, ``explain_row`` says what is wrong.
"""

import re
import string
from codecs import BOM_UTF8
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from ltr.arrays import Doubles, Flags, Floats
from ltr.data.assemble import Block, assemble
from ltr.data.cache import StrPath, unreadable
from ltr.data.lists import Lists
from ltr.data.machine import processors
from ltr.data.rounding import inexact_values
from ltr.errors import DataError
from ltr.knobs import check_choice, check_positive

READER_VERSION = 1  # part of every cache key: raise it if the same text gives different arrays
CHUNK_BYTES = 1 << 20  # larger chunks do not fit the processor's cache, and are slower
_FREED_BYTES = 31 << 20  # raises glibc's mmap threshold, so that the chunks' buffers are reused
LARGEST_INDEX = 100_000  # if the width is not given; a larger index is probably a mistake
_MAX_LARGE = 4096  # the most values above 2^24 that are examined in each chunk
LARGEST_GRADE = 2**24  # float32 cannot hold every larger whole number

_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_VALUE = re.compile(rf"{_NUMBER}|[+-]?(?i:nan)")
_SPACES = string.whitespace  # only ASCII spaces; others may be part of an id
_DOCID = re.compile(rf"\bdocid[{_SPACES}]*=[{_SPACES}]*([^{_SPACES}]+)")
_FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class ParseOptions:
    """Which labels and features are valid in a file.

    Raises ``ConfigError`` if a setting is out of range.
    """

    width: int | None = None  # number of features; None: the largest index in the file
    labels: str = "grade"  # "grade": whole numbers, such as 2 or 2.0; "real": any number >= 0
    max_grade: int | None = None  # largest label; None: 2^24 for grades, else the largest float32
    labelled: bool = True  # False: every label is read as 0, and a row may begin with ``qid:``

    def __post_init__(self) -> None:
        check_choice("dataset.labels", self.labels, ("grade", "real"))
        for key in ("width", "max_grade"):
            value = getattr(self, key)
            if value is not None:
                check_positive(f"dataset.{key}", value)

    @property
    def cache_text(self) -> str:
        """The rules as text for cache keys and digests; changing it makes cached data unusable."""
        return (
            f"Rules(width={self.width!r}, labels={self.labels!r}, max_grade={self.max_grade!r}, "
            f"labelled={self.labelled!r})"
        )

    @property
    def largest_index(self) -> int:
        """The largest feature index that a row may have."""
        return self.width or LARGEST_INDEX

    @property
    def largest_label(self) -> float:
        """The largest label that a row may have."""
        largest = LARGEST_GRADE if self.labels == "grade" else _FLOAT32_MAX
        return largest if self.max_grade is None else min(self.max_grade, _FLOAT32_MAX)

    @property
    def expected_label(self) -> str:
        """What a label must be, in words."""
        if self.labels == "grade":
            return (
                f"a grade, which is a whole number from 0 to {self.largest_label:.0f} "
                "(or set dataset.labels=real)"
            )
        return f"a number from 0 to {self.largest_label:.9g}"

    def are_valid(self, labels: Doubles) -> Flags:
        """Return for each label whether the rules allow it."""
        is_whole = self.labels == "real" or labels == np.floor(labels)
        return (labels >= 0) & (labels <= self.largest_label) & is_whole

    def check_labels(self, labels: Doubles, locate: Callable[[int], str]) -> Floats:
        """Return ``labels``, ``[rows]``, as float32.

        ``locate`` returns the place of a row in the source. Raises ``DataError`` if a label is
        invalid.
        """
        invalid = np.flatnonzero(~self.are_valid(labels))
        if len(invalid):
            row = int(invalid[0])
            raise DataError(f"{locate(row)}: label {labels[row]:g}; expected {self.expected_label}")
        return np.abs(labels).astype(np.float32)  # turns -0 into 0


def read_letor(
    path: StrPath,
    rules: ParseOptions = ParseOptions(),
    *,
    regroup: bool = False,
    on_block: Callable[[bytes], object] = len,
) -> Lists:
    """Return the lists of a file, in memory.

    ``rules``, ``on_block`` and the errors are those of ``read_blocks``. A value is the float64
    nearest to the text, rounded to the nearest float32. A value that is written ``nan``, or is too
    large for float32, is missing: it becomes NaN, and is counted in ``Lists.missing``. A feature
    that a row does not name is 0. If ``regroup`` is true, the items of a query need not be
    adjacent; they are grouped where the query first occurs. Otherwise, a query that appears again
    after another one raises ``DataError``.

    >>> path = getfixture("tmp_path") / "train.txt"
    >>> _ = path.write_text("2 qid:a 1:0.5 3:1e3 # best\\n0 qid:a 2:-1\\n1 qid:b 1:nan\\n")
    >>> [(qid, features.tolist(), labels.tolist()) for qid, features, labels in read_letor(path)]
    [('a', [[0.5, 0.0, 1000.0], [0.0, -1.0, 0.0]], [2.0, 0.0]), ('b', [[nan, 0.0, 0.0]], [1.0])]
    """
    return assemble(read_blocks(path, rules, on_block), require_adjacent=not regroup)


def read_blocks(
    path: StrPath, rules: ParseOptions, on_block: Callable[[bytes], object] = len
) -> Generator[Block, None, None]:
    """Yield the rows of a file or of a pipe in blocks; memory does not grow with the file.

    Lines end in LF or CRLF; blank lines and lines with only a comment hold no item. ``on_block`` is
    called with the text of each block, in order.

    Raises ``DataError`` if the file has no rows, cannot be read, or has a malformed row. The
    message names the first malformed row: ``FILE:LINE: what it has; expected ...``.
    """
    path = Path(path)
    line = 1  # the number of the first line of the chunk
    rows = 0
    try:
        with path.open("rb") as file:
            np.empty(_FREED_BYTES, np.uint8)  # glibc keeps freed blocks up to this size
            with closing(_parse_ahead(text_chunks(file), Parser(rules))) as chunks:
                for text, future in chunks:
                    on_block(text)
                    chunk = future.result()
                    if len(chunk.labels):
                        yield _block_of(chunk, path, line)
                    rows += len(chunk.labels)
                    line += chunk.lines
    except Malformed as error:
        line_in_chunk, content, expected = error.args
        raise DataError(f"{path}:{line + line_in_chunk}: {content}; expected {expected}") from None
    except OSError as error:
        raise DataError(f"{unreadable(path, error)} of LETOR text") from None
    if not rows:
        raise DataError(f"{path}: no rows; expected rows of the form label qid:ID index:value ...")


def _block_of(chunk: "ParsedChunk", path: Path, first_line: int) -> Block:
    """Return the rows of ``chunk``, which begins at line ``first_line`` of the file."""
    qids, lines, lengths = zip(*chunk.runs, strict=True)
    row_lines = np.repeat(np.add(lines, first_line), lengths)

    def locate(row: int) -> str:
        return f"{path}:{row_lines[row]}"

    return Block(
        chunk.features,
        chunk.labels,
        queries=qids,
        query_indices=np.repeat(np.arange(len(qids)), lengths),
        missing=chunk.missing,
        locate=locate,
        inexact=chunk.inexact,
    )


def text_chunks(file: BinaryIO) -> Iterator[bytes]:
    """Yield chunks of about ``CHUNK_BYTES`` that end with a whole line.

    The byte order mark that some programs write at the start of a file is left out.
    """
    mark = BOM_UTF8
    while chunk := file.read(CHUNK_BYTES):
        if not chunk.endswith(b"\n"):
            chunk += file.readline()
        yield chunk.removeprefix(mark)
        mark = b""


class ParsedChunk(NamedTuple):
    """The rows of a chunk of text."""

    features: Floats  # [rows, width]; the width is ``Parser.width``
    labels: Floats  # [rows]
    # For each run of consecutive rows of a query: the query id, the 0-based number of the first
    # line, and the number of rows.
    runs: list[tuple[str, int, int]]
    missing: int  # number of NaNs: values that are written ``nan`` or too large for float32
    lines: int  # number of lines in the text, blank lines included
    inexact: dict[int, Doubles]  # column -> its ``inexact_values``


class Malformed(ValueError):
    """A row breaks the rules; the arguments are its line, what it contains and what is expected."""


class Parser:
    """Parses the chunks of one file, in any order and in several threads at once."""

    def __init__(self, rules: ParseOptions) -> None:
        from ltr.kernels.letor import parse  # takes half a second

        self._rules = rules
        self._parse = parse
        self.width = rules.width or 0  # if the rules give no width: the largest index so far

    def __call__(self, text: bytes) -> ParsedChunk:
        """Return the rows of ``text`` (whole lines); raise ``Malformed`` if one is invalid."""
        if not text.endswith(b"\n"):
            text += b"\n"
        rules = self._rules
        lines = text.count(b"\n")
        width = self.width
        runs = np.empty((lines, 4), np.int64)
        while True:
            features = np.zeros((lines, width), np.float32)
            labels = np.zeros(lines, np.float32)
            large = np.empty((_MAX_LARGE, 2))
            complete, line, row, run, missing, largest, count = self._parse(
                np.frombuffer(text, np.uint8),
                rules.labelled,
                rules.labels == "real",
                float(rules.largest_label),
                rules.largest_index,
                features,
                labels,
                np.zeros(width, np.int32),
                runs,
                large,
            )
            if largest <= width:
                break
            width = largest
        self.width = max(self.width, width)
        ids = []
        for begin, end, first, rows in runs[:run].tolist():
            try:
                ids.append((text[begin:end].decode(), first, rows))
            except UnicodeDecodeError:
                raise self._malformed(text, first) from None
        if not complete:
            raise self._malformed(text, line)
        inexact = _inexact(large[:count])
        return ParsedChunk(features[:row], labels[:row], ids, missing, lines, inexact)

    def _malformed(self, text: bytes, line: int) -> Malformed:
        return Malformed(line, *explain_row(text.split(b"\n", line + 1)[line], self._rules))


def _inexact(large: Doubles) -> dict[int, Doubles]:
    """Return the ``inexact_values`` of each column.

    Each row of ``large`` holds the index of a column and a value of it.
    """
    columns, values = large.T
    inexact = dict[int, Doubles]()
    for column in np.unique(columns):
        distinct = inexact_values(values[columns == column])
        if len(distinct):
            inexact[int(column)] = distinct
    return inexact


def _parse_ahead(
    texts: Iterator[bytes], parse: Parser
) -> Generator[tuple[bytes, "Future[ParsedChunk]"], None, None]:
    """Yield each text with the future of its ``parse``; threads work a few texts ahead."""
    threads = processors() + 1
    waiting: deque[tuple[bytes, Future[ParsedChunk]]] = deque()
    pool = ThreadPoolExecutor(threads, "letor")
    try:
        for text in texts:
            waiting.append((text, pool.submit(parse, text)))
            if len(waiting) > threads + 1:
                yield waiting.popleft()
        yield from waiting
    finally:
        # Do not wait: the generator may be closed before its end, while a thread still compiles the
        # parser.
        pool.shutdown(wait=False, cancel_futures=True)


def explain_row(row: bytes, rules: ParseOptions) -> tuple[str, str]:
    """Return the first part of a malformed row that breaks the rules, and what is expected."""
    if row.startswith(BOM_UTF8):
        return "a byte order mark", "one only at the start of the file: remove this one"
    row = row.partition(b"#")[0].rstrip()
    unreadable_row = (
        repr(row[:40]),
        "label qid:ID index:value ... in UTF-8 (if this is an archive, unpack it first)",
    )
    try:
        fields = [field.decode() for field in row.split()]
    except UnicodeDecodeError:
        return unreadable_row
    if rules.labelled or not fields[0].startswith("qid:"):
        label = fields.pop(0)
        number = float(label) if re.fullmatch(_NUMBER, label) else -1.0
        if rules.labelled and not rules.are_valid(np.array([number])):
            return f"label {_shorten(label)}", rules.expected_label
    if not fields or not fields[0].startswith("qid:") or fields[0] == "qid:":
        return f"{_shorten(fields[0]) if fields else 'nothing'} after the label", "qid:ID"
    if len(fields) == 1:  # an item without features cannot be told from a truncated line
        return f"nothing after {_shorten(fields[0])}", "index:value (1:0 if all features are 0)"
    return _explain_features(fields[1:], rules) or unreadable_row


def _explain_features(fields: Sequence[str], rules: ParseOptions) -> tuple[str, str] | None:
    """Return the first ``index:value`` that breaks the rules and what is expected, else None."""
    indices = set[int]()
    for field in fields:
        index, _, value = field.partition(":")
        if not re.fullmatch("[0-9]{1,18}", index) or not 1 <= int(index) <= rules.largest_index:
            setting = "dataset.width" if rules.width else "or set dataset.width"
            expected = f"index:value with an index from 1 to {rules.largest_index} ({setting})"
            return _shorten(field), expected
        if not _VALUE.fullmatch(value):
            return _shorten(field), "index:value with a finite number (or nan if it is missing)"
        if int(index) in indices:
            return (
                f"index {int(index)} twice, again as {_shorten(field)}",
                "each index once per row",
            )
        indices.add(int(index))
    return None


def _shorten(text: str) -> str:
    """Return ``text`` quoted for a message, on one line and cut to 40 characters."""
    return repr(text if len(text) <= 40 else text[:37] + "...")


def item_ids(text: bytes) -> list[str]:
    """Return the item id in the comment of each row of ``text``; empty if there is no comment.

    The id is X if the comment contains ``docid = X``, as in LETOR 4.0; otherwise it is the whole
    comment.

    >>> text = b"# made\\n2 qid:1 1:1 #docid = GX004 inc = 1\\n0 qid:1 1:2 # sku-7\\n0 qid:1 1:3"
    >>> item_ids(text)
    ['GX004', 'sku-7', '']
    """
    ids = []
    for line in text.split(b"\n"):
        row, _, comment = line.partition(b"#")
        if row.strip():
            comment_text = comment.decode("utf-8", "backslashreplace").strip(_SPACES)
            docid = _DOCID.search(comment_text)
            ids.append(docid[1] if docid else comment_text)
    return ids
