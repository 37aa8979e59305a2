"""``train.log``: a copy of what a run says, which no full disk may end the run for."""

import logging
import os
import sys
from contextlib import suppress


class LogFile(logging.FileHandler):
    """A file handler that says once that its file cannot be written, and then is silent."""

    def __init__(self, filename: str) -> None:
        """The file is opened with the first line."""
        super().__init__(filename, encoding="utf-8", delay=True)
        self._lost = False

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line, unless an earlier one could not be written."""
        if not self._lost:
            try:
                super().emit(record)
            except OSError as error:  # when it was opened
                self._lose(error)

    def flush(self) -> None:
        """As ``FileHandler``; a disk that is full raises nothing."""
        try:
            super().flush()
        except OSError as error:
            self._lose(error)

    def handleError(self, record: logging.LogRecord) -> None:
        """What ``emit`` calls within an exception."""
        error = sys.exc_info()[1]
        if isinstance(error, OSError):
            self._lose(error)
        else:
            super().handleError(record)

    def _lose(self, error: OSError) -> None:
        if self.stream is not None:
            # what is still buffered would be written when the stream is closed, and fail again
            with suppress(OSError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())
        if not self._lost:
            self._lost = True
            print(
                f"warning: {self.baseFilename} cannot be written ({error.strerror}): what is said "
                "from here on is on stderr only",
                file=sys.stderr,
            )
