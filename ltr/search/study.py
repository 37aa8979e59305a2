"""The study of a search, kept by Optuna: opened, known by what it is of, its trials retried."""

import sqlite3
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback, fail_stale_trials
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import SQLAlchemyError

from ltr.console.keys import stated
from ltr.errors import ConfigError, DataError, LTRError, OutputError
from ltr.search.definition import Search

BEST_EPOCH = "best_epoch"  # of a trial judged by crossfit: its best epoch's value
REACHED = "reached"  # by a trial that was pruned; Optuna itself counts trainings to come as 0
GRACE_SECONDS = 120  # a process that does not beat for so long is dead
_HEARTBEAT_SECONDS = 15
_SQLITE_SECONDS = 100  # to wait for a transaction of another process
_IDENTITY = "search"  # attribute of the study
_BEGUN = "begun"  # number of the trial that it is noted of
_STOPS = "stops"  # how often the trial was retried though no process was killed


def database(search: Search) -> Path:
    """The database of a search whose ``storage`` is not set."""
    return search.folder / "search.db"


def study_lock(search: Search) -> FileLock:
    """Held while it is decided which process takes which trial; one may hold it twice.

    SQLite has no lock of a row: two processes that ask at once would be given one waiting trial.
    """
    return FileLock(search.folder / ".lock", is_singleton=True)


def open_study(search: Search) -> optuna.Study:
    """The study of ``search``, a new one where there is none; its folder exists.

    Raises:
        ConfigError: the storage cannot be reached.
        DataError: its database is damaged.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    median = search.pruner == "median"
    with storage_errors(search, anything=True), study_lock(search):
        if search.storage is None and database(search).exists():
            with closing(sqlite3.connect(database(search))) as connection:
                found = connection.execute("PRAGMA integrity_check").fetchone()
            if found != ("ok",):
                raise ValueError(" ".join(str(found[0]).split()))
        return optuna.create_study(
            storage=_storage(search),
            pruner=optuna.pruners.MedianPruner() if median else optuna.pruners.NopPruner(),
            study_name="search" if search.storage is None else search.name,
            direction="maximize",
            load_if_exists=True,
        )


def _storage(search: Search) -> RDBStorage:
    """The database that ``storage=`` names, else one of SQLite in the folder."""
    url = search.storage or URL.create("sqlite", database=str(database(search).absolute()))
    on_server = make_url(url).get_backend_name() != "sqlite"
    engine: dict[str, Any] = {"connect_args": {"timeout": _SQLITE_SECONDS}}
    if on_server:  # a connection is tried before use: it may be of before a restart of the server
        engine = {"pool_pre_ping": True}
    with experimental():
        return RDBStorage(
            url if isinstance(url, str) else url.render_as_string(),
            engine,
            heartbeat_interval=_HEARTBEAT_SECONDS,
            grace_period=GRACE_SECONDS,
            heartbeat_stale_trial_callback=RetryHeartbeatStaleTrialCallback(),
        )


@contextmanager
def storage_errors(search: Search, *, anything: bool = False) -> Iterator[None]:
    """Turn errors of the storage into one line; with ``anything`` every error is one.

    Raises:
        ConfigError: ``storage=`` cannot be reached.
        DataError: the database of the search is damaged.
        OutputError: it cannot be written.
    """
    of_storage = (optuna.exceptions.StorageInternalError, SQLAlchemyError, sqlite3.Error)
    try:
        yield
    except (LTRError, OSError):
        raise
    except Exception as error:
        if not anything and not isinstance(error, of_storage):
            raise
        below = error.__cause__ or error
        reason = (str(getattr(below, "orig", below)) or type(below).__name__).splitlines()[0]
        if search.storage is not None:
            raise ConfigError(
                f"{_shown(search.storage)}: {reason}: start the database, mend the URL or install "
                "its driver, such as pip install psycopg2-binary"
            ) from error
        path = database(search)
        blocked = ("full", "disk I/O", "locked", "readonly", "unable to open")
        if any(word in reason for word in blocked):
            raise OutputError(
                f"{path} could not be written ({reason}): free some space, or end what holds it, "
                "then give the same command again"
            ) from error
        raise DataError(
            f"{path} is damaged ({reason}): put a good copy in its place, or give name=NAME for a "
            "new search"
        ) from error


def _shown(url: str) -> str:
    """``storage=URL`` without its password."""
    try:
        return f"storage={make_url(url).render_as_string(hide_password=True)}"
    except SQLAlchemyError:
        return "storage"


@contextmanager
def experimental() -> Iterator[None]:
    """Use what Optuna calls experimental: its heartbeats and how it retries a trial."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


