"""Trial after trial, in this process or in several: ``python -m ltr.search.worker PARENT ...``."""

from ltr.training.interruption import end_when_stopped, stoppable

if __name__ == "__main__":
    end_when_stopped()  # before what takes long to import

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import optuna
from optuna.trial import TrialState

from ltr.console.compose import typed
from ltr.console.configs import own_configs
from ltr.console.ending import ending
from ltr.errors import OutputError
from ltr.search.definition import Search, define_search
from ltr.search.retry import retry_dead
from ltr.search.study import is_finished, open_study, storage_errors, study_lock
from ltr.search.trial import do_trial
from ltr.whole import write_whole

_POLL_SECONDS = 0.3


def work(
    search: Search,
    study: optuna.Study,
    *,
    parent: int | None = None,
    look: Callable[[], None] = lambda: None,
) -> None:
    """Do trials until ``search.trials`` are finished, whoever does them.

    Args:
        search, study: what is searched.
        parent: as for ``do_trial``.
        look: called when something may have changed.

    Raises:
        Interrupted, DataError, CheckpointError: as ``do_trial``.
    """
    while parent is None or os.getppid() == parent:
        look()
        with study_lock(search) as turn:
            retry_dead(search, study)
            trials = study.get_trials(deepcopy=False)
            done = sum(map(is_finished, trials))
            running = sum(trial.state == TrialState.RUNNING for trial in trials)
            if done >= search.trials:
                return
            if done + running < search.trials:
                do_trial(search, study, turn, parent)
                continue
        time.sleep(_POLL_SECONDS)  # the last ones are running elsewhere, and may yet be retried


def work_at_once(
    arguments: Sequence[str], workers: int, folder: Path, look: Callable[[], None]
) -> list[str]:
    """Let ``workers`` processes work until all trials are finished.

    Args:
        arguments: of the search, as they are typed.
        workers: how many.
        folder: of the search; what a process that crashed had to say is kept there.
        look: called every now and then.

    Returns:
        Why processes ended before that, if any did.
    """
    own = [] if (folder_of_own := own_configs()) is None else [f"--config-dir={folder_of_own}"]
    command = [sys.executable, "-m", "ltr.search.worker", str(os.getpid()), *arguments, *own]
    files = [tempfile.TemporaryFile("w+") for _ in range(workers)]  # noqa: SIM115
    processes = [
        subprocess.Popen(
            command,
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
    ended = zip(processes, files, strict=True)
    return [why for process, file in ended if (why := _why(process, file, folder)) is not None]


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


def main() -> None:
    """Work on the search that process ``sys.argv[1]`` began with the arguments behind it.

    It was named by who started this one: gone before this line, it could not be asked for.
    """
    parent = int(sys.argv[1])
    arguments = [text for text in sys.argv[2:] if not text.startswith("--config-dir=")]
    with ending(), stoppable():
        search = define_search(typed("search", arguments))
        with storage_errors(search):
            work(search, open_study(search), parent=parent)


if __name__ == "__main__":
    main()
