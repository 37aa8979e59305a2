"""Stop cleanly on SIGINT (Ctrl-C) and SIGTERM, from the first line of a program; cheap to import.

After ``end_when_stopped``, a signal ends the process at once. Within ``stoppable`` and
``handing_on``, it raises ``Interrupted``. Within ``Interruption``, it is held until the next safe
point of the training loop.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_OF_LAUNCHERS = (signal.SIGUSR1, signal.SIGUSR2)
_IMPORT_POLL_SECONDS = 0.05
_END_SECONDS = 20.0  # the longest wait after a stop for a launcher to end its workers
_stoppable = 0  # the number of ``stoppable`` contexts that are entered


class Interrupted(BaseException):
    """A signal has asked the program to stop.

    This is not an ``Exception``, so ``except Exception`` does not catch it.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum

    def __str__(self) -> str:
        """Return the name of the signal."""
        return signal.Signals(self.signum).name


def end_when_stopped() -> None:
    """From now on, let SIGINT and SIGTERM end the process silently, with the status 130 or 143.

    Call this function before heavy imports. During an import, an exception from a signal might
    become another error, or be lost.
    """
    for signum in _SIGNALS:
        signal.signal(signum, _stop)


@contextmanager
def stoppable() -> Iterator[None]:
    """Context in which a signal raises ``Interrupted`` in the main thread.

    Call ``end_when_stopped`` first: it installs the handlers of the signals.
    """
    global _stoppable
    _stoppable += 1
    try:
        yield
    finally:
        _stoppable -= 1


@contextmanager
def handing_on() -> Iterator[None]:
    """Context in which a signal that a job launcher handles raises ``Interrupted``.

    At the end of the context, the launcher's own handler is called. For example, submitit handles
    the signal that Slurm sends before a job's time is up, and queues the job again. submitit
    ignores SIGTERM, but within this context SIGTERM also raises ``Interrupted``. The context does
    nothing if there is no handler for SIGUSR1 or SIGUSR2, or outside the main thread.
    """
    awaited = {number: signal.getsignal(number) for number in _OF_LAUNCHERS}
    awaited = {number: handler for number, handler in awaited.items() if callable(handler)}
    if not awaited or threading.current_thread() is not threading.main_thread():
        yield
        return
    terminated = signal.getsignal(signal.SIGTERM)
    for number in (*awaited, signal.SIGTERM):
        signal.signal(number, _stop)
    stopped: int | None = None
    try:
        with stoppable():
            yield
    except Interrupted as stop:
        stopped = stop.signum
        raise
    finally:
        for number, handler in {**awaited, signal.SIGTERM: terminated}.items():
            signal.signal(number, handler)
        if stopped in awaited:
            signal.raise_signal(stopped)  # the handler may queue the job again and end this process


def _stop(signum: int, frame: FrameType | None) -> None:
    if not _stoppable:
        with suppress(OSError, RuntimeError, ValueError):  # RuntimeError: a write is under way
            sys.stdout.flush()
        os._exit(128 + signum)
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    if frame is None:
        _end_later(signum)
        raise Interrupted(signum)
    # A module is being imported: try again soon.
    signal.signal(signal.SIGALRM, lambda _, later: _stop(signum, later))
    signal.setitimer(signal.ITIMER_REAL, _IMPORT_POLL_SECONDS)


def kill_workers() -> bool:
    """Kill the remaining worker processes of this process; return whether there were any.

    A launcher that is stopped kills its workers. If it fails midway, the remaining workers keep
    running, and this process would wait until their runs are done.
    """
    workers = _workers()
    for worker in workers:
        if worker.pid is not None:
            with suppress(OSError):
                os.kill(worker.pid, signal.SIGKILL)
    return bool(workers)


def _workers() -> list[Any]:
    multiprocessing = sys.modules.get("multiprocessing")  # slow to import
    return [] if multiprocessing is None else multiprocessing.active_children()


def _end_later(signum: int) -> None:
    """End this process after ``_END_SECONDS`` if it is still waiting for workers then."""

    def end() -> None:
        if kill_workers():
            os._exit(128 + signum)

    if _workers():
        timer = threading.Timer(_END_SECONDS, end)
        timer.daemon = True
        timer.start()


class Interruption:
    """Context in which the first stop signal only sets ``signum``; a second one acts at once.

    The signals are SIGINT, SIGTERM, and the launcher's signals that ``handing_on`` handles.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self._before: dict[int, signal._HANDLER] = {}

    def __enter__(self) -> "Interruption":
        """Install the handlers in the main thread; do nothing in any other thread."""
        if threading.current_thread() is threading.main_thread():
            awaited = [s for s in _OF_LAUNCHERS if signal.getsignal(s) is _stop]
            for signum in (*_SIGNALS, *awaited):
                self._before[signum] = signal.signal(signum, self._set)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Restore the handlers; raise ``Interrupted`` if a signal came and no error was raised.

        Such a signal came after the body of the context last read ``signum``.
        """
        self._set(self.signum)
        if self.signum is not None and error is None:
            raise Interrupted(self.signum)

    def _set(self, requested: int | None, frame: FrameType | None = None) -> None:
        """Set ``signum``, and restore the handlers that were there before."""
        self.signum = requested
        while self._before:
            signal.signal(*self._before.popitem())
