"""Write files and folders completely or not at all, even if the process is killed or the disk is
full.
"""

import fcntl
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ltr.errors import OutputError

if TYPE_CHECKING:
    import pandas as pd

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf)", re.ASCII)


def without_nan(content: Any) -> Any:
    """Convert ``content`` to what JSON can hold: NaN becomes null, an infinity becomes its name.

    >>> without_nan({"map": float("nan"), "sigma": float("inf"), "folds": (1, 2)})
    {'map': None, 'sigma': 'Infinity', 'folds': [1, 2]}
    """
    return json.loads(
        json.dumps(content), parse_constant=lambda name: None if name == "NaN" else name
    )


def atomic_write(path: Path, content: bytes | str | Callable[[BinaryIO], object]) -> None:
    """Write ``content`` to ``path`` in one step: readers see the old file or the complete new one.

    The content is written to ``.part-NAME`` in the same folder, synced to the disk, and then
    renamed. The part file is locked: another writer of the same file waits. If a writer is killed,
    the next writer reuses its part file.

    Args:
        path: the file to write.
        content: bytes, text, or a function that writes to the open binary file it is given.

    Raises:
        OutputError: the file cannot be written; ``path`` is unchanged, and no part file is left.
            Exceptions raised by ``content`` itself pass through.
    """
    part = path.with_name(f".part-{path.name[:40]}")  # a name has at most 255 bytes
    with writing(path):
        file = _locked(part)
    try:
        with writing(path):
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
            part.replace(path)
            sync_folder(path.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    finally:
        with suppress(OSError):  # buffered data may not fit on the disk
            file.close()


def _locked(path: Path, *, wait: bool = True) -> BinaryIO:
    """Return ``path`` opened for writing, locked and empty. If another process has locked it, wait,
    or raise ``BlockingIOError`` unless ``wait``.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    while True:
        file = os.fdopen(os.open(path, flags, 0o666), "wb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        except OSError:
            file.close()
            raise
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                file.truncate()
                return file
        file.close()  # the previous writer has renamed or removed it


@contextmanager
def writing_folder(folder: Path) -> Iterator[Path]:
    """Context that writes ``folder`` in one step: the body fills the new folder that it gets, which
    is then renamed to ``folder``.

    The new folder is beside ``folder``, so that relative paths from one are right from the other.
    It is locked: another writer of the same folder waits. If the body raises an exception, it is
    removed. If the process is killed, the next process that writes a folder there removes it.

    Args:
        folder: the folder to write; it must be missing or empty.

    Raises:
        OutputError: the folder cannot be written. Exceptions of the body pass through.
    """
    part = folder.with_name(f".part-{folder.name[:40]}-folder")
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        for left in folder.parent.glob(".part-*-folder"):
            _remove_if_left(left)
        lock = _locked(_lock_of(part))
    try:
        with writing(folder):
            if part.exists():  # its writer was killed while this one waited
                shutil.rmtree(part)
            part.mkdir()
        yield part
        with writing(folder):
            _sync_files(part)
            part.rename(folder)
            sync_folder(folder.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)
        _lock_of(part).unlink(missing_ok=True)
        lock.close()


def _lock_of(part: Path) -> Path:
    """Return the file that the writer of the folder ``part`` locks."""
    return part.with_name(f"{part.name}.lock")


def _remove_if_left(part: Path) -> None:
    """Remove the folder ``part`` if its writer was killed; leave it alone if that is not known."""
    with suppress(OSError):
        lock = _locked(_lock_of(part), wait=False)
        try:
            shutil.rmtree(part)
        finally:
            _lock_of(part).unlink(missing_ok=True)
            lock.close()


def _sync_files(folder: Path) -> None:
    """Sync all files and folders in ``folder`` to the disk: a full one may show itself only now."""
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            sync_folder(path)
        elif path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> None:
    """Write ``rows`` as a CSV file with the columns ``names``, by default all, see ``write_frame``.

    A row without one of the columns gets an empty cell.
    """
    import pandas as pd  # slow to import

    write_frame(path, pd.DataFrame(list(rows), columns=list(names) or None, dtype=object))


def write_frame(path: Path, frame: "pd.DataFrame", *, guard: bool = True) -> None:
    """Write ``frame`` as CSV in one step (``atomic_write``), without its index.

    If the file name ends in ``.tsv`` or ``.tsv.gz``, the separator is a tab. If it ends in ``.gz``,
    the file is compressed with gzip. With ``guard``, texts that a spreadsheet would run as a
    formula are quoted (``safe_cell``); ids and names of the user are written without it, because
    they must match those in the user's other files.
    """
    safe = _guarded(frame) if guard else frame
    knobs: dict[str, Any] = {"index": False, "lineterminator": "\n"}
    if path.name.endswith((".tsv", ".tsv.gz")):
        knobs["sep"] = "\t"
    if path.suffix == ".gz":
        knobs["compression"] = {"method": "gzip", "mtime": 1}  # no time stamp
    atomic_write(path, lambda file: safe.to_csv(file, **knobs))


def _guarded(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return ``frame`` with ``safe_cell`` of every text, names of columns included."""
    import pandas as pd  # slow to import

    safe = frame.rename(columns=safe_cell)
    for name in [name for name in safe if safe[name].dtype.kind in "OU"]:  # U: Arrow's text
        cells = map(safe_cell, safe[name].to_numpy(object))
        safe[name] = pd.Series(cells, safe.index, dtype=object)
    return safe


def make_folder(key: str, folder: Path) -> None:
    """Create ``folder``, which the user set with ``key=``; raise ``OutputError`` if that fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{key}={folder} cannot be written ({error.strerror}): give another folder"
        ) from error


def safe_cell(value: Any) -> Any:
    """Return ``value`` for a CSV file: text that a spreadsheet would run as a formula gets a ``'``.

    >>> safe_cell("=1+2"), safe_cell("@SUM(A1)"), safe_cell("-1.5e-3"), safe_cell(-1.5)
    ("'=1+2", "'@SUM(A1)", '-1.5e-3', -1.5)
    """
    if isinstance(value, str) and value[:1] in _FORMULA and not _NUMBER.fullmatch(value):
        return "'" + value
    return value


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an ``OSError`` in the block into an ``OutputError`` about ``path``."""
    try:
        yield
    except OSError as error:
        what = f"{path} cannot be written ({error.strerror or error}) and is as it was"
        raise OutputError(
            f"{what}: free some space, or choose a place that can be written"
        ) from error


def sync_folder(folder: Path) -> None:
    """Sync the entries of ``folder`` to the disk, so that a rename there is durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
