"""Stop cleanly on SIGINT (Ctrl-C) and SIGTERM, from a program's first line on.

By default a signal ends the process at once (``end_when_stopped``). Within ``stoppable`` it raises
``Interrupted``, so that half-done work is undone. In the training loop it waits for the next safe
point (``Interruption``). Importing this module is cheap.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
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


def _stop(signum: int, frame: FrameType | None) -> None:
    if not _stoppable:
        with suppress(OSError, RuntimeError, ValueError):  # RuntimeError: a write is under way
            sys.stdout.flush()
        os._exit(128 + signum)
    if _imports(frame):
        signal.signal(signal.SIGALRM, lambda _, later: _stop(signum, later))
        signal.setitimer(signal.ITIMER_REAL, _IMPORT_POLL_SECONDS)
        return
    raise Interrupted(signum)


def _imports(frame: FrameType | None) -> bool:
    """Whether a module is being imported in ``frame`` or in one that called it."""
    while frame is not None and frame.f_code.co_filename != "<frozen importlib._bootstrap>":
        frame = frame.f_back
    return frame is not None


class Interruption:
    """While entered, the first SIGINT or SIGTERM only sets ``signum``; a second acts at once."""

    def __init__(self) -> None:
        self.signum: int | None = None
        self._before: dict[int, signal._HANDLER] = {}

    def __enter__(self) -> "Interruption":
        """Install the handlers in the main thread; do nothing in any other."""
        if threading.current_thread() is threading.main_thread():
            for signum in _SIGNALS:
                self._before[signum] = signal.signal(signum, self._request)
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Restore the handlers; raise ``Interrupted`` where ``signum`` came too late to be seen."""
        self._restore()
        if self.signum is not None and error is None:
            raise Interrupted(self.signum)

    def _request(self, signum: int, frame: FrameType | None) -> None:
        self.signum = signum
        self._restore()

    def _restore(self) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        self._before.clear()
