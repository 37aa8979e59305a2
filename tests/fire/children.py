"""Children of a process that has imported all it needs: a fork takes milliseconds, a start seconds.

A child has its own session, output files and limit of time, and dies with its parent.
"""

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fire.moments import AT_TIME, Moment, watch_writes

ROOT = Path(__file__).resolve().parents[2]
LIMIT = 120.0  # seconds of a child, far beyond what any takes on a busy machine
_MEMORY = 16 << 30  # of addresses: damage must not starve the machine
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


@dataclass(frozen=True)
class Ended:
    """How a child ended.

    Attributes:
        status: its exit status; the negative signal that ended it.
        out, err: what it printed.
        answer: what its work returned.
        hung: it was still there after its limit, and was killed.
        seconds: that it took.
        writes: how often it changed something on disk, as ``moments`` counts.
    """

    status: int
    out: str
    err: str
    answer: str
    hung: bool
    seconds: float
    writes: int

    @property
    def raised(self) -> str | None:
        """The last line of a traceback that it printed, and the last place of ours in it."""
        for text in (self.err, self.out):
            _, found, trace = text.rpartition("Traceback (most recent call last):\n")
            if found:
                places = re.findall(r'File ".*/((?:ltr|scripts)/\S+\.py)", (line \d+)', trace)
                where = f" ({', '.join(places[-1])})" if places else ""
                ends = [line for line in trace.splitlines() if line and not line.startswith(" ")]
                return f"{ends[0][:200] if ends else 'cut short'}{where}"
        return None


def program(script: str, *arguments: str) -> Callable[[], None]:
    """The work of ``python SCRIPT ARGUMENTS``; ``script`` is relative to the repository."""

    def run() -> None:
        path = ROOT / script
        sys.argv = [str(path), *arguments]
        sys.path[0] = str(path.parent)
        runpy.run_path(str(path), run_name="__main__")

    return run


def child(
    work: Callable[[], Any],
    folder: Path,
    *,
    moment: Moment | None = None,
    limit: float = LIMIT,
    file_size: int | None = None,
) -> Ended:
    """Do ``work`` in a forked child, and wait for its end.

    Args:
        work: what it returns, text, is the answer.
        folder: where it works.
        moment: when it gets which signal.
        limit: seconds until it counts as hanging.
        file_size: the largest file that it may write, in bytes.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    count = mmap.mmap(-1, 8)
    begin = os.pipe()
    started = time.perf_counter()
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as err,
        tempfile.TemporaryFile() as answer,
    ):
        pid = fork()
        if pid == 0:
            streams = (out.fileno(), err.fileno(), answer.fileno())
            _live(work, folder, streams, moment, count, begin[1], file_size)
        os.close(begin[1])
        handle = os.pidfd_open(pid)
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        try:
            if moment is not None and moment.kind == AT_TIME:
                os.read(begin[0], 1)  # or its end
                if not poll.poll(1000 * moment.at):
                    os.kill(pid, moment.signum)
            hung = not poll.poll(1000 * limit)
        except BaseException:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        finally:
            os.close(handle)
            os.close(begin[0])
        if hung:
            os.kill(pid, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        said, cried, given = (_text(stream) for stream in (out, err, answer))
    writes = int.from_bytes(count[:8], "little")
    count.close()
    return Ended(status, said, cried, given, hung, time.perf_counter() - started, writes)


def fork() -> int:
    """``os.fork``; Python warns where a library has threads, none of which a child needs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _text(stream: Any) -> str:
    stream.seek(0)
    return str(stream.read().decode(errors="replace"))


def _live(
    work: Callable[[], Any],
    folder: Path,
    streams: tuple[int, int, int],
    moment: Moment | None,
    count: mmap.mmap,
    begin: int,
    file_size: int | None,
) -> None:
    """The whole life of a child."""
    status = 1
    try:
        die_with_parent()
        os.setsid()
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(streams[0], 1)
        os.dup2(streams[1], 2)
        sys.stdout = os.fdopen(1, "w", buffering=1, closefd=False)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
        if file_size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))
        os.chdir(folder)
        watch_writes(moment, count, begin)
        status = _status_of(work, streams[2])
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):
                stream.flush()
        os._exit(status)


def _status_of(work: Callable[[], Any], answer: int) -> int:
    """Do the work; the exit status that Python would give to its end."""
    try:
        given = work()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
            return 1
        return end.code or 0
    except KeyboardInterrupt:
        traceback.print_exc()
        return 130
    except BaseException:
        traceback.print_exc()
        return 1
    if isinstance(given, str):
        os.write(answer, given.encode())
    return 0


def _prctl(option: int, value: int) -> None:
    with suppress(OSError, AttributeError):  # only Linux has it
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def die_with_parent() -> None:
    """See that this process is killed when its parent ends."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def adopt_orphans() -> None:
    """Let what children of children leave running become children of this process."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_orphans() -> None:
    """End every process that is a child of this one."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):
            pid, parent = int(status.parent.name), status.read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid():
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def warm() -> None:
    """Import, once, what children need."""
    os.environ |= {"TQDM_DISABLE": "1", "MPLBACKEND": "agg"}
    import hydra
    import hydra._internal.core_plugins.basic_launcher
    import hydra._internal.core_plugins.basic_sweeper
    import matplotlib.pyplot  # noqa: F401
    import scipy.stats  # noqa: F401
    import sklearn.datasets
    import sklearn.preprocessing  # noqa: F401
    import torch
    import tqdm

    tqdm.tqdm.monitor_interval = 0  # no thread of its own: forks must find one thread
    import ltr.compare.compare
    import ltr.data.prepare
    import ltr.experiment.job
    import ltr.scoring.evaluate
    import ltr.scoring.predict
    import ltr.search.search
    import ltr.tables.table  # noqa: F401
    from ltr.console.configs import CONFIGS
    from ltr.console.folders import register_resolvers
    from ltr.experiment.identity import code_digest

    for library in (
        "lightgbm",
        "xgboost",
        "catboost",
        "ltr.kernels.neuralndcg",
        "ltr.kernels.pairs",
    ):
        with suppress(ImportError):
            __import__(library)
    torch.optim.Adam([torch.nn.Parameter(torch.ones(1))])  # imports a second's worth
    for rounds in (False, True):
        code_digest(rounds=rounds)  # a second, for every run
    register_resolvers()
    with hydra.initialize_config_dir(str(CONFIGS), version_base="1.3"):
        hydra.compose("train")  # finds Hydra's plugins
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page
