"""Arrays kept on disk: built once, then memory-mapped by every later run.

An entry is a folder ``features.npy labels.npy offsets.npy qids.npy meta.json``. It is written as
``NAME.tmp`` beside its place and renamed when complete, by one process at a time (``NAME.lock``,
which the system frees when a process is killed). So an entry is there whole or not at all.

``meta.json`` holds checksums of the arrays and is sealed itself. The small arrays are checked
whenever an entry is opened, the features when a process first uses them: a command that only counts
or compares lists need not read gigabytes. Other files of ``cache_dir`` are never touched.
"""

import hashlib
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

from ltr.data.checksums import file_identity, file_sums, settled, unsealed
from ltr.data.lists import Columns, Floats, Lists
from ltr.data.lists_writer import (
    ARRAYS,
    FILES,
    FORMAT_VERSION,
    META,
    OPTIONAL,
    ListsWriter,
    writing,
)
from ltr.errors import DataError
from ltr.whole import sync_folder

log = logging.getLogger(__name__)

Build = Callable[[ListsWriter], None]

_NAME = re.compile(r"[A-Za-z0-9-]{0,48}-[0-9a-f]{16}")  # of an entry
_checked: dict[Path, dict[str, int]] = {}  # the files of features that this process has checked


def cached_lists(
    cache_dir: str | os.PathLike[str], key: str, build: Build, *, width: int | None
) -> Lists:
    """Open the entry ``key``; build it first where it is missing or damaged.

    Args:
        cache_dir: the folder of all entries, created where it is missing.
        key: names everything that the arrays depend on; any text.
        build: appends blocks of rows to the writer and calls its ``finish`` once.
        width: number of features; None: the widest block's.

    Returns:
        Lists with features and labels mapped read-only. Damaged features are noticed, and built
        again, when they are first used.

    Raises:
        DataError: the cache cannot be written; nothing is left behind. Also the errors of
            ``build``.
    """
    entry = _entry(cache_dir, key)
    lists = _opened(entry, key, build, width, whole=False)
    return _CheckedAtUse(lists, lambda: _opened(entry, key, build, width, whole=True).features)


def forget(cache_dir: str | os.PathLike[str], key: str) -> None:
    """Remove the entry ``key``; arrays of it that are open stay readable."""
    entry = _entry(cache_dir, key)
    with _locked(entry), writing(entry.parent):
        _remove(entry)


def _entry(cache_dir: str | os.PathLike[str], key: str) -> Path:
    readable = re.sub(r"[^A-Za-z0-9]+", "-", key)[:48].strip("-")
    name = f"{readable}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    return Path(str(cache_dir)) / name  # a name such as 2024 is a number in YAML


def forget_checks() -> None:
    """Have this process check all features again at their next use."""
    _checked.clear()


class _CheckedAtUse(Lists):
    """Lists that call ``checked`` for their features at the first use."""

    def __init__(self, lists: Lists, checked: Callable[[], Floats]) -> None:
        self.__dict__.update(vars(lists), _width=lists.width, _checked=checked)
        del self.__dict__["features"]

    @cached_property
    def features(self) -> Floats:
        checked: Callable[[], Floats] = self.__dict__["_checked"]
        return checked()

    @property
    def width(self) -> int:
        return int(self.__dict__["_width"])


def _opened(entry: Path, key: str, build: Build, width: int | None, *, whole: bool) -> Lists:
    """Map an entry, built first where it is not sound; ``whole``: check the features too."""
    lists = _open(entry, key, width, whole=whole)
    if lists is not None:
        return lists
    with _locked(entry):
        lists = _open(entry, key, width, whole=whole)  # another process may have built it meanwhile
        if lists is None:
            _build(entry, key, build, width)
            lists = _open(entry, key, width, whole=whole)
    if lists is not None:
        return lists
    raise DataError(f"the cache entry {entry} cannot be read back; set cache_dir=DIR elsewhere")


