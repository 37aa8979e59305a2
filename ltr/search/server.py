"""A database server that several machines share: waited for while it restarts, and locked by.

Optuna's ``RDBStorage`` gives up at once; here its calls are tried again. That may do a call twice
whose answer was lost: a trial that was made twice is given up for want of a heartbeat and trained
as another, and a value that was told twice is told once.
"""

import functools
import hashlib
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from filelock import FileLock
from optuna.exceptions import StorageInternalError
from optuna.storages import RDBStorage
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import InterfaceError, OperationalError, PendingRollbackError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from ltr.console.progress import say

OUTAGE_SECONDS = 300.0  # of a server that restarts; then the search ends, and may be given again
_MOST_SECONDS = 10.0  # between two tries
# A server forgets a machine that is gone after two minutes, in place of two hours.
_KEEPALIVE = "SET tcp_keepalives_idle = 60; SET tcp_keepalives_interval = 10"


_SIGNS = (OperationalError, InterfaceError, PendingRollbackError)  # that the server is gone
_within = threading.local()  # a call of another: the outer one is tried again


def patient(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function``, called again while the server cannot be reached, ``OUTAGE_SECONDS`` at most."""

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if getattr(_within, "call", False):
            return function(*args, **kwargs)
        end, pause = time.monotonic() + OUTAGE_SECONDS, 0.25
        while True:
            _within.call = True
            try:
                return function(*args, **kwargs)
            except (StorageInternalError, *_SIGNS) as error:
                if isinstance(error, StorageInternalError) and not isinstance(
                    error.__cause__, _SIGNS
                ):
                    raise
                if args and isinstance(args[0], RDBStorage):
                    args[0].remove_session()  # with what is left of its transaction
                if time.monotonic() > end:
                    raise
            finally:
                _within.call = False
            if pause == 0.25:
                say(f"the database does not answer; trying again for {OUTAGE_SECONDS / 60:.0f} min")
            time.sleep(pause)
            pause = min(2 * pause, _MOST_SECONDS)

    return call


class ServerStorage(RDBStorage):
    """The storage on a server; once open, it outlasts the server's restarts."""


def _is_call(name: str) -> bool:
    """Whether it is a method that begins and ends a transaction."""
    return name.startswith(("create_", "set_", "get_", "record_")) or name in (
        "_create_new_trial",
        "_set_trial_param",
        "_get_best_trial_id",
        "_get_trials",
        "_get_stale_trial_ids",
    )


for _name, _method in list(vars(RDBStorage).items()):
    if callable(_method) and _is_call(_name):
        setattr(ServerStorage, _name, patient(_method))


class StudyLock:
    """Held while it is decided which process takes which trial; one process may hold it twice.

    A file in the folder of the search, and on PostgreSQL an advisory lock too, which holds between
    machines that share no folder. The server frees it when its holder's connection ends.
    """

    def __init__(self, file: FileLock, storage: str | None, name: str) -> None:
        """Locks the study ``name`` of ``storage``; None: the file alone."""
        self._file, self._storage = file, storage
        self._key = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
        self._connection: Connection | None = None
        self._connect = self._connected  # patient once the server has answered

    def __enter__(self) -> "StudyLock":
        """Wait for the lock."""
        self._file.acquire()
        try:
            if self._file.lock_counter == 1 and self._on_postgresql():
                self._connection = self._connect()
                self._connect = patient(self._connected)
        except BaseException:
            self._file.release()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """Release it, as far as that was not done within."""
        self.release()

    def release(self) -> None:
        """Let go of it once; not held, nothing happens."""
        if self._file.lock_counter == 1 and self._connection is not None:
            with suppress(SQLAlchemyError):  # the server is gone, and the lock with it
                self._connection.close()
            self._connection = None
        self._file.release()

    def _on_postgresql(self) -> bool:
        return self._storage is not None and make_url(self._storage).get_backend_name() == (
            "postgresql"
        )

    def _connected(self) -> Connection:
        """A connection that holds the lock."""
        engine = create_engine(str(self._storage), poolclass=NullPool, isolation_level="AUTOCOMMIT")
        connection = engine.connect()
        try:
            connection.execute(text(_KEEPALIVE))
            connection.execute(text("SELECT pg_advisory_lock(:key)"), {"key": self._key})
        except BaseException:
            connection.close()
            raise
        return connection
