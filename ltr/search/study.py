"""The study of a search, kept by Optuna: opened, checked for damage, known by what it is of."""

import hashlib
import json
import sqlite3
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import optuna
from filelock import FileLock
from optuna.storages import RDBStorage, RetryHeartbeatStaleTrialCallback
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.engine import make_url
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.pool import NullPool

from ltr.console.keys import stated
from ltr.errors import ConfigError, DataError, LTRError, OutputError
from ltr.search.definition import Search
from ltr.search.disks import check_disk
from ltr.search.server import ServerStorage, StudyLock

BEST_EPOCH = "best_epoch"  # of a trial judged by crossfit: its best epoch's value
REACHED = "reached"  # by a trial that was pruned; Optuna itself counts trainings to come as 0
GRACE_SECONDS = 300  # a process that does not beat for so long is dead
_HEARTBEAT_SECONDS = 30
_SQLITE_SECONDS = 100.0  # to wait for a transaction of another process
_DIGEST = "sha256"
_IDENTITY = "search"  # attribute of the study
_locks: dict[tuple[Path, str | None], StudyLock] = {}  # of this process


def database(search: Search) -> Path:
    """The database of a search whose ``storage`` is not set."""
    return search.folder / "search.db"


def study_lock(search: Search) -> StudyLock:
    """Held while it is decided which process takes which trial; one may hold it twice.

    SQLite has no lock of a row: two processes that ask at once would be given one waiting trial.
    """
    place = search.folder / ".lock", search.storage
    if place not in _locks:
        file = FileLock(search.folder / ".lock", is_singleton=True)
        _locks[place] = StudyLock(file, search.storage, _study_name(search))
    return _locks[place]


def _study_name(search: Search) -> str:
    return "search" if search.storage is None else search.name


def open_study(search: Search) -> optuna.Study:
    """The study of ``search``, a new one where there is none; its folder exists.

    Raises:
        ConfigError: it was kept by an earlier version, or the storage cannot be reached.
        DataError: its database is damaged.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    if (search.folder / "journal.log").exists():
        raise ConfigError(
            f"{search.folder} is a search of an earlier version: give name=NAME for a new one"
        )
    check_disk(search.folder, search.storage)
    with storage_errors(search, anything=True), study_lock(search):
        study = optuna.create_study(
            storage=_storage(search),
            pruner=(
                optuna.pruners.MedianPruner()
                if search.pruner == "median"
                else optuna.pruners.NopPruner()
            ),
            study_name=_study_name(search),
            direction="maximize",
            load_if_exists=True,
        )
        _check_digests(study)
    return study


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
        if isinstance(error, ImportError):
            raise ConfigError(
                f"{_shown(search.storage)}: {error.__cause__ or error}: install the driver, such "
                "as pip install psycopg2-binary"
            ) from error
        below = error.__cause__ or error
        lines = str(getattr(below, "orig", below)).splitlines()
        raise _one_line(search, lines[0] if lines else type(below).__name__) from error


def _one_line(search: Search, reason: str) -> LTRError:
    if search.storage is not None:
        return ConfigError(
            f"{_shown(search.storage)}: {reason}: start the database or mend the URL"
        )
    path = database(search)
    if any(word in reason for word in ("full", "disk I/O", "locked", "readonly", "unable to open")):
        return OutputError(
            f"{path} could not be written ({reason}): free some space, or end what holds it, then "
            "give the same command again"
        )
    return DataError(
        f"{path} is damaged ({reason}): put a good copy in its place, or give name=NAME for a new "
        "search"
    )


def _shown(url: str | None) -> str:
    """``storage=URL`` without its password."""
    try:
        return f"storage={make_url(url or '').render_as_string(hide_password=True)}"
    except SQLAlchemyError:
        return "storage"


def _storage(search: Search) -> RDBStorage:
    """The database that ``storage=`` names, with heartbeats; else one of SQLite in the folder.

    In the folder the locks of the trials tell who is dead, at once and without an error of a thread
    on a disk that is full.
    """
    with experimental():
        retry = RetryHeartbeatStaleTrialCallback()
        if search.storage is not None:
            on_server = make_url(search.storage).get_backend_name() != "sqlite"
            return (ServerStorage if on_server else RDBStorage)(
                search.storage,
                # a connection is tried before use: it may be of before a restart of the server
                engine_kwargs={"pool_pre_ping": True} if on_server else None,
                heartbeat_interval=_HEARTBEAT_SECONDS,
                grace_period=GRACE_SECONDS,
                heartbeat_stale_trial_callback=retry,
            )
    path = database(search)
    if path.exists():
        _check_sqlite(path, begun=(search.folder / "trials").exists())

    def connect() -> sqlite3.Connection:
        return sqlite3.connect(path, timeout=_SQLITE_SECONDS, check_same_thread=False)

    # not by its URL: a path may hold any sign
    return RDBStorage("sqlite:///search.db", {"creator": connect, "poolclass": NullPool})


def _check_sqlite(path: Path, *, begun: bool) -> None:
    if begun and not path.stat().st_size:
        raise ValueError("it is empty")
    with closing(sqlite3.connect(path, timeout=_SQLITE_SECONDS)) as connection:
        for check in ("integrity_check", "foreign_key_check"):
            found = [row for row in connection.execute(f"PRAGMA {check}") if row != ("ok",)]
            if found:
                raise ValueError(" ".join(str(found[0]).split()))


@contextmanager
def experimental() -> Iterator[None]:
    """Use what Optuna calls experimental: its heartbeats and how it retries a trial."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        yield


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
        study.set_user_attr(_IDENTITY, identity | {_DIGEST: _digest(identity)})
        return True
    before = stated({"select_value": "best", **kept["settings"]})  # a search of an earlier version
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


def seal(study: optuna.Study, trial: optuna.Trial, state: TrialState, value: float | None) -> None:
    """Note a digest of ``trial``, which is about to be told; a database of SQLite has none."""
    frozen = study.get_trials(deepcopy=False)[trial.number]
    trial.set_user_attr(_DIGEST, _digest(_content(frozen, state, value)))


def _check_digests(study: optuna.Study) -> None:
    identity = dict(study.user_attrs.get(_IDENTITY, {}))
    if identity and identity.pop(_DIGEST, None) != _digest(identity):
        raise ValueError("what it is a search of was changed")
    for trial in finished(study):
        content = _content(trial, trial.state, trial.value)
        if trial.user_attrs.get(_DIGEST) != _digest(content):
            raise ValueError(f"trial {trial.number} was changed")


def _content(trial: FrozenTrial, state: TrialState, value: float | None) -> list[Any]:
    notes = {key: note for key, note in trial.user_attrs.items() if key != _DIGEST}
    reports = sorted(trial.intermediate_values.items())
    return [trial.number, state.name, value, trial.params, notes, reports]


def _digest(content: Any) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
