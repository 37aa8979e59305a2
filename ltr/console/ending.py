"""End a command with one line on stderr and an exit status; keep the log through a full disk.

Importing this must stay cheap: every command does so first.
"""

import errno
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ltr.console.torchrun import fails_first, rank
from ltr.errors import LTRError
from ltr.training.interruption import Interrupted

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_REMEDIES = (
    dict.fromkeys(_FULL, "free some space")
    | {errno.ENAMETOOLONG: "give a shorter name", errno.EIO: "the disk may be damaged"}
    | dict.fromkeys(
        (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EACCES, errno.EPERM,
         errno.EROFS),
        "choose another place",
    )
)  # fmt: skip


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
    if isinstance(error, LTRError):
        return text
    if _is_memory(error):
        return (
            f"not enough memory ({text or 'all is taken'}): lower batch_size, list_size or "
            "evaluation_items, or use a machine with more"
        )
    remedy = _REMEDIES.get(error.errno or 0) if isinstance(error, OSError) else None
    if remedy is None:
        return None
    assert isinstance(error, OSError)
    place = "a file cannot be written" if error.filename is None else error.filename
    return f"{place}: {error.strerror}; {remedy}"


def is_full(error: BaseException) -> bool:
    """Whether the disk is full."""
    below: BaseException | None = error
    while below is not None and not isinstance(below, OSError):
        below = below.__cause__
    return below is not None and below.errno in _FULL


def _is_memory(error: BaseException) -> bool:
    """NumPy and Python raise MemoryError, PyTorch a RuntimeError, the kernel an OSError."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
        or (isinstance(error, RuntimeError) and "can't allocate memory" in str(error))
    )


def _close_stdout() -> None:
    """Drop what cannot be written: at the exit Python would try again and print an error."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class LogFile(logging.FileHandler):
    """The handler of ``train.log``: warns once where it cannot be written, and then is silent."""

    def __init__(self, filename: str) -> None:
        """Open the file with the first line."""
        super().__init__(filename, encoding="utf-8", delay=True)
        self._lost = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, unless an earlier one could not be written."""
        if not self._lost:
            try:
                super().emit(record)
            except OSError as error:  # when it was opened
                self._lose(error)

    def flush(self) -> None:
        """As ``FileHandler``; a full disk raises nothing."""
        try:
            super().flush()
        except OSError as error:
            self._lose(error)

    def handleError(self, record: logging.LogRecord) -> None:
        """Called by ``emit`` within an exception."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            self._lose(error)
        else:
            super().handleError(record)

    def _lose(self, error: OSError) -> None:
        if self.stream is not None:
            # the buffer would be written when the stream is closed, and fail again
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())
        if not self._lost:
            self._lost = True
            print(
                f"warning: {self.baseFilename} cannot be written ({error.strerror}): from here "
                "on the log is on stderr only",
                file=sys.stderr,
            )
