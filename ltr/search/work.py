"""The work of a search: trial after trial in this process, or in several at once."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

import optuna

from ltr.console.ending import is_full
from ltr.errors import OutputError
from ltr.search.claims import Nothing, claim
from ltr.search.order import Order
from ltr.search.plan import Plan
from ltr.search.trial import do_trial
from ltr.whole import write_whole

_POLL_SECONDS = 0.3


def work(
    plan: Plan,
    study: optuna.Study,
    folder: Path,
    trials: int,
    *,
    parent: int | None = None,
    look: Callable[[], None] = lambda: None,
) -> None:
    """Do trials until ``trials`` are finished, whoever does them.

    Args:
        plan, study, folder: of the search.
        trials: to be finished in all.
        parent: as for ``do_trial``.
        look: called when something may have changed.

    Raises:
        Interrupted, DataError, CheckpointError: as ``do_trial``.
        OutputError: the disk is full.
    """
    try:
        while parent is None or os.getppid() == parent:
            found = claim(plan, study, folder, trials)
            look()
            if found is Nothing.LEFT:
                return
            if found is Nothing.YET:
                time.sleep(_POLL_SECONDS)
                continue
            with found:
                do_trial(plan, study, found, parent)
    except OSError as error:
        if not is_full(error):
            raise
        raise OutputError(
            f"{folder} could not be written ({error.strerror}): free some space, then give the "
            "same command again"
        ) from error


def work_at_once(
    order: Order, folder: Path, threads: int | None, look: Callable[[], None]
) -> list[str]:
    """Let ``order.workers`` processes work until all trials are finished.

    Args:
        order: of the user.
        folder: of the search; what a process that crashed had to say is kept there.
        threads: of each process; None: as PyTorch chooses.
        look: called every now and then.

    Returns:
        Why processes ended before that, if any did.
    """
    extra = ["workers=1"] if threads is None else ["workers=1", f"threads={threads}"]
    worker = [sys.executable, "-m", "ltr.search.worker", str(os.getpid())]
    files = [tempfile.TemporaryFile("w+") for _ in range(order.workers)]  # noqa: SIM115
    processes = [
        subprocess.Popen(
            [*worker, *order.arguments, *extra],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=file,
            env={**os.environ, "TQDM_DISABLE": "1"},
            start_new_session=True,  # Ctrl-C reaches it once, from here
        )
        for file in files
    ]
    try:
        while any(process.poll() is None for process in processes):
            look()
            time.sleep(_POLL_SECONDS)
        look()
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)  # it keeps a checkpoint and ends
        for process in processes:
            process.wait()
    return [
        reason
        for process, file in zip(processes, files, strict=True)
        if (reason := _why(process, file, folder)) is not None
    ]


def _why(process: subprocess.Popen[bytes], said: IO[str], folder: Path) -> str | None:
    said.seek(0)
    text = said.read()
    said.close()
    status, lines = process.returncode, [line for line in text.splitlines() if line.strip()]
    if status == 0:
        return None
    why = f"killed by {signal.Signals(-status).name}" if status < 0 else f"status {status}"
    if status > 0 and lines:
        why = lines[-1].removeprefix("error: ")
    if len(lines) < 2:
        return why
    kept = folder / f"worker-{process.pid}.txt"
    try:
        write_whole(kept, text)
    except OutputError:  # the disk may be what it ended for
        return why
    return f"{why}; all it said is in {kept}"
