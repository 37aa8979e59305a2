"""A LETOR file parsed by several processes at once, each a part of it, cut between two lists.

Each part is an entry of the cache, there whole or not at all: parts that were done before a kill
are not parsed again. Then the parts become one entry, the same bytes as from one process.
"""

import multiprocessing
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np

from ltr.data.cache import cached_lists, forget
from ltr.data.checksums import file_digest
from ltr.data.letor import parse_letor
from ltr.data.letor_rows import Rules
from ltr.data.lists import Lists
from ltr.data.lists_writer import ListsWriter
from ltr.data.machine import processors
from ltr.errors import DataError

LEAST_BYTES = 8 << 20  # of a part; a process is not worth less
_ROWS_AT_ONCE = 1 << 14
_LONGEST_SEARCH = 1 << 26  # bytes in which the end of a list is looked for

Span = tuple[int, int]  # bytes of a file: the first, and that after the last


def join_parts(
    path: Path,
    writer: ListsWriter,
    *,
    cache_dir: Path,
    key: str,
    rules: Rules,
    digest: str,
    processes: int,
) -> bool:
    """Parse ``path`` by ``processes`` processes and write it to ``writer``.

    Args:
        path: the file.
        writer: of its entry; nothing is written where False is returned.
        cache_dir, key: of its entry.
        rules: what the file may hold.
        digest: of its content.
        processes: how many; fewer where parts would be small.

    Returns:
        Whether it could: not a small or malformed file, one whose parts differ in width, or one
        with a query in two parts. One process says what is wrong with it, or puts it in order.

    Raises:
        DataError: a process was killed, or the cache cannot be written.
    """
    spans = list(_spans(path, processes))
    if len(spans) < 2:
        return False
    keys = [f"{key} part={begin}-{end}" for begin, end in spans]
    threads = max(1, processors() // len(spans))
    context = multiprocessing.get_context("spawn")  # threads may hold locks that a fork would copy
    with ProcessPoolExecutor(len(spans), context, _end_when_asked) as pool:
        try:
            tasks = [
                pool.submit(_parse, path, cache_dir, one, span, rules, threads)
                for one, span in zip(keys, spans, strict=True)
            ]
            sound = all(task.result() for task in tasks)
        except BrokenProcessPool:
            raise DataError(
                f"{path}: a process that parsed a part of it was killed; is there memory enough? "
                "Give the same command again, or a lower processes="
            ) from None
        except BaseException:
            for child in multiprocessing.active_children():
                child.terminate()
            raise
    parts = [
        _part(path, cache_dir, *part, rules) for part in zip(keys, spans, strict=True) if sound
    ]
    joined = bool(parts) and _join(parts, writer, path, cache_dir, digest)
    for one in keys:
        forget(cache_dir, one)
    return joined


def _join(
    parts: Sequence[Lists], writer: ListsWriter, path: Path, cache_dir: Path, digest: str
) -> bool:
    """Write ``parts`` one behind the other, unless they differ in width or share a query."""
    qids = np.concatenate([part.qids for part in parts])
    if len({part.width for part in parts}) > 1 or len(np.unique(qids)) < len(qids):
        return False
    if file_digest(path, cache_dir) != digest:
        raise DataError(f"{path}: changed while it was read; run again when it is complete")
    for part in parts:
        for begin in range(0, part.items, _ROWS_AT_ONCE):
            rows = slice(begin, begin + _ROWS_AT_ONCE)
            writer.append(part.features[rows], part.labels[rows])
    lengths = np.concatenate([part.lengths for part in parts])
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    missing = sum(part.missing for part in parts)
    writer.finish(offsets, qids, digest=digest, missing=missing)
    return True


def _end_when_asked() -> None:
    """A signal ends a process of the pool without a word; what it wrote is not taken for whole."""
    for signum in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signum, signal.SIG_DFL)


def _parse(path: Path, cache_dir: Path, key: str, span: Span, rules: Rules, threads: int) -> bool:
    """Parse a part into the cache; whether it is well formed."""
    try:
        _part(path, cache_dir, key, span, rules, threads)
    except DataError:
        return False
    return True


def _part(
    path: Path, cache_dir: Path, key: str, span: Span, rules: Rules, threads: int = 1
) -> Lists:
    build = partial(parse_letor, path, rules=rules, span=span, threads=threads)
    return cached_lists(cache_dir, key, build, width=rules.width)


def _spans(path: Path, count: int) -> Iterator[Span]:
    """At most ``count`` spans of about the same size that end where a list ends."""
    with path.open("rb") as file:
        size, begin = os.fstat(file.fileno()).st_size, 0
        count = min(count, size // LEAST_BYTES)
        for number in range(1, count):
            end = _end_of_list(file, max(begin, number * size // count), size)
            if begin < end < size:
                yield begin, end
                begin = end
    yield begin, size


def _end_of_list(file: BinaryIO, place: int, size: int) -> int:
    """The first byte from ``place`` on at which a list begins; ``size`` where none is near."""
    file.seek(place)
    file.readline()  # it may be the second half of a row
    last, at = None, file.tell()
    while at < min(size, place + _LONGEST_SEARCH):
        words = (line := file.readline()).partition(b"#")[0].split(maxsplit=2)
        if len(words) > 1:
            if last not in (None, words[1]):
                return at
            last = words[1]
        at += len(line)
    return size
