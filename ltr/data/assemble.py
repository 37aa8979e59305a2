"""Put the rows of any source together as ``Lists``, in memory or in the file of a cache entry."""

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

MOST_FEATURES = 1_000_000  # the arrays are dense
LONGEST_QID = 1000  # characters: the array of ids is as wide as the longest


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
    apart: str = "",
    digest: str = "",
    columns: Columns | None = None,
) -> Lists:
    """The lists of ``blocks``, in the order in which their queries first appear.

    Args:
        blocks: at least one row in all, in the order of the source.
        into: where the rows go; None: into memory.
        keep: the query ids whose rows are taken; None: all.
        apart: the remedy where rows of a query stand apart; empty: they are put together.
        digest, columns: of the lists.

    Raises:
        DataError: a query id is too long or comes back, or the weights of a query differ.
    """
    into, queries, kept, before = into or Assembler(), _Queries(apart), list[Ints](), 0
    for block in blocks:
        if keep is not None:
            before, block = before + len(block.labels), block.only(keep, before)
        if not len(block.labels):
            continue
        queries.add(block)
        into.append(block.features, block.labels, block.missing)
        if block.rows is not None:
            kept.append(block.rows)
    offsets, order = queries.result()
    rows = np.concatenate(kept) if kept else None
    if order is not None:
        rows = order if rows is None else rows[order]
    return into.finish(
        offsets, np.array(list(queries.lists)), order=order, rows=rows, digest=digest,
        columns=columns, weights=queries.weights,
    )  # fmt: skip


class _Queries:
    """The list of each row, and the weight of each list."""

    def __init__(self, apart: str) -> None:
        self.lists: dict[str, int] = {}  # qid -> its list, in order of the first appearance
        self._apart = apart
        self._runs: list[tuple[Ints, Ints]] = []  # lists and rows of neighbouring rows of a query
        self._last = -1  # the list of the last row
        self._first: list[str] = []  # where each list begins, if its rows must be together
        self._weights: dict[int, float] = {}  # by list

    def add(self, block: Block) -> None:
        if long := [place for place, qid in enumerate(block.queries) if len(qid) > LONGEST_QID]:
            row = int(np.flatnonzero(block.places == long[0])[0])
            raise DataError(
                f"{block.at(row)}: a query id of {len(block.queries[long[0]]):,} characters; "
                f"expected at most {LONGEST_QID:,}"
            )
        numbers = [self.lists.setdefault(qid, len(self.lists)) for qid in block.queries]
        lists = np.array(numbers, np.int64)[block.places]
        starts = np.flatnonzero(np.diff(lists, prepend=-1))
        if self._apart:
            self._check_together(block, lists, starts)
        self._runs.append((lists[starts], np.diff(starts, append=len(lists))))
        self._last = int(lists[-1])
        if block.weights is not None:
            self._weigh(block, lists, block.weights)

    def _check_together(self, block: Block, lists: Ints, starts: Ints) -> None:
        """Refuse a query that comes back."""
        for row, one in zip(starts.tolist(), lists[starts].tolist(), strict=True):
            if one == len(self._first):
                self._first.append(block.at(row))
            elif row or one != self._last:
                raise DataError(
                    f"{block.at(row)}: query id {list(self.lists)[one]!r} comes back, its items "
                    f"began at {self._first[one]}; expected the items of a query together "
                    f"({self._apart})"
                )

    def _weigh(self, block: Block, lists: Ints, values: Doubles | Floats) -> None:
        each, first, places = np.unique(lists, return_index=True, return_inverse=True)
        pairs = zip(each.tolist(), values[first].tolist(), strict=True)
        known = np.array([self._weights.setdefault(one, weight) for one, weight in pairs])[places]
        if len(other := np.flatnonzero(known != values)):
            row = int(other[0])
            raise DataError(
                f"{block.at(row)}: weight {values[row]:g}, but query "
                f"{list(self.lists)[lists[row]]!r} had {known[row]:g}; give one weight to all rows "
                "of a query"
            )

    @property
    def weights(self) -> Floats | None:
        """``[lists]``; None where no weight was taken."""
        weights = [self._weights[one] for one in range(len(self._weights))]
        return np.array(weights, np.float32) if weights else None

    def result(self) -> tuple[Ints, Ints | None]:
        """Offsets, and the order of the rows that puts each list together; None: as they are."""
        lists, rows = (np.concatenate(part) for part in zip(*self._runs, strict=True))
        lengths = np.zeros(len(self.lists), np.int64)
        np.add.at(lengths, lists, rows)
        apart = (np.diff(lists) < 0).any()
        order = np.argsort(np.repeat(lists, rows), kind="stable") if apart else None
        return np.concatenate([[0], np.cumsum(lengths)]), order


