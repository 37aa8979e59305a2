"""Trial after trial, in this process, and in others that are the same command."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import optuna
from optuna.trial import TrialState

from ltr.console.configs import own_configs
from ltr.search.definition import Search
from ltr.search.study import is_finished, retry_dead, study_lock
from ltr.search.trial import do_trial

_POLL_SECONDS = 0.3


def work(search: Search, study: optuna.Study, look: Callable[[], None] = lambda: None) -> None:
    """Do trials until ``search.trials`` are finished, whoever does them.

    Args:
        search, study: what is searched.
        look: called when something may have changed.

    Raises:
        Interrupted, DataError, CheckpointError: as ``do_trial``.
    """
    while True:
        look()
        with study_lock(search) as turn:
            retry_dead(study)
            trials = study.get_trials(deepcopy=False)
            done = sum(map(is_finished, trials))
            running = sum(trial.state == TrialState.RUNNING for trial in trials)
            if done >= search.trials:
                return
            if done + running < search.trials:
                do_trial(search, study, turn)
                continue
        time.sleep(_POLL_SECONDS)  # the last ones are running elsewhere, and may yet be retried


@contextmanager
def others(arguments: Sequence[str], count: int, folder: Path) -> Iterator[None]:
    """Within, ``count`` processes do trials too; what they say is in ``worker-N.log``.

    Args:
        arguments: of the search, as they are typed.
        count: how many.
        folder: of the search.
    """
    own = [] if (folder_of_own := own_configs()) is None else [f"--config-dir={folder_of_own}"]
    command = [sys.executable, "-m", "ltr", "search", *arguments, *own]
    processes = []
    for number in range(count):
        with (folder / f"worker-{number + 1}.log").open("w") as log:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env={**os.environ, "TQDM_DISABLE": "1"},
                start_new_session=True,  # Ctrl-C reaches it once, from here
            )  # fmt: skip
        processes.append(process)
    try:
        yield
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)  # it keeps a checkpoint and ends
        for process in processes:
            process.wait()
