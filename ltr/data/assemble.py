"""Put the rows of any source together as ``Lists``, in memory or in a file of the cache."""

import math
import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ltr.arrays import Doubles, Floats, Ints
from ltr.data.lists import Columns, Lists
from ltr.data.rounding import add_distinct, rounding_remarks
from ltr.errors import DataError

LONGEST_QID = 1000  # characters; limited because each entry of the array is as wide as the longest
_AT_ONCE = 1 << 14  # rows that are reordered in one step


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a source."""

    features: Floats  # [rows, width]; NaN is missing; the width may differ between blocks
    labels: Floats  # [rows]
    queries: Sequence[str]  # query ids; the same id may occur several times
    places: Ints  # [rows], the index in ``queries`` of each row's query id
    missing: int = 0  # number of NaN in ``features``
    at: Callable[[int], str] = str  # describes where a row is in the source, for messages
    rows: Ints | None = None  # [rows], 0-based row in the source; None: the rows that come next
    weights: Doubles | Floats | None = None  # [rows], weight of the row's query; None: all equal
    inexact: Mapping[int, Any] = field(default_factory=dict)  # column -> see ``inexact_values``


def assemble(
    blocks: Iterable[Block],
    file: Path | None = None,
    *,
    keep: Container[str] | None = None,
    together: bool = False,
    digest: str = "",
    columns: Columns | None = None,
) -> Lists:
    """Make lists of ``blocks``, in the order in which their queries first appear.

    Args:
        blocks: the rows in the order of the source, at least one in total. Narrower blocks are
            filled with 0 to the width of the widest.
        file: an ``.npy`` file for the features, which are then memory-mapped; None: in memory.
        keep: the query ids whose rows are used; None: all.
        together: raise an error if the rows of a query are apart; if False, put them together.
        digest: the digest of the lists.
        columns: names and categories of the features.

    Raises:
        DataError: a query id is too long, a query comes back although ``together`` is True, or the
            weights of a query differ.
        OSError: the disk is full or cannot be written.
    """
    known, before, last, missing = dict[str, int](), 0, -1, 0
    inexact = dict[int, Any]()
    of, labels, rows, weights = list[Any](), list[Floats](), list[Ints](), list[Any]()
    with closing(_Features(file)) as features:
        for block in blocks:
            for column, values in block.inexact.items():
                inexact[column] = add_distinct(inexact.get(column, values), values)
            numbers = [
                known.setdefault(qid, len(known)) if keep is None or qid in keep else -1
                for qid in block.queries
            ]
            lists, own = np.array(numbers, np.int32)[block.places], block.rows
            some: Any = slice(None)
            if keep is not None:
                some = np.flatnonzero(lists >= 0)
                before, own = before + len(lists), before + some
            if not len(lists := lists[some]):
                continue
            if together and len(back := np.flatnonzero(np.diff(lists, prepend=last) < 0)):
                row = int(np.arange(len(block.labels))[some][back[0]])
                raise DataError(
                    f"{block.at(row)}: query id {block.queries[block.places[row]]!r} comes back, "
                    "expected the items of a query together (or set dataset.regroup=true)"
                )
            features.append(values := block.features[some])
            missing += block.missing if keep is None else int(np.isnan(values).sum())
            last = lists[-1]
            of.append(lists)
            labels.append(block.labels[some])
            rows += [] if own is None else [own]
            weights += [] if block.weights is None else [block.weights[some]]
        if len(long := max(known, key=len)) > LONGEST_QID:
            raise DataError(
                f"the query id {long[:40]!r}... has {len(long):,} characters; expected at most "
                f"{LONGEST_QID:,}"
            )
        lists, qids = np.concatenate(of), np.array([*known])
        order = np.argsort(lists, kind="stable") if (np.diff(lists) < 0).any() else None
        by: Any = slice(None) if order is None else order
        origin = np.concatenate(rows)[by] if rows else order
        first, weigh = np.unique(lists, return_index=True)[1], None
        if weights:
            every = np.concatenate(weights)
            weigh = every[first].astype(np.float32)
            if len(other := np.flatnonzero(every[first][lists] != every)):
                raise DataError(
                    f"query {str(qids[lists[other[0]]])!r} has the weight {every[other[0]]:g} and "
                    "others; give one weight to all rows of a query"
                )
        offsets = np.concatenate([[0], np.cumsum(np.bincount(lists))])
        every_label = np.concatenate(labels, dtype=np.float32)[by]
        names = {i: f"feature {i + 1}" if columns is None else columns.names[i] for i in inexact}
        remarks = rounding_remarks({names[i]: inexact[i] for i in sorted(inexact)})
        return Lists(
            features.result(order), every_label, offsets, qids, digest=digest, missing=missing,
            columns=columns, weights=weigh, rows=origin, remarks=remarks,
        )  # fmt: skip


class _Features:
    """Collects the features of blocks, in memory or in an ``.npy`` file.

    The file is written with plain writes, not through a memory map, where a full disk would crash
    the process instead of raising an error. If the widths of the blocks differ, or if rows must be
    reordered, the file is written once more.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self._blocks = path, list[Floats]()
        self._file: BinaryIO | None = None if path is None else path.open("wb")
        self._shapes: list[tuple[int, int]] = []  # one for each block

    def append(self, features: Floats) -> None:
        features = np.ascontiguousarray(features, np.float32)
        if self._file is None:
            self._blocks.append(features)
        else:
            if not self._shapes:
                self._file.write(_header(0, 0))  # NumPy pads it, so the final one is as long
            self._file.write(features.data)
        self._shapes.append((len(features), features.shape[1]))

    def result(self, order: Ints | None) -> Floats:
        """Return the features ``[rows, width]`` in the given order; None: as they were appended."""
        rows, width = int(np.sum(self._shapes, 0)[0]), int(np.max(self._shapes, 0)[1])
        if self._path is None or self._file is None:
            blocks = [_widened(block, width) for block in self._blocks]
            features = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
            return features if order is None else features[order]
        header = _header(rows, width)
        self._file.seek(0)
        self._file.write(header)
        if any(shape[1] != width for shape in self._shapes):
            ends = np.cumsum([math.prod(shape) for shape in self._shapes])[:-1]
            self._write_again(header, lambda values: (
                _widened(block.reshape(shape), width)
                for block, shape in zip(np.split(values, ends), self._shapes, strict=True)
            ))  # fmt: skip
        if order is not None:
            self._write_again(header, lambda values: (
                values.reshape(rows, width)[order[first : first + _AT_ONCE]]
                for first in range(0, rows, _AT_ONCE)
            ))  # fmt: skip
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return np.load(self._path, mmap_mode="r")

    def _write_again(self, header: bytes, blocks: Callable[[Any], Iterable[Floats]]) -> None:
        """Write the file again, with what ``blocks`` makes of the values that are in it."""
        assert self._path is not None
        assert self._file is not None
        self._file.close()
        before = self._path.rename(self._path.with_suffix(".before"))
        self._file = self._path.open("wb")
        self._file.write(header)
        for block in blocks(np.memmap(before, np.float32, "r", len(header))):
            self._file.write(block.data)
        before.unlink()

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # what is still buffered may not fit either
                self._file.close()


def _widened(block: Floats, width: int) -> Floats:
    more = width - block.shape[1]
    return np.pad(block, ((0, 0), (0, more))) if more else block


def _header(rows: int, width: int) -> bytes:
    """Return the first bytes of an ``.npy`` file with a float32 array ``[rows, width]``."""
    buffer = BytesIO()
    fields = {"descr": np.dtype(np.float32).str, "fortran_order": False, "shape": (rows, width)}
    np.lib.format.write_array_header_1_0(buffer, fields)
    return buffer.getvalue()
