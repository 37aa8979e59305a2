"""When a child gets a signal: after some time, or, which repeats, at its n-th change on disk."""

import mmap
import os
import signal
import sys
from dataclasses import dataclass
from typing import Any

AT_TIME, AT_WRITE, AT_IMPORT = "time", "write", "import"
_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.move")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@dataclass(frozen=True)
class Moment:
    """A signal and when it comes.

    Attributes:
        signum: the signal.
        kind: ``AT_TIME``, ``AT_WRITE``, or ``AT_IMPORT`` (see ``start.py``).
        at: seconds: SIGKILL from the first line on, others from the first change on disk; or the
            number of the change, 1-based.
    """

    signum: int
    kind: str
    at: float

    def __str__(self) -> str:
        """As a finding names it."""
        when = f"after {self.at:.2f} s" if self.kind == AT_TIME else f"at {self.kind} {self.at:.0f}"
        return f"{signal.Signals(self.signum).name} {when}"


def watch_writes(moment: Moment | None, count: mmap.mmap, begin: int) -> None:
    """Count the changes on disk of this process in ``count``, and end it at its moment.

    A byte goes to ``begin`` when the clock of a moment starts. What goes to system folders and to
    caches of compiled code does not count.
    """
    if moment is None or moment.signum == signal.SIGKILL:
        os.write(begin, b"x")
    done = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal done
        if event == "open":
            if not arguments[2] & _WRITES:
                return
        elif event not in _CHANGES:
            return
        path = arguments[0]
        if not isinstance(path, (str, os.PathLike)) or _elsewhere(os.fspath(path)):
            return
        done += 1
        count[:8] = done.to_bytes(8, "little")
        if done == 1:
            os.write(begin, b"x")
        if moment is not None and moment.kind == AT_WRITE and done == moment.at:
            os.kill(os.getpid(), moment.signum)

    sys.addaudithook(hook)


def _elsewhere(path: str | bytes) -> bool:
    text = os.fsdecode(path)
    numba = os.environ.get("NUMBA_CACHE_DIR", "__pycache__")
    return (
        text in ("/dev/null", "/dev/tty")
        or text.startswith("/proc")
        or "__pycache__" in text
        or numba in text
    )
