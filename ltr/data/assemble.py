"""Group the rows of any source into ``Lists``, in memory or in a file of the cache."""

import math
import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ltr.arrays import Doubles, Floats, Ints, Texts
from ltr.data.lists import Columns, Lists
from ltr.data.rounding import add_distinct, rounding_remarks
from ltr.errors import DataError

LONGEST_QID = 1000  # characters; limited because NumPy stores every id at the width of the longest
_ROWS_PER_STEP = 1 << 14  # rows that are reordered at a time


@dataclass(frozen=True)
class Block:
    """Consecutive rows of a source."""

    features: Floats  # [rows, width]; NaN is missing; the width may differ between blocks
    labels: Floats  # [rows]
    queries: Sequence[str]  # query ids; the same id may occur several times
    query_indices: Ints  # [rows], the index in ``queries`` of each row's query id
    missing: int = 0  # number of NaNs in ``features``
    locate: Callable[[int], str] = str  # maps a row of the block to "FILE:LINE", for errors
    rows: Ints | None = None  # [rows], 0-based rows of the source; None: those after the last block
    weights: Doubles | Floats | None = None  # [rows], weight of the row's query; None: all equal
    inexact: Mapping[int, Any] = field(default_factory=dict)  # column -> its ``inexact_values``


def assemble(
    blocks: Iterable[Block],
    file: Path | None = None,
    *,
    keep: Container[str] | None = None,
    require_adjacent: bool = False,
    digest: str = "",
    columns: Columns | None = None,
) -> Lists:
    """Return the lists made of ``blocks``, in the order in which their queries first appear.

    Args:
        blocks: the rows in the order of the source, at least one in total. Narrower blocks are
            padded with zeros to the width of the widest block.
        file: an ``.npy`` file for the features, which are then memory-mapped; None: in memory.
        keep: the ids of the queries whose rows are used; None: all queries.
        require_adjacent: raise an error if there are other rows between the rows of a query; if
            False, the rows of each query are grouped.
        digest: the hash that identifies the source; it is stored in ``Lists.digest``.
        columns: names and categories of the features.

    Raises:
        DataError: a query id is too long, the rows of a query have different weights, or they are
            not adjacent although ``require_adjacent`` is True.
        OSError: the disk is full or cannot be written.
    """
    rows = _Rows(keep, require_adjacent)
    with closing(_Features(file)) as features:
        for block in blocks:
            used = rows.add(block)
            if len(used):
                features.append(used)
        return rows.lists(features, digest, columns)


class _Rows:
    """Collects the rows of blocks, except their features."""

    def __init__(self, keep: Container[str] | None, require_adjacent: bool) -> None:
        self._keep = keep
        self._require_adjacent = require_adjacent
        self._list_of_qid = dict[str, int]()  # maps each query id to the index of its list
        self._rows_read = 0
        self._last_list = -1
        self._missing = 0
        self._inexact = dict[int, Any]()  # column -> its ``inexact_values``
        # One array for each block with rows that are used.
        self._lists = list[Ints]()
        self._labels = list[Floats]()
        self._source_rows = list[Ints]()
        self._weights = list[Doubles | Floats]()

    def add(self, block: Block) -> Floats:
        """Add the rows of ``block`` whose queries are kept; return their features."""
        for column, values in block.inexact.items():
            self._inexact[column] = add_distinct(self._inexact.get(column, values), values)
        lists = self._lists_of(block)
        source_rows = block.rows
        selected: Any = slice(None)
        if self._keep is not None:
            selected = np.flatnonzero(lists >= 0)
            source_rows = self._rows_read + selected
            self._rows_read += len(lists)
        lists = lists[selected]
        features = block.features[selected]
        if not len(lists):
            return features
        if self._require_adjacent:
            self._check_adjacent(block, lists, selected)
        self._last_list = lists[-1]
        self._missing += block.missing if self._keep is None else int(np.isnan(features).sum())
        self._lists.append(lists)
        self._labels.append(block.labels[selected])
        if source_rows is not None:
            self._source_rows.append(source_rows)
        if block.weights is not None:
            self._weights.append(block.weights[selected])
        return features

    def _lists_of(self, block: Block) -> Any:
        """Return the index of each row's list, ``[rows]``; -1 if the row's query is not kept."""
        numbers = []
        for qid in block.queries:
            if self._keep is None or qid in self._keep:
                numbers.append(self._list_of_qid.setdefault(qid, len(self._list_of_qid)))
            else:
                numbers.append(-1)
        return np.array(numbers, np.int32)[block.query_indices]

    def _check_adjacent(self, block: Block, lists: Ints, selected: Any) -> None:
        """Raise ``DataError`` if a query appears again after another query."""
        returns = np.flatnonzero(np.diff(lists, prepend=self._last_list) < 0)
        if len(returns):
            row = int(np.arange(len(block.labels))[selected][returns[0]])
            qid = block.queries[block.query_indices[row]]
            raise DataError(
                f"{block.locate(row)}: query id {qid!r} appears again after another query; put the "
                "rows of each query together, or set dataset.regroup=true"
            )

    def lists(self, features: "_Features", digest: str, columns: Columns | None) -> Lists:
        """Return the lists; ``features`` has collected the features that ``add`` returned."""
        longest = max(self._list_of_qid, key=len)
        if len(longest) > LONGEST_QID:
            raise DataError(
                f"the query id {longest[:40]!r}... has {len(longest):,} characters; expected at "
                f"most {LONGEST_QID:,}"
            )
        lists = np.concatenate(self._lists)
        qids = np.array([*self._list_of_qid])
        is_sorted = not (np.diff(lists) < 0).any()
        order = None if is_sorted else np.argsort(lists, kind="stable")
        labels = np.concatenate(self._labels, dtype=np.float32)
        source_rows = np.concatenate(self._source_rows) if self._source_rows else None
        if order is not None:
            labels = labels[order]
            source_rows = order if source_rows is None else source_rows[order]
        return Lists(
            features.result(order),
            labels,
            np.concatenate([[0], np.cumsum(np.bincount(lists))]),
            qids,
            digest=digest,
            missing=self._missing,
            columns=columns,
            weights=self._list_weights(lists, qids),
            rows=source_rows,
            remarks=self._remarks(columns),
        )

    def _list_weights(self, lists: Ints, qids: Texts) -> Floats | None:
        """Return the weight of each list.

        Raises ``DataError`` if the rows of a list differ in weight.
        """
        if not self._weights:
            return None
        weights = np.concatenate(self._weights)
        first_rows = np.unique(lists, return_index=True)[1]
        list_weights = weights[first_rows]
        differing = np.flatnonzero(list_weights[lists] != weights)
        if len(differing):
            row = differing[0]
            raise DataError(
                f"query {str(qids[lists[row]])!r} has rows with the weight {weights[row]:g} and "
                "rows with another weight; give all rows of a query the same weight"
            )
        return list_weights.astype(np.float32)

    def _remarks(self, columns: Columns | None) -> dict[str, str]:
        """Return a warning about columns in which float32 makes different values equal, if any."""
        values = dict[str, Any]()
        for column in sorted(self._inexact):
            name = f"feature {column + 1}" if columns is None else columns.names[column]
            values[name] = self._inexact[column]
        return rounding_remarks(values)