def _open(entry: Path, key: str, width: int | None, *, whole: bool) -> Lists | None:
    """Map an entry; None if it is missing or not as ``ListsWriter`` left it."""
    try:
        meta = unsealed((entry / META).read_bytes())
        if (meta["version"], meta["key"]) != (FORMAT_VERSION, key):
            return None
        arrays: dict[str, NDArray[Any]] = {}
        for name in [*ARRAYS, *(name for name in OPTIONAL if name in meta["sums"])]:
            sums = meta["sums"][name] if whole or name != "features" else None
            arrays[name] = _mapped(entry / f"{name}.npy", sums)
        lists = Lists(
            features=arrays["features"],
            labels=arrays["labels"],
            offsets=np.array(arrays["offsets"]),
            qids=np.array(arrays["qids"]),
            digest=str(meta["digest"]),
            missing=int(meta["missing"]),
            columns=None if (state := meta["columns"]) is None else Columns.from_state(state),
            weights=arrays.get("weights"),
            rows=arrays.get("rows"),
        )
        sound = (
            lists.features.dtype == lists.labels.dtype == np.float32
            and lists.features.shape == (lists.items, lists.width if width is None else width)
            and lists.qids.shape == (len(lists),)
            and (lists.weights is None or lists.weights.shape == (len(lists),))
            and (lists.rows is None or lists.rows.shape == (lists.items,))
            and (lists.columns is None or len(lists.columns.names) == lists.width)
            and (lists.offsets[0], lists.offsets[-1]) == (0, lists.items)
            and bool((lists.lengths > 0).all())
        )
    except Exception:  # over a damaged file NumPy and json raise many kinds
        return None
    return lists if sound else None


def _mapped(path: Path, sums: list[int] | None) -> NDArray[Any]:
    """The array of an ``.npy`` file, compared with ``sums``.

    Features that were found sound are recognised by the times of their file, and not read again.

    Raises:
        ValueError: it is damaged.
    """
    with path.open("rb") as file:
        if np.lib.format.read_magic(file) != (1, 0):
            raise ValueError("another format")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        start = file.tell()
        # A plain view of the map: slicing a memmap costs several times as much.
        array = np.asarray(np.memmap(file, dtype, "r", start, shape))
        identity, now = file_identity(file.fileno()), time.time_ns()
        if identity["size"] != start + array.nbytes:
            raise ValueError("another size")
        if sums is not None and _checked.get(path) != identity:
            if file_sums(file, start) != sums:
                raise ValueError("other sums")
            if path.name == "features.npy" and settled(identity, now):
                _checked[path] = identity
    return array


def _build(entry: Path, key: str, build: Build, width: int | None) -> None:
    """Write the entry and move it into its place; its lock is held."""
    temporary = entry.with_name(f"{entry.name}.tmp")
    with writing(entry.parent):
        for leftover in entry.parent.glob("*.tmp"):
            if leftover != temporary and _NAME.fullmatch(leftover.stem) and _is_ours(leftover):
                with suppress(OSError), FileLock(leftover.with_suffix(".lock"), timeout=0):
                    _remove(leftover)  # a Timeout, its writer lives, is an OSError too
        _remove(temporary)  # its lock is held, so its writer is dead
        temporary.mkdir()
    writer = ListsWriter(temporary, key, width)
    try:
        build(writer)
        if not writer.finished:
            raise RuntimeError("build has not called finish")
        with writing(entry.parent):
            sync_folder(temporary)
            if entry.exists():
                log.warning("the cache entry %s was damaged or outdated and is made again", entry)
                _remove(entry)
            temporary.rename(entry)
            sync_folder(entry.parent)
    except BaseException:
        writer.close()
        with suppress(OSError, DataError):
            _remove(temporary)
        raise


def _is_ours(folder: Path) -> bool:
    """Whether it is a folder with files of ``ListsWriter`` and nothing else."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    return all(path.name in FILES and not path.is_dir() for path in folder.iterdir())


def _remove(folder: Path) -> None:
    """Remove the folder of an entry if it is there; refuse one that holds other files."""
    if not os.path.lexists(folder):
        return
    if not _is_ours(folder):
        raise DataError(
            f"{folder} holds files that the cache did not write; move it or set cache_dir=DIR"
        )
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()


@contextmanager
def _locked(entry: Path) -> Iterator[None]:
    """Hold the lock of an entry; wait for a process that has it."""
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
