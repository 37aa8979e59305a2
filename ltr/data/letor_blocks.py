"""The rows of a LETOR file, block by block, parsed the fastest way that suits the file."""

from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from typing import BinaryIO

import numpy as np

from ltr.data.letor_fast import parse_fast
from ltr.data.letor_rows import Block, Rules, parse_rows
from ltr.data.processors import processors

CHUNK_BYTES = 1 << 20  # larger ones are slower, they leave the processor's cache
COMPILED_BYTES = 64 << 20  # a smaller file is parsed before Numba is there
_NEWLINE = 10

Parse = Callable[[bytes], Block | None]


def read_blocks(
    file: BinaryIO, size: int, rules: Rules, path: object, threads: int | None = None
) -> Generator[tuple[bytes, Block], None, None]:
    """Yield each piece of a file and its rows, in order.

    Args:
        file: at its beginning.
        size: its size in bytes, 0 if not known.
        rules: what it may hold.
        path: its name, for messages.
        threads: that parse a large file; None: one more than processors, five at most.

    Raises:
        DataError: ``FILE:LINE: what stands there; expected ...`` for the first malformed row.
    """
    _keep_freed_memory()
    parse = _compiled(rules) if size >= COMPILED_BYTES else None
    line = 1
    with closing(_early(_chunks(file), parse, threads or processors() + 1)) as pieces:
        for text, block in pieces:
            if block is None:
                block = parse_fast(text, line, rules) or parse_rows(text, line, rules, path)
            else:
                runs = [(qid, line + at, rows) for qid, at, rows in block.runs]
                block = replace(block, runs=runs)
            yield text, block
            # Three times as fast as bytes.count.
            line += int(np.count_nonzero(np.frombuffer(text, np.uint8) == _NEWLINE))


def _compiled(rules: Rules) -> Parse | None:
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
