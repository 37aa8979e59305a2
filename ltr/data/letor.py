"""Read files of LETOR/LibSVM text: ``label qid:ID index:value ... # comment``, one item a row."""

import hashlib
import os
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import numpy as np

from ltr.data.letor_blocks import Source, read_blocks
from ltr.data.letor_rows import Rules, item_ids
from ltr.data.lists import Columns, Floats, Ints, Lists, Texts, in_order
from ltr.data.machine import available_memory
from ltr.errors import DataError

READER_VERSION = 1  # part of every cache key: raise it when the same text gives other arrays
LONGEST_QID = 1000  # characters: the array of ids is as wide as the longest


class Sink(Protocol):
    """Takes rows in the order of the source, block by block: ``ListsWriter`` or ``MemorySink``."""

    def append(self, features: Floats, labels: Floats) -> None:
        """Take ``[rows, width]`` and ``[rows]``; a later block may be wider or narrower."""

    def finish(
        self,
        offsets: Ints,
        qids: Texts,
        *,
        digest: str,
        missing: int,
        order: Ints | None,
        rows: Ints | None = None,
        columns: Columns | None = None,
        weights: Floats | None = None,
    ) -> None:
        """Take the rest of ``Lists``; ``order``: the final order of the rows, None as appended.

        ``rows``: the row of the source of each appended row; None: 0, 1, 2, ...
        """

    def free(self) -> tuple[int, str]:
        """How many bytes the features may take in all, and where."""


