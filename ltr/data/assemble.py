"""Put the rows of any source together as ``Lists``, in memory or in the file of a cache entry."""

import math
import os
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from ltr.data.lists import Columns, Doubles, Floats, Ints, Lists, Texts
from ltr.errors import DataError

LONGEST_QID = 1000  # characters: the array of ids is as wide as the longest
_AT_ONCE = 1 << 14  # rows that are put in another order at once


@dataclass(frozen=True)
class Block:
    """Neighbouring rows of a source.

    Attributes:
        features: ``[rows, width]``; NaN is missing. A later block may be wider or narrower.
        labels: ``[rows]``.
        queries: query ids; one may stand there twice.
        places: ``[rows]``, the place in ``queries`` of the id of each row.
        missing: how many values of ``features`` are NaN.
        at: where a row stands in the source, for messages.
        rows: ``[rows]``, the 0-based row of the source; None: the next ones.
        weights: ``[rows]``, of the row's query; None: all weigh the same.
    """

    features: Floats
    labels: Floats
    queries: Sequence[str]
    places: Ints
    missing: int
    at: Callable[[int], str]
    rows: Ints | None = None
    weights: Doubles | Floats | None = None

    def only(self, keep: Container[str], first: int) -> "Block":
        """The rows of the queries ``keep``; ``first`` is the row of the source of the first."""
        kept = np.array([qid in keep for qid in self.queries], bool)
        rows = np.flatnonzero(kept[self.places])
        there, places = np.unique(self.places[rows], return_inverse=True)
        features = self.features[rows]
        return Block(
            features, self.labels[rows], [self.queries[place] for place in there], places,
            int(np.isnan(features).sum()), lambda row: self.at(int(rows[row])), first + rows,
            None if self.weights is None else self.weights[rows],
        )  # fmt: skip


def assemble(
    blocks: Iterable[Block],
    into: "Assembler | None" = None,
    *,
    keep: Container[str] | None = None,
    together: bool = False,
    digest: str = "",
    columns: Columns | None = None,
) -> Lists:
    """The lists of ``blocks``, in the order in which their queries first appear.

    Args:
        blocks: at least one row in all, in the order of the source.
        into: where the rows go; None: into memory.
        keep: the query ids whose rows are taken; None: all.
        together: whether the rows of a query must stand together; else they are put so.
        digest, columns: of the lists.

    Raises:
        DataError: a query id is too long or comes back, or the weights of a query differ.
    """
    into, known, before, last = into or Assembler(), dict[str, int](), 0, -1
    of, rows, weights = list[Any](), list[Ints](), list[Any]()  # of each row: its list, ...
    for block in blocks:
        if keep is not None:
            before, block = before + len(block.labels), block.only(keep, before)
        if not len(block.labels):
            continue
        numbers = np.array([known.setdefault(qid, len(known)) for qid in block.queries], np.int32)
        lists = numbers[block.places]
        if together and len(back := np.flatnonzero(np.diff(lists, prepend=last) < 0)):
            row = int(back[0])
            raise DataError(
                f"{block.at(row)}: query id {block.queries[block.places[row]]!r} comes back, "
                "expected the items of a query together (or set dataset.regroup=true)"
            )
        into.append(block.features, block.labels, block.missing)
        last = lists[-1]
        of.append(lists)
        rows += [] if block.rows is None else [block.rows]
        weights += [] if block.weights is None else [block.weights]
    lists, qids = np.concatenate(of), [*known]
    if len(longest := max(qids, key=len)) > LONGEST_QID:
        raise DataError(
            f"the query id {longest[:40]!r}... has {len(longest):,} characters; expected at most "
            f"{LONGEST_QID:,}"
        )
    first = np.unique(lists, return_index=True)[1]
    order = np.argsort(lists, kind="stable") if (np.diff(lists) < 0).any() else None
    origin = np.concatenate(rows) if rows else None
    if order is not None:
        origin = order if origin is None else origin[order]
    weigh = np.concatenate(weights) if weights else None
    if weigh is not None and len(other := np.flatnonzero(weigh[first][lists] != weigh)):
        raise DataError(
            f"query {qids[lists[other[0]]]!r} has the weight {weigh[other[0]]:g} and another one; "
            "give one weight to all rows of a query"
        )
    return into.finish(
        np.concatenate([[0], np.cumsum(np.bincount(lists))]), np.array(qids), order=order,
        rows=origin, digest=digest, columns=columns,
        weights=None if weigh is None else weigh[first].astype(np.float32),
    )  # fmt: skip


