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

from ltr.console.arguments import quoted
from ltr.console.configs import own_configs
from ltr.experiment.identity import changed
from ltr.tables.adopt import adopt
from ltr.tables.plan import Run

_POLL_SECONDS = 0.2
# What a run that goes on takes from the user anew; the rest is in its checkpoint.
_PASSED_ON = ("trust", "data_dir", "cache_dir", "device", "threads")


def command_of(run: Run, *extra: str) -> list[str]:
    """The command line that starts ``run``, or goes on with it."""
    place = quoted(str(run.folder))
    if (run.folder / "last.pt").is_file():
        kept = [item for item in run.overrides if item.lstrip("+").partition("=")[0] in _PASSED_ON]
        return [*_train_command(), f"resume={place}", *kept, *extra]
    return [*_train_command(), *run.overrides, *extra, f"hydra.run.dir={place}"]


def _train_command() -> list[str]:
    own = own_configs()
    also = [] if own is None else ["--config-dir", str(own)]
    return [sys.executable, "-m", "ltr", "train", *also]


def describe(run: Run) -> str:
    """The command as a person would type it."""
    return shlex.join(["python", "train.py", *run.overrides])


def execute(runs: Sequence[Run], *, workers: int, extra: Sequence[str] = ()) -> dict[Path, str]:
    """Finish ``runs``, ``workers`` at a time; return the reason for each that failed, by folder.

    A run that another process is at is waited for, never done twice. None is started when the code
    or the configs have changed since it was planned: its results would be kept under the hash of
    what was there before. When this process is told to stop, the runs under way keep a checkpoint
    first, and the next call goes on from there.

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
            try:
                reason = _finish(run, extra, stop)
            except Exception as error:  # a full disk, say: the other runs go on
                reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            with lock:
                if reason is _BUSY:
                    waiting.append(run)
                    continue
                if reason is not None and not stop.is_set():
                    failed[run.folder] = reason
                bar.set_postfix_str(run.folder.name)
                bar.update()

    threads = [threading.Thread(target=work, daemon=True) for _ in range(workers)]
    try:
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            time.sleep(_POLL_SECONDS)  # not join: interrupted, it takes a running thread for ended
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        bar.close()
    return failed


_BUSY = "another process is at it"
CHANGED = "the code or configs/ changed while the table was under way: give the same command again"


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
        if _in_use(run.folder):
            time.sleep(_POLL_SECONDS)
            return _BUSY
        if changed(run.sources):
            return CHANGED
        if not run.folder.is_dir():
            adopt(run)
        elif not (run.folder / "last.pt").is_file():
            shutil.rmtree(run.folder)
        return _train(run, extra, stop, claim)
    finally:
        claim.release()


def _in_use(folder: Path) -> bool:
    """Whether a process trains in ``folder``, one that was started by hand, say."""
    if not folder.is_dir():
        return False
    probe = FileLock(folder / ".lock")
    with suppress(OSError):
        try:
            probe.acquire(timeout=0)
        except Timeout:
            return True
        probe.release()
    return False


def _train(run: Run, extra: Sequence[str], stop: threading.Event, claim: FileLock) -> str | None:
    # The claim goes along: a run whose table is killed at once is still claimed while it lives.
    held = claim._context.lock_file_fd
    process = subprocess.Popen(
        command_of(run, *extra),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
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
