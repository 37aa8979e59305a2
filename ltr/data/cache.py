"""Arrays kept on disk: built once, then memory-mapped by every later run.

An entry is a folder of ``.npy`` files and ``meta.json``, with a hash of each that is checked when a
process first opens it. It is written as ``NAME.tmp``, by one process at a time (``NAME.lock``,
which the system frees when a process is killed), and renamed: an entry is there whole or not.
"""

import hashlib
import json
import logging
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import xxhash
from filelock import FileLock
from numpy.typing import NDArray

from ltr.atomic import atomic_write, sync_folder
from ltr.data.lists import Columns, Lists
from ltr.errors import DataError, OutputError

log = logging.getLogger(__name__)
Place = str | os.PathLike[str]

FORMAT_VERSION = 6
META = "meta.json"
_ARRAYS = ("features", "labels", "offsets", "qids", "weights", "rows")  # the last two may be None
_NAME = re.compile(r"[A-Za-z0-9-]{0,48}-[0-9a-f]{16}")  # of an entry
_checked: dict[Path, dict[str, int]] = {}  # the array files that this process has checked
_SETTLED_NS = 2_000_000_000  # clocks of file systems are coarse: a younger file may change unseen


def cached_lists(cache_dir: Place, key: str, build: Callable[[Path], Lists]) -> Lists:
    """Open the entry ``key``, features and labels mapped read-only; build it where it is not whole.

    ``key`` is a text of everything that the arrays depend on; ``build`` makes the lists and writes
    their features to the ``.npy`` file it is given. ``DataError``: the cache cannot be written.
    """
    readable = re.sub(r"[^A-Za-z0-9]+", "-", key)[:48].strip("-")
    name = f"{readable}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    entry = Path(str(cache_dir)) / name  # a name such as 2024 is a number in YAML
    if (lists := _open(entry, key)) is not None:
        return lists
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{entry}.lock"):  # waits for another process that is building it
            if (lists := _open(entry, key)) is None:
                _build(entry, key, build)
                lists = _open(entry, key)
    except OSError as error:
        raise DataError(
            f"cannot write the cache {cache_dir}: {error.strerror or error}; "
            "free space there or set cache_dir=DIR elsewhere"
        ) from error
    if lists is None:
        raise DataError(f"the cache entry {entry} cannot be read back; set cache_dir=DIR elsewhere")
    return lists


def _open(entry: Path, key: str) -> Lists | None:
    """Map an entry; None if it is missing or not as ``_build`` left it."""
    try:
        meta = unsealed((entry / META).read_bytes())
        if (meta["version"], meta["key"]) != (FORMAT_VERSION, key):
            return None
        arrays = {name: _mapped(entry / f"{name}.npy", one) for name, one in meta["hash"].items()}
        for name in ("offsets", "qids"):
            arrays[name] = np.array(arrays[name])
        columns = None if (state := meta["columns"]) is None else Columns.from_state(state)
        return Lists(
            **arrays, digest=str(meta["digest"]), missing=int(meta["missing"]), columns=columns
        )
    except Exception:  # over a damaged file NumPy and json raise many kinds
        return None


def _mapped(path: Path, expected: str) -> NDArray[Any]:
    """The array of an ``.npy`` file whose hash is ``expected``; ``ValueError`` if it is damaged."""
    with path.open("rb") as file:
        identity, now = _identity(file.fileno()), time.time_ns()
    if _checked.get(path) != identity:
        if _hash(path) != expected:
            raise ValueError("another hash")
        if _settled(identity, now):
            _checked[path] = identity
    # A plain view of the map: slicing a memmap costs several times as much.
    return np.asarray(np.load(path, mmap_mode="r"))


def _hash(path: Path) -> str:
    return xxhash.xxh3_128_hexdigest(np.memmap(path, np.uint8, "r").data)


