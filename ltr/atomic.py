"""Write files and folders completely or not at all.

This holds even if the process is killed or the disk is full.
"""

import fcntl
import json
import os
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ltr.errors import OutputError

if TYPE_CHECKING:
    import pandas as pd

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_PART = re.compile(r"\.part-.{0,40}-[0-9a-f]{8}", re.DOTALL)  # the names that _locked_part gives
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf)", re.ASCII)


def without_nan(content: Any) -> Any:
    """Return ``content`` for JSON: NaN becomes null, and an infinity becomes its name.

    >>> without_nan({"map": float("nan"), "sigma": float("inf"), "folds": (1, 2)})
    {'map': None, 'sigma': 'Infinity', 'folds': [1, 2]}
    """
    return json.loads(
        json.dumps(content), parse_constant=lambda name: None if name == "NaN" else name
    )


def atomic_write(path: Path, content: bytes | str | Callable[[BinaryIO], object]) -> None:
    """Write ``content`` to ``path``; readers see either the old file or the complete new file.

    The content is written to a new file ``.part-NAME-...`` in the same folder. This part file is
    synced to the disk, and then renamed. An existing part file is never opened, because it may
    belong to another user. If a writer is killed, the next writer in the folder removes its part
    file.

    Args:
        path: the file to write.
        content: bytes, a string, or a function that writes to the binary file that it receives.

    Raises:
        OutputError: the file cannot be written; ``path`` is unchanged, and no part file is left.
            Exceptions raised by ``content`` itself pass through.
    """
    with writing(path):
        remove_parts(path.parent)
        part_file, descriptor = _locked_part(path, folder=False)
    file = os.fdopen(descriptor, "wb")
    try:
        with writing(path):
            if callable(content):
                content(file)
            else:
                file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
            part_file.replace(path)
            sync_folder(path.parent)
    except BaseException:
        part_file.unlink(missing_ok=True)
        raise
    finally:
        with suppress(OSError):  # the disk may have no room for the rest of the buffer
            file.close()


def _locked_part(path: Path, *, folder: bool) -> tuple[Path, int]:
    """Create a new empty file, or folder if ``folder`` is true, in the folder of ``path``.

    Return its path and its descriptor, which holds a lock as long as this process is alive. No
    other process can have created it.
    """
    while True:
        # A file name has at most 255 bytes.
        part_path = path.with_name(f".part-{path.name[:40]}-{secrets.token_hex(4)}")
        if folder:
            part_path.mkdir()
        flags = os.O_DIRECTORY | os.O_NOFOLLOW if folder else os.O_RDWR | os.O_CREAT | os.O_EXCL
        try:
            descriptor = os.open(part_path, flags, 0o666)
        except FileNotFoundError:
            if not folder:
                raise
            continue  # another process has removed it as a leftover, before it was locked
        try:
            if _locks(descriptor) and _is_at(descriptor, part_path):
                return part_path, descriptor
        except OSError:
            _remove(part_path)
            os.close(descriptor)
            raise
        _remove(part_path)
        os.close(descriptor)


def remove_parts(folder: Path) -> None:
    """Remove the part files and part folders that this user's killed processes left in ``folder``.

    A part whose writer is alive is locked, and is not removed.
    """
    with suppress(OSError), os.scandir(folder) as entries:
        leftovers = [Path(entry) for entry in entries if _PART.fullmatch(entry.name)]
        for leftover in leftovers:
            with suppress(OSError):
                _remove_if_left(leftover)


