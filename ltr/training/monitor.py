"""``Monitor``, the state of a run: its history, selection, patience and checkpoints."""

import logging
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ltr.arrays import Doubles, Reals
from ltr.atomic import write_csv
from ltr.data.batches import ItemTensors
from ltr.errors import TrainingError
from ltr.metrics import Convention, Metric
from ltr.metrics.crossfit import HALVINGS, Crossfit, Halves, crossfit_of_halves
from ltr.metrics.ties import TiesAveraged
from ltr.training.checkpoint import HALVES, read_half_choices, save_checkpoint
from ltr.training.distributed import is_main
from ltr.training.evaluation import means, metrics_of_scores
from ltr.training.hooks import Hook, Row, beside_bars
from ltr.training.interruption import Interruption
from ltr.training.settings import Settings

log = logging.getLogger(__name__)

TIES_AVERAGED = "ties_averaged"  # column of the history, see ``value_that_chooses``


@dataclass
class Progress:
    """The progress of a run, which is saved with every checkpoint.

    For a model that is fitted in rounds, such as boosted trees, an epoch is a round. ``loss``,
    ``lists``, ``grad_norm`` and ``seconds`` are sums over the steps of the current epoch. So an
    epoch that was interrupted and resumed is recorded like any other.
    """

    epoch: int = 0  # number of finished epochs
    step: int = 0  # number of finished steps in the current epoch
    best_epoch: int | None = None
    best_value: float = -math.inf  # the value of select_on in the best epoch, with ties averaged
    wall_seconds: float = 0.0  # time for training and its evaluations, before and after resumes
    loss: float = 0.0
    lists: float = 0.0  # total weight of the lists in the loss; without weights, their number
    grad_norm: float = 0.0
    seconds: float = 0.0
    history: list[dict[str, float]] = field(default_factory=list)

    def reset_epoch(self) -> None:
        """Reset the sums over the steps of an epoch to 0."""
        self.loss = 0.0
        self.lists = 0.0
        self.grad_norm = 0.0
        self.seconds = 0.0


