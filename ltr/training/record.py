"""Record a run while it trains: its progress, history, best and last weights."""

import io
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tqdm.contrib.logging import logging_redirect_tqdm

from ltr.atomic import write_csv
from ltr.data.batches import ItemTensors
from ltr.data.lists import SPLITS
from ltr.errors import TrainingError
from ltr.metrics import Convention, Metric
from ltr.metrics.crossfit import HALVINGS, Crossfit, Halves, crossfit_of_halves
from ltr.training.checkpoint import save_checkpoint
from ltr.training.evaluation import means, metrics_of_scores
from ltr.training.interruption import Interruption
from ltr.training.processes import by_first
from ltr.training.settings import Settings

log = logging.getLogger(__name__)

Row = Mapping[str, float]
AfterEpoch = Callable[[int, Row], None]


@dataclass
class Progress:
    """How far a run has come; saved with every checkpoint. An epoch of trees is a round.

    ``loss``, ``lists``, ``grad_norm`` and ``seconds`` are sums over the steps of the current epoch,
    so that an epoch which a resume cuts in two is recorded like any other.
    """

    epoch: int = 0  # epochs finished
    step: int = 0  # steps finished in the current epoch
    best_epoch: int | None = None
    best_value: float = -math.inf  # of select_on
    wall_seconds: float = 0.0  # of training and its evaluations, over all resumes
    loss: float = 0.0
    lists: float = 0.0  # what the lists weigh that counted in the loss; without weights how many
    grad_norm: float = 0.0
    seconds: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)


class Record:
    """Keeps ``best.pt``, ``last.pt``, ``history.csv`` and TensorBoard's events in ``folder``.

    Of processes that train together each has a record, and the first alone writes and tells.

    Attributes:
        best: the checkpoint of the epoch with the best ``select_on`` on vali.
        last: the checkpoint from which a run is resumed.
        convention: of the metrics.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        metrics: Sequence[Metric],
        convention: Convention,
        folder: Path,
        kept: Mapping[str, Any],
        after_epoch: AfterEpoch | None = None,
    ) -> None:
        """Begin the record of a run of which nothing is trained yet.

        Args:
            settings, metrics, convention, folder: of the run.
            kept: stored in every checkpoint unchanged: the config and the transform.
            after_epoch: called with each epoch, 0 for the untrained model, and its row of the
                history, once both are saved; an exception it raises ends ``fit``. After a resume
                it is called with the earlier epochs first.
        """
        self.settings, self.progress = settings, Progress()
        self.best, self.last = folder / "best.pt", folder / "last.pt"
        self._metrics, self.convention = metrics, convention
        self._folder, self._kept = folder, kept
        self._after_epoch = after_epoch or (lambda epoch, row: None)
        self._halves: Halves | None = None
        self._measured = np.empty((HALVINGS, 2))  # the halves of vali in the row to be added
        self._half_means: list[NDArray[np.float64]] = []  # of every row of the history

    def restart(self) -> None:
        """Forget the epochs, but for the time that they took."""
        self.progress = Progress(wall_seconds=self.progress.wall_seconds)
        self._half_means = []

    def resume(self, content: Mapping[str, Any]) -> None:
        """Take the progress from the content of ``last.pt``.

        Raises:
            ValueError, TypeError, AttributeError: it does not fit; see ``fitting``.
        """
        self.progress = Progress(**content["progress"])
        shape = (len(self.progress.history), HALVINGS, 2)
        means = content["half_means"].cpu().numpy()
        if means.shape != shape or means.dtype != np.float64:
            raise ValueError("half_means: not those of the history")
        self._half_means = list(means)

    @property
    def crossfit(self) -> Crossfit | None:
        """What the choice of the best epoch is worth on vali; None: nothing was chosen."""
        if self.settings.select == "last" or not self.settings.epochs:
            return None
        means = np.array(self._half_means[1:])  # the untrained model is no choice
        return crossfit_of_halves(means)

    @contextmanager
    def open(self) -> Iterator[Interruption]:
        """Within, the clock runs, rows can be published and a signal only sets ``signum``."""
        done = self.progress
        self._clock = time.perf_counter()
        self._scalars = Scalars(self._folder, after_epoch=done.epoch if done.history else -1)
        with _beside_bars(), Interruption() as interruption:
            try:
                yield interruption
            finally:
                self._scalars.close()

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that are evaluated after every epoch."""
        return tuple(dict.fromkeys((*self.settings.monitor, "vali")))

    @property
    def over(self) -> bool:
        """Whether the run is finished: all epochs done, or patience spent."""
        patience, done = self.settings.patience, self.progress
        stalled = patience is not None and done.epoch - (done.best_epoch or 0) >= patience
        return bool(done.history) and (done.epoch >= self.settings.epochs or stalled)

    def measured(
        self, split: str, data: ItemTensors, scores: Tensor | NDArray[np.floating]
    ) -> dict[str, float]:
        """The columns of ``split`` in a row: the mean of every metric over its lists.

        Of vali the means of ``select_on`` over the halves are kept too, for ``crossfit``.
        """
        items = self.settings.evaluation_items
        values = metrics_of_scores(data, scores, self._metrics, self.convention, items=items)
        if split == "vali":
            selected = values[self.settings.select_on]
            self._halves = self._halves or Halves.of(~np.isnan(selected))
            self._measured = self._halves.means(selected)
        return {f"{split}_{name}": mean for name, mean in means(values, self.convention).items()}

    def add(self, row: dict[str, float]) -> bool:
        """Append ``row`` to the history; return whether it is the best so far.

        Raises:
            TrainingError: no list of vali counts.
        """
        done, select_on = self.progress, self.settings.select_on
        column = f"vali_{select_on}"
        if math.isnan(row[column]):
            raise TrainingError(
                f"{select_on} of vali is not a number: no list of vali counts under this "
                "convention; set convention.empty to a number"
            )
        done.history.append(row)
        self._half_means.append(self._measured)
        # The untrained model is the best only where no epoch follows: the first replaces it.
        counts = len(done.history) > 1 or not self.settings.epochs
        better = counts and (not done.best_epoch or row[column] > done.best_value)
        if better:
            done.best_value, done.best_epoch = row[column], done.epoch
        return better

    @by_first
    def save(self, path: Path, state: Mapping[str, Any]) -> None:
        """Write the checkpoint ``path``: ``state``, the progress and ``kept``."""
        now = time.perf_counter()
        self.progress.wall_seconds += now - self._clock
        self._clock = now
        content = {**state, "progress": vars(self.progress), **self._kept}
        if path == self.last:
            content["half_means"] = torch.from_numpy(
                np.array(self._half_means).reshape(-1, HALVINGS, 2)
            )
        save_checkpoint(path, content)

    @by_first
    def write(self) -> None:
        """Write ``history.csv``; its columns are those of the last row first."""
        rows = self.progress.history
        names = list(dict.fromkeys(name for row in reversed(rows) for name in row))
        write_csv(self._folder / "history.csv", rows, names)

    @by_first
    def publish(self, row: Row, line: str | None) -> None:
        """Send a saved row to TensorBoard, to the log as ``line`` and to ``after_epoch``."""
        self._scalars.add(row)
        if line is not None:
            log.info("%s", line)
        self._after_epoch(int(row["epoch"]), row)

    @by_first
    def tell_again(self) -> None:
        """Write and tell the epochs before a resume; a kill may have left the file behind."""
        if self.progress.history:
            self.write()
        for row in self.progress.history:
            self._after_epoch(int(row["epoch"]), row)


