"""The cache of arrays on disk: built once, then memory-mapped by every later run.

An entry is a folder with ``.npy`` files and ``meta.json``. This file holds a hash of each array,
which is checked when a process first opens the array. Only one process at a time writes an entry:
it holds ``NAME.lock``, which the system releases if the process is killed, and writes into the
folder ``NAME.tmp``. At the end it renames the folder, so an entry is either complete or absent.
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
StrPath = str | os.PathLike[str]

FORMAT_VERSION = 8
META = "meta.json"
_ARRAYS = ("features", "labels", "offsets", "qids", "weights", "rows")  # the last two may be None
_NAME = re.compile(r"[A-Za-z0-9-]{0,48}-[0-9a-f]{16}")  # the name of an entry
_checked: dict[Path, dict[str, int]] = {}  # array files whose hash this process has checked
# The clocks of file systems are coarse: if a file is younger than this, its times might not show a
# change.
_STABLE_NS = 2_000_000_000


def cached_lists(cache_dir: StrPath, key: str, build: Callable[[Path], Lists]) -> Lists:
    """Open the cache entry ``key``; build it first if it is missing, damaged or outdated.

    Args:
        cache_dir: the folder of all entries.
        key: a string that contains everything on which the arrays depend.
        build: makes the lists, and writes their features to the ``.npy`` path that it receives.

    Returns:
        The lists; their large arrays are memory-mapped and read-only.

    Raises:
        DataError: the entry cannot be written, or cannot be read back.
    """
    readable = re.sub(r"[^A-Za-z0-9]+", "-", key)[:48].strip("-")
    name = f"{readable}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    entry = Path(str(cache_dir)) / name  # a name such as 2024 is a number in YAML
    lists = _open(entry, key)
    if lists is not None:
        return lists
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{entry}.lock"):  # waits for another process that is building it
            lists = _open(entry, key)
            if lists is None:
                _build(entry, key, build)
                lists = _open(entry, key)
    except OSError as error:
        raise DataError(
            f"cannot write the cache {cache_dir}: {error.strerror or error}; "
            "free space there, or set cache_dir to a folder on another disk"
        ) from error
    if lists is None:
        raise DataError(
            f"the cache entry {entry} was written but cannot be read back; set cache_dir to a "
            "folder on another disk"
        )
    return lists


def _open(entry: Path, key: str) -> Lists | None:
    """Return the memory-mapped lists of an entry; None if it is missing, damaged or outdated."""
    try:
        meta = unsealed((entry / META).read_bytes())
        if (meta["version"], meta["key"]) != (FORMAT_VERSION, key):
            return None
        arrays = {
            name: _map_array(entry / f"{name}.npy", expected_hash)
            for name, expected_hash in meta["hash"].items()
        }
        for name in ("offsets", "qids"):
            arrays[name] = np.array(arrays[name])
        state = meta["columns"]
        columns = None if state is None else Columns.from_state(state)
        return Lists(
            **arrays,
            digest=str(meta["digest"]),
            missing=int(meta["missing"]),
            columns=columns,
            remarks=meta["remarks"],
        )
    except Exception:  # NumPy and json raise many kinds of errors for a damaged file
        return None


def _map_array(path: Path, expected_hash: str) -> NDArray[Any]:
    """Return the memory-mapped ``.npy`` file; raise ``ValueError`` if its hash differs."""
    with path.open("rb") as file:
        identity = _identity(file.fileno())
        opened_ns = time.time_ns()
    if _checked.get(path) != identity:
        if _hash(path) != expected_hash:
            raise ValueError(f"{path}: expected the hash {expected_hash}, got a different one")
        if _is_stable(identity, opened_ns):
            _checked[path] = identity
    # A plain view of the map: slicing a memmap costs several times as much.
    return np.asarray(np.load(path, mmap_mode="r"))


def _hash(path: Path) -> str:
    return xxhash.xxh3_128_hexdigest(np.memmap(path, np.uint8, "r").data)


def _build(entry: Path, key: str, build: Callable[[Path], Lists]) -> None:
    """Write the entry and move it into place; the caller holds its lock."""
    temporary = entry.with_name(f"{entry.name}.tmp")
    _remove_leftovers(entry.parent, temporary)
    if temporary.exists():
        shutil.rmtree(temporary)  # this process holds the lock, so the writer is dead
    temporary.mkdir()
    try:
        lists = build(temporary / "features.npy")
        hashes = _write_arrays(lists, temporary)
        meta = {
            "version": FORMAT_VERSION,
            "key": key,
            "digest": lists.digest,
            "missing": lists.missing,
            "columns": None if lists.columns is None else lists.columns.state(),
            "remarks": dict(lists.remarks),
            "hash": hashes,
        }
        _write_synced(temporary / META, sealed(meta).encode())
        sync_folder(temporary)
        if entry.exists():
            log.warning("the cache entry %s was damaged or outdated and was built again", entry)
            shutil.rmtree(entry)
        temporary.rename(entry)
        sync_folder(entry.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _remove_leftovers(cache_dir: Path, temporary: Path) -> None:
    """Remove the folders that killed processes left behind, except ``temporary``."""
    for leftover in cache_dir.glob("*.tmp"):
        if leftover != temporary and _NAME.fullmatch(leftover.stem):
            with suppress(OSError), FileLock(leftover.with_suffix(".lock"), timeout=0):
                shutil.rmtree(leftover)  # Timeout (its writer is alive) is an OSError too


def _write_arrays(lists: Lists, folder: Path) -> dict[str, str]:
    """Write the arrays of ``lists``, except the features; return the hash of each file."""
    hashes = dict[str, str]()
    for name in _ARRAYS:
        file = folder / f"{name}.npy"
        array = getattr(lists, name)
        if array is None:
            continue
        if name != "features":
            buffer = BytesIO()
            np.save(buffer, array)
            _write_synced(file, buffer.getvalue())  # plain writes raise OSError on a full disk
        hashes[name] = _hash(file)
    return hashes


def _write_synced(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def sealed(content: Mapping[str, Any]) -> str:
    """Return ``content`` as JSON, after a first line that holds the hash of the JSON."""
    text = json.dumps(content, sort_keys=True, indent=1)
    return f"{xxhash.xxh3_128_hexdigest(text.encode())}\n{text}"


def unsealed(text: bytes) -> dict[str, Any]:
    """Return the content that ``sealed`` wrote as ``text``.

    Raises ``ValueError`` if the hash differs.
    """
    seal, _, content = text.partition(b"\n")
    if seal.decode() != xxhash.xxh3_128_hexdigest(content):
        raise ValueError("the hash in the first line is not the hash of the content")
    return json.loads(content)


def file_digest(path: StrPath, cache_dir: StrPath) -> str:
    """Return the SHA-256 of a file's content.

    The hash is stored under ``cache_dir``, and reused as long as the file has the same size, inode,
    device, ``mtime`` and ``ctime``. A program can set ``mtime`` back but not ``ctime``, so every
    change is noticed.

    Raises:
        DataError: the file cannot be read, or changes while it is being read.
    """
    path = Path(path)
    name = hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:32]
    record = Path(cache_dir) / "digests" / f"{name}.json"
    started_ns = time.time_ns()
    try:
        with path.open("rb") as file:
            identity = _identity(file.fileno())
            with suppress(OSError, ValueError):
                stored = unsealed(record.read_bytes())
                if stored["identity"] == identity:
                    return str(stored["digest"])
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            final_identity = _identity(file.fileno())
    except OSError as error:
        raise DataError(unreadable(path, error)) from None
    check_unchanged(path, str(identity), str(final_identity))
    if _is_stable(identity, started_ns):
        with suppress(OSError, OutputError):  # a cache that cannot be written costs only time
            record.parent.mkdir(parents=True, exist_ok=True)
            content = {"path": str(path.resolve()), "digest": digest, "identity": identity}
            atomic_write(record, sealed(content))
    return digest


def check_unchanged(path: Path, first_digest: str, last_digest: str) -> None:
    """Raise ``DataError`` if the digests show that a file changed while it was being read."""
    if first_digest != last_digest:
        raise DataError(
            f"{path}: the file changed while it was being read; run again when it is complete"
        )


def unreadable(path: Path, error: OSError) -> str:
    """Return one line that says why a file could not be read."""
    reason = "is a folder" if path.is_dir() else f"cannot be read ({error.strerror or error})"
    return f"{path}: {reason}; expected a file"


def _is_stable(identity: dict[str, int], time_ns: int) -> bool:
    """Return whether a file was so old at ``time_ns`` that any later change alters its times."""
    return max(identity["st_mtime_ns"], identity["st_ctime_ns"]) < time_ns - _STABLE_NS


def _identity(descriptor: int) -> dict[str, int]:
    """Return the size, times, inode and device of an open file, which identify its version."""
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise OSError("not a regular file")
    names = ("st_size", "st_mtime_ns", "st_ctime_ns", "st_ino", "st_dev")
    return {name: getattr(status, name) for name in names}
