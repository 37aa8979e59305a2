"""Read LETOR/LibSVM text: ``label qid:ID index:value ... # comment``, one item a row.

``parse_row`` is the authority on values and on errors. Large files are read by a compiled parser
(``ltr.data.letor_kernel``) that gives the same or, where it is not certain, nothing.
"""

import hashlib
import os
import re
import stat
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ltr.data.assemble import Block, assemble
from ltr.data.cache import unreadable
from ltr.data.lists import Doubles, Floats, Lists
from ltr.data.machine import processors
from ltr.errors import ConfigError, DataError

READER_VERSION = 1  # part of every cache key: raise it when the same text gives other arrays
CHUNK_BYTES = 1 << 20  # larger ones are slower, they leave the processor's cache
COMPILED_BYTES = 4 << 20  # a smaller file is parsed row by row, before Numba is loaded
MOST_FEATURES = 1_000_000  # the arrays are dense
LARGEST_INDEX = 100_000  # where the width is not given: a larger index is a slip, not a feature
LARGEST_GRADE = 2**24  # float32 has no whole number beyond that for certain

_NUMBER = rb"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
_LABEL = re.compile(_NUMBER)
_PAIR = re.compile(rb"0*([0-9]{1,7}):(" + _NUMBER + rb"|[+-]?(?i:nan))")
_DOCID = re.compile(r"\bdocid\s*=\s*(\S+)")
_FLOAT32_MAX = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Rules:
    """What a file may hold.

    Attributes:
        width: number of features, the largest index allowed; None: the largest in the file.
        labels: ``grade``, whole numbers (written 2 or 2.0), or ``real``, any number >= 0.
        max_grade: the largest label allowed; None: 2^24 for grades, float32's largest for real.
        labelled: False: every label counts as 0; a row may begin with ``qid:``.

    Raises:
        ConfigError: a setting out of its range.
    """

    width: int | None = None
    labels: str = "grade"
    max_grade: int | None = None
    labelled: bool = True

    def __post_init__(self) -> None:
        wrong = ""
        if self.labels not in ("grade", "real"):
            wrong = f"labels={self.labels!r} is not known: set dataset.labels to grade or real"
        if self.width is not None and not 1 <= self.width <= MOST_FEATURES:
            wrong = f"width={self.width} is out of range: set dataset.width to 1..{MOST_FEATURES}"
        if self.max_grade is not None and self.max_grade < 1:
            wrong = (
                f"max_grade={self.max_grade} is out of range: set dataset.max_grade to 1 or more"
            )
        if wrong:
            raise ConfigError(wrong)

    @property
    def largest_index(self) -> int:
        """The largest index that a row may hold."""
        return LARGEST_INDEX if self.width is None else self.width

    @property
    def largest_label(self) -> float:
        """The largest label that a row may hold."""
        if self.max_grade is not None:
            return self.max_grade
        return LARGEST_GRADE if self.labels == "grade" else _FLOAT32_MAX

    @property
    def expected_label(self) -> str:
        """What a label should be, in words."""
        if self.labels == "grade":
            largest = f"{self.largest_label:.0f}"
            return f"a grade, a whole number from 0 to {largest} (or set dataset.labels=real)"
        return f"a number from 0 to {self.largest_label:.9g}"

    def checked(self, labels: Doubles, at: Callable[[int], str]) -> Floats:
        """``labels``, ``[rows]``, as float32.

        Args:
            labels: NaN where a row has none.
            at: where a row stands, for messages.

        Raises:
            DataError: one breaks the rules.
        """
        good = (labels >= 0) & (labels <= self.largest_label)
        if self.labels == "grade":
            good &= labels == np.floor(labels)
        if not good.all():
            row = int(np.flatnonzero(~good)[0])
            found = "no label" if np.isnan(labels[row]) else f"label {labels[row]:g}"
            raise DataError(f"{at(row)}: {found}; expected {self.expected_label}")
        return np.abs(labels).astype(np.float32)  # -0 is 0


