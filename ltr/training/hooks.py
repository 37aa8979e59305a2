"""Hooks, which follow a run without changing its results; TensorBoard logs; progress bars."""

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
_LINE_SECONDS = 60.0  # the least time between two log lines of progress bars


class Hook:
    """Base class of objects that follow a run; its methods do nothing.

    If several processes train together, only the first one calls ``epoch`` and ``replay``. An
    exception in a hook ends the run. So a hook must catch its own errors, unless they are meant to
    end the run, as in a hook that stops a bad trial of a search (pruning).
    """

    def start(self, experiment: Any, lists: Mapping[str, Any], scorer: Any) -> None:
        """React to a run that is about to begin or to be resumed.

        Args:
            experiment: the ``ltr.experiment.build.Experiment``; ``experiment.record`` has its
                config.
            lists: the lists of each split.
            scorer: the ``Scorer`` that is about to be trained.
        """

    def epoch(self, row: Row) -> None:
        """React to an epoch after its row of the history and its checkpoint have been saved.

        Epoch 0 is the untrained model.
        """

    def replay(self, row: Row) -> None:
        """React to the row of an epoch that was trained before the run was resumed."""
        self.epoch(row)

    def end(self, ending: Ending, report: Any) -> None:
        """React to the end of the run; ``report`` is None unless ``ending`` is ``"finished"``."""


class OnEpoch(Hook):
    """Calls a function with the number of each epoch and its row of the history.

    If a run is resumed, the function is also called for its earlier epochs.
    """

    def __init__(self, call: Callable[[int, Row], None]) -> None:
        self._call = call

    def epoch(self, row: Row) -> None:
        self._call(int(row["epoch"]), row)


class TensorBoard(Hook):
    """Writes the scalars of each epoch into the run folder for ``tensorboard --logdir outputs``.

    If the file cannot be written, training continues. TensorBoard's own writer is not used, because
    it would put the name of the machine into the name of the file.
    """

    def __init__(self, folder: Path) -> None:
        self._file = folder / f"events.out.tfevents.{time.time():.6f}.{os.getpid()}"
        self._lost = False

    def replay(self, row: Row) -> None:
        """Do nothing, because an earlier file has this row."""

    def epoch(self, row: Row) -> None:
        if self._lost:
            return
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # slow to import
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        timestamp = time.time()
        step = int(row["epoch"])
        values = [
            Summary.Value(tag=re.sub("^(train|vali)_", r"\1/", name), simple_value=value)
            for name, value in row.items()
            if name != "epoch"
        ]
        events = [Event(wall_time=timestamp, step=step, summary=Summary(value=values))]
        if not self._file.exists():  # START discards this step and later steps of other files
            start = SessionLog(status=SessionLog.START)
            head = Event(wall_time=timestamp, file_version="brain.Event:2")
            events = [head, Event(wall_time=timestamp, step=step, session_log=start), *events]
        records = io.BytesIO()
        for event in events:
            RecordWriter(records).write(event.SerializeToString())
        try:
            with self._file.open("ab") as file:
                file.write(records.getvalue())
        except OSError as error:
            self._lost = True
            log.warning(
                "TensorBoard's scalars cannot be written (%s): training continues without them; "
                "history.csv has the same values",
                error.strerror,
            )


class TimeLeft(Hook):
    """Adds the remaining time of the run to the progress bar of an epoch.

    It assumes that each remaining epoch takes the mean time of this process's earlier epochs. The
    run may end earlier because of ``patience``.
    """

    def start(self, experiment: Any, lists: Mapping[str, Any], scorer: Any) -> None:
        self._epochs = experiment.settings.epochs
        self._first = 0.0
        self._done = 0.0
        self._began = time.monotonic()
        _run.set(self)

    def replay(self, row: Row) -> None:
        self._first = self._done = row["epoch"]

    def epoch(self, row: Row) -> None:
        self._done = row["epoch"]

    def end(self, ending: Ending, report: Any) -> None:
        _run.set(None)

    def text(self, first_fraction: float, fraction: float) -> str:
        """Return the remaining time of the run, for the progress bar of an epoch.

        ``fraction`` of the epoch is done, of which an earlier process did ``first_fraction``.
        """
        epoch_seconds = (time.monotonic() - self._began) / (
            self._done - self._first + fraction - first_fraction
        )
        seconds_left = epoch_seconds * (self._epochs - self._done - fraction)
        return f"run {tqdm.format_interval(seconds_left)} left"


_run: ContextVar[TimeLeft | None] = ContextVar("run", default=None)


class _Bar(tqdm):
    """A progress bar with the run's remaining time; without a terminal, it logs lines instead."""

    logged = time.monotonic()  # the time of the last line of any bar

    @property
    def format_dict(self) -> Any:
        values = super().format_dict
        run = _run.get()
        total = self.total or 1
        if run and self.unit == "step" and self.n > self.initial:
            left = run.text(self.initial / total, self.n / total)
            values["postfix"] = ", ".join(filter(None, [values["postfix"], left]))
        return values

    def display(self, *args: Any, **options: Any) -> None:
        """Show the bar; without a terminal, log a line once a minute instead."""
        if _on_terminal():
            super().display(*args, **options)
        elif 0 < self.n < (self.total or 0) and time.monotonic() - _Bar.logged > _LINE_SECONDS:
            _Bar.logged = time.monotonic()
            line = "{desc}: {n} of {total}, {remaining} left{postfix}"
            log.info("%s", self.format_meter(**{**self.format_dict, "bar_format": line}))


def progress_bar(**options: Any) -> tqdm:
    """Return a tqdm bar that disappears at its end.

    Without a terminal, the bar logs a line at most once a minute instead. ``quiet`` suppresses the
    bar and the lines. With ``unit="step"`` (one epoch of training), the bar
    also shows the remaining time of the run.
    """
    if not _on_terminal():
        options |= {"miniters": 1, "mininterval": 1.0}  # otherwise tqdm would skip updates
    hidden = _quiet.get() or sys.stderr is None
    return _Bar(leave=False, disable=hidden, **options)


def _on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()  # None: a program without a console


@contextmanager
def quiet(enabled: bool = True) -> Iterator[None]:
    """Context in which, if ``enabled``, no progress bar is shown and none logs a line."""
    token = _quiet.set(enabled or _quiet.get())
    try:
        yield
    finally:
        _quiet.reset(token)


def beside_bars() -> AbstractContextManager[None]:
    """Return a context in which log lines on the console are printed above progress bars.

    Unlike tqdm's own redirection, the context adds no log handler if none writes to the console.
    """
    console = any(
        isinstance(handler, logging.StreamHandler) and handler.stream in (sys.stdout, sys.stderr)
        for handler in logging.getLogger().handlers
    )
    return logging_redirect_tqdm() if console else nullcontext()
