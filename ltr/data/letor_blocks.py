"""The rows of a LETOR file, block by block, parsed the fastest way that suits the file."""

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import replace
from functools import partial
from typing import Protocol

import numpy as np

from ltr.data.letor_rows import Block, Malformed, Rules, parse_label, parse_rows, to_float32
from ltr.data.lists import Floats, Ints
from ltr.data.machine import available_memory, processors

log = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 20  # larger ones are slower, they leave the processor's cache
COMPILED_BYTES = 4 << 20  # a smaller file is parsed row by row before Numba is loaded
CHEAP_BYTES = 64 << 20  # a slip in an index may cost as much
_ODD = 8  # times the width of other rows: an index beyond it is taken for a slip
_MOST_DOUBTS = 256  # about one value in 100 million is one; more are not worth the code
_FLOAT32_MAX = float(np.finfo(np.float32).max)

Free = Callable[[], tuple[int, str]]  # bytes that the arrays may take, and where


class Room:
    """The memory or disk that the arrays of one file may take.

    Where the width is not given, it is the largest index of all rows, and one mistyped index makes
    every row as wide. So an index is refused that costs more than ``CHEAP_BYTES`` and stands far
    beyond those of the rows before it and of 49 in 50 of its block. Data that are wide on purpose
    have many wide rows; they are refused only where they do not fit. A block that is no wider than
    one before it is never refused.
    """

    def __init__(self, rules: Rules, size: int, free: Free) -> None:
        """Begin a file of ``size`` bytes, 0 if not known."""
        self._given = rules.width is not None
        self._size, self._free = size, free
        self.width = self._rows = self._read = 0  # of the blocks so far

    def add(self, block: Block, length: int) -> None:
        """Count a block that was parsed from ``length`` bytes of text."""
        self.width = max(self.width, block.features.shape[1])
        self._rows += len(block.labels)
        self._read += length

    def refusal(self, widths: Ints, width: int, length: int) -> tuple[int, str] | None:
        """Judge a block before its array is made.

        Args:
            widths: ``[rows]``, the largest index of each row.
            width: the width that the block would have.
            length: the bytes of its text.

        Returns:
            The row (0-based in the block) that needs too much, and the reason; None: there is room.
        """
        if not len(widths) or width <= self.width:
            return None
        rows = self._rows + len(widths)
        rows = max(rows, rows * self._size // (self._read + length))
        cost, row = rows * width * 4, int(widths.argmax())
        slips = max(3, len(widths) // 50)  # rows that may be wrong
        usual = max(int(np.sort(widths)[: -min(slips, len(widths))].max(initial=0)), self.width)
        about = f"about {rows:,} rows of {width:,} features take {_in_words(cost)}"
        odd = usual and width > _ODD * usual and rows * (width - usual) * 4 > CHEAP_BYTES
        if odd and not self._given:
            return row, (
                f"index {width}, but the other rows end at index {usual}, and {about}; mend the "
                f"line, or set dataset.width={width} if it is meant"
            )
        free, where = self._free()
        if cost > free:
            return row, (
                f"index {widths[row]}: {about}, and {where} has {_in_words(free)} free; mend the "
                "line, use fewer features, or make room there"
            )
        return None


def widths_of(features: Floats) -> Ints:
    """The last column of each row that is not 0, 1-based; 0 where all are, ``[rows]``."""
    filled = features != 0
    last = features.shape[1] - filled[:, ::-1].argmax(1)
    return np.where(filled.any(1), last, 0)


def _in_words(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 1e9 else f"{count / 1e6:,.0f} MB"


class CompiledParser:
    """Parses pieces of one file, in any order and in several threads at once.

    Attributes:
        width: the width of the rules, else the largest index so far.
    """

    def __init__(self, rules: Rules) -> None:
        """Begin a file.

        Raises:
            ImportError: Numba is not there; or another error, where it is late for a new NumPy.
        """
        import ltr.data.letor_kernel as kernel  # half a second

        self._rules, self._kernel = rules, kernel
        self.width = rules.width or 0

    def __call__(self, text: bytes) -> Block | None:
        """Parse whole lines of text.

        Returns the block of ``letor_rows.parse_rows`` with lines counted from 0, or None where that
        is not certain: the text is malformed, or of a kind too rare to be worth the code. Where the
        width is not given, the block may be as wide as an earlier one; None for a wider one of more
        than ``CHEAP_BYTES``, since ``parse_rows`` can name the row to blame.
        """
        if b"\0" in text:
            return None
        if not text.endswith(b"\n"):
            text += b"\n"
        rules, kernel, lines = self._rules, self._kernel, text.count(b"\n")
        runs = np.empty((lines, 4), np.int64)
        doubts = np.empty((_MOST_DOUBTS, 4), np.int64)
        state, width = kernel.NARROW, self.width
        while state == kernel.NARROW:
            features = np.zeros((lines, width), np.float32)
            labels = np.zeros(lines, np.float32)
            state, row, run, doubt, missing, largest = kernel.parse(
                np.frombuffer(text, np.uint8), rules.labelled, rules.labels == "real",
                min(float(rules.largest_label), _FLOAT32_MAX), rules.largest_index,
                features, labels, np.zeros(width, np.int32), runs, doubts,
            )  # fmt: skip
            width = max(width, largest)
            if state == kernel.NARROW and 4 * lines * width > CHEAP_BYTES:
                return None
        if state != kernel.SURE:
            return None
        self.width = max(self.width, width)
        try:
            found = runs[:run].tolist()
            ids = [(text[begin:end].decode(), line, rows) for begin, end, line, rows in found]
            for begin, end, at, column in doubts[:doubt].tolist():
                token = text[begin:end]
                if column == kernel.LABEL:
                    labels[at] = parse_label(token, rules)
                else:
                    value, unfit = to_float32(np.array([float(token)]))
                    features[at, column] = value[0]
                    missing += unfit
        except (UnicodeDecodeError, Malformed):
            return None
        return Block(features[:row], labels[:row], ids, missing)


Parse = Callable[[bytes], Block | None]


class Source(Protocol):
    """Text to read: a file, or a part of one."""

    def read(self, size: int, /) -> bytes:
        """At most ``size`` bytes, none at the end."""

    def readline(self) -> bytes:
        """The rest of a line."""


def read_blocks(
    file: Source,
    size: int,
    rules: Rules,
    path: object,
    free: Free = available_memory,
    threads: int | None = None,
) -> Generator[tuple[bytes, Block], None, None]:
    """Yield each piece of a file and its rows, in order.

    Args:
        file: at its beginning.
        size: its size in bytes, 0 if not known.
        rules: what it may hold.
        path: its name, for messages.
        free: tells the bytes that the arrays of all rows may take.
        threads: that parse a large file; None: one more than processors, five at most.

    Raises:
        DataError: ``FILE:LINE: what stands there; expected ...`` for the first malformed row, or
            one that makes all rows so wide that they do not fit.
    """
    _keep_freed_memory()
    parse = None
    if size >= COMPILED_BYTES:
        with suppress(Exception):  # whatever keeps Numba from being imported
            parse = CompiledParser(rules)
    room, line, before = Room(rules, size, free), 1, b""
    with closing(_early(_chunks(file), parse, threads or processors() + 1)) as pieces:
        for text, block in pieces:
            refusal = partial(room.refusal, length=len(text))
            if block is not None and (width := block.features.shape[1]) > room.width:
                block = None if refusal(widths_of(block.features), width) else block
            if block is None:
                block = parse_rows(text, line, rules, path, refusal)
                if parse is not None:
                    parse.width = max(parse.width, block.features.shape[1])
            else:
                runs = [(qid, line + at, rows) for qid, at, rows in block.runs]
                block = replace(block, runs=runs)
            room.add(block, len(text))
            yield text, block
            if not text.endswith(b"\n"):
                last = line + text.count(b"\n")
                _warn_if_cut(f"{path}:{last}", before + text)
            before = text
            # Three times as fast as bytes.count.
            line += int(np.count_nonzero(np.frombuffer(text, np.uint8) == ord("\n")))


def _warn_if_cut(place: str, text: bytes) -> None:
    """Warn where the last line, which has no newline, looks like the first half of a line."""
    *lines, last = (line.partition(b"#")[0].count(b":") for line in text.split(b"\n"))
    rows = [colons for colons in lines if colons]
    if rows and 0 < last < min(rows):
        log.warning(
            "%s: the last line has no newline and %d features, fewer than any before it; if the "
            "file was cut, get it again",
            place,
            last - 1,
        )


def _early(
    texts: Iterator[bytes], parse: Parse | None, threads: int
) -> Generator[tuple[bytes, Block | None], None, None]:
    """Each text with its block from ``parse``, which other threads run a few texts ahead."""
    if parse is None or threads == 1:
        for text in texts:
            yield text, parse and parse(text)
        return
    waiting: deque[tuple[bytes, Future[Block | None]]] = deque()
    pool = ThreadPoolExecutor(threads, "letor")
    try:
        for text in texts:
            waiting.append((text, pool.submit(parse, text)))
            if len(waiting) > threads + 1:
                text, block = waiting.popleft()
                yield text, block.result()
        while waiting:
            text, block = waiting.popleft()
            yield text, block.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _chunks(file: Source) -> Iterator[bytes]:
    """Whole lines, about ``CHUNK_BYTES`` at a time."""
    while chunk := file.read(CHUNK_BYTES):
        yield chunk if chunk.endswith(b"\n") else chunk + file.readline()


def _keep_freed_memory() -> None:
    """Make glibc keep the memory of one chunk for the next one: a third faster.

    Once a large block was freed, glibc takes blocks up to that size (32 MiB at most) from memory
    that it keeps, instead of asking the system for fresh, empty pages every time.
    """
    np.empty(31 << 20, np.uint8)
