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
from ltr.data.lists import Columns, Floats, Ints, Texts
from ltr.errors import DataError

FORMAT_VERSION = 3
ARRAYS = ("features", "labels", "offsets", "qids")
META = "meta.json"
_OLD = "features.old"
WEIGHTS = "weights"  # only where lists have them
# All that is ever written:
FILES = frozenset({META, _OLD, *(f"{name}.npy" for name in (*ARRAYS, WEIGHTS))})
_ROWS_AT_ONCE = 4096  # when rows are written again in another order or width


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
        columns: Columns | None = None,
        weights: Floats | None = None,
    ) -> None:
        """Complete the entry.

        Args:
            offsets, qids, digest, missing, columns, weights: as in ``Lists``.
            order: ``[rows]``, which appended row stands at each place; None: as appended.

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
                self._rewrite(self._width, order)
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
                small[WEIGHTS] = weights.astype(np.float32)
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

    def _rewrite(self, width: int, order: Ints | None = None) -> None:
        """Begin the file of features, or write it again, wider or in another order."""
        path, old = self._folder / "features.npy", self._folder / _OLD
        rows = np.zeros((0, width), np.float32)
        if self._file is not None:
            self._file.close()
            path.rename(old)
            offset = len(_header(np.dtype(np.float32), (0, self._width)))
            rows = np.memmap(old, np.float32, "r", offset, (self._rows, self._width))
        self._width = width
        self._file = path.open("wb")
        self._sums = BlockSums()
        # The header keeps its length when the number of rows grows: NumPy pads it for that.
        self._file.write(_header(np.dtype(np.float32), (0, width)))
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            part = slice(start, start + _ROWS_AT_ONCE)
            self._write_rows(rows[part] if order is None else rows[order[part]])
        old.unlink(missing_ok=True)

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