def read_letor(
    path: str | os.PathLike[str],
    *,
    width: int | None = None,
    labels: str = "grade",
    max_grade: int | None = None,
    regroup: bool = False,
    labelled: bool = True,
) -> Lists:
    """Read a file into memory.

    A value is the float64 nearest to the text, rounded to the nearest float32. One that is written
    ``nan``, or is beyond float32, is missing: NaN, and counted. A feature that a row does not name
    is 0.

    Args:
        path: the file; lines end in LF or CRLF, blank and comment-only lines hold no item.
        width, labels, max_grade, labelled: the ``Rules`` of the file.
        regroup: accept a query id that comes back later, and move its items to where it first
            stood; otherwise that is an error, and the items keep the file's order.

    Raises:
        DataError: the file is missing, empty or malformed; ``FILE:LINE: what stands there``.
        ConfigError: a setting is out of its range.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "train.txt")
    ...     _ = file.write_text("2 qid:a 1:0.5 3:1e3 # best\\n0 qid:a 2:-1\\n1 qid:b 1:nan\\n")
    ...     lists = read_letor(file)
    >>> lists.features.tolist()
    [[0.5, 0.0, 1000.0], [0.0, -1.0, 0.0], [nan, 0.0, 0.0]]
    >>> lists.labels.tolist(), lists.offsets.tolist(), lists.qids.tolist(), lists.missing
    ([2.0, 0.0, 1.0], [0, 2, 3], ['a', 'b'], 1)
    """
    sha256 = hashlib.sha256()
    rules = Rules(width=width, labels=labels, max_grade=max_grade, labelled=labelled)
    blocks = read_blocks(path, rules, see=sha256.update)
    return replace(assemble(blocks, apart=together(regroup)), digest=sha256.hexdigest())


def together(regroup: bool) -> str:
    """What ``assemble`` says of a query id that comes back, where ``regroup`` does not allow it."""
    return "" if regroup else "or set dataset.regroup=true"


def read_blocks(
    path: str | os.PathLike[str], rules: Rules, see: Callable[[bytes], object] = len
) -> Generator[Block, None, None]:
    """Yield the rows of a file, block by block; memory does not grow with the file.

    Args:
        path: the file, or a pipe.
        rules: what it may hold.
        see: called with the text of each block, in order.

    Raises:
        DataError: ``FILE:LINE: what stands there; expected ...`` for the first malformed row; the
            file has no rows, cannot be read or changes meanwhile.
    """
    path, size, line, rows = Path(path), 0, 1, 0
    try:
        with path.open("rb") as file:
            before = os.fstat(file.fileno())
            is_file = stat.S_ISREG(before.st_mode)  # not a pipe
            parse = None
            if is_file and before.st_size >= COMPILED_BYTES:
                with suppress(Exception):  # Numba is not there, or broken: row by row
                    parse = CompiledParser(rules)
            _keep_freed_memory()
            with closing(_early(_chunks(file), parse, processors() + 1)) as pieces:
                for text, parsed in pieces:
                    size += len(text)
                    see(text)
                    found = parsed or parse_rows(text, rules, path, line)
                    if len(found.labels):
                        rows += len(found.labels)
                        yield found.block(path, line)
                    # three times as fast as bytes.count
                    line += int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord("\n")))
                    if is_file and size > before.st_size:  # it may grow for ever
                        break
            after = os.fstat(file.fileno())
    except OSError as error:
        raise DataError(f"{unreadable(path, error)} of LETOR text") from None
    except MemoryError:
        raise DataError(
            f"{path}: not enough memory; free some, or use fewer features or a smaller file"
        ) from None
    if is_file and (size, before.st_mtime_ns) != (before.st_size, after.st_mtime_ns):
        raise DataError(f"{path}: changed while it was read; run again when it is complete")
    if not rows:
        what = "no rows, only blank lines and comments" if size else "the file is empty"
        raise DataError(f"{path}: {what}; expected rows of label qid:ID index:value ...")


@dataclass(frozen=True)
class Parsed:
    """The rows of one piece of text.

    Attributes:
        features: ``[rows, width]``; the width of the rules, else the largest index here.
        labels: ``[rows]``.
        runs: ``(qid, line of its first row, rows)`` for each run of rows with one qid; lines of
            the piece count from 0.
        missing: how many values are NaN: written so, or beyond float32.
    """

    features: Floats
    labels: Floats
    runs: list[tuple[str, int, int]]
    missing: int

    def block(self, path: Path, first_line: int) -> Block:
        """The rows as ``assemble`` takes them."""
        lengths = [rows for _, _, rows in self.runs]
        places = np.repeat(np.arange(len(self.runs)), lengths)

        def at(row: int) -> str:
            return f"{path}:{first_line + self.runs[places[row]][1]}"

        qids = [qid for qid, _, _ in self.runs]
        return Block(self.features, self.labels, qids, places, self.missing, at)