def sentence(row: Row, epochs: int, *, unit: str = "epoch") -> str:
    """The line of the log for a row; ``unit`` is what the model calls an epoch."""
    parts = [f"{unit} {int(row['epoch'])}/{epochs}"]
    if "loss" in row:
        parts.append(f"loss {row['loss']:.4f}")
    parts += [f"{k.replace('_', ' ')} {v:.4f}" for k, v in row.items() if "@" in k or "dcg" in k]
    if "lists_per_second" in row:
        parts.append(f"{row['lists_per_second']:,.0f} lists/s")
    return "  ".join(parts)


class Scalars:
    """TensorBoard scalars of a run, by epoch; ``tensorboard --logdir outputs`` shows them.

    They are a copy of the history: training goes on where they cannot be written.
    """

    def __init__(self, folder: Path, *, after_epoch: int) -> None:
        """Write events to ``folder``; TensorBoard drops earlier ones beyond ``after_epoch``."""
        self._folder, self._after = folder, after_epoch
        self._file: BinaryIO | None = None
        self._lost = False

    def add(self, row: Row) -> None:
        """Write one row of the history."""
        if self._lost:
            return
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog  # slow to import
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        now, events = time.time(), []
        if self._file is None:
            start = SessionLog(status=SessionLog.START)
            events = [
                Event(wall_time=now, file_version="brain.Event:2"),
                Event(wall_time=now, step=self._after + 1, session_log=start),
            ]
        for name, value in row.items():
            if name != "epoch":
                split, _, metric = name.partition("_")
                tag = f"{split}/{metric}" if split in SPLITS else name
                summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
                events.append(Event(wall_time=now, step=int(row["epoch"]), summary=summary))
        records = io.BytesIO()
        for event in events:
            RecordWriter(records).write(event.SerializeToString())
        try:
            self._append(records.getbuffer())
        except OSError as error:
            self._lost = True
            log.warning(
                "TensorBoard's scalars cannot be written (%s): training goes on without them, "
                "history.csv has them too",
                error.strerror,
            )

    def _append(self, records: memoryview) -> None:
        """Append all of ``records``, or nothing."""
        if self._file is None:
            name = f"events.out.tfevents.{time.time():.6f}.{os.getpid()}"
            self._file = (self._folder / name).open("xb", buffering=0)
        before = self._file.tell()
        try:
            _write_all(self._file, records)
        except BaseException:
            self._file.truncate(before)
            raise

    def close(self) -> None:
        """Close the event file."""
        if self._file is not None:
            self._file.close()


def _write_all(file: BinaryIO, content: memoryview) -> None:
    """Write ``content``, part by part where a disk is nearly full."""
    while content:
        content = content[file.write(content) :]


def _beside_bars() -> AbstractContextManager[None]:
    """Within, lines on the console go above progress bars; no console handler: nothing is printed.

    tqdm's own redirection adds a handler to a logger that has none for the console.
    """
    handlers = logging.getLogger().handlers
    console = any(
        isinstance(one, logging.StreamHandler) and one.stream in (sys.stdout, sys.stderr)
        for one in handlers
    )
    return logging_redirect_tqdm() if console else nullcontext()
