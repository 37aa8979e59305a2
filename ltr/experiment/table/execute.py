"""Runs what is missing of a table: each run a process of ``train.py``, resumed where it was cut."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout
from tqdm import tqdm

from ltr.experiment.cli import CONFIGS
from ltr.experiment.table.adopt import adopt
from ltr.experiment.table.plan import Run

_TRAIN = CONFIGS.parent / "train.py"
_POLL_SECONDS = 0.2


def command_of(run: Run, *extra: str) -> list[str]:
    """The command line that starts ``run``, or goes on with it."""
    place = "'{}'".format(str(run.folder).replace("\\", "\\\\").replace("'", "\\'"))
    if (run.folder / "last.pt").is_file():
        return [sys.executable, str(_TRAIN), f"resume={run.folder}", *extra]
    return [sys.executable, str(_TRAIN), *run.overrides, *extra, f"hydra.run.dir={place}"]


def describe(run: Run) -> str:
    """The command as a person would type it."""
    return shlex.join(["python", "train.py", *run.overrides])


def execute(runs: Sequence[Run], *, workers: int, extra: Sequence[str] = ()) -> dict[Path, str]:
    """Finish ``runs``, ``workers`` at a time; return the reason for each that failed, by folder.

    A run that another process is at is waited for, never done twice. When this process is told to
    stop, the runs under way keep a checkpoint first, and the next call goes on from there.

    Args:
        runs: those that are done already are left alone.
        workers: >= 1, how many at once.
        extra: overrides for all of them that change no result, such as ``threads=1``.
    """
    failed: dict[Path, str] = {}
    waiting = deque({run.folder: run for run in runs if not run.done}.values())
    stop = threading.Event()
    lock = threading.Lock()
    bar = tqdm(total=len(waiting), desc="runs", unit="run", disable=None)

    def work() -> None:
        while not stop.is_set():
            with lock:
                if not waiting:
                    return
                run = waiting.popleft()
            reason = _finish(run, extra, stop)
            with lock:
                if reason is _BUSY:
                    waiting.append(run)
                    continue
                if reason is not None and not stop.is_set():
                    failed[run.folder] = reason
                bar.set_postfix_str(run.folder.name)
                bar.update()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(workers)]
    before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            time.sleep(_POLL_SECONDS)  # not join: interrupted, it takes a running thread for ended
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        signal.signal(signal.SIGTERM, before)
        bar.close()
    return failed


def _interrupt(signum: int, frame: object) -> None:
    raise KeyboardInterrupt


_BUSY = "another process is at it"


def _finish(run: Run, extra: Sequence[str], stop: threading.Event) -> str | None:
    """Finish one run; return why it failed, ``_BUSY``, or None."""
    run.folder.parent.mkdir(parents=True, exist_ok=True)
    claim: FileLock = FileLock(run.folder.with_name(f".{run.folder.name}.lock"))
    try:
        claim.acquire(timeout=0)
    except Timeout:
        time.sleep(_POLL_SECONDS)
        return _BUSY
    try:
        if run.done:
            return None
        if not run.folder.is_dir():
            adopt(run)
        else:
            # A process whose table was killed may still be at it.
            with suppress(OSError):
                probe = FileLock(run.folder / ".lock")
                try:
                    probe.acquire(timeout=0)
                except Timeout:
                    time.sleep(_POLL_SECONDS)
                    return _BUSY
                probe.release()
            if not (run.folder / "last.pt").is_file():
                shutil.rmtree(run.folder)
        return _train(run, extra, stop, claim)
    finally:
        claim.release()


def _train(run: Run, extra: Sequence[str], stop: threading.Event, claim: FileLock) -> str | None:
    # The claim goes along: a run whose table is killed at once is still claimed while it lives.
    held = claim._context.lock_file_fd
    process = subprocess.Popen(
        command_of(run, *extra),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "TQDM_DISABLE": "1"},
        start_new_session=True,  # Ctrl-C reaches it once, from here
        pass_fds=() if held is None else (held,),
    )
    while True:
        try:
            _, text = process.communicate(timeout=_POLL_SECONDS)
            break
        except subprocess.TimeoutExpired:
            if stop.is_set():
                process.send_signal(signal.SIGTERM)  # it keeps a checkpoint and ends
                _, text = process.communicate()
                break
    if run.done:
        return None
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1] if lines else f"train.py ended with {process.returncode}"
