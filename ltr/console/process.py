"""The process of a command: its rank among torchrun's, what it says on stderr, how it ends.

Importing this must stay cheap (no torch): every command does so first.
"""

import errno
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from tqdm import tqdm

from ltr.errors import ConfigError, LTRError
from ltr.training.interruption import Interrupted

_STARTED = "TORCHELASTIC_RUN_ID"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def processes() -> int:
    """How many processes torchrun has started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1")) if _STARTED in os.environ else 1


def rank() -> int:
    """The number of this process among them, from 0; 0 without torchrun."""
    return int(os.environ.get("RANK", "0")) if _STARTED in os.environ else 0


def check_torchrun(command: str, *, several: bool) -> None:
    """Raise ``ConfigError`` where torchrun's processes cannot share ``command``, or its sweep."""
    if processes() > 1 and (command != "train" or several):
        raise ConfigError(
            f"torchrun's {processes()} processes train one model together: start "
            f"{command}{' -m' if several else ''} without torchrun"
        )


@contextmanager
def ending(stopped: str = "") -> Iterator[None]:
    """Around a command: an error of the user's is one line and status 2, a stop 128 + the signal.

    Any other error is a bug and keeps its traceback. ``stopped`` is printed after a stop.
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
        print(f"error: {f'rank {rank()}: ' if rank() else ''}{line}", file=sys.stderr)
        sys.exit(2)
    except (Interrupted, KeyboardInterrupt) as stop:
        if stopped:
            print(stopped, file=sys.stderr)
        sys.exit(128 + getattr(stop, "signum", 2))


def one_line(error: BaseException) -> str | None:
    """An error that a user can mend, in one line with the remedy; None for a bug.

    >>> one_line(OSError(errno.ENAMETOOLONG, "File name too long", "outputs/" + "x" * 9))
    'outputs/xxxxxxxxx: File name too long; choose another place'
    >>> one_line(KeyError("mine"))
    """
    text = " ".join(str(error).split())
    if isinstance(error, LTRError):
        return text
    if (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"  # PyTorch's on a GPU
        or "allocate memory" in text
    ):
        return (
            f"not enough memory ({text or 'all is taken'}): lower batch_size, list_size or "
            "evaluation_items, or use a machine with more"
        )
    if isinstance(error, OSError) and error.errno in _FULL:
        return f"{error.filename or 'a file'}: {error.strerror}; free some space"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}; choose another place"
    return None


def is_full(error: BaseException | None) -> bool:
    """Whether the disk is full."""
    while error is not None and not isinstance(error, OSError):
        error = error.__cause__
    return error is not None and error.errno in _FULL


def _close_stdout() -> None:
    """Drop what cannot be written: at the exit Python would try again and print an error."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class LogFile(logging.FileHandler):
    """The handler of ``train.log``: warns once where it cannot be written; stderr has it too."""

    _lost = False

    def handleError(self, record: logging.LogRecord) -> None:
        """Warn, unless an earlier line could not be written."""
        if not self._lost:
            print(f"warning: {self.baseFilename} cannot be written", file=sys.stderr)
        self._lost = True


def say(text: str) -> None:
    """Print ``text`` on standard error, above a progress bar where there is one."""
    tqdm.write(text, file=sys.stderr)
    sys.stderr.flush()


class Finished:
    """Says a line for each finished piece of a command's work, such as a run of a table."""

    def __init__(self, total: int, done: int = 0) -> None:
        """``done`` of ``total`` pieces were finished before; the clock starts."""
        self.total, self.done = total, done
        self._before, self._began = done, time.monotonic()

    def add(self, name: str, outcome: str) -> None:
        """Say that ``name`` ended as ``outcome``, such as ``ndcg@5 0.4321``."""
        self.done += 1
        each = (time.monotonic() - self._began) / (self.done - self._before)
        left = timedelta(seconds=round(each * (self.total - self.done)))
        more = f", about {left} left" if left else ""
        say(f"{self.done} of {self.total}  {name}  {outcome}{more}")
