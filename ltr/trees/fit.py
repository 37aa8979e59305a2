"""The boosting loop: early stopping, history and checkpoints as the neural trainer has them."""

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm
from tqdm.contrib.logging import logging_redirect_tqdm

from ltr.data.batches import ItemTensors
from ltr.metrics import Convention, Metric
from ltr.training.checkpoint import fitting, save_checkpoint
from ltr.training.history import Scalars, write_history
from ltr.training.interruption import Interrupted, Interruption
from ltr.training.settings import Settings
from ltr.training.trainer import AfterEpoch, Progress, selection_of, sentence
from ltr.trees.model import WRONG_TYPE, BoostedTrees, Boosting, Order
from ltr.trees.objective import LossObjective
from ltr.trees.padded import Watched
from ltr.typing import Loss

log = logging.getLogger(__name__)

_LINES = 20  # of the log, for a whole run
_WRITE_SECONDS = 2.0  # between two versions of history.csv


class TreeTrainer:
    """Boosts ``model`` and keeps ``best.pt``, ``last.pt`` and the history in ``folder``.

    An epoch is a round: ``epochs`` is the most rounds, ``patience`` how many may pass without a
    better ``select_on`` of vali. Every round sees all lists whole, so ``batch_size`` and
    ``list_size`` do nothing. A run that was cut off begins again when it is resumed, and comes to
    the same trees: the libraries do not keep where their random numbers stand. What it had kept
    stays until it has come as far again.
    """

    def __init__(
        self,
        model: BoostedTrees,
        loss: Loss | None,
        settings: Settings,
        *,
        metrics: Sequence[Metric],
        convention: Convention,
        folder: Path,
        kept: Mapping[str, Any],
        after_epoch: AfterEpoch | None = None,
    ) -> None:
        """``loss`` is the objective, None the library's own; ``kept`` goes into checkpoints.

        ``after_epoch`` is called with every round as ``Trainer`` calls it with every epoch; what it
        raises ends ``fit``.
        """
        self.model, self.loss, self.settings = model, loss, settings
        self.metrics, self.convention = metrics, convention
        self.folder, self.kept, self.after_epoch = folder, kept, after_epoch
        self.progress = Progress()
        self._clock = time.perf_counter()
        self._best_trees = self._last_trees = 0
        self._there = 0  # rounds of the checkpoint that is taken over
        self._watched: dict[str, Watched] = {}
        self._objective: LossObjective | None = None

    @property
    def best(self) -> Path:
        """The checkpoint of the round with the best ``select_on``."""
        return self.folder / "best.pt"

    @property
    def last(self) -> Path:
        """The checkpoint of the last round."""
        return self.folder / "last.pt"

    def fit(self, data: Mapping[str, ItemTensors]) -> Progress:
        """Boost on ``data["train"]``, select on ``data["vali"]``.

        Raises:
            ConfigError, DataError: the library refuses a setting or the lists.
            TrainingError: the loss, its gradient or a score is not finite; the rounds before it
                are saved.
            Interrupted: SIGINT or SIGTERM came; the trees so far are saved.
        """
        if self._over():
            write_history(self.folder / "history.csv", self.progress.history)
            for row in self.progress.history:
                self._tell(row)
            return self.progress
        settings = self.settings
        self.model.check_lists()
        self._there = self.progress.epoch
        self.progress = Progress(wall_seconds=self.progress.wall_seconds)
        self._clock = started = time.perf_counter()
        self._watched = {
            split: Watched(
                data[split], self.metrics, self.convention, items=settings.evaluation_items
            )
            for split in dict.fromkeys((*settings.monitor, "vali"))
        }
        if self.loss is not None:
            self._objective = LossObjective(
                self.loss,
                data["train"],
                empty=settings.empty_lists,
                items=settings.evaluation_items,
                seed=settings.seed,
            )
        scalars = Scalars(self.folder, after_epoch=-1)
        with logging_redirect_tqdm(), Interruption() as interruption:
            order = Order(
                data={split: data[split] for split in dict.fromkeys(("train", *self._watched))},
                derivatives=self._objective,
                rounds=settings.epochs,
                seed=settings.seed,
                threads=torch.get_num_threads(),
                device=data["train"].device.type,
                stop=lambda: interruption.signum is not None,
            )
            try:
                with self.model.complaints(*WRONG_TYPE):
                    boosting = self.model.boost(order)
                with self.model.complaints():
                    self._go_on(boosting, scalars, interruption, started)
            finally:
                if self.progress.history:
                    write_history(self.folder / "history.csv", self.progress.history)
                scalars.close()
        return self.progress

    def _go_on(
        self, boosting: Boosting, scalars: Scalars, interruption: Interruption, started: float
    ) -> None:
        done, settings = self.progress, self.settings
        saved = written = 0.0  # long ago
        with tqdm(total=settings.epochs, desc="rounds", leave=False, disable=None) as bar:
            while True:
                try:
                    if done.history:  # round 0 is the start
                        started = time.perf_counter()
                        boosting.round()
                        done.epoch += 1
                        bar.update()
                    row = self._row(boosting, time.perf_counter() - started)
                    self._judge(row, boosting)
                except Exception:
                    self._keep_good_rounds(boosting)
                    raise
                now = time.perf_counter()
                ends = self._over() or interruption.signum is not None
                if ends or not saved or now - saved > 60 * settings.checkpoint_minutes > 0:
                    self._keep(boosting)
                    saved = now
                if ends or now - written > _WRITE_SECONDS:
                    write_history(self.folder / "history.csv", done.history)
                    written = now
                scalars.add(row)
                if ends or done.epoch % max(1, settings.epochs // _LINES) == 0:
                    log.info("%s", sentence(row, settings.epochs, unit="round"))
                self._tell(row)
                if interruption.signum is not None:
                    if done.epoch < self._there:
                        log.info(
                            "the %d rounds kept before stay; give epochs=%d again to go on",
                            self._there, settings.epochs,
                        )  # fmt: skip
                    raise Interrupted(interruption.signum)
                if ends:
                    return

    def _tell(self, row: Mapping[str, float]) -> None:
        if self.after_epoch is not None:
            self.after_epoch(int(row["epoch"]), row)

    def _row(self, boosting: Boosting, seconds: float) -> dict[str, float]:
        """What the history says of a round; ``loss`` is what the round started from."""
        row: dict[str, float] = {"epoch": self.progress.epoch}
        if self._objective is not None and self.progress.epoch:
            row["loss"] = self._objective.value
        for split, lists in self._watched.items():
            values = lists.means(boosting.scores(split))
            row |= {f"{split}_{name}": mean for name, mean in values.items()}
        row["trees"] = boosting.trees
        row["seconds"] = seconds
        return row

    def _judge(self, row: dict[str, float], boosting: Boosting) -> None:
        done = self.progress
        selected = selection_of(row, self.settings.select_on)
        done.history.append(row)
        self._last_trees = boosting.trees
        # As for a network, no round at all counts as the best only where it is all there is.
        if selected > done.best_value and (done.epoch > 0 or self.settings.epochs == 0):
            done.best_value, done.best_epoch = selected, done.epoch
            self._best_trees = boosting.trees

    def _over(self) -> bool:
        """Whether no round is left to do."""
        patience, done = self.settings.patience, self.progress
        stalled = patience is not None and done.epoch - (done.best_epoch or 0) >= patience
        return bool(done.history) and (done.epoch >= self.settings.epochs or stalled)

    def _keep(self, boosting: Boosting) -> None:
        """Write ``last.pt`` and, once there is a best round, ``best.pt``.

        A checkpoint of more rounds, which this fit comes to as well, is left as it is.
        """
        if self.progress.epoch < self._there and not self._over():
            return
        now = time.perf_counter()
        self.progress.wall_seconds += now - self._clock
        self._clock = now
        for path, trees in ((self.best, self._best_trees), (self.last, self._last_trees)):
            if path == self.best and self.progress.best_epoch is None:
                continue
            self.model.grown(boosting.content(trees) if trees else b"")
            content = {"model": self.model.state_dict(), "progress": vars(self.progress)}
            save_checkpoint(path, content | dict(self.kept))

    def _keep_good_rounds(self, boosting: Boosting) -> None:
        """Where a round broke down, keep those before it, if one of them is the best."""
        done = self.progress
        if done.best_epoch is not None:
            done.epoch = int(done.history[-1]["epoch"])
            self._keep(boosting)

    def resume(self, content: Mapping[str, Any]) -> None:
        """Take over a run that is finished; any other begins again in ``fit``.

        Args:
            content: of ``last.pt``, as ``load_checkpoint`` gives it.

        Raises:
            CheckpointError: it does not fit.
        """
        with fitting(self.last):
            self.progress = Progress(**content["progress"])
        if self._over():
            with fitting(self.last):
                self.model.load_state_dict(content["model"])
        else:
            log.info("not finished: boosting begins again, and comes to the same trees")
