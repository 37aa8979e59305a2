"""The rows of a LETOR file, block by block, parsed the fastest way that suits the file."""

import logging
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from ltr.data.letor_rows import Block, Rules, parse_rows
from ltr.data.processors import processors
from ltr.data.room import Free, Room, available_memory, widths_of

if TYPE_CHECKING:
    from ltr.data.letor_compiled import CompiledParser

log = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 20  # larger ones are slower, they leave the processor's cache
COMPILED_BYTES = 4 << 20  # a smaller file is parsed row by row before Numba is there
_LF, _NEWLINE = b"\n", 10

Parse = Callable[[bytes], Block | None]


def read_blocks(
    file: BinaryIO,
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
        free: what the arrays of all rows may take.
        threads: that parse a large file; None: one more than processors, five at most.

    Raises:
        DataError: ``FILE:LINE: what stands there; expected ...`` for the first malformed row, or
            one that makes all rows so wide that they do not fit.
    """
    _keep_freed_memory()
    parse = _compiled(rules) if size >= COMPILED_BYTES else None
    room, line, before = Room(rules, size, free), 1, b""
    with closing(_early(_chunks(file), parse, threads or processors() + 1)) as pieces:
        for text, block in pieces:
            refusal = partial(room.refusal, length=len(text))
            if block is not None and room.needs_a_look(width := block.features.shape[1]):
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
                _warn_if_cut(f"{path}:{line + text.count(_LF)}", before + text)
            before = text
            # Three times as fast as bytes.count.
            line += int(np.count_nonzero(np.frombuffer(text, np.uint8) == _NEWLINE))


def _warn_if_cut(place: str, text: bytes) -> None:
    """Say so where the last line, which has no newline, looks like the first half of one."""
    *lines, last = (line.partition(b"#")[0].count(b":") for line in text.split(b"\n"))
    rows = [colons for colons in lines if colons]
    if rows and 0 < last < min(rows):
        log.warning(
            "%s: the last line has no newline and %d features, fewer than any before it; if the "
            "file was cut, get it again",
            place,
            last - 1,
        )


def _compiled(rules: Rules) -> "CompiledParser | None":
    try:
        from ltr.data.letor_compiled import CompiledParser  # half a second
    except ImportError:  # Numba is late for a new NumPy, as a rule
        return None
    return CompiledParser(rules)


def _early(
    texts: Iterator[bytes], parse: Parse | None, threads: int
) -> Generator[tuple[bytes, Block | None], None, None]:
    """Each text with what ``parse`` makes of it, a few texts ahead in other threads."""
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


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    """Whole lines, about ``CHUNK_BYTES`` at a time."""
    while chunk := file.read(CHUNK_BYTES):
        yield chunk if chunk.endswith(b"\n") else chunk + file.readline()


def _keep_freed_memory() -> None:
    """Make glibc keep what one chunk frees for the next one: a third faster.

    Once a large block was freed, it takes blocks up to that size (32 MiB at most) from memory that
    it keeps, instead of asking the system for fresh, empty pages every time.
    """
    np.empty(31 << 20, np.uint8)
