"""Checksums that detect changed or damaged files: CRC-32 of blocks, seals, SHA-256.

CRC-32 is the fastest sum in Python's library that sees every flipped bit and every damage of up to
32 neighbouring bits in a block; it misses other damage once in four billion times, and forgery.
"""

import hashlib
import json
import os
import stat
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

from ltr.data.letor import unreadable
from ltr.data.machine import processors
from ltr.errors import DataError, OutputError
from ltr.whole import write_whole

BLOCK_BYTES = 4 << 20
_SEAL = "seal"


class BlockSums:
    """The CRC-32 of each ``BLOCK_BYTES`` of a content that comes piece by piece."""

    def __init__(self) -> None:
        self._sums: list[int] = []
        self._sum = self._filled = 0

    def update(self, content: bytes | memoryview) -> None:
        """Take the next piece, of any length."""
        rest = memoryview(content).cast("B")
        while len(rest):
            part = rest[: BLOCK_BYTES - self._filled]
            self._sum = crc32(part, self._sum)
            self._filled += len(part)
            if self._filled == BLOCK_BYTES:
                self._sums.append(self._sum)
                self._sum = self._filled = 0
            rest = rest[len(part) :]

    def result(self) -> list[int]:
        """One sum for each block; the last block may be shorter."""
        return [*self._sums, self._sum] if self._filled else list(self._sums)


def file_sums(file: BinaryIO, start: int) -> list[int]:
    """The sum of the first ``start`` bytes of an open file, then the sums of the later blocks."""
    descriptor = file.fileno()
    places = range(start, os.fstat(descriptor).st_size, BLOCK_BYTES)

    def block(place: int) -> int:
        return crc32(os.pread(descriptor, BLOCK_BYTES, place))

    head = crc32(os.pread(descriptor, start, 0))
    if len(places) < 2:
        return [head, *map(block, places)]
    with ThreadPoolExecutor(processors(), "checksum") as pool:
        return [head, *pool.map(block, places)]


def sealed(content: Mapping[str, Any]) -> dict[str, Any]:
    """``content`` with the SHA-256 of its JSON, for a file that ``unsealed`` reads."""
    return {**content, _SEAL: _seal(content)}


def unsealed(text: bytes) -> dict[str, Any]:
    """The content of a sealed JSON text; white space does not count.

    Raises:
        ValueError: the text is damaged, or was never sealed.
    """
    content: dict[str, Any] = json.loads(text)
    if not isinstance(content, dict) or content.pop(_SEAL, None) != _seal(content):
        raise ValueError("the seal is not that of the content")
    return content


def _seal(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


_SETTLED_NS = 2_000_000_000  # clocks of file systems are coarse: a younger file may change unseen


def file_digest(path: str | os.PathLike[str], cache_dir: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file's content, as 64 hexadecimal digits.

    It is kept under ``cache_dir`` and trusted while the file's size, inode and both of its times
    are the same. ``ctime`` cannot be set back, so a changed file with its old ``mtime`` is noticed.

    Raises:
        DataError: the file cannot be read, or changes meanwhile.
    """
    path = Path(path)
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:32]
    note = Path(cache_dir) / "digests" / f"{name}.json"
    now = time.time_ns()
    try:
        with path.open("rb") as file:
            before = file_identity(file.fileno())
            if known := _recall(note, before):
                return known
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            after = file_identity(file.fileno())
    except OSError as error:
        raise DataError(unreadable(path, error)) from None
    if before != after:
        raise DataError(f"{path}: changed while it was read; run again when it is complete")
    if settled(before, now):
        with suppress(OSError, OutputError):  # a cache that cannot be written costs only time
            note.parent.mkdir(parents=True, exist_ok=True)
            content = sealed({"path": str(path.resolve()), "digest": digest, **before})
            write_whole(note, json.dumps(content, indent=1))
    return digest


def settled(identity: dict[str, int], now: int) -> bool:
    """Whether the file is so old that its times show every later change; ``now`` in ns."""
    return max(identity["mtime_ns"], identity["ctime_ns"]) < now - _SETTLED_NS


def file_identity(descriptor: int) -> dict[str, int]:
    """Numbers that differ between files, and for one file before and after a change.

    Raises:
        OSError: it is not a regular file.
    """
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OSError("not a regular file")
    return {
        "size": status.st_size,
        "mtime_ns": status.st_mtime_ns,
        "ctime_ns": status.st_ctime_ns,
        "inode": status.st_ino,
        "device": status.st_dev,
    }


def _recall(note: Path, identity: dict[str, int]) -> str | None:
    try:
        known = unsealed(note.read_bytes())
    except (OSError, ValueError):  # missing, or damaged
        return None
    return str(known["digest"]) if identity.items() <= known.items() else None
