"""Children of a process that has imported all it needs: a fork takes milliseconds, not seconds."""

import ctypes
import gc
import mmap
import os
import re
import resource
import runpy
import select
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 300.0  # seconds of a child: a search waits two minutes for a killed one
_MEMORY = 16 << 30  # of addresses: damage must not starve the machine
_CHANGES = ("os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "shutil.move")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_UNCOUNTED = ("/dev/null", "/dev/tty", "/proc/", "__pycache__")  # compiled code is no change


class Moment(NamedTuple):
    """A signal, and when it comes: after ``at`` seconds, or, which repeats, at change ``at``.

    Seconds count from the first line on for SIGKILL, for others from the first change on disk.
    """

    signum: int
    unit: str  # seconds, or write
    at: float

    def __str__(self) -> str:
        """As a fault names it."""
        return f"{signal.Signals(self.signum).name} at {self.unit} {self.at:.4g}"


class Ended(NamedTuple):
    """How a child ended: what it printed, how long it took, how often it changed the disk."""

    status: int | None  # the negative signal that ended it; None: it was still there at its limit
    out: str
    err: str
    seconds: float = 0.0
    writes: int = 0
    pid: int = 0  # and of its group: a run may outlive it

    @property
    def raised(self) -> str | None:
        """The last line of a traceback that it printed, and the last place of ours in it."""
        for text in (self.err, self.out):
            _, found, trace = text.rpartition("Traceback (most recent call last):\n")
            if found:
                places = re.findall(r'File ".*/((?:ltr|scripts)/\S+\.py)", (line \d+)', trace)
                ends = [line for line in trace.splitlines() if line and not line.startswith(" ")]
                return f"{ends[0][:200] if ends else 'cut short'} {places[-1:]}"
        return None

    @property
    def last_line(self) -> str:
        """What it said last on standard error."""
        return (self.err.strip().splitlines() or ["nothing"])[-1][:200]


def program(script: str, *arguments: str) -> Callable[[], None]:
    """The work of ``python SCRIPT ARGUMENTS``; ``script`` is relative to the repository."""

    def run() -> None:
        path = ROOT / script
        sys.argv = [str(path), *arguments]
        sys.path[0] = str(path.parent)
        runpy.run_path(str(path), run_name="__main__")

    return run


def child(
    work: Callable[[], None], folder: Path, moment: Moment | None = None, limit: float = LIMIT
) -> Ended:
    """Do ``work`` in a forked child in ``folder``, signal it at ``moment``, wait for its end."""
    sys.stdout.flush()
    sys.stderr.flush()
    started = time.perf_counter()
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        mmap.mmap(-1, 8) as count,
    ):
        begun, begin = os.pipe()

        def watched() -> None:
            os.chdir(folder)
            _watch_writes(moment, count, begin)
            work()

        pid = fork()
        if pid == 0:
            limits = {resource.RLIMIT_CORE: 0, resource.RLIMIT_AS: _MEMORY}
            live(watched, out.fileno(), err.fileno(), limits=limits)
        os.close(begin)
        handle = os.pidfd_open(pid)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        try:
            if moment is not None and moment.unit == "seconds":
                os.read(begun, 1)  # or its end
                if not poll.poll(1000 * moment.at):
                    os.kill(pid, moment.signum)
            hung = not poll.poll(1000 * limit)
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            os.close(handle)
            os.close(begun)
        said, cried = (_text(stream) for stream in (out, err))
        writes = int.from_bytes(count[:8], "little")
    return Ended(None if hung else status, said, cried, time.perf_counter() - started, writes, pid)


def fork() -> int:
    """``os.fork``; Python warns where a library has threads, none of which a child needs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _text(stream: Any) -> str:
    stream.seek(0)
    return str(stream.read().decode(errors="replace"))


def live(work: Callable[[], None], *streams: int, limits: dict[int, int]) -> None:
    """The whole life of a forked child; its status is what Python would give to its end."""
    status: Any = 1
    try:
        die_with_parent()
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, stream in enumerate(streams, 1):
            os.dup2(stream, number)
        sys.stdout = os.fdopen(1, "w", closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for limit, most in limits.items():
            resource.setrlimit(limit, (most, most))
        work()
        status = 0
    except SystemExit as end:
        status = end.code or 0
        if isinstance(status, str):
            print(status, file=sys.stderr)
            status = 1
    except BaseException as error:
        traceback.print_exc()
        status = 130 if isinstance(error, KeyboardInterrupt) else 1
    finally:
        for text in (sys.stdout, sys.stderr):
            with suppress(Exception):
                text.flush()
        os._exit(status)


def _watch_writes(moment: Moment | None, count: mmap.mmap, begin: int) -> None:
    """Count the changes on disk of this process, and signal it at its moment.

    A byte goes to ``begin`` when the clock of a moment starts.
    """
    if moment is None or moment.signum == signal.SIGKILL:
        os.write(begin, b"x")
    uncounted = (*_UNCOUNTED, os.environ.get("NUMBA_CACHE_DIR", "__pycache__"))
    done = 0

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal done
        if event not in _CHANGES and not (event == "open" and arguments[2] & _WRITES):
            return
        path = arguments[0]
        if not isinstance(path, (str, os.PathLike)) or any(w in str(path) for w in uncounted):
            return
        done += 1
        count[:8] = done.to_bytes(8, "little")
        if done == 1:
            os.write(begin, b"x")
        if moment is not None and moment.unit == "write" and done == moment.at:
            os.kill(os.getpid(), moment.signum)

    sys.addaudithook(hook)


def die_with_parent() -> None:
    """See that this process is killed when its parent ends."""
    with suppress(OSError, AttributeError):  # only Linux has it
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


def warm() -> None:
    """Import, once, what children need."""
    os.environ |= {"TQDM_DISABLE": "1", "MPLBACKEND": "agg"}
    import sklearn.preprocessing  # noqa: F401
    import torch
    import tqdm

    tqdm.tqdm.monitor_interval = 0  # no thread of its own: forks must find one thread
    import ltr.analysis.compare
    import ltr.experiment.job
    import ltr.experiment.prepare_data
    import ltr.inference.evaluate
    import ltr.inference.predict
    import ltr.ranker
    import ltr.search.command
    import ltr.tables.table  # noqa: F401
    from ltr.console.compose import composed
    from ltr.experiment.identity import identity_without_data

    libraries = ("lightgbm", "xgboost", "catboost")
    for library in (*libraries, "ltr.kernels.neuralndcg", "ltr.kernels.pairs"):
        with suppress(ImportError):
            __import__(library)
    torch.optim.Adam([torch.nn.Parameter(torch.ones(1))])  # imports a second's worth
    for model in ("mlp", "adarank"):
        identity_without_data(composed("train", f"model={model}"))  # a second, for every run
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page
