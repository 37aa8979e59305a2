"""SHA-256 of files, remembered, so that a later run need not read gigabytes to know them again."""

import hashlib
import json
import os
import stat
import time
from contextlib import suppress
from pathlib import Path

from ltr.data.checksums import sealed, unsealed
from ltr.data.letor import unreadable
from ltr.errors import DataError, OutputError
from ltr.whole import write_whole

_SETTLED_NS = 2_000_000_000  # clocks of file systems are coarse: a younger file may change unseen


def file_digest(path: str | os.PathLike[str], cache_dir: str | os.PathLike[str]) -> str:
    """The SHA-256 of a file's content, as 64 hexadecimal digits.

    It is remembered under ``cache_dir`` and believed while the file's size, inode and both of its
    times are the same. ``ctime`` cannot be set back, so a changed file with its old ``mtime`` is
    seen as well.

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
            known = _recall(note, before)
            if known is not None:
                return known
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            after = file_identity(file.fileno())
    except OSError as error:
        raise DataError(unreadable(path, error)) from None
    if before != after:
        raise DataError(f"{path}: changed while it was read; run again when it is complete")
    if settled(before, now):
        with suppress(OSError, OutputError):  # a cache that cannot be written costs time, no more
            _remember(note, sealed({"path": str(path.resolve()), "digest": digest, **before}))
    return digest


def settled(identity: dict[str, int], now: int) -> bool:
    """Whether the file is so old that its times tell every later change; ``now`` in ns."""
    return max(identity["mtime_ns"], identity["ctime_ns"]) < now - _SETTLED_NS


def file_identity(descriptor: int) -> dict[str, int]:
    """What tells an open file from any other, and from itself after a change.

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
        digest = known["digest"]
        same = all(known[name] == value for name, value in identity.items())
    except (OSError, ValueError, KeyError, TypeError):  # not there, or damaged
        return None
    return digest if same and isinstance(digest, str) and len(digest) == 64 else None


def _remember(note: Path, content: dict[str, int | str]) -> None:
    note.parent.mkdir(parents=True, exist_ok=True)
    write_whole(note, json.dumps(content, indent=1))
