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

_STARTED, _ATTEMPT = "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"
_SECONDS = 5  # to wait for torchrun's store
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_PLACES = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.EACCES, errno.EPERM,
           errno.EROFS)  # fmt: skip
_REMEDIES = (
    dict.fromkeys(_FULL, "free some space")
    | {errno.ENAMETOOLONG: "give a shorter name", errno.EIO: "the disk may be damaged"}
    | dict.fromkeys(_PLACES, "choose another place")
)


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


def _fails_first() -> bool:
    """Whether no other process of torchrun's has called this: the first to fail says why, alone."""
    if processes() == 1:
        return True
    from torch.distributed import TCPStore  # slow to import

    try:
        place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = TCPStore(*place, is_master=False, timeout=timedelta(seconds=_SECONDS))
        return store.add(f"ltr failed {os.environ.get(_ATTEMPT)}", 1) == 1
    except (RuntimeError, LookupError, ValueError):  # torchrun is gone: better twice than never
        return True


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
        if _fails_first():
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


class LogFile(logging.Handler):
    """The handler of ``train.log``: warns once where it cannot be written, and then is silent."""

    def __init__(self, filename: str) -> None:
        """The file comes with the first line."""
        super().__init__()
        self._path = filename

    def emit(self, record: logging.LogRecord) -> None:
        """Append a line, unless an earlier one could not be written."""
        if not self._path:
            return
        try:
            with open(self._path, "a", encoding="utf-8") as file:  # noqa: PTH123
                file.write(self.format(record) + "\n")
        except OSError as error:
            what = f"{self._path} cannot be written ({error.strerror})"
            print(f"warning: {what}: from here on the log is on stderr only", file=sys.stderr)
            self._path = ""


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

    def add(self, name: str, outcome: str, seconds: float | None) -> None:
        """Say that ``name`` ended as ``outcome``, such as ``ndcg@5 0.4321``, after ``seconds``."""
        self.done += 1
        each = (time.monotonic() - self._began) / (self.done - self._before)
        left = timedelta(seconds=round(each * (self.total - self.done)))
        took = "" if seconds is None else f"  took {timedelta(seconds=round(seconds))}"
        more = f", about {left} left" if left else ""
        say(f"{self.done} of {self.total}  {name}  {outcome}{took}{more}")
