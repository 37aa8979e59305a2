"""Hooks: what follows a run without changing a number of it. TensorBoard is one."""

import io
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal

from tqdm.auto import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

log = logging.getLogger(__name__)

Row = Mapping[str, float]
Ending = Literal["finished", "failed", "killed"]

_quiet = ContextVar("quiet", default=False)


class Hook:
    """Follows a run; each method here does nothing.

    Of processes that train together the first alone has hooks. An exception ends the run: only a
    hook that means to, such as one that prunes, lets one out.
    """

    def start(self, cfg: Any, parts: Any, lists: Mapping[str, Any], scorer: Any) -> None:
        """Training of ``scorer``, by the ``parts`` of ``cfg``, is about to begin or to go on."""

    def epoch(self, row: Row) -> None:
        """An epoch, 0 for the untrained model, and its row of the history are saved."""

    def replay(self, row: Row) -> None:
        """Take in a row from before the run was resumed."""
        self.epoch(row)

    def end(self, ending: Ending, report: Any) -> None:
        """The run has ended; ``report`` is None unless it is finished."""


class OnEpoch(Hook):
    """Calls a function with each epoch and its row, those before a resume first."""

    def __init__(self, call: Callable[[int, Row], None]) -> None:
        self._call = call

    def epoch(self, row: Row) -> None:
        self._call(int(row["epoch"]), row)


class TensorBoard(Hook):
    """Scalars by epoch in the run folder; ``tensorboard --logdir outputs`` shows them.

    Training goes on where they cannot be written. TensorBoard's own writer would put the name of
    the machine into the name of the file.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / f"events.out.tfevents.{time.time():.6f}.{os.getpid()}"
        self._lost = False

    def replay(self, row: Row) -> None:
        """Nothing: an earlier file has it."""

    def epoch(self, row: Row) -> None:
        if self._lost:
            return
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # slow to import
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        now, step = time.time(), int(row["epoch"])
        values = [
            Summary.Value(tag=re.sub("^(train|vali)_", r"\1/", name), simple_value=value)
            for name, value in row.items()
            if name != "epoch"
        ]
        events = [Event(wall_time=now, step=step, summary=Summary(value=values))]
        if not self._file.exists():  # TensorBoard drops what other files have from this step on
            start = SessionLog(status=SessionLog.START)
            head = Event(wall_time=now, file_version="brain.Event:2")
            events = [head, Event(wall_time=now, step=step, session_log=start), *events]
        records = io.BytesIO()
        for event in events:
            RecordWriter(records).write(event.SerializeToString())
        try:
            with self._file.open("ab") as file:
                file.write(records.getvalue())
        except OSError as error:
            self._lost = True
            log.warning(
                "TensorBoard's scalars cannot be written (%s): training goes on without them, "
                "history.csv has them too",
                error.strerror,
            )


def progress_bar(**how: Any) -> tqdm:
    """A bar on a terminal or in a notebook that is gone when it is done; arguments as of tqdm."""
    return tqdm(leave=False, disable=True if _quiet.get() else None, **how)


@contextmanager
def quiet(on: bool = True) -> Iterator[None]:
    """Within, where ``on``, no bar is shown."""
    before = _quiet.set(on)
    try:
        yield
    finally:
        _quiet.reset(before)


def beside_bars() -> AbstractContextManager[None]:
    """Within, lines on the console go above progress bars; without a handler nothing is printed.

    tqdm's own redirection adds one to a logger that has none for the console.
    """
    console = any(
        isinstance(one, logging.StreamHandler) and one.stream in (sys.stdout, sys.stderr)
        for one in logging.getLogger().handlers
    )
    return logging_redirect_tqdm() if console else nullcontext()
