"""The boosting loop: early stopping, history and checkpoints as the neural trainer has them."""

import logging
import time
from collections.abc import Mapping
from typing import Any

import torch
from tqdm import tqdm

from ltr.data.batches import ItemTensors
from ltr.training.checkpoint import fitting
from ltr.training.evaluation import check_finite
from ltr.training.interruption import Interrupted, Interruption
from ltr.training.record import Progress, Record, sentence
from ltr.trees.boosting import Boosting, Order
from ltr.trees.model import NOT_FINITE, WRONG_TYPE, BoostedTrees
from ltr.trees.objective import LossObjective
from ltr.typing import Loss

log = logging.getLogger(__name__)

_LINES = 20  # of the log, for a whole run
_WRITE_SECONDS = 2.0  # between two versions of history.csv


class TreeTrainer:
    """Boosts ``model``, which ``record`` keeps.

    An epoch is a round: ``epochs`` is the most rounds, ``patience`` how many may pass without a
    better ``select_on`` of vali. Every round sees all lists whole, so ``batch_size`` and
    ``list_size`` do nothing. A run that was cut off begins again when it is resumed, and comes to
    the same trees: the libraries do not keep where their random numbers stand. What it had kept
    stays until it has come as far again.
    """

    def __init__(self, model: BoostedTrees, loss: Loss | None, record: Record) -> None:
        """``loss`` is the objective, None the library's own."""
        self.model, self.loss, self.record = model, loss, record
        self._best_trees = self._last_trees = 0
        self._there = 0  # rounds of the checkpoint that is taken over
        self._objective: LossObjective | None = None

    def fit(self, data: Mapping[str, ItemTensors]) -> Progress:
        """Boost on ``data["train"]``, select on ``data["vali"]``.

        Raises:
            ConfigError, DataError: the library refuses a setting or the lists.
            TrainingError: the loss, its gradient or a score is not finite; the rounds before it
                are saved.
            Interrupted: SIGINT or SIGTERM came; the trees so far are saved.
        """
        record, settings = self.record, self.record.settings
        if record.over:
            record.tell_again()
            return record.progress
        self.model.check_lists()
        self._there = record.progress.epoch
        record.progress = Progress(wall_seconds=record.progress.wall_seconds)
        with record.open() as interruption:
            started = time.perf_counter()
            if self.loss is not None:
                self._objective = LossObjective(
                    self.loss,
                    data["train"],
                    empty=settings.empty_lists,
                    items=settings.evaluation_items,
                    seed=settings.seed,
                )
            order = Order(
                data={split: data[split] for split in dict.fromkeys(("train", *record.splits))},
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
                    self._go_on(boosting, data, interruption, started)
            finally:
                if record.progress.history:
                    record.write()
        return record.progress

    def _go_on(
        self,
        boosting: Boosting,
        data: Mapping[str, ItemTensors],
        interruption: Interruption,
        started: float,
    ) -> None:
        record, done, settings = self.record, self.record.progress, self.record.settings
        saved = written = 0.0  # long ago
        with tqdm(total=settings.epochs, desc="rounds", leave=False, disable=None) as bar:
            while True:
                try:
                    if done.history:  # round 0 is the start
                        started = time.perf_counter()
                        boosting.round()
                        done.epoch += 1
                        bar.update()
                    row = self._row(boosting, data, time.perf_counter() - started)
                    better = record.add(row)
                except Exception:
                    self._keep_good_rounds(boosting)
                    raise
                self._last_trees = boosting.trees
                if better:
                    self._best_trees = boosting.trees
                now = time.perf_counter()
                ends = record.over or interruption.signum is not None
                if ends or not saved or now - saved > 60 * settings.checkpoint_minutes > 0:
                    self._keep(boosting)
                    saved = now
                if ends or now - written > _WRITE_SECONDS:
                    record.write()
                    written = now
                told = ends or done.epoch % max(1, settings.epochs // _LINES) == 0
                record.publish(row, sentence(row, settings.epochs, unit="round") if told else None)
                if interruption.signum is not None:
                    if done.epoch < self._there:
                        log.info(
                            "the %d rounds kept before stay; give epochs=%d again to go on",
                            self._there, settings.epochs,
                        )  # fmt: skip
                    raise Interrupted(interruption.signum)
                if ends:
                    return

    def _row(
        self, boosting: Boosting, data: Mapping[str, ItemTensors], seconds: float
    ) -> dict[str, float]:
        """What the history says of a round; ``loss`` is what the round started from."""
        row: dict[str, float] = {"epoch": self.record.progress.epoch}
        if self._objective is not None and self.record.progress.epoch:
            row["loss"] = self._objective.value
        for split in self.record.splits:
            scores = torch.tensor(boosting.scores(split))
            check_finite(scores, data[split], whose="trees'", remedy=NOT_FINITE)
            row |= self.record.measured(split, data[split], scores)
        row["trees"] = boosting.trees
        row["seconds"] = seconds
        return row

    def _keep(self, boosting: Boosting) -> None:
        """Write ``last.pt`` and, once there is a best round, ``best.pt``.

        A checkpoint of more rounds, which this fit comes to as well, is left as it is.
        """
        record = self.record
        if record.progress.epoch < self._there and not record.over:
            return
        for path, trees in ((record.best, self._best_trees), (record.last, self._last_trees)):
            if path == record.best and record.progress.best_epoch is None:
                continue
            self.model.grown(boosting.content(trees) if trees else b"")
            record.save(path, {"model": self.model.state_dict()})

    def _keep_good_rounds(self, boosting: Boosting) -> None:
        """Where a round broke down, keep those before it, if one of them is the best."""
        done = self.record.progress
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
        with fitting(self.record.last):
            self.record.progress = Progress(**content["progress"])
            if self.record.over:
                self.model.load_state_dict(content["model"])
                return
        log.info("not finished: boosting begins again, and comes to the same trees")
