"""Turn Ctrl-C and SIGTERM into a request to stop at the next safe point."""

import signal
import threading
from types import FrameType, TracebackType


class Interrupted(BaseException):
    """Training was asked to stop and has saved its state. Not an Exception: nothing swallows it."""

    def __init__(self, signum: int) -> None:
        """``signum``: the signal that asked."""
        super().__init__(signal.Signals(signum).name)
        self.signum = signum


class Interruption:
    """While entered, the first SIGINT or SIGTERM only sets ``signum``; a second acts at once."""

    def __init__(self) -> None:
        """Nothing is installed until entered."""
        self.signum: int | None = None
        self._before: dict[int, signal._HANDLER] = {}

    def __enter__(self) -> "Interruption":
        """Install the handlers; only the main thread may, elsewhere this does nothing."""
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGINT, signal.SIGTERM):
                self._before[signum] = signal.signal(signum, self._request)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Put the handlers back."""
        self._restore()

    def _request(self, signum: int, frame: FrameType | None) -> None:
        self.signum = signum
        self._restore()

    def _restore(self) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)
        self._before.clear()
