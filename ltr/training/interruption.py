"""SIGINT (Ctrl-C) and SIGTERM: a stop is a clean stop from a program's first line on.

Where nothing is under way that must be undone, they end the process at once
(``end_when_stopped``); within ``stoppable`` they raise ``Interrupted``, so that what is half done
is undone; in the training loop they wait for the next safe point (``Interruption``). Importing this
is cheap.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_IMPORT_POLL_SECONDS = 0.05
_stoppable = 0  # how many contexts are entered


class Interrupted(BaseException):
    """Training was asked to stop and has saved its state. Not an Exception: nothing swallows it."""

    def __init__(self, signum: int) -> None:
        """``signum``: the signal that asked."""
        super().__init__(signum)
        self.signum = signum

    def __str__(self) -> str:
        """The name of the signal."""
        return signal.Signals(self.signum).name


def end_when_stopped() -> None:
    """From here on SIGINT and SIGTERM end the process with 130 or 143, and without a word.

    Call it before anything heavy is imported: what is raised within an import may come out as
    another error, or not at all.
    """
    for signum in _SIGNALS:
        signal.signal(signum, _stop)


@contextmanager
def stoppable() -> Iterator[None]:
    """After ``end_when_stopped``: within, a stop raises ``Interrupted`` in the main thread."""
    global _stoppable
    _stoppable += 1
    try:
        yield
    finally:
        _stoppable -= 1


def _stop(signum: int, frame: FrameType | None) -> None:
    if not _stoppable:
        with suppress(OSError, RuntimeError, ValueError):  # RuntimeError: it is being written to
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
        """Nothing is installed until entered."""
        self.signum: int | None = None
        self._before: dict[int, signal._HANDLER] = {}

    def __enter__(self) -> "Interruption":
        """Install the handlers; only the main thread may, elsewhere this does nothing."""
        if threading.current_thread() is threading.main_thread():
            for signum in _SIGNALS:
                self._before[signum] = signal.signal(signum, self._request)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Put the handlers back; a request that came too late to be seen within is not lost."""
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
