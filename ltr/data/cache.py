"""Arrays kept on disk: made once, then memory-mapped by every later run.

An entry is a folder ``features.npy labels.npy offsets.npy qids.npy meta.json``. It is written next
to its place, as ``NAME.tmp``, and renamed when complete, by one process at a time (``NAME.lock``;
the lock of a killed process is free). So an entry is there whole or not at all.
"""

import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from ltr.data.lists import Lists
from ltr.data.lists_writer import ARRAYS, FORMAT_VERSION, ListsWriter, writing
from ltr.errors import DataError

log = logging.getLogger(__name__)


def cached_lists(
    cache_dir: str | os.PathLike[str],
    key: str,
    build: Callable[[ListsWriter], None],
    *,
    width: int | None,
) -> Lists:
    """Open the entry ``key``, or have it built first. A damaged entry is built again.

    Args:
        cache_dir: the folder of all entries, made if it is not there.
        key: says all that the arrays depend on; any text.
        build: appends blocks of rows to the writer and calls its ``finish`` once.
        width: number of features; None: the widest block's.

    Returns:
        Lists with features and labels mapped read-only.

    Raises:
        DataError: the cache cannot be written; nothing is left behind. Also what ``build`` raises.
    """
    cache_dir = Path(cache_dir)
    readable = re.sub(r"[^A-Za-z0-9]+", "-", key)[:48].strip("-")
    entry = cache_dir / f"{readable}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    lists = _open(entry, key, width)
    if lists is not None:
        return lists
    with _locked(entry):
        lists = _open(entry, key, width)  # another process may have built it meanwhile
        if lists is None:
            _build(entry, key, build, width)
            lists = _open(entry, key, width)
    if lists is None:
        raise DataError(f"the cache entry {entry} cannot be read back; set cache_dir=DIR elsewhere")
    return lists


def _open(entry: Path, key: str, width: int | None) -> Lists | None:
    """Map an entry; None if it is not there or not as ``ListsWriter`` left it."""
    try:
        meta = json.loads((entry / "meta.json").read_bytes())
        if (meta["version"], meta["key"]) != (FORMAT_VERSION, key):
            return None
        arrays: dict[str, NDArray[Any]] = {}
        for name in ARRAYS:
            path = entry / f"{name}.npy"
            if path.stat().st_size != meta["bytes"][name]:
                return None
            # A plain view of the map: slicing a memmap costs several times as much.
            arrays[name] = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        lists = Lists(
            features=arrays["features"],
            labels=arrays["labels"],
            offsets=np.array(arrays["offsets"]),
            qids=np.array(arrays["qids"]),
            digest=str(meta["digest"]),
            missing=int(meta["missing"]),
        )
        sound = (
            lists.features.dtype == lists.labels.dtype == np.float32
            and lists.features.shape == (lists.items, lists.width if width is None else width)
            and lists.qids.shape == (len(lists),)
            and (lists.offsets[0], lists.offsets[-1]) == (0, lists.items)
            and bool((lists.lengths > 0).all())
        )
    except Exception:  # NumPy and json raise many kinds over a damaged file; all mean the same here
        return None
    return lists if sound else None


def _build(entry: Path, key: str, build: Callable[[ListsWriter], None], width: int | None) -> None:
    """Have the entry written and put into its place; its lock is held."""
    temporary = entry.with_name(f"{entry.name}.tmp")
    with writing(entry.parent):
        _remove_leftovers(temporary)
        temporary.mkdir()
    writer = ListsWriter(temporary, key, width)
    try:
        build(writer)
        if not writer.finished:
            raise RuntimeError("build has not called finish")
        with writing(entry.parent):
            _sync_folder(temporary)
            if entry.exists():
                log.warning("the cache entry %s is damaged and was made again", entry)
                shutil.rmtree(entry)
            temporary.rename(entry)
            _sync_folder(entry.parent)
    except BaseException:
        writer.close()
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _remove_leftovers(own: Path) -> None:
    """Remove what killed writers left: ``own``, whose lock is held, and any whose lock is free."""
    if own.exists():
        shutil.rmtree(own)
    for leftover in own.parent.glob("*.tmp"):
        with suppress(OSError), FileLock(leftover.with_suffix(".lock"), timeout=0):
            shutil.rmtree(leftover)  # a Timeout, its writer lives, is an OSError too


@contextmanager
def _locked(entry: Path) -> Iterator[None]:
    """Hold the lock of an entry, after waiting for a process that has it."""
    with writing(entry.parent):
        entry.parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(entry.with_name(f"{entry.name}.lock"))
        try:
            lock.acquire(timeout=0)
        except Timeout:
            log.info("waiting for another run that is writing %s", entry)
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