class Assembler:
    """Takes rows block by block, then makes ``Lists`` of them.

    Features go to ``file``, an ``.npy`` file, by plain writes: a full disk is an error here, not a
    crash later. Rows that are of different widths, or not in their order, are written once more.
    """

    def __init__(self, file: Path | None = None, width: int | None = None) -> None:
        """``file`` is written anew; None: memory. ``width`` None: that of the widest block."""
        self._path, self._width = file, width
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
        if features.shape[1] > (self._width or MOST_FEATURES):
            raise ValueError(f"a block of width {features.shape[1]}, expected {self._width}")
        if self._file is None:
            self._blocks.append(np.asarray(features, np.float32))
        else:
            if not self._shapes:
                self._file.write(_header(0, 0))  # it keeps its length: NumPy pads it for that
            self._file.write(np.ascontiguousarray(features, np.float32).data)
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
        width = self._width or max((shape[1] for shape in self._shapes), default=0)
        features = self._placed(len(labels), width, order)
        labels = labels if order is None else labels[order]
        return Lists(features, labels, offsets, qids, missing=self._missing, **others)

    def _placed(self, rows: int, width: int, order: Ints | None) -> Floats:
        """``[rows, width]``, the rows in their order."""
        plain = order is None and all(shape[1] == width for shape in self._shapes)
        if self._file is None or self._path is None:
            if plain and len(self._blocks) == 1:
                return self._blocks[0]
            return self._scatter(np.zeros((rows, width), np.float32), order)
        if plain:
            self._file.seek(0)
            self._file.write(_header(rows, width))
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            return np.load(self._path, mmap_mode="r")
        self._file.close()
        appended = self._path.with_suffix(".appended")
        self._path.rename(appended)
        with self._path.open("wb") as file:
            file.write(_header(rows, width))
            size = file.tell() + 4 * rows * width
            if hasattr(os, "posix_fallocate"):  # a full disk ends here: through a map it is a crash
                os.posix_fallocate(file.fileno(), 0, size)
            else:  # on macOS
                os.truncate(file.fileno(), size)
        self._file = appended.open("rb")
        self._scatter(np.load(self._path, mmap_mode="r+"), order).flush()
        self._file.close()
        appended.unlink()
        return np.load(self._path, mmap_mode="r")

    def _scatter(self, out: Any, order: Ints | None) -> Any:
        """Write the blocks, each for the last time, to their places in ``out``, which is 0."""
        places = None if order is None else np.argsort(order, kind="stable")
        if self._file is not None:
            self._file.seek(len(_header(0, 0)))
        begin = 0
        self._blocks.reverse()
        for rows, width in self._shapes:
            if self._file is None:
                block = self._blocks.pop()
            else:
                block = np.fromfile(self._file, np.float32, rows * width).reshape(rows, width)
            there = slice(begin, begin + rows)
            out[there if places is None else places[there], :width] = block
            begin += rows
        return out

    def close(self) -> None:
        """Close the file, whatever state it is in."""
        if self._file is not None:
            with suppress(OSError):  # what is still buffered may not fit either
                self._file.close()


def _header(rows: int, width: int) -> bytes:
    """The first bytes of an ``.npy`` file of float32."""
    buffer = BytesIO()
    fields = {"descr": np.dtype(np.float32).str, "fortran_order": False, "shape": (rows, width)}
    np.lib.format.write_array_header_1_0(buffer, fields)
    return buffer.getvalue()
