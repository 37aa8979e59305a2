"""Trials whose process died: known at once by their locks, else by heartbeats, and queued again.

A retried trial goes on in the folder of its first try, which ``.NNNN.lock`` guards whatever the
storage says. ``.NNNN.begun`` is there while a process trains the trial, so that one that was killed
is told from one that was stopped, on a full disk too.
"""

from datetime import datetime
from pathlib import Path

import optuna
from filelock import FileLock, Timeout
from optuna.storages import RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.trial import FrozenTrial, TrialState

from ltr.search.definition import Search
from ltr.search.study import GRACE_SECONDS, experimental, is_finished, study_lock

BEGUN = "begun"  # number of the trial that it is noted of: a retried one inherits what is noted
_STOPS = "stops"  # how often the trial was retried though no process was killed


def first_number(trial: FrozenTrial) -> int:
    """The number of the first try."""
    with experimental():
        first = RetryHeartbeatStaleTrialCallback.retried_trial_number(trial)
    return trial.number if first is None else first


def kills(trial: FrozenTrial) -> int:
    """How often a process was killed that trained it."""
    with experimental():
        tries = len(RetryHeartbeatStaleTrialCallback.retry_history(trial))
    return tries - int(trial.user_attrs.get(_STOPS, 0))


def trial_lock(folder: Path, first: int) -> FileLock:
    """Held by the process that trains in the folder of trial ``first``."""
    return FileLock(_beside(folder, f".{first:04d}.lock"))


def begun_mark(folder: Path, number: int) -> Path:
    """Is there while trial ``number`` is trained, and where its process was killed meanwhile."""
    return _beside(folder, f".{number:04d}.begun")


def _beside(folder: Path, name: str) -> Path:
    place = folder / "trials"
    place.mkdir(parents=True, exist_ok=True)
    return place / name


def retry_dead(search: Search, study: optuna.Study) -> None:
    """Queue the trials of dead processes again; the lock of the study is held.

    Optuna's own ``fail_stale_trials`` never looks at a trial whose process was killed before its
    first heartbeat, and a kill between its failing a trial and queueing it again loses the trial.
    """
    with experimental():
        fail_stale_trials(study)
    trials = study.get_trials(deepcopy=False)
    last = {first_number(trial): trial.number for trial in trials}
    for trial in trials:
        if last[first_number(trial)] == trial.number and _is_dead(search, trial):
            mark = begun_mark(search.folder, trial.number)
            requeue(search, study, trial.number, killed=mark.exists())
            mark.unlink(missing_ok=True)


def _is_dead(search: Search, trial: FrozenTrial) -> bool:
    """Whether ``trial``, the last of its tries, is not finished and its process is gone."""
    if is_finished(trial) or trial.state == TrialState.WAITING:
        return False
    if begun_mark(search.folder, trial.number).exists():
        try:
            with trial_lock(search.folder, first_number(trial)).acquire(timeout=0):
                return True
        except Timeout:
            return False
    if search.storage is None:
        return True
    # Another machine's, whose heartbeats tell; not where it died before them or after they ended.
    failed = trial.state == TrialState.FAIL
    silent = failed or trial.user_attrs.get(BEGUN) != trial.number
    since = trial.datetime_complete if failed else trial.datetime_start
    return silent and since is not None and (datetime.now() - since).total_seconds() > GRACE_SECONDS


def requeue(search: Search, study: optuna.Study, number: int, *, killed: bool) -> None:
    """Let trial ``number`` be done again with the same settings, unless it is finished.

    Args:
        search, study: hold the trial.
        number: of a trial that no process trains.
        killed: whether its process was killed, which counts as a try.
    """
    with study_lock(search):
        study.tell(number, state=TrialState.FAIL, skip_if_finished=True)
        trials = study.get_trials()
        trial, first = trials[number], first_number(trials[number])
        again = any(first_number(other) == first for other in trials[number + 1 :])
        if trial.state != TrialState.FAIL or is_finished(trial) or again:
            return
        if not killed:
            trial.set_user_attr(_STOPS, int(trial.user_attrs.get(_STOPS, 0)) + 1)
        with experimental():
            RetryHeartbeatStaleTrialCallback()(study, trial)
