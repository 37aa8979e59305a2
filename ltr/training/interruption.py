"""Stop cleanly on SIGINT (Ctrl-C) and SIGTERM, from a program's first line on; cheap to import.

A signal ends the process at once (``end_when_stopped``), raises ``Interrupted`` (``stoppable``,
``handing_on``), or waits for the next safe point of the training loop (``Interruption``).
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_OF_LAUNCHERS = (signal.SIGUSR1, signal.SIGUSR2)
_IMPORT_POLL_SECONDS = 0.05
_stoppable = 0  # how many contexts are entered


class Interrupted(BaseException):
    """A signal asked for a stop. Not an Exception, so that no ``except Exception`` swallows it."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum

    def __str__(self) -> str:
        """The name of the signal."""
        return signal.Signals(self.signum).name


def end_when_stopped() -> None:
    """From here on SIGINT and SIGTERM end the process silently, with status 130 or 143.

    Call it before heavy imports: an exception raised within an import may come out as another
    error, or not at all.
    """
    for signum in _SIGNALS:
        signal.signal(signum, _stop)


@contextmanager
def stoppable() -> Iterator[None]:
    """After ``end_when_stopped``: within, a signal raises ``Interrupted`` in the main thread."""
    global _stoppable
    _stoppable += 1
    try:
        yield
    finally:
        _stoppable -= 1


@contextmanager
def handing_on() -> Iterator[None]:
    """Within, a signal that a launcher awaits raises ``Interrupted``; then its handler is called.

    submitit awaits the one that Slurm sends before a job's time is over, and queues the job again;
    SIGTERM it outlasts, and there it raises ``Interrupted`` too. A process whose handlers are the
    system's or ours is left as it is.
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
            signal.raise_signal(stopped)  # it may queue the job again, and end this process


def _stop(signum: int, frame: FrameType | None) -> None:
    if not _stoppable:
        with suppress(OSError, RuntimeError, ValueError):  # RuntimeError: a write is under way
            sys.stdout.flush()
        os._exit(128 + signum)
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    if frame is None:
        raise Interrupted(signum)
    # a module is being imported: again soon
    signal.signal(signal.SIGALRM, lambda _, later: _stop(signum, later))
    signal.setitimer(signal.ITIMER_REAL, _IMPORT_POLL_SECONDS)


class Interruption:
    """While entered, the first signal to stop only sets ``signum``; a second acts at once.

    That is SIGINT, SIGTERM, or one that ``handing_on`` takes for a launcher.
    """

    def __init__(self) -> None:
        self.signum: int | None = None
        self._before: dict[int, signal._HANDLER] = {}

    def __enter__(self) -> "Interruption":
        """Install the handlers in the main thread; do nothing in any other."""
        if threading.current_thread() is threading.main_thread():
            awaited = [s for s in _OF_LAUNCHERS if signal.getsignal(s) is _stop]
            for signum in (*_SIGNALS, *awaited):
                self._before[signum] = signal.signal(signum, self._set)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Restore the handlers; raise ``Interrupted`` where ``signum`` came too late to be seen."""
        self._set(self.signum)
        if self.signum is not None and error is None:
            raise Interrupted(self.signum)

    def _set(self, requested: int | None, frame: FrameType | None = None) -> None:
        """Set ``signum`` and restore the handlers."""
        self.signum = requested
        while self._before:
            signal.signal(*self._before.popitem())