def read_letor(
    path: str | os.PathLike[str],
    *,
    width: int | None = None,
    labels: str = "grade",
    max_grade: int | None = None,
    regroup: bool = False,
    labelled: bool = True,
    threads: int | None = None,
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
        threads: that parse a large file; None: one more than processors, five at most.

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
    memory = MemorySink()

    def reserve(read: int) -> None:
        if len(memory.labels) == 1:  # after the first block: the others are taken for as dense
            memory.reserve(memory.rows * Path(path).stat().st_size // read)

    rules = Rules(width=width, labels=labels, max_grade=max_grade, labelled=labelled)
    parse_letor(path, memory, rules=rules, regroup=regroup, threads=threads, progress=reserve)
    return memory.lists


def parse_letor(
    path: str | os.PathLike[str],
    sink: Sink,
    *,
    rules: Rules,
    regroup: bool = False,
    digest: str | None = None,
    progress: Callable[[int], object] | None = None,
    ids: Callable[[list[str]], object] | None = None,
    threads: int | None = None,
    span: tuple[int, int] | None = None,
) -> None:
    """Read a file into ``sink`` block by block; memory does not grow with the file.

    Args:
        path, regroup, threads: as for ``read_letor``.
        sink: takes the rows, then the offsets, query ids, digest and count of missing values.
        rules: what the file may hold.
        digest: the SHA-256 that the content must have, if it was hashed before.
        progress: called with the number of bytes read since the last call.
        ids: called with ``item_ids`` of the rows of each block, in the file's order.
        span: its first byte and that after its last, whole lines of a regular file; None: all.

    Raises:
        DataError: as ``read_letor``, lines counted in the span; also a file that changes while it
            is read.
    """
    path = Path(path)
    sha256, queries = hashlib.sha256(), _Queries(path, regroup)
    missing = size = 0
    try:
        with path.open("rb") as file:
            before = os.fstat(file.fileno())
            is_file = stat.S_ISREG(before.st_mode)  # not a pipe
            known_size = before.st_size if is_file else 0
            source: Source = file
            if span is not None:
                known_size, source = span[1] - span[0], _Span(file, *span)
            blocks = read_blocks(source, known_size, rules, path, sink.free, threads)
            with closing(blocks):
                for text, block in blocks:
                    size += len(text)
                    sha256.update(text)
                    queries.add(block.runs)
                    sink.append(block.features, block.labels)
                    missing += block.missing
                    if ids is not None:
                        ids(item_ids(text))
                    if progress is not None:
                        progress(len(text))
                    if is_file and size > known_size:  # it may grow for ever
                        break
            after = os.fstat(file.fileno())
        changed = (size, before.st_mtime_ns) != (known_size, after.st_mtime_ns)
        if (is_file and changed) or digest not in (None, sha256.hexdigest()):
            raise DataError(f"{path}: changed while it was read; run again when it is complete")
        if not queries.runs:
            found = "no rows, only blank lines and comments" if size else "the file is empty"
            raise DataError(f"{path}: {found}; expected rows of label qid:ID index:value ...")
        offsets, qids, order = queries.result()
        sink.finish(offsets, qids, digest=sha256.hexdigest(), missing=missing, order=order)
    except OSError as error:
        raise DataError(unreadable(path, error)) from None
    except MemoryError:
        raise DataError(
            f"{path}: not enough memory; free some, or use fewer features or a smaller file"
        ) from None


def unreadable(path: Path, error: OSError) -> str:
    """Why a file could not be read, on one line."""
    why = f"cannot be read, {error.strerror or error}"
    if path.is_dir():
        why = "a folder"
    elif isinstance(error, FileNotFoundError):
        why = "no such file"
    return f"{path}: {why}; expected a file of LETOR text"


class _Span:
    """The bytes of a file from ``begin`` to ``end``."""

    def __init__(self, file: BinaryIO, begin: int, end: int) -> None:
        self._file, self._left = file, end - begin
        file.seek(begin)

    def read(self, size: int) -> bytes:
        return self._counted(self._file.read(min(size, self._left)))

    def readline(self) -> bytes:
        return self._counted(self._file.readline(self._left))

    def _counted(self, text: bytes) -> bytes:
        self._left -= len(text)
        return text


class _Queries:
    """Collects the runs of rows with one query id; refuses or regroups ids that come back."""

    def __init__(self, path: Path, regroup: bool) -> None:
        self.path, self.regroup = path, regroup
        self.lists: dict[str, int] = {}  # qid -> its list, in order of the first appearance
        self.first_lines: list[int] = []  # of each list
        self.runs: list[tuple[int, int]] = []  # (list, rows)

    def add(self, runs: list[tuple[str, int, int]]) -> None:
        for qid, line, rows in runs:
            if len(qid) > LONGEST_QID:
                raise DataError(
                    f"{self.path}:{line}: a query id of {len(qid):,} characters; "
                    f"expected at most {LONGEST_QID:,}"
                )
            known = self.lists.setdefault(qid, len(self.lists))
            if known == len(self.first_lines):
                self.first_lines.append(line)
            elif known != self.runs[-1][0] and not self.regroup:
                raise DataError(
                    f"{self.path}:{line}: query id {qid!r} comes back, its items began at line "
                    f"{self.first_lines[known]}; expected the items of a query together "
                    "(or set dataset.regroup=true)"
                )
            self.runs.append((known, rows))

    def result(self) -> tuple[Ints, Texts, Ints | None]:
        """Offsets, query ids, and the order of the rows that puts every list together."""
        lists, rows = np.array(self.runs, np.int64).T
        offsets, order = together(lists, rows)
        return offsets, np.array(list(self.lists)), order


def together(lists: Ints, rows: Ints) -> tuple[Ints, Ints | None]:
    """The offsets of the lists, and the order of the rows that puts each list together.

    Args:
        lists: the number of the list of each run of rows; the runs are in the order of the file.
        rows: the number of rows of each run.

    Returns:
        The order is None where no list is interrupted.

    >>> together(np.array([0, 1, 0]), np.array([1, 2, 1]))
    (array([0, 2, 4]), array([0, 3, 1, 2]))
    """
    lengths = np.zeros(lists.max(initial=-1) + 1, np.int64)
    np.add.at(lengths, lists, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    returns = (np.diff(lists) < 0).any()
    return offsets, np.argsort(np.repeat(lists, rows), kind="stable") if returns else None


class MemorySink:
    """A sink that keeps the arrays in memory, with a sixteenth to spare at most.

    ``lists`` is the result, when it is finished.
    """

    lists: Lists

    def __init__(self) -> None:
        self.rows = 0
        self.features = np.empty((0, 0), np.float32)
        self.labels: list[Floats] = []

    def reserve(self, rows: int) -> None:
        """Make room for about as many rows in all; pages that stay empty cost nothing."""
        room = max(self.rows, rows * 17 // 16)
        features = np.zeros((room, self.features.shape[1]), np.float32)
        features[: self.rows] = self.features[: self.rows]
        self.features = features

    def append(self, features: Floats, labels: Floats) -> None:
        end, width = self.rows + len(features), features.shape[1]
        if width > self.features.shape[1]:
            wider = np.zeros((max(end, len(self.features)), width), np.float32)
            wider[: self.rows, : self.features.shape[1]] = self.features[: self.rows]
            self.features = wider
        elif end > len(self.features):  # a large array grows in place: the pages are moved
            rows = max(end, len(self.features) * 17 // 16)
            self.features.resize((rows, self.features.shape[1]), refcheck=False)
        self.features[self.rows : end, :width] = features
        self.labels.append(labels)
        self.rows = end

    def free(self) -> tuple[int, str]:
        available, where = available_memory()
        return available + 4 * self.rows * self.features.shape[1], where

    def finish(
        self,
        offsets: Ints,
        qids: Texts,
        *,
        order: Ints | None,
        rows: Ints | None = None,
        **rest: Any,
    ) -> None:
        """As ``Sink.finish``; ``rest`` are fields of ``Lists``."""
        self.features.resize((self.rows, self.features.shape[1]), refcheck=False)
        features, labels = self.features, np.concatenate(self.labels)
        if order is not None:
            features, labels = features[order], labels[order]
        self.lists = Lists(features, labels, offsets, qids, rows=in_order(rows, order), **rest)