class CompiledParser:
    """Parses pieces of one file, in any order and in several threads at once.

    Attributes:
        width: the width of the rules, else the largest index so far.
    """

    def __init__(self, rules: Rules) -> None:
        import ltr.data.letor_kernel as kernel  # half a second

        self._rules, self._kernel = rules, kernel
        self.width = rules.width or 0

    def __call__(self, text: bytes) -> Parsed | None:
        """Parse whole lines of text.

        Returns what ``parse_rows`` gives, perhaps as wide as an earlier piece, or None where that
        is not certain: the text is malformed, or of a kind too rare to be worth the code.
        """
        if b"\0" in text:
            return None
        if not text.endswith(b"\n"):
            text += b"\n"
        rules, kernel, lines = self._rules, self._kernel, text.count(b"\n")
        runs = np.empty((lines, 4), np.int64)
        state, width = kernel.NARROW, self.width
        while state == kernel.NARROW:
            features = np.zeros((lines, width), np.float32)
            labels = np.zeros(lines, np.float32)
            state, row, run, missing, largest = kernel.parse(
                np.frombuffer(text, np.uint8), rules.labelled, rules.labels == "real",
                min(float(rules.largest_label), _FLOAT32_MAX), rules.largest_index,
                features, labels, np.zeros(width, np.int32), runs,
            )  # fmt: skip
            width = max(width, largest)
        if state != kernel.SURE:
            return None
        self.width = max(self.width, width)
        try:
            found = runs[:run].tolist()
            ids = [(text[begin:end].decode(), line, rows) for begin, end, line, rows in found]
        except UnicodeDecodeError:
            return None
        return Parsed(features[:row], labels[:row], ids, missing)


def _early(
    texts: Iterator[bytes], parse: CompiledParser | None, threads: int
) -> Generator[tuple[bytes, Parsed | None], None, None]:
    """Each text with what ``parse`` makes of it, which other threads run a few texts ahead."""
    if parse is None:
        yield from ((text, None) for text in texts)
        return
    waiting: deque[tuple[bytes, Future[Parsed | None]]] = deque()
    pool = ThreadPoolExecutor(threads, "letor")
    try:
        for text in texts:
            waiting.append((text, pool.submit(parse, text)))
            if len(waiting) > threads + 1:
                text, parsed = waiting.popleft()
                yield text, parsed.result()
        while waiting:
            text, parsed = waiting.popleft()
            yield text, parsed.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    """Whole lines, about ``CHUNK_BYTES`` at a time."""
    while chunk := file.read(CHUNK_BYTES):
        yield chunk if chunk.endswith(b"\n") else chunk + file.readline()


def _keep_freed_memory() -> None:
    """Make glibc keep the memory of one chunk for the next one: a third faster.

    Once a large block was freed, glibc takes blocks up to that size (32 MiB at most) from memory
    that it keeps, instead of asking the system for fresh, empty pages every time.
    """
    np.empty(31 << 20, np.uint8)


class Malformed(ValueError):
    """A row that breaks the rules: its arguments are what was found and what is expected."""


def parse_rows(text: bytes, rules: Rules, path: object, first_line: int) -> Parsed:
    """Parse whole lines of text one by one.

    Args:
        text: lines that end with a newline, the last one perhaps without.
        rules: what the text may hold.
        path, first_line: the file's name and the number of the first line in it, for messages.

    Raises:
        DataError: ``FILE:LINE: what stands there; expected ...`` for the first malformed row.
    """
    rows: list[tuple[float, bytes, dict[int, float]]] = []
    lines: list[int] = []
    for number, line in enumerate(text.split(b"\n")):
        try:
            row = parse_row(line, rules)
        except Malformed as error:
            found, expected = error.args
            raise DataError(f"{path}:{first_line + number}: {found}; expected {expected}") from None
        if row is not None:
            rows.append(row)
            lines.append(number)
    width = rules.width or max((max(values) for _, _, values in rows), default=0)
    features = np.zeros((len(rows), width), np.float32)
    missing = 0
    for out, (_, _, values) in zip(features, rows, strict=True):
        converted, unfit = to_float32(np.fromiter(values.values(), np.float64, len(values)))
        out[np.fromiter(values, np.int64, len(values)) - 1] = converted
        missing += unfit
    runs = []
    for qid, same in groupby(range(len(rows)), lambda row: rows[row][1]):
        first, *others = same
        runs.append((qid.decode(), lines[first], 1 + len(others)))
    labels = np.array([label for label, _, _ in rows], np.float32)
    return Parsed(features, labels, runs, missing)


