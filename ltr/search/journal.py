"""The journal of a study: a file of lines, each sealed, so that damage to it is noticed."""

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from filelock import FileLock
from optuna.storages.journal import BaseJournalBackend

from ltr.errors import DataError


class SealedJournal(BaseJournalBackend):
    """What Optuna notes, a line each: ``SEAL JSON``, the seal a digest of its number and its JSON.

    A line counts once it ends in a newline. One that a full disk, or the end of its writer, cut
    short is dropped. The kernel lets the lock go when its holder is killed.
    """

    def __init__(self, path: Path) -> None:
        """``path`` is made where it is not there."""
        self._path = path
        self._lock = FileLock(path.with_name(f".{path.name}.lock"))
        self._starts = [0]  # of the lines that were read, and of the next one
        path.touch()

    def read_logs(self, log_number_from: int) -> Iterator[dict[str, Any]]:
        """What was noted from a number on.

        Raises:
            DataError: the journal is damaged.
        """
        with self._lock.acquire(poll_interval=0.01):
            lines = self._new_lines(log_number_from)
        return iter([json.loads(line) for line in lines])

    def append_logs(self, logs: list[dict[str, Any]]) -> None:
        """Note ``logs``, on the disk when it returns.

        Raises:
            DataError: the journal is damaged.
            OSError: the disk is full.
        """
        with self._lock.acquire(poll_interval=0.01):
            self._new_lines(len(self._starts) - 1)
            first = len(self._starts) - 1
            lines = (json.dumps(log, separators=(",", ":")).encode() for log in logs)
            sealed = [_seal(number, line) + line for number, line in enumerate(lines, first)]
            with self._path.open("r+b") as file:
                file.seek(self._starts[-1])
                file.truncate()  # what was cut short
                file.write(b"".join(line + b"\n" for line in sealed))
                file.flush()
                os.fsync(file.fileno())

    def _new_lines(self, first: int) -> list[bytes]:
        """The JSON of each whole line from the number ``first`` on."""
        known = min(first, len(self._starts) - 1)
        del self._starts[known + 1 :]
        with self._path.open("rb") as file:
            file.seek(self._starts[known])
            *lines, rest = file.read().split(b"\n")
        found = []
        for number, line in enumerate(lines, known):
            found.append(self._opened(number, line))
            self._starts.append(self._starts[-1] + len(line) + 1)
        last = known + len(lines)
        if _is_sealed(last, rest[:-1]):  # what was its newline is another byte now
            raise self._damaged(last)
        return found[first - known :]

    def _opened(self, number: int, line: bytes) -> bytes:
        if not _is_sealed(number, line):
            raise self._damaged(number)
        return line[_SEAL:]

    def _damaged(self, number: int) -> DataError:
        return DataError(
            f"{self._path}:{number + 1}: damaged, or of an earlier version: put a good copy in its "
            "place, or give name=NAME for a new search"
        )


_SEAL = 17  # bytes of a seal and the blank behind it


def _seal(number: int, line: bytes) -> bytes:
    return hashlib.sha256(b"%d %s" % (number, line)).hexdigest()[: _SEAL - 1].encode() + b" "


def _is_sealed(number: int, line: bytes) -> bool:
    return line[:_SEAL] == _seal(number, line[_SEAL:])