def first_number(trial: FrozenTrial) -> int:
    """The number of the first try of ``trial``; a retried trial goes on in its folder."""
    with experimental():
        first = RetryHeartbeatStaleTrialCallback.retried_trial_number(trial)
    return trial.number if first is None else first


def kills(trial: FrozenTrial) -> int:
    """How often a process was killed that trained it."""
    with experimental():
        tries = len(RetryHeartbeatStaleTrialCallback.retry_history(trial))
    return tries - int(trial.user_attrs.get(_STOPS, 0))


def begin_beating(study: optuna.Study, trial: optuna.Trial) -> None:
    """Note that ``trial`` is this process's; from here on its heartbeats tell that it lives."""
    study._storage.record_heartbeat(trial._trial_id)  # type: ignore[attr-defined]
    trial.set_user_attr(_BEGUN, trial.number)


def retry_dead(study: optuna.Study) -> None:
    """Queue the trials again whose process beats no longer, or died before it beat."""
    with experimental():
        fail_stale_trials(study)
    for trial in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        began = trial.datetime_start
        silent = trial.user_attrs.get(_BEGUN) != trial.number  # a retried one inherits the note
        if silent and began and (datetime.now() - began).total_seconds() > GRACE_SECONDS:
            retry_stopped(study, trial.number)


def retry_stopped(study: optuna.Study, number: int) -> None:
    """Queue trial ``number`` again, whose process was stopped but not killed."""
    study.tell(number, state=TrialState.FAIL, skip_if_finished=True)
    trial = study.get_trials()[number]
    if not is_finished(trial):
        trial.set_user_attr(_STOPS, int(trial.user_attrs.get(_STOPS, 0)) + 1)
        with experimental():
            RetryHeartbeatStaleTrialCallback()(study, trial)


def settle_identity(
    study: optuna.Study,
    folder: Path,
    settings: Mapping[str, Any],
    data: Mapping[str, str],
    code: str,
) -> bool:
    """Note what a new study is of; refuse to go on with one that is of something else.

    Returns:
        Whether its trials so far were trained by the same code.

    Raises:
        ConfigError: a setting or the space differs, the message says which.
        DataError: the lists differ.
    """
    kept = study.user_attrs.get(_IDENTITY)
    if kept is None:
        identity = {"settings": dict(settings), "data": dict(data), "code": code}
        study.set_user_attr(_IDENTITY, identity)
        return True
    before = stated(kept["settings"])
    for key in [*(now := stated(settings)), *before]:
        one, other = before.get(key, "null"), now.get(key, "null")
        if one != other:
            raise ConfigError(
                f"{folder} is a search with {key}={one}, now it is {other}: put it back, or give "
                "name=NAME for a new search"
            )
    changed = [key for key in data if kept["data"].get(key) != data[key]]
    if changed:
        raise DataError(
            f"{', '.join(changed)} changed since the search in {folder} began: put the data back, "
            "or give name=NAME for a new search"
        )
    return bool(kept["code"] == code)


def reason(trial: FrozenTrial) -> str | None:
    """Why a trial failed for good, None where it did not."""
    error = trial.user_attrs.get("error") if trial.state == TrialState.FAIL else None
    return None if error is None else str(error)


def is_finished(trial: FrozenTrial) -> bool:
    """Whether it counts: done, pruned or failed for a reason; not where it is to be retried."""
    return trial.state in (TrialState.COMPLETE, TrialState.PRUNED) or reason(trial) is not None


def finished(study: optuna.Study) -> list[FrozenTrial]:
    """The trials that count, in order."""
    return [trial for trial in study.get_trials(deepcopy=False) if is_finished(trial)]