def _remove_if_left(leftover: Path) -> None:
    descriptor = os.open(leftover, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        is_of_user = os.fstat(descriptor).st_uid == os.geteuid()
        if is_of_user and _locks(descriptor) and _is_at(descriptor, leftover):
            _remove(leftover)
    finally:
        os.close(descriptor)


def _locks(descriptor: int) -> bool:
    """Lock an open file or folder; return whether no other process has locked it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    """Return whether ``path`` is still the open file or folder, neither removed nor replaced."""
    try:
        return os.path.samestat(os.fstat(descriptor), path.lstat())
    except FileNotFoundError:
        return False


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def writing_folder(folder: Path) -> Iterator[Path]:
    """Context that yields a new folder, and at the end renames it to ``folder``.

    The body of the context fills the new folder. The two folders have the same parent, so relative
    paths stay valid after the renaming. If the body raises an exception, the new folder is removed.
    If the process is killed, the next process that writes into the same parent removes it.

    Args:
        folder: the folder to write; it must be missing or empty.

    Raises:
        OutputError: the folder cannot be written. Exceptions raised by the body pass through.
    """
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        remove_parts(folder.parent)
        new_folder, descriptor = _locked_part(folder, folder=True)
    try:
        try:
            yield new_folder
        except OutputError as error:  # about a file in the new folder
            text = str(error).replace(str(new_folder), str(folder))
            raise OutputError(text) from error.__cause__
        with writing(folder):
            _sync_files(new_folder)
            new_folder.rename(folder)
            sync_folder(folder.parent)
    finally:
        shutil.rmtree(new_folder, ignore_errors=True)
        os.close(descriptor)


@contextmanager
def filling(folder: Path) -> Iterator[Path]:
    """Context whose body fills the empty ``folder``; if the body raises, it is emptied again."""
    try:
        yield folder
    except BaseException:
        for path in folder.iterdir():
            with suppress(OSError):
                _remove(path)
        raise


def _sync_files(folder: Path) -> None:
    """Sync all files and folders in ``folder`` to the disk; a full disk may be noticed only now."""
    for path in [folder, *folder.rglob("*")]:
        if path.is_dir():
            sync_folder(path)
        elif path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> None:
    """Write ``rows`` as a CSV file with the columns ``names`` (default: all); see ``write_frame``.

    If a row lacks a column, its cell is empty.
    """
    import pandas as pd  # slow to import

    write_frame(path, pd.DataFrame(list(rows), columns=list(names) or None, dtype=object))


def write_frame(path: Path, frame: "pd.DataFrame", *, guard: bool = True) -> None:
    """Write ``frame`` as CSV, without its index, completely or not at all (``atomic_write``).

    If the file name ends in ``.tsv`` or ``.tsv.gz``, the separator is a tab. If it ends in ``.gz``,
    the file is compressed with gzip. If ``guard``, strings that a spreadsheet would run as a
    formula are quoted (``safe_cell``). The user's own ids and names are written with
    ``guard=False``, because they must match those in the user's other files.
    """
    written = _guarded(frame) if guard else frame
    options: dict[str, Any] = {"index": False, "lineterminator": "\n"}
    if path.name.endswith((".tsv", ".tsv.gz")):
        options["sep"] = "\t"
    if path.suffix == ".gz":
        options["compression"] = {"method": "gzip", "mtime": 1}  # no time stamp
    atomic_write(path, lambda file: written.to_csv(file, **options))


def _guarded(frame: "pd.DataFrame") -> "pd.DataFrame":
    """Return ``frame`` after applying ``safe_cell`` to every string, also to column names."""
    import pandas as pd  # slow to import

    guarded = frame.rename(columns=safe_cell)
    for name in [name for name in guarded if guarded[name].dtype.kind in "OU"]:  # U: from Arrow
        cells = map(safe_cell, guarded[name].to_numpy(object))
        guarded[name] = pd.Series(cells, guarded.index, dtype=object)
    return guarded


def make_folder(key: str, folder: Path) -> None:
    """Create ``folder``, which the user set with ``key=``; raise ``OutputError`` if this fails."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{key}={folder} cannot be written ({error.strerror}): give another folder"
        ) from error


def safe_cell(value: Any) -> Any:
    """Return ``value`` for a CSV file.

    A string that a spreadsheet would read as a formula gets a leading ``'``.

    >>> safe_cell("=1+2"), safe_cell("@SUM(A1)"), safe_cell("-1.5e-3"), safe_cell(-1.5)
    ("'=1+2", "'@SUM(A1)", '-1.5e-3', -1.5)
    """
    if isinstance(value, str) and value[:1] in _FORMULA and not _NUMBER.fullmatch(value):
        return "'" + value
    return value


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Context in which an ``OSError`` becomes an ``OutputError`` about ``path``."""
    try:
        yield
    except OSError as error:
        problem = f"{path} cannot be written ({error.strerror or error}) and is unchanged"
        raise OutputError(
            f"{problem}: free some disk space, or choose a folder that is writable"
        ) from error


def sync_folder(folder: Path) -> None:
    """Sync the entries of ``folder`` to the disk, which makes a renaming in it durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
