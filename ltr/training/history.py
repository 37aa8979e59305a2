"""What is recorded after every epoch: ``history.csv`` and the same as TensorBoard scalars."""

import io
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from ltr.data.dataset import SPLITS
from ltr.errors import OutputError
from ltr.whole import write_csv

Row = Mapping[str, float]


def write_history(path: Path, rows: Sequence[Row]) -> None:
    """Write all ``rows`` as CSV, atomically, so that the file is whole whenever it is read."""
    names = list(dict.fromkeys(name for row in reversed(rows) for name in row))
    write_csv(path, rows, names)


class Scalars:
    """TensorBoard scalars of a run, by epoch; ``tensorboard --logdir outputs`` shows them.

    Written here record by record: TensorBoard's own writer names its file by the host.
    """

    def __init__(self, folder: Path, *, after_epoch: int) -> None:
        """Write events to ``folder``; what a run that is resumed wrote beyond is purged."""
        self._folder, self._after = folder, after_epoch
        self._file: BinaryIO | None = None

    def add(self, row: Row) -> None:
        """Write one row of the history.

        Raises:
            OutputError: the disk is full, or the folder cannot be written.
        """
        # slow to import
        from tensorboard.compat.proto import event_pb2, summary_pb2  # type: ignore[import-untyped]
        from tensorboard.summary.writer import record_writer  # type: ignore[import-untyped]

        Event, Summary = event_pb2.Event, summary_pb2.Summary
        epoch, now = int(row["epoch"]), time.time()
        events = []
        if self._file is None:
            start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
            events = [
                Event(wall_time=now, file_version="brain.Event:2"),
                Event(wall_time=now, step=self._after + 1, session_log=start),
            ]
        for name, value in row.items():
            if name != "epoch":
                split, _, metric = name.partition("_")
                tag = f"{split}/{metric}" if split in SPLITS else name
                summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
                events.append(Event(wall_time=now, step=epoch, summary=summary))
        records = io.BytesIO()
        for event in events:
            record_writer.RecordWriter(records).write(event.SerializeToString())
        try:
            if self._file is None:
                path = self._folder / f"events.out.tfevents.{time.time_ns()}"
                self._file = path.open("xb", buffering=0)
            self._file.write(records.getbuffer())
        except OSError as error:
            raise OutputError(
                f"the events for TensorBoard in {self._folder} cannot be written "
                f"({error.strerror or error}): free some space; history.csv has the same figures"
            ) from error

    def close(self) -> None:
        """Close the event file."""
        if self._file is not None:
            self._file.close()
