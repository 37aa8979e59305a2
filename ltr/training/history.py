"""What is recorded after every epoch: ``history.csv`` and the same as TensorBoard scalars."""

import io
import logging
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from ltr.data.lists import SPLITS
from ltr.whole import write_csv

log = logging.getLogger(__name__)

Row = Mapping[str, float]


def write_history(path: Path, rows: Sequence[Row]) -> None:
    """Write all ``rows`` as CSV, atomically, so that the file is whole whenever it is read."""
    names = list(dict.fromkeys(name for row in reversed(rows) for name in row))
    write_csv(path, rows, names)


class Scalars:
    """TensorBoard scalars of a run, by epoch; ``tensorboard --logdir outputs`` shows them.

    They are a copy of the history: where they cannot be written, training goes on without them.
    """

    def __init__(self, folder: Path, *, after_epoch: int) -> None:
        """Write events to ``folder``; what a run that is resumed wrote beyond is purged."""
        self._folder, self._after = folder, after_epoch
        self._file: BinaryIO | None = None
        self._lost = False

    def add(self, row: Row) -> None:
        """Write one row of the history."""
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # slow to import
        from tensorboard.compat.proto.summary_pb2 import Summary

        epoch, events, now = int(row["epoch"]), [], time.time()
        if self._file is None:
            events = [
                Event(wall_time=now, file_version="brain.Event:2"),
                Event(
                    wall_time=now,
                    step=self._after + 1,
                    session_log=SessionLog(status=SessionLog.START),
                ),
            ]
        for name, value in row.items():
            if name != "epoch":
                split, _, metric = name.partition("_")
                tag = f"{split}/{metric}" if split in SPLITS else name
                summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
                events.append(Event(wall_time=now, step=epoch, summary=summary))
        if not self._lost:
            try:
                self._write([event.SerializeToString() for event in events])
            except OSError as error:
                self._lost = True
                log.warning(
                    "TensorBoard's scalars cannot be written (%s): training goes on without them, "
                    "history.csv has them too",
                    error.strerror,
                )

    def _write(self, events: Sequence[bytes]) -> None:
        """Append all of ``events``, or nothing."""
        from tensorboard.summary.writer.record_writer import RecordWriter

        if self._file is None:
            name = f"events.out.tfevents.{time.time():.6f}.{os.getpid()}"
            self._file = (self._folder / name).open("xb", buffering=0)
        before, records = self._file.tell(), io.BytesIO()
        for event in events:
            RecordWriter(records).write(event)
        try:
            _write_all(self._file, records.getbuffer())
        except BaseException:
            self._file.truncate(before)
            raise

    def close(self) -> None:
        """Close the event file."""
        if self._file is not None:
            self._file.close()


def _write_all(file: BinaryIO, content: memoryview) -> None:
    """A write to a disk that is nearly full may take a part only."""
    while content:
        content = content[file.write(content) :]
