"""Commands of the project in processes of their own, forked from one that has imported it all.

Each is a real process with its own session, signals, pipes, environment and working directory; it
saves the start, which would be most of its time. ``python processes.py PATH`` is what is forked.
All workers of pytest-xdist share it.
"""

import atexit
import ctypes
import gc
import json
import os
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from tests.helpers.paths import ROOT

LTR = "from ltr.__main__ import main\nmain()\n"  # the program that the command ``ltr`` is
_BYTES = 1 << 20  # of a request
_PLACE = "LTR_TESTS_SERVER"  # the variable with the address of the process that is forked


class Process:
    """A command under way, with as much of ``subprocess.Popen`` as tests use."""

    def __init__(self, connection: socket.socket, stdout: int, stderr: int) -> None:
        """Take the ends of the pipes to read; the command has just been asked for."""
        self.stdout: IO[str] = os.fdopen(stdout, errors="replace")
        self.stderr: IO[str] = os.fdopen(stderr, errors="replace")
        self._connection = connection
        self._said = connection.makefile()
        self.pid = int(self._said.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit status, the negative signal that ended it, or None while it runs."""
        if self.returncode is None and select.select([self._connection], [], [], 0)[0]:
            self.wait()
        return self.returncode

    def wait(self) -> int:
        """The same, once it has ended."""
        if self.returncode is None:
            self.returncode = int(self._said.readline())
            self._said.close()
            self._connection.close()
        return self.returncode

    def communicate(self) -> tuple[str, str]:
        """What it prints from here on to its end."""
        errors: list[str] = []
        reader = threading.Thread(target=lambda: errors.append(self.stderr.read()))
        reader.start()
        out = self.stdout.read()
        reader.join()
        self.wait()
        self.stdout.close()
        self.stderr.close()
        return out, errors[0]

    def send_signal(self, signum: int) -> None:
        """Signal it, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, signum)

    def kill(self) -> None:
        """Kill it, unless it has ended."""
        self.send_signal(signal.SIGKILL)


def start(
    script: str | Path,
    *arguments: str,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    file_size: int | None = None,
) -> Process:
    """Start ``python SCRIPT ARGUMENTS`` in ``cwd``; ``env`` goes over this process's own.

    A ``script`` of several lines is a program itself; it writes no file of more than ``file_size``.
    """
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(_server())
    (out, to_out), (err, to_err) = os.pipe(), os.pipe()
    request = {
        "script": str(script) if "\n" in str(script) else str(ROOT / script),
        "arguments": [str(argument) for argument in arguments],
        "cwd": str(cwd),
        "env": {**os.environ, **(env or {})},
        "file_size": file_size,
    }
    text = json.dumps(request).encode() + b"\n"
    assert len(text) < _BYTES
    socket.send_fds(connection, [text[:1]], [to_out, to_err])
    connection.sendall(text[1:])
    os.close(to_out)
    os.close(to_err)
    return Process(connection, out, err)


def run(script: str | Path, *arguments: str, **how: Any) -> "subprocess.CompletedProcess[str]":
    """Run ``python SCRIPT ARGUMENTS`` to its end, as ``start`` does."""
    process = start(script, *arguments, **how)
    out, err = process.communicate()
    return subprocess.CompletedProcess([str(script), *arguments], process.wait(), out, err)