class Assembler:
    """Takes rows block by block, then makes ``Lists`` of them, as wide as the widest block.

    Features go to ``file``, an ``.npy`` file, by plain writes: a full disk is an error here, not a
    crash later. Rows that are of different widths, or not in their order, are written once more.
    """

    def __init__(self, file: Path | None = None) -> None:
        """``file`` is written anew; None: memory."""
        self._path = file
        self._file: BinaryIO | None = None if file is None else file.open("wb")
        self._shapes: list[tuple[int, int]] = []  # of the blocks
        self._blocks: list[Floats] = []  # in memory
        self._labels: list[Floats] = []
        self._missing = 0

    def append(self, features: Floats, labels: Floats, missing: int = 0) -> None:
        """Take ``[rows, width]`` and ``[rows]``; a narrower block is filled with 0.

        Raises:
            ValueError: the shapes do not go together.
            OSError: the disk is full or cannot be written.
        """
        if features.ndim != 2 or labels.shape != (len(features),):
            raise ValueError(f"features {features.shape} do not go with labels {labels.shape}")
        features = np.ascontiguousarray(features, np.float32)
        if self._file is None:
            self._blocks.append(features)
        else:
            if not self._shapes:
                self._file.write(_header(0, 0))  # it keeps its length: NumPy pads it for that
            self._file.write(features.data)
        self._shapes.append((len(features), features.shape[1]))
        self._labels.append(np.array(labels, np.float32))
        self._missing += missing

    def finish(
        self, offsets: Ints, qids: Texts, *, order: Ints | None = None, **others: Any
    ) -> Lists:
        """The ``Lists`` of all rows.

        Args:
            offsets, qids, others: as in ``Lists``.
            order: ``[rows]``, which appended row stands at each place; None: as appended.

        Raises:
            ValueError: offsets or qids do not go with the rows.
            OSError: the disk is full or cannot be written.
        """
        labels = np.concatenate(self._labels)
        if offsets[0] != 0 or offsets[-1] != len(labels) or (np.diff(offsets) < 1).any():
            raise ValueError(f"offsets do not cut {len(labels)} rows into lists of at least one")
        if len(qids) != len(offsets) - 1:
            raise ValueError(f"{len(qids)} qids for {len(offsets) - 1} lists")
        labels = labels if order is None else labels[order]
        return Lists(self._features(order), labels, offsets, qids, missing=self._missing, **others)

    def _features(self, order: Ints | None) -> Floats:
        """``[rows, width]``, the rows in their order."""
        rows, width = (
            sum(shape[0] for shape in self._shapes),
            max(shape[1] for shape in self._shapes),
        )
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
        """Write the features anew, as ``blocks`` makes them of the values in the file."""
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
        """Close the file, whatever state it is in."""
        if self._file is not None:
            with suppress(OSError):  # what is still buffered may not fit either
                self._file.close()


def _widened(block: Floats, width: int) -> Floats:
    more = width - block.shape[1]
    return np.pad(block, ((0, 0), (0, more))) if more else block


def _header(rows: int, width: int) -> bytes:
    """The first bytes of an ``.npy`` file of float32."""
    buffer = BytesIO()
    fields = {"descr": np.dtype(np.float32).str, "fortran_order": False, "shape": (rows, width)}
    np.lib.format.write_array_header_1_0(buffer, fields)
    return buffer.getvalue()