class Monitor:
    """Writes ``best.pt``, ``last.pt`` and ``history.csv`` into ``folder``, and calls the hooks.

    If several processes train together, each has a monitor, but only the first one writes files and
    calls hooks.

    Attributes:
        best: the path of the checkpoint of the epoch with the best ``select_on`` on the validation
            lists.
        last: the path of the checkpoint from which a run is resumed.
        convention: the convention of the metrics.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        metrics: Sequence[Metric],
        convention: Convention,
        folder: Path,
        state: Mapping[str, Any],
        hooks: Sequence[Hook] = (),
    ) -> None:
        """Begin at epoch 0.

        ``state`` is stored in every checkpoint; for example, it has the config and the transform.
        """
        self.settings = settings
        self.progress = Progress()
        self.best = folder / "best.pt"
        self.last = folder / "last.pt"
        self.convention = convention
        self._metrics = metrics
        selection_metric = next(metric for metric in metrics if str(metric) == settings.select_on)
        self._chooser = TiesAveraged(selection_metric)
        self._folder = folder
        self._state = state
        self._hooks = hooks
        self._halves: Halves | None = None
        self._measured = np.empty((HALVINGS, 2))  # means of the validation halves, for the next row
        self._scores = torch.empty(0)  # scores of the validation items, for the next row
        self.restart()

    def restart(self) -> None:
        """Forget all epochs; only the time that they took is kept."""
        self.progress = Progress(wall_seconds=self.progress.wall_seconds)
        self._half_means: list[Doubles] = []  # the means of the halves for each row of the history
        self._half_epochs = np.zeros((HALVINGS, 2), dtype=np.int64)  # the best epoch on each half
        self._half_scores: dict[int, Tensor] = {}  # the validation scores in these epochs
        self._keeps_halves = True  # False: an earlier version began the run and kept no scores

    def resume(self, content: Mapping[str, Any]) -> None:
        """Restore the progress from the content of ``last.pt``.

        Call this method within ``checkpoint_errors``.
        """
        self.progress = Progress(**content["progress"])
        self._half_means = list(content["half_means"].cpu().numpy())
        self._keeps_halves = HALVES in content
        if self._keeps_halves:
            self._half_epochs, self._half_scores = read_half_choices(content[HALVES])

    @property
    def chooses(self) -> bool:
        """Whether an epoch is chosen on the validation lists."""
        return self.settings.select == "best" and self.settings.epochs > 0

    @property
    def selected_epoch(self) -> int | None:
        """The epoch whose weights the run keeps, as the setting ``select`` says."""
        is_best = self.settings.select == "best"
        return self.progress.best_epoch if is_best else self.progress.epoch

    def warn_of_no_progress(self) -> None:
        """Log a warning if no epoch of training is as good as epoch 0, the untrained model."""
        select_on = self.settings.select_on
        values = [value_that_chooses(row, select_on) for row in self.progress.history]
        untrained, *trained = values
        if trained and max(trained) < untrained and is_main():
            log.warning(
                "no epoch is as good as the model before training: vali %s is %.4f in epoch 0, and "
                "at best %.4f in later epochs; the weights of epoch %d are kept: lower the "
                "learning rate, or check the loss",
                select_on, untrained, max(trained), self.selected_epoch,
            )  # fmt: skip

    @property
    def crossfit(self) -> Crossfit | None:
        """The estimate of ``select_on`` in the selected epoch, without the bias of the selection.

        The epoch is chosen on one half of the validation lists, and measured on the other half. If
        no epoch is chosen, as with ``select=last``, the estimate is the value on all validation
        lists. If there are too few lists for two halves, the estimate is None.
        """
        if self.chooses:
            # Epoch 0 comes last, so an equally good epoch of training is preferred to it.
            return crossfit_of_halves(np.array([*self._half_means[1:], *self._half_means[:1]]))
        estimate = crossfit_of_halves(np.array(self._half_means[-1:]))
        if estimate is None:
            return None
        value = value_that_chooses(self.progress.history[-1], self.settings.select_on)
        return replace(estimate, value=value)

    @contextmanager
    def open(self) -> Iterator[Interruption]:
        """Context of a training run, which measures its time and writes the history at the end.

        Within it, a stop signal only sets ``signum`` of the ``Interruption`` that it yields.
        """
        self._clock = time.perf_counter()
        with beside_bars(), Interruption() as interruption:
            try:
                yield interruption
            finally:
                self.write()

    @property
    def splits(self) -> tuple[str, ...]:
        """The splits that are evaluated after every epoch."""
        return tuple(dict.fromkeys((*self.settings.monitor, "vali")))

    @property
    def done(self) -> bool:
        """Whether the run is finished: all epochs are done, or ``patience`` has run out."""
        patience = self.settings.patience
        progress = self.progress
        stalled = patience is not None and progress.epoch - (progress.best_epoch or 0) >= patience
        return bool(progress.history) and (progress.epoch >= self.settings.epochs or stalled)

    @property
    def due(self) -> bool:
        """Whether ``checkpoint_minutes`` have passed since the last checkpoint."""
        minutes = self.settings.checkpoint_minutes
        return time.perf_counter() - self._clock > 60 * minutes > 0

    def measure(self, split: str, data: ItemTensors, scores: Tensor | Reals) -> dict[str, float]:
        """Return the entries of ``split`` for a row of the history: the mean of each metric.

        For the validation lists, also compute ``select_on`` with ties averaged. Its mean is stored
        in the row for ``value_that_chooses``, and its means over halves of the lists are kept for
        ``crossfit``.
        """
        metrics: list[Metric | TiesAveraged] = [*self._metrics]
        if split == "vali":
            metrics.append(self._chooser)
        items = self.settings.evaluation_items
        values = metrics_of_scores(data, scores, metrics, self.convention, items=items)
        averages = means(values, self.convention)
        row = {f"{split}_{metric}": averages[str(metric)] for metric in self._metrics}
        if split == "vali":
            selected = values[str(self._chooser)]
            self._halves = self._halves or Halves.split(~np.isnan(selected))
            self._measured = self._halves.means(selected)
            self._scores = torch.as_tensor(scores).float().cpu()
            averaged = averages[str(self._chooser)]
            if averaged != averages[self.settings.select_on]:
                row[TIES_AVERAGED] = averaged
        return row

    def add(self, row: dict[str, float]) -> bool:
        """Append ``row`` to the history; return whether it is the best row so far.

        Raises ``TrainingError`` if the convention skips all validation lists.
        """
        progress = self.progress
        value = value_that_chooses(row, self.settings.select_on)
        if math.isnan(value):
            raise TrainingError(
                f"{self.settings.select_on} has no value on the validation lists: this convention "
                "skips all of them; set convention.empty to a number"
            )
        progress.history.append(row)
        self._half_means.append(self._measured)
        self._choose_on_halves(len(progress.history) - 1)
        # Epoch 0 is a candidate too, but an equally good epoch of training is preferred to it.
        is_better = value > progress.best_value or (
            not progress.best_epoch and value == progress.best_value
        )
        if is_better:
            progress.best_value = value
            progress.best_epoch = progress.epoch
        return is_better

    def _choose_on_halves(self, epoch: int) -> None:
        """Update the best epochs on the halves of the validation lists, and their scores.

        The scores of ``epoch`` are kept if it is the best epoch on a half. Scores of epochs that
        are no longer the best on any half are dropped.
        """
        means = self._half_means
        chosen = self._half_epochs
        best = np.array([means[e][half] for half, e in np.ndenumerate(chosen)]).reshape(-1, 2)
        better = (means[epoch] > best) | ((chosen == 0) & (means[epoch] == best))
        chosen[better | (not self.chooses)] = epoch
        self._half_scores[epoch] = self._scores
        self._half_scores = {e: s for e, s in self._half_scores.items() if e in chosen}

    def save(self, path: Path, state: Mapping[str, Any]) -> None:
        """Write a checkpoint to ``path``.

        The checkpoint has ``state``, the progress, and the entries that all checkpoints have, such
        as the config.
        """
        timestamp = time.perf_counter()
        self.progress.wall_seconds += timestamp - self._clock
        self._clock = timestamp
        if not is_main():
            return
        content = {**state, "progress": vars(self.progress), **self._state}
        if path == self.last:
            halves = np.array(self._half_means).reshape(-1, HALVINGS, 2)
            content["half_means"] = torch.from_numpy(halves)
            if self._keeps_halves:
                halves_of = {
                    "epochs": torch.from_numpy(self._half_epochs),
                    "scores": self._half_scores,
                }
                content[HALVES] = halves_of
        save_checkpoint(path, content)

    def write(self) -> None:
        """Write ``history.csv``; the columns of the last row come first in the file."""
        if is_main() and (rows := self.progress.history):
            names = list(dict.fromkeys(name for row in reversed(rows) for name in row))
            write_csv(self._folder / "history.csv", rows, names)

    def publish(self, row: Row, line: str | None) -> None:
        """Log ``line``, unless it is None, and call the hooks; ``row`` must have been saved."""
        if is_main():
            if line is not None:
                log.info("%s", line)
            for hook in self._hooks:
                hook.epoch(row)

    def replay(self) -> None:
        """Write the history again, and call the hooks with each of its rows.

        The file may be out of date if the process was killed.
        """
        if is_main():
            self.write()
            for row in self.progress.history:
                for hook in self._hooks:
                    hook.replay(row)


def value_that_chooses(row: Row, select_on: str) -> float:
    """Return the value in a row of the history by which epochs are chosen.

    This is ``select_on`` of the validation lists with ties averaged. It has a column of its own if
    it differs from the printed value.
    """
    return row.get(TIES_AVERAGED, row[f"vali_{select_on}"])


def sentence(row: Row, epochs: int) -> str:
    """Return the log line for a row of the history."""
    parts = [f"epoch {int(row['epoch'])}/{epochs}"]
    if "loss" in row:
        parts.append(f"loss {row['loss']:.4f}")
    parts += [f"{k.replace('_', ' ')} {v:.4f}" for k, v in row.items() if "@" in k or "dcg" in k]
    if "lists_per_second" in row:
        parts.append(f"{row['lists_per_second']:,.0f} lists/s")
    return "  ".join(parts)
