"""Writes the arrays of ``Lists`` into a folder, block by block, for ``ltr.data.cache``."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from ltr.data.checksums import BlockSums, sealed
from ltr.data.lists import Columns, Floats, Ints, Texts, in_order
from ltr.errors import DataError

FORMAT_VERSION = 4
ARRAYS = ("features", "labels", "offsets", "qids")
META = "meta.json"
_OLD, _SPILL = "features.old", "features.spill"
OPTIONAL = ("weights", "rows")  # only where lists have them
# All that is ever written:
FILES = frozenset({META, _OLD, _SPILL, *(f"{name}.npy" for name in (*ARRAYS, *OPTIONAL))})
_ROWS_AT_ONCE = 4096  # when rows are written again in another width
_BUCKET_BYTES = 32 << 20  # when they are written again in another order; about four times in memory


class ListsWriter:
    """Streams rows to disk with plain writes: a full disk is an error here, not a crash later."""

    def __init__(self, folder: Path, key: str, width: int | None) -> None:
        self._folder, self._key = folder, key
        self._fixed = width is not None
        self._width = width or 0
        self._rows = 0
        self._labels: list[Floats] = []
        self._file: BinaryIO | None = None
        self._sums = BlockSums()  # of the rows in the file
        self.finished = False

    def append(self, features: Floats, labels: Floats) -> None:
        """Write ``[rows, width]`` features and keep ``[rows]`` labels.

        A block narrower than the entry is filled with 0; where the width was not given, a wider one
        has the entry written again.

        Raises:
            ValueError: the shapes do not go together.
            DataError: the disk is full or cannot be written.
        """
        if features.ndim != 2 or labels.shape != (len(features),):
            raise ValueError(f"features {features.shape} do not go with labels {labels.shape}")
        if self._fixed and features.shape[1] > self._width:
            raise ValueError(f"a block of width {features.shape[1]}, the entry has {self._width}")
        with writing(self._folder.parent):
            if self._file is None or features.shape[1] > self._width:
                self._rewrite(max(self._width, features.shape[1]))
            self._write_rows(features)
        self._rows += len(features)
        self._labels.append(np.array(labels, np.float32))

    def finish(
        self,
        offsets: Ints,
        qids: Texts,
        *,
        digest: str,
        missing: int = 0,
        order: Ints | None = None,
        rows: Ints | None = None,
        columns: Columns | None = None,
        weights: Floats | None = None,
    ) -> None:
        """Complete the entry.

        Args:
            offsets, qids, digest, missing, columns, weights: as in ``Lists``.
            order: ``[rows]``, which appended row stands at each place; None: as appended.
            rows: ``[rows]``, the row of the source of each appended row; None: 0, 1, 2, ...

        Raises:
            ValueError: offsets or qids do not go with the rows.
            DataError: the disk is full or cannot be written.
        """
        if offsets[0] != 0 or offsets[-1] != self._rows or (np.diff(offsets) < 1).any():
            raise ValueError(f"offsets do not cut {self._rows} rows into lists of at least one")
        if len(qids) != len(offsets) - 1:
            raise ValueError(f"{len(qids)} qids for {len(offsets) - 1} lists")
        labels = np.concatenate(self._labels)
        with writing(self._folder.parent):
            if order is not None:
                labels = labels[order]
                self._reorder(order)
            assert self._file is not None
            head = _header(np.dtype(np.float32), (self._rows, self._width))
            sums = {"features": [crc32(head), *self._sums.result()]}
            self._file.seek(0)
            self._file.write(head)
            _close_synced(self._file)
            small: dict[str, NDArray[Any]] = {
                "labels": labels, "offsets": offsets.astype(np.int64), "qids": qids,
            }  # fmt: skip
            if weights is not None:
                small["weights"] = weights.astype(np.float32)
            if (of_source := in_order(rows, order)) is not None:
                small["rows"] = of_source.astype(np.int64)
            for name, array in small.items():
                head, content = _header(array.dtype, array.shape), array.tobytes()
                body = BlockSums()
                body.update(content)
                sums[name] = [crc32(head), *body.result()]
                _write_synced(self._folder / f"{name}.npy", head + content)
            meta = {
                "version": FORMAT_VERSION,
                "key": self._key,
                "digest": digest,
                "missing": missing,
                "columns": None if columns is None else columns.state(),
                "sums": sums,  # of the header, then of each block of the rest
            }
            _write_synced(self._folder / META, json.dumps(sealed(meta)).encode())
        self.finished = True

    def free(self) -> tuple[int, str]:
        """How many bytes the features may take in all, and on which disk."""
        with writing(self._folder.parent):
            free = shutil.disk_usage(self._folder).free
        return free + 4 * self._rows * self._width, f"the disk of {self._folder.parent}"

    def close(self) -> None:
        """Close the open file, whatever state it is in."""
        if self._file is not None:
            with suppress(OSError):  # what is still buffered may not fit either
                self._file.close()

    def _rewrite(self, width: int) -> None:
        """Begin the file of features, or write it again, wider."""
        old = self._folder / _OLD
        rows = np.zeros((0, width), np.float32)
        if self._file is not None:
            offset = self._set_aside()
            rows = np.memmap(old, np.float32, "r", offset, (self._rows, self._width))
        self._begin(width)
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            self._write_rows(rows[start : start + _ROWS_AT_ONCE])
        old.unlink(missing_ok=True)

    def _reorder(self, order: Ints) -> None:
        """Write the file of features again in another order, of which little fits in memory.

        The rows are spread over buckets of neighbouring places first, then each bucket is put in
        order: nothing is read or written at random.
        """
        width, rows = self._width, max(1, _BUCKET_BYTES // (4 * self._width))
        buckets = np.empty(self._rows, np.int64)  # of each row as it was appended
        buckets[order] = np.arange(self._rows) // rows
        free = np.arange(0, self._rows, rows)  # the next place of each bucket
        old, spill = self._folder / _OLD, self._folder / _SPILL
        offset = self._set_aside()
        with spill.open("w+b") as spread:
            with old.open("rb") as file:
                file.seek(offset)
                for start in range(0, self._rows, rows):
                    block = np.fromfile(file, np.float32, rows * width).reshape(-1, width)
                    of_row = buckets[start : start + rows]
                    by_bucket = np.argsort(of_row, kind="stable")
                    found, first = np.unique(of_row[by_bucket], return_index=True)
                    for bucket, part in zip(found, np.split(by_bucket, first[1:]), strict=True):
                        spread.seek(4 * width * free[bucket])
                        spread.write(block[part].data)
                        free[bucket] += len(part)
            old.unlink()
            spread.seek(0)
            self._begin(width)
            for start in range(0, self._rows, rows):
                block = np.fromfile(spread, np.float32, rows * width).reshape(-1, width)
                placed = np.empty_like(block)
                placed[np.argsort(order[start : start + rows])] = block  # they came in file order
                self._write_rows(placed)
        spill.unlink()

    def _set_aside(self) -> int:
        """Rename the file of features to ``_OLD``; the byte at which its rows begin."""
        assert self._file is not None
        self._file.close()
        (self._folder / "features.npy").rename(self._folder / _OLD)
        return len(_header(np.dtype(np.float32), (0, self._width)))

    def _begin(self, width: int) -> None:
        """Begin a file of features."""
        self._width, self._sums = width, BlockSums()
        self._file = (self._folder / "features.npy").open("wb")
        # The header keeps its length when the number of rows grows: NumPy pads it for that.
        self._file.write(_header(np.dtype(np.float32), (0, width)))

    def _write_rows(self, features: Floats) -> None:
        assert self._file is not None
        if features.shape[1] < self._width:
            features = np.pad(features, ((0, 0), (0, self._width - features.shape[1])))
        content = np.ascontiguousarray(features, np.float32).data
        self._file.write(content)
        if features.size:
            self._sums.update(content)


@contextmanager
def writing(cache_dir: Path) -> Iterator[None]:
    """Turn a failed write into a ``DataError``."""
    try:
        yield
    except OSError as error:
        raise DataError(
            f"cannot write the cache {cache_dir}: {error.strerror or error}; "
            "free space there or set cache_dir=DIR elsewhere"
        ) from error


def _header(dtype: np.dtype[Any], shape: tuple[int, ...]) -> bytes:
    """The first bytes of an ``.npy`` file."""
    buffer = BytesIO()
    fields = {"descr": dtype.str, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(buffer, fields)
    return buffer.getvalue()


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        _close_synced(file)


def _close_synced(file: BinaryIO) -> None:
    """Close a file when its content is safely on the disk, not only on its way there."""
    file.flush()
    os.fsync(file.fileno())
    file.close()
