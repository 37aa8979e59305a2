"""End a command with one line on stderr and an exit status; keep the log through a full disk.

Importing this must stay cheap: every command does so first.
"""

import errno
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ltr.console.torchrun import fails_first, rank
from ltr.errors import LTRError
from ltr.training.interruption import Interrupted

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PLACES = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EACCES, errno.EPERM,
           errno.EROFS)  # fmt: skip
_REMEDIES = (
    dict.fromkeys(_FULL, "free some space")
    | {errno.ENAMETOOLONG: "give a shorter name", errno.EIO: "the disk may be damaged"}
    | dict.fromkeys(_PLACES, "choose another place")
)


@contextmanager
def ending(stopped: str = "") -> Iterator[None]:
    """Around the work of a command: turn errors into one line and an exit status.

    Status 2 is a mistake of the user or a full disk, 128 + the signal a stop. Any other error is a
    bug and keeps its traceback. Of torchrun's processes the first that fails prints the line.

    Args:
        stopped: the line to print after a stop.
    """
    try:
        yield
        sys.stdout.flush()  # here, where a full disk is one line
    except BrokenPipeError:  # | head has read enough
        _close_stdout()
        sys.exit(141)
    except (LTRError, OSError, MemoryError, RuntimeError) as error:
        line = one_line(error)
        if line is None:
            raise
        _close_stdout()
        if fails_first():
            print(f"error: {f'rank {rank()}: ' if rank() else ''}{line}", file=sys.stderr)
        sys.exit(2)
    except (Interrupted, KeyboardInterrupt) as stop:
        if stopped:
            print(stopped, file=sys.stderr)
        sys.exit(128 + getattr(stop, "signum", 2))


def one_line(error: BaseException) -> str | None:
    """An error that a user can mend, in one line with the remedy; None for a bug.

    >>> one_line(OSError(errno.ENAMETOOLONG, "File name too long", "outputs/" + "x" * 9))
    'outputs/xxxxxxxxx: File name too long; give a shorter name'
    >>> one_line(KeyError("mine"))
    """
    text = " ".join(str(error).split())
    number = error.errno if isinstance(error, OSError) else None
    if isinstance(error, LTRError):
        return text
    if (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"  # PyTorch's on a GPU
        or number == errno.ENOMEM
        or (isinstance(error, RuntimeError) and "can't allocate memory" in text)
    ):
        return (
            f"not enough memory ({text or 'all is taken'}): lower batch_size, list_size or "
            "evaluation_items, or use a machine with more"
        )
    if not isinstance(error, OSError) or number not in _REMEDIES:
        return None
    place = "a file cannot be written" if error.filename is None else error.filename
    return f"{place}: {error.strerror}; {_REMEDIES[number]}"


def is_full(error: BaseException) -> bool:
    """Whether the disk is full."""
    below: BaseException | None = error
    while below is not None and not isinstance(below, OSError):
        below = below.__cause__
    return below is not None and below.errno in _FULL


def _close_stdout() -> None:
    """Drop what cannot be written: at the exit Python would try again and print an error."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class LogFile(logging.Handler):
    """The handler of ``train.log``: warns once where it cannot be written, and then is silent."""

    def __init__(self, filename: str) -> None:
        """The file comes with the first line."""
        super().__init__()
        self._path: str | None = filename

    def emit(self, record: logging.LogRecord) -> None:
        """Append a line, unless an earlier one could not be written."""
        if self._path is None:
            return
        try:
            with open(self._path, "a", encoding="utf-8", buffering=1) as file:  # noqa: PTH123
                file.write(self.format(record) + "\n")
        except OSError as error:
            print(
                f"warning: {self._path} cannot be written ({error.strerror}): from here on the "
                "log is on stderr only",
                file=sys.stderr,
            )
            self._path = None