def parse_row(line: bytes, rules: Rules) -> tuple[float, bytes, dict[int, float]] | None:
    """Parse one line into label, qid and ``{index: value}``; None where it holds no data.

    Blanks are ASCII white space; the comment begins at the first ``#``.

    Raises:
        Malformed: the line breaks the rules.
    """
    if b"\0" in line:
        raise Malformed("a NUL byte, as in a binary file", "LETOR text (unpack an archive first)")
    line = line.partition(b"#")[0].rstrip()
    try:
        line.decode()
    except UnicodeDecodeError as error:
        raise Malformed(
            f"bytes that are not text, {line[error.start : error.start + 8]!r}",
            "LETOR text in UTF-8 (unpack an archive first)",
        ) from None
    tokens = line.split()
    if not tokens:
        return None
    if not rules.labelled and tokens[0].startswith(b"qid:"):
        tokens.insert(0, b"0")
    label = _parse_label(tokens[0], rules) if rules.labelled else 0.0
    if len(tokens) == 1:
        raise Malformed(f"nothing after the label {_show(tokens[0])}", "qid:ID")
    if not tokens[1].startswith(b"qid:") or tokens[1] == b"qid:":
        raise Malformed(f"{_show(tokens[1])} after the label", "qid:ID")
    if len(tokens) == 2:  # an item without any feature looks just like a line cut in the middle
        raise Malformed(
            f"nothing after {_show(tokens[1])}",
            "index:value (write 1:0 for an item whose features are all 0)",
        )
    values: dict[int, float] = {}
    for token in tokens[2:]:
        match = _PAIR.fullmatch(token)
        index = int(match[1]) if match else 0
        if match is None or not 1 <= index <= rules.largest_index:
            raise _explain_pair(token, rules)
        if index in values:
            raise Malformed(
                f"index {index} twice, again as {_show(token)}", "each index once a row"
            )
        values[index] = float(match[2])
    return label, tokens[1][4:], values


def _parse_label(token: bytes, rules: Rules) -> float:
    value = float(token) if _LABEL.fullmatch(token) else -1.0
    whole = rules.labels == "real" or value.is_integer()
    if not (0 <= value <= rules.largest_label and whole):
        raise Malformed(f"label {_show(token)}", rules.expected_label)
    return abs(value)  # -0 is 0


def _explain_pair(token: bytes, rules: Rules) -> Malformed:
    """Say what is wrong with a token that is not a good ``index:value``."""
    index, colon, value = token.partition(b":")
    if not colon or not value:
        return Malformed(_show(token), "index:value")
    digits = index.lstrip(b"0")
    if not digits.isdigit() or len(digits) > 7 or int(digits) > rules.largest_index:
        why = " (dataset.width)" if rules.width else " (or set dataset.width to the number of all)"
        return Malformed(
            f"index {_show(index)} in {_show(token)}",
            f"a whole number from 1 to {rules.largest_index}{why}",
        )
    return Malformed(
        f"value {_show(value)} in {_show(token)}", "a finite number (or nan, which is missing)"
    )


def _show(token: bytes) -> str:
    """A token for a message: quoted, on one line, at most 40 characters."""
    text = token.decode("utf-8", "backslashreplace")
    return repr(text if len(text) <= 40 else text[:37] + "...")


def item_ids(text: bytes) -> list[str]:
    """The id of the item of each row, as its comment gives it; empty where there is none.

    That is X of ``docid = X``, as in LETOR 4.0, else the whole comment.

    >>> text = b"# made\\n2 qid:1 1:1 #docid = GX004 inc = 1\\n0 qid:1 1:2 # sku-7\\n0 qid:1 1:3"
    >>> item_ids(text)
    ['GX004', 'sku-7', '']
    """
    ids = []
    for line in text.split(b"\n"):
        row, _, comment = line.partition(b"#")
        if row.strip():
            written = comment.decode("utf-8", "backslashreplace").strip()
            named = _DOCID.search(written)
            ids.append(named[1] if named else written)
    return ids


def to_float32(values: Doubles) -> tuple[Floats, int]:
    """Round to the nearest float32; NaN for values that are missing or overflow, and how many."""
    with np.errstate(over="ignore", under="ignore"):
        rounded = values.astype(np.float32)
    unfit = ~np.isfinite(rounded)
    rounded[unfit] = np.nan
    return rounded, int(unfit.sum())
