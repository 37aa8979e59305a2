"""Commands of the project in processes of their own, forked from one that has imported it all.

The standard library's server of forks starts them, which saves most of their time. Each is a real
process with its own session, signals, pipes, environment and working directory.
"""

import atexit
import functools
import gc
import multiprocessing
import os
import resource
import runpy
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from multiprocessing import connection, forkserver
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import IO, Any
from unittest import mock

from tests.helpers.paths import ROOT

LTR = "from ltr.__main__ import main\nmain()\n"  # the program that the command ``ltr`` is

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.helpers.warm"])
_LOCK = threading.Lock()  # a start reads the exit status of other processes


class Process:
    """A command under way, with as much of ``subprocess.Popen`` as tests use."""

    def __init__(self, process: BaseProcess, stdout: IO[str], stderr: IO[str]) -> None:
        """Take a process that has started, and the ends of its pipes."""
        self.stdout = stdout
        self.stderr = stderr
        self.pid = process.pid
        self._process = process

    @property
    def returncode(self) -> int | None:
        """The exit status, the negative signal that ended it, or None while it runs."""
        with _LOCK:
            return self._process.exitcode

    def poll(self) -> int | None:
        """The same."""
        return self.returncode

    def wait(self) -> int:
        """The same, once it has ended."""
        connection.wait([self._process.sentinel])
        status = self.poll()
        assert status is not None
        return status

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
        with _LOCK:
            self._process.kill()


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
    request = {
        "script": str(script) if "\n" in str(script) else str(ROOT / script),
        "arguments": [str(argument) for argument in arguments],
        "cwd": str(cwd),
        "env": {**os.environ, **(env or {})},
        "file_size": file_size,
    }
    begin()
    stdout, to_stdout = _FORKS.Pipe(duplex=False)
    stderr, to_stderr = _FORKS.Pipe(duplex=False)
    process = _FORKS.Process(target=_live, args=(request, to_stdout, to_stderr))
    with _LOCK:
        process.start()
    to_stdout.close()
    to_stderr.close()
    return Process(process, _text(stdout), _text(stderr))


def run(script: str | Path, *arguments: str, **how: Any) -> "subprocess.CompletedProcess[str]":
    """Run ``python SCRIPT ARGUMENTS`` to its end, as ``start`` does."""
    process = start(script, *arguments, **how)
    out, err = process.communicate()
    return subprocess.CompletedProcess([str(script), *arguments], process.wait(), out, err)


@functools.cache
def begin() -> None:
    """Start the server of forks, once; nothing waits for it."""
    with mock.patch.dict(os.environ, {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}):
        forkserver.ensure_running()
    atexit.register(kill_all)  # by default, this process would wait for them


def kill_all() -> None:
    """Kill what still runs."""
    with _LOCK:
        for process in multiprocessing.active_children():
            process.kill()


def executable(folder: Path) -> dict[str, str]:
    """Write the command ``ltr`` into ``folder``; the environment in which a shell finds it.

    It asks this process to run the command.
    """
    listener = connection.Listener(family="AF_UNIX")
    threading.Thread(target=_run_for, args=[listener], daemon=True).start()
    path = folder / "ltr"
    path.write_text(
        f"#!{sys.executable} -S\nimport os, sys\nfrom multiprocessing.connection import Client\n"
        f"with Client({listener.address!r}) as client:\n"
        "    client.send((sys.argv[1:], os.getcwd(), dict(os.environ)))\n"
        "    status, out, err = client.recv()\n"
        "sys.stdout.write(out)\nsys.stderr.write(err)\nsys.exit(status)\n"
    )
    path.chmod(0o755)
    return {"PATH": f"{folder}{os.pathsep}{os.environ['PATH']}"}


def wait_for(condition: Callable[[], object], process: Process) -> None:
    """Until ``condition`` holds, however busy the machine is; ``process`` lives meanwhile."""
    while not condition():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)


def _text(reader: Any) -> IO[str]:
    with reader:
        return os.fdopen(os.dup(reader.fileno()), errors="replace")


def _run_for(listener: connection.Listener) -> None:
    """Run ``ltr`` for each program that asks."""
    while True:
        with listener.accept() as client:
            arguments, cwd, env = client.recv()
            done = run(LTR, *arguments, cwd=cwd, env=env)
            client.send((done.returncode, done.stdout, done.stderr))


def _live(request: dict[str, Any], stdout: Any, stderr: Any) -> None:
    """The life of a forked child: ``python SCRIPT ARGUMENTS``."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in jobs of the background
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, stream in enumerate((stdout, stderr), 1):
        os.dup2(stream.fileno(), number)
        stream.close()
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
    if request["file_size"] is not None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (request["file_size"],) * 2)
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
    except KeyboardInterrupt:
        traceback.print_exc()
        sys.exit(130)
    finally:
        threading._shutdown()  # as at the end of any program
        atexit._run_exitfuncs()
