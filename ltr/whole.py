"""Write files whole or not at all, even if the process is killed or the disk is full."""

import csv
import fcntl
import io
import json
import os
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from ltr.errors import OutputError

if TYPE_CHECKING:
    import pandas as pd

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf)", re.ASCII)
_PART = re.compile(r"\.part-[0-9a-f]{8}-.+")


def without_nan(content: Any) -> Any:
    """``content`` as JSON holds it, which has no NaN: null, and for an infinity its name.

    >>> without_nan({"map": float("nan"), "sigma": float("inf"), "folds": (1, 2)})
    {'map': None, 'sigma': 'Infinity', 'folds': [1, 2]}
    """
    return json.loads(
        json.dumps(content), parse_constant=lambda name: None if name == "NaN" else name
    )


def write_whole(path: Path, content: bytes | str | Callable[[BinaryIO], object]) -> None:
    """Write ``content`` to ``path`` in one step: a reader sees the old file or all of the new one.

    The content goes to ``.part-XXXXXXXX-NAME`` beside it, is synced to the disk, and then renamed.
    A part is locked while its writer lives; parts of killed writers are removed.

    Args:
        path: its folder exists.
        content: text (as UTF-8), bytes, or a function that writes to a binary file.

    Raises:
        OutputError: the disk is full, or the folder cannot be written; ``path`` is as it was, and
            nothing else is left. Errors of ``content`` itself pass through.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder, "note.txt"), "seed 1")
    ...     [(file.name, file.read_text()) for file in Path(folder).iterdir()]
    [('note.txt', 'seed 1')]
    """
    if isinstance(content, str):
        content = content.encode()
    with writing(path):
        remove_dead_parts(path.parent)
        file = _locked_part(path)
    part = Path(file.name)
    try:
        with writing(path):
            if isinstance(content, bytes):
                file.write(content)
            else:
                content(file)
            file.flush()
            os.fsync(file.fileno())
            part.replace(path)
            sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            part.unlink()
        raise
    finally:
        with suppress(OSError):  # what is still buffered did not fit
            file.close()


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], names: Sequence[str] = ()) -> None:
    """Write ``rows`` as CSV with a line of names, whole or not at all.

    Args:
        path: as for ``write_whole``.
        rows: a value for each name; a missing name is an empty cell.
        names: the columns; by default all names of ``rows`` in the order of their appearance.

    Raises:
        OutputError: as ``write_whole``.
    """
    text = io.StringIO(newline="")
    columns = names or list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.writer(text)
    writer.writerow(map(safe_cell, columns))
    writer.writerows([safe_cell(row.get(name, "")) for name in columns] for row in rows)
    write_whole(path, text.getvalue())


def write_frame(path: Path, frame: "pd.DataFrame") -> None:
    """Write ``frame`` as CSV without its index, whole or not at all.

    A name that ends in ``.tsv`` means tabs, one that ends in ``.gz`` also gzip.

    Raises:
        OutputError: as ``write_whole``.
    """
    safe = frame.rename(columns=safe_cell)
    for name in [name for name in safe if safe[name].dtype.kind in "OU"]:  # U: text of Arrow
        values = safe[name].to_numpy(object)
        cells = [safe_cell(value) for value in values]
        if any(cell is not value for cell, value in zip(cells, values, strict=True)):
            safe[name] = cells
    knobs: dict[str, Any] = {"index": False, "lineterminator": "\n"}
    if path.name.endswith((".tsv", ".tsv.gz")):
        knobs["sep"] = "\t"
    if path.suffix == ".gz":
        knobs["compression"] = {"method": "gzip", "mtime": 1}  # the same bytes at any time
    write_whole(path, lambda file: safe.to_csv(file, **knobs))


def make_folder(key: str, folder: Path) -> None:
    """Create ``folder``, the value of the user's ``key``, where it is missing.

    Raises:
        OutputError: it cannot be created.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{key}={folder} cannot be written ({error.strerror}): give another folder"
        ) from error


def safe_cell(value: Any) -> Any:
    """``value`` for a CSV file: text that a spreadsheet would run as a formula gets a ``'``.

    >>> safe_cell("=1+2"), safe_cell("@SUM(A1)"), safe_cell("-1.5e-3"), safe_cell(-1.5)
    ("'=1+2", "'@SUM(A1)", '-1.5e-3', -1.5)
    """
    if isinstance(value, str) and value[:1] in _FORMULA and not _NUMBER.fullmatch(value):
        return "'" + value
    return value


def remove_dead_parts(folder: Path) -> None:
    """Remove the parts of killed writers from ``folder``."""
    for part in folder.glob(".part-*"):
        if _PART.fullmatch(part.name):
            with suppress(OSError), part.open("rb") as file:  # OSError: gone, or its writer lives
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                part.unlink()


def _locked_part(path: Path) -> BinaryIO:
    """A new part, locked; until then another process may take it for a dead one and remove it."""
    while True:
        # the name must fit wherever the file's own does, 255 bytes
        part = path.with_name(f".part-{secrets.token_hex(4)}-{path.name[:40]}")
        file = part.open("xb")
        with suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_nlink:
                return file
        file.close()
        part.unlink(missing_ok=True)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an ``OSError`` into an ``OutputError``."""
    try:
        yield
    except OSError as error:
        raise OutputError(
            f"{path} cannot be written ({error.strerror or error}) and is as it was: free some "
            "space, or choose a place that can be written"
        ) from error


def sync_folder(folder: Path) -> None:
    """Sync the renames in ``folder`` to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
