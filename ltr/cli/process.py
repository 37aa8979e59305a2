"""The process of a command: its rank under torchrun, its messages, its end and exit status.

Importing this module must stay cheap (no torch), because every command does it first.
"""

import errno
import logging
import math
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

from tqdm import tqdm

from ltr.errors import ConfigError, LTRError
from ltr.training.interruption import Interrupted, kill_workers

_STARTED = "TORCHELASTIC_RUN_ID"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def processes() -> int:
    """Return the number of processes that torchrun started; 1 without torchrun."""
    return int(os.environ.get("WORLD_SIZE", "1")) if _STARTED in os.environ else 1


def torchrun_rank() -> int:
    """Return the rank of this process under torchrun, counted from 0; 0 without torchrun."""
    return int(os.environ.get("RANK", "0")) if _STARTED in os.environ else 0


def check_torchrun(command: str, *, several: bool) -> None:
    """Raise ``ConfigError`` under torchrun, unless the command trains a single run.

    ``several`` says whether the command trains a sweep.
    """
    if processes() > 1 and (command != "train" or several):
        raise ConfigError(
            f"{command}{' -m' if several else ''}: torchrun started {processes()} processes, but "
            "several processes can only train a single model; start this command without torchrun"
        )


@contextmanager
def ending(stopped: str = "") -> Iterator[None]:
    """Run the ``with`` block as a command, and end the process with the right exit status.

    An error that the user can correct is printed as one line, and the status is 2. If the command
    is stopped by a signal, ``stopped`` is printed, and the status is 128 + the signal's number. If
    the reader has closed a pipe, the status is 141. Any other error is a bug and keeps its
    traceback.
    """
    try:
        yield
        sys.stdout.flush()  # inside the try statement: the error of a full disk becomes one line
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        _close_stdout()
        sys.exit(141)
    except (LTRError, OSError, MemoryError, RuntimeError) as error:
        line = one_line(error)
        if line is None:
            raise
        _close_stdout()
        prefix = f"rank {torchrun_rank()}: " if torchrun_rank() else ""
        print(f"error: {prefix}{line}", file=sys.stderr)
        sys.exit(2)
    except (Interrupted, KeyboardInterrupt) as stop:
        kill_workers()
        if stopped:
            print(stopped, file=sys.stderr)
        sys.exit(128 + getattr(stop, "signum", 2))
    except Exception as error:  # it may come from a clean-up in Hydra that a signal interrupted
        while error and not isinstance(error, Interrupted):
            error = error.__context__  # type: ignore[assignment]
        if not error:
            raise
        kill_workers()
        sys.exit(128 + error.signum)  # type: ignore[attr-defined]


def one_line(error: BaseException) -> str | None:
    """Return one line that describes an error that a user can correct; None for a bug.

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
            f"not enough memory ({text or 'none is left'}): lower batch_size, list_size or "
            "evaluation_items, or use a machine with more memory"
        )
    if isinstance(error, OSError) and error.errno in _FULL:
        return f"{error.filename or 'a file'}: {error.strerror}; free some disk space"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}; choose another place"
    return None


def is_full(error: BaseException | None) -> bool:
    """Return whether ``error`` or its cause says that the disk is full."""
    while error and not isinstance(error, OSError):
        error = error.__cause__
    return error is not None and error.errno in _FULL  # type: ignore[attr-defined]


def _close_stdout() -> None:
    """Discard output that cannot be written.

    Otherwise, Python would try to write it again at exit, and print an error.
    """
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def log_to_stderr() -> None:
    """Print log messages to standard error, without the details of Hydra and its launchers."""
    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stderr, force=True)
    for name in ("hydra", "hydra_plugins"):
        logging.getLogger(name).setLevel(logging.WARNING)


class LogFile(logging.FileHandler):
    """The handler that writes ``train.log``; if writing fails, it prints a warning only once."""

    _lost = False

    def handleError(self, record: logging.LogRecord) -> None:
        """Print a warning at the first error; ignore later errors."""
        if not self._lost:
            print(f"warning: {self.baseFilename} cannot be written", file=sys.stderr)
        self._lost = True


def say(text: str) -> None:
    """Print ``text`` to standard error, above the progress bar if there is one."""
    tqdm.write(text, file=sys.stderr)
    sys.stderr.flush()


class Finished:
    """Prints a line for each finished job, such as a run of a table, with the time left."""

    def __init__(self, total: int, done: int = 0, *, until: float = math.inf) -> None:
        """Start the clock.

        Args:
            total: the number of jobs.
            done: the number of jobs that are already finished.
            until: the value of ``time.monotonic()`` after which no job starts.
        """
        self.total = total
        self.done = done
        self.until = until
        self._before = done
        self._began = time.monotonic()

    def add(self, name: str, outcome: str) -> None:
        """Print that the job ``name`` has finished, and its outcome, such as ``ndcg@5 0.4321``."""
        self.done += 1
        current_time = time.monotonic()
        each = (current_time - self._began) / (self.done - self._before)
        left = timedelta(
            seconds=round(min(each * (self.total - self.done), max(self.until - current_time, 0)))
        )
        more = f", about {left} left" if left else ""
        say(f"{self.done} of {self.total}  {name}  {outcome}{more}")