def executable(folder: Path) -> dict[str, str]:
    """Write the command ``ltr`` into ``folder``; the environment in which a program finds it."""
    path = folder / "ltr"
    path.write_text(
        f"#!{sys.executable} -S\nimport sys\nfrom pathlib import Path\n"
        f"sys.path.insert(0, {str(ROOT)!r})\nfrom tests.helpers import processes\n"
        f"done = processes.run({LTR!r}, *sys.argv[1:], cwd=Path.cwd())\n"
        "sys.stdout.write(done.stdout)\nsys.stderr.write(done.stderr)\n"
        "sys.exit(done.returncode)\n"
    )
    path.chmod(0o755)
    return {_PLACE: _server(), "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def wait_for(condition: Callable[[], object], process: Process) -> None:
    """Until ``condition`` holds, however busy the machine is; ``process`` lives meanwhile."""
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def begin() -> None:
    """Start the process that is forked, for this process and its children; nothing waits for it."""
    os.environ[_PLACE] = str(Path(tempfile.mkdtemp(), "socket"))
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(os.environ[_PLACE])
    listening.listen(64)  # who asks before it is warm waits
    running = subprocess.Popen(
        [sys.executable, __file__, str(listening.fileno())],
        stdin=subprocess.PIPE,  # its end is the end of this process
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        pass_fds=[listening.fileno()],
    )
    listening.close()
    atexit.register(running.communicate)  # its input ends, and so does it


def _server() -> str:
    """The address of the process that is forked, started at the first call."""
    if _PLACE not in os.environ:
        begin()
    return os.environ[_PLACE]


def _serve(listening: socket.socket) -> None:
    """Fork for every request; say the process id, then how it ended."""
    die_with_parent()
    warm()
    # Python warns where a library has threads, none of which a child needs
    warnings.filterwarnings("ignore", ".*fork", DeprecationWarning)
    alive: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for ready in select.select([0, listening, *alive], [], [])[0]:
            if ready == 0:
                os._exit(0)
            elif ready is listening:
                connection, _ = listening.accept()
                text, streams, _, _ = socket.recv_fds(connection, _BYTES, 2)
                while not text.endswith(b"\n"):
                    text += connection.recv(_BYTES)
                pid = os.fork()
                if pid == 0:
                    live(json.loads(text), *streams)
                for stream in streams:
                    os.close(stream)
                alive[os.pidfd_open(pid)] = pid, connection
                connection.sendall(b"%d\n" % pid)
            else:
                pid, connection = alive.pop(ready)
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                os.close(ready)
                with suppress(OSError):  # nobody waits for it any more
                    connection.sendall(b"%d\n" % status)
                connection.close()


def live(request: dict[str, Any], *streams: int) -> None:
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
        if request["file_size"] is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_size"],) * 2)
        _command(request)
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
    from ltr.cli.compose import composed
    from ltr.cli.keys import resolved
    from ltr.experiment.identity import identity_without_data

    kernels = ("ltr.kernels.neuralndcg", "ltr.kernels.pairs")
    events = ("tensorboard.compat.proto.event_pb2", "tensorboard.summary.writer.record_writer")
    for library in ("lightgbm", "xgboost", "catboost", *kernels, *events):
        with suppress(ImportError):
            __import__(library)
    from numba.core.registry import cpu_target

    for context in (cpu_target.typing_context, cpu_target.target_context):
        context.refresh()  # half a second, for the first kernel of every child
    torch.optim.Adam([torch.nn.Parameter(torch.ones(1))])  # imports a second's worth
    for model in ("mlp", "adarank"):
        config = resolved(composed("train", f"model={model}"))
        identity_without_data(config, {})  # a second, for every run
    gc.collect()
    gc.freeze()  # a collection in a child would copy every page


def _command(request: dict[str, Any]) -> None:
    """Be ``python SCRIPT ARGUMENTS`` to its end."""
    os.closerange(3, 256)
    script, program = request["script"], "\n" in request["script"]
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = ["" if program else str(Path(script).parent), *paths, *sys.path[1:]]
    sys.argv = ["-c" if program else script, *request["arguments"]]
    if os.environ.get("PYTHONWARNINGS") == "default":
        warnings.simplefilter("default")
    gc.enable()
    try:
        if program:
            exec(compile(script, "<string>", "exec"), {"__name__": "__main__"})
        else:
            runpy.run_path(script, run_name="__main__")
    finally:
        threading._shutdown()  # as at the end of any program
        atexit._run_exitfuncs()


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
