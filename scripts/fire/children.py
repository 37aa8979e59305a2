"""Commands in processes of their own, signalled at a moment; how they end."""

import os
import re
import resource
import runpy
import signal
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

from ltr.__main__ import main
from tests.helpers.paths import ROOT
from tests.helpers.processes import run

LIMIT = 300  # seconds of a child: a search waits two minutes for a killed one
_MEMORY = 16 << 30  # of addresses: damage must not starve the machine
_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.move")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_UNCOUNTED = ("/dev/null", "/dev/tty", "/proc/", "__pycache__")  # compiled code is no change


class Moment(NamedTuple):
    """A signal at change ``at`` on disk, which repeats, or so many seconds after the first."""

    signum: int
    unit: str  # seconds, or write
    at: float

    def __str__(self) -> str:
        """As a fault names it."""
        return f"{signal.Signals(self.signum).name} at {self.unit} {self.at:.4g}"


NEVER = Moment(0, "", 0.0)


class Ended(NamedTuple):
    """How a child ended: the negative signal that ended it, or its status, and what it printed."""

    status: int
    out: str
    err: str

    @property
    def raised(self) -> str | None:
        """The last line of a traceback that it printed, and the last place of ours in it."""
        for text in (self.err, self.out):
            _, found, trace = text.rpartition("Traceback (most recent call last):\n")
            if found:
                places = re.findall(r'File ".*/(ltr/\S+\.py)", (line \d+)', trace)
                ends = [line for line in trace.splitlines() if line and not line.startswith(" ")]
                return f"{ends[0][:200] if ends else 'cut short'} {places[-1:]}"
        return None

    @property
    def last_line(self) -> str:
        """What it said last on standard error."""
        return (self.err.strip().splitlines() or ["nothing"])[-1][:200]


def child(command: tuple[str, ...], folder: Path, moment: Moment | None = None) -> Ended:
    """``COMMAND``, of ``ltr`` or a script, in ``folder`` to its end, signalled at ``moment``."""
    arguments = f"{command!r}, *{tuple(moment or NEVER)!r}"
    program = f"from scripts.fire.children import live\nlive({arguments})\n"
    done = run(program, cwd=folder, env={"PYTHONPATH": str(ROOT)})
    return Ended(done.returncode, done.stdout, done.stderr)


def live(command: tuple[str, ...], signum: int, unit: str, at: float) -> None:
    """Be ``COMMAND``, which gets a signal; ``.writes`` has the number of its changes."""
    signal.alarm(LIMIT)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    done, counted = 0, Path(".writes").absolute()
    uncounted = (*_UNCOUNTED, os.environ.get("NUMBA_CACHE_DIR", "__pycache__"))

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal done
        if event not in _CHANGES and not (event == "open" and arguments[2] & _WRITES):
            return
        path = arguments[0]
        if not isinstance(path, (str, os.PathLike)) or any(w in str(path) for w in uncounted):
            return
        done += 1
        if unit == "write" and done == at:
            os.kill(os.getpid(), signum)
        if unit == "seconds" and done == 1:
            later = threading.Timer(at, os.kill, (os.getpid(), signum))
            later.daemon = True
            later.start()

    sys.argv = [*command]
    sys.path[0] = str(ROOT)
    sys.addaudithook(hook)
    try:
        if command[0] == "ltr":
            main()
        else:
            runpy.run_path(str(ROOT / command[0]), run_name="__main__")
    finally:
        counted.write_text(str(done))