def _build(entry: Path, key: str, build: Callable[[Path], Lists]) -> None:
    """Write the entry and move it into its place; its lock is held."""
    temporary = entry.with_name(f"{entry.name}.tmp")
    for leftover in entry.parent.glob("*.tmp"):
        if leftover != temporary and _NAME.fullmatch(leftover.stem):
            with suppress(OSError), FileLock(leftover.with_suffix(".lock"), timeout=0):
                shutil.rmtree(leftover)  # a Timeout, its writer lives, is an OSError too
    if temporary.exists():
        shutil.rmtree(temporary)  # its lock is held, so its writer is dead
    temporary.mkdir()
    try:
        lists = build(temporary / "features.npy")
        hashes = dict[str, str]()
        for name in _ARRAYS:
            file, array = temporary / f"{name}.npy", getattr(lists, name)
            if array is None:
                continue
            if name != "features":
                np.save(buffer := BytesIO(), array)  # a full disk is an error of the system's
                _write_synced(file, buffer.getvalue())
            hashes[name] = _hash(file)
        meta = {
            "version": FORMAT_VERSION,
            "key": key,
            "digest": lists.digest,
            "missing": lists.missing,
            "columns": None if lists.columns is None else lists.columns.state(),
            "hash": hashes,
        }
        _write_synced(temporary / META, sealed(meta).encode())
        sync_folder(temporary)
        if entry.exists():
            log.warning("the cache entry %s was damaged or outdated and is made again", entry)
            shutil.rmtree(entry)
        temporary.rename(entry)
        sync_folder(entry.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sealed(content: Mapping[str, Any]) -> str:
    """``content`` as JSON, behind a line with its hash."""
    text = json.dumps(content, sort_keys=True, indent=1)
    return f"{xxhash.xxh3_128_hexdigest(text.encode())}\n{text}"


def unsealed(text: bytes) -> dict[str, Any]:
    """The content of a sealed text; ``ValueError`` where it is damaged, or was never sealed."""
    seal, _, content = text.partition(b"\n")
    if seal.decode() != xxhash.xxh3_128_hexdigest(content):
        raise ValueError("the seal is not that of the content")
    return json.loads(content)


def file_digest(path: Place, cache_dir: Place) -> str:
    """The SHA-256 of a file's content; ``DataError``: it cannot be read, or changes meanwhile.

    It is kept under ``cache_dir`` and trusted while the file's size, inode and both of its times
    are the same. ``ctime`` cannot be set back, so a changed file with its old ``mtime`` is noticed.
    """
    path = Path(path)
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:32]
    note, now = Path(cache_dir) / "digests" / f"{name}.json", time.time_ns()
    try:
        with path.open("rb") as file:
            before = _identity(file.fileno())
            with suppress(OSError, ValueError):
                known = unsealed(note.read_bytes())
                if known["identity"] == before:
                    return str(known["digest"])
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            after = _identity(file.fileno())
    except OSError as error:
        raise DataError(unreadable(path, error)) from None
    check_unchanged(path, str(before), str(after))
    if _settled(before, now):
        with suppress(OSError, OutputError):  # a cache that cannot be written costs only time
            note.parent.mkdir(parents=True, exist_ok=True)
            content = {"path": str(path.resolve()), "digest": digest, "identity": before}
            atomic_write(note, sealed(content))
    return digest


def check_unchanged(path: Path, before: str, after: str) -> None:
    """Raise ``DataError`` where the digests of a file before and after it was read differ."""
    if before != after:
        raise DataError(f"{path}: changed while it was read; run again when it is complete")


def unreadable(path: Path, error: OSError) -> str:
    """Why a file could not be read, on one line."""
    why = "a folder" if path.is_dir() else f"cannot be read, {error.strerror or error}"
    return f"{path}: {why}; expected a file"


def _settled(identity: dict[str, int], now: int) -> bool:
    """Whether the file is so old that its times show every later change; ``now`` in ns."""
    return max(identity["st_mtime_ns"], identity["st_ctime_ns"]) < now - _SETTLED_NS


def _identity(descriptor: int) -> dict[str, int]:
    """Numbers that differ between files, and for one file before and after a change."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OSError("not a regular file")
    names = ("st_size", "st_mtime_ns", "st_ctime_ns", "st_ino", "st_dev")
    return {name: getattr(status, name) for name in names}