class _Features:
    """Collects the features of blocks, in memory or in an ``.npy`` file.

    The file is written with plain writes, because a full disk would crash a process that writes to
    a memory map instead of raising an error. If the widths of the blocks differ, or if rows must be
    reordered, the file is rewritten at the end.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._blocks = list[Floats]()
        self._file: BinaryIO | None = None if path is None else path.open("wb")
        self._shapes: list[tuple[int, int]] = []  # one for each block

    def append(self, features: Floats) -> None:
        features = np.ascontiguousarray(features, np.float32)
        if self._file is None:
            self._blocks.append(features)
        else:
            if not self._shapes:
                self._file.write(_header(0, 0))  # NumPy pads headers: the final one is equally long
            self._file.write(features.data)
        self._shapes.append((len(features), features.shape[1]))

    def result(self, order: Ints | None) -> Floats:
        """Return the features, ``[rows, width]``, in ``order``; None: in order of the blocks."""
        rows = sum(shape[0] for shape in self._shapes)
        width = max(shape[1] for shape in self._shapes)
        if self._path is None or self._file is None:
            blocks = [_widened(block, width) for block in self._blocks]
            features = blocks[0] if len(blocks) == 1 else np.concatenate(blocks)
            return features if order is None else features[order]
        header = _header(rows, width)
        self._file.seek(0)
        self._file.write(header)
        if any(shape[1] != width for shape in self._shapes):
            self._write_again(header, lambda values: self._widened_blocks(values, width))
        if order is not None:

            def reorder(values: Any) -> Iterable[Floats]:
                table = values.reshape(rows, width)
                for first in range(0, rows, _ROWS_PER_STEP):
                    yield table[order[first : first + _ROWS_PER_STEP]]

            self._write_again(header, reorder)
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return np.load(self._path, mmap_mode="r")

    def _widened_blocks(self, values: Any, width: int) -> Iterable[Floats]:
        """Yield the blocks stored in ``values``, one by one, each padded to ``width`` columns."""
        ends = np.cumsum([math.prod(shape) for shape in self._shapes])[:-1]
        for block, shape in zip(np.split(values, ends), self._shapes, strict=True):
            yield _widened(block.reshape(shape), width)

    def _write_again(self, header: bytes, blocks: Callable[[Any], Iterable[Floats]]) -> None:
        """Rewrite the file: ``blocks`` converts its current values to the blocks to write."""
        assert self._path is not None
        assert self._file is not None
        self._file.close()
        old_file = self._path.rename(self._path.with_suffix(".before"))
        self._file = self._path.open("wb")
        self._file.write(header)
        for block in blocks(np.memmap(old_file, np.float32, "r", len(header))):
            self._file.write(block.data)
        old_file.unlink()

    def close(self) -> None:
        if self._file is not None:
            with suppress(OSError):  # the disk may have no room for the rest of the buffer
                self._file.close()


def _widened(block: Floats, width: int) -> Floats:
    added = width - block.shape[1]
    return np.pad(block, ((0, 0), (0, added))) if added else block


def _header(rows: int, width: int) -> bytes:
    """Return the first bytes of an ``.npy`` file with a float32 array ``[rows, width]``."""
    buffer = BytesIO()
    fields = {"descr": np.dtype(np.float32).str, "fortran_order": False, "shape": (rows, width)}
    np.lib.format.write_array_header_1_0(buffer, fields)
    return buffer.getvalue()
