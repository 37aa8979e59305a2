"""Checksums that tell a damaged file from a sound one: CRC-32 of blocks, and sealed JSON.

CRC-32 is the fastest sum of Python's own that sees every flipped bit and every damage of up to 32
neighbouring bits in a block; other damage goes unseen once in four billion times. It is no guard
against a forger.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO
from zlib import crc32

from ltr.data.processors import processors

BLOCK_BYTES = 4 << 20
_SEAL = "seal"


class BlockSums:
    """The CRC-32 of each ``BLOCK_BYTES`` of what is passed to ``update``, piece by piece."""

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
        """One sum for each block, the last of which may be shorter."""
        return [*self._sums, self._sum] if self._filled else list(self._sums)


def file_sums(file: BinaryIO, start: int) -> list[int]:
    """The sum of the first ``start`` bytes of an open file, then those of the blocks of the rest.

    Raises:
        OSError: the file cannot be read.
    """
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
    """What ``sealed`` was given, from its JSON; white space does not count.

    Raises:
        ValueError: the text is damaged, or was never sealed.
    """
    content: dict[str, Any] = json.loads(text)
    if not isinstance(content, dict) or content.pop(_SEAL, None) != _seal(content):
        raise ValueError("the seal is not that of the content")
    return content


def _seal(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
